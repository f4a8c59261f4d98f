// The dim grammar of rlk/v1/contract.proto.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/registry/signature.h"

namespace rlk::wire {

// Parses "...,2*H,64": a comma-separated list, without spaces, of an integer, a letter,
// INTEGER*LETTER (from 2), a name of two or more of a-z, 0-9 and _ (an attribute, still to be
// linked), or a leading "...". Integers have no sign and no leading zero and are from 1 to
// 2^31 - 1. At most kMaxRank entries. The error is INVALID_ARGUMENT and says what is
// wrong, without naming the field.
absl::StatusOr<DimsPattern> ParseDims(std::string_view text);

}  // namespace rlk::wire
