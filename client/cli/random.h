// Reproducible input: the same spec gives the same bytes in every client. README.md defines it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"

namespace rlk::cli {

// "random:SHAPE:DTYPE:SEED[:SCALE]", e.g. "random:2x3x257:bf16:7:30", "random:scalar:f32:1".
bool IsRandomSpec(const std::string& text);

// INVALID_ARGUMENT, naming the part at fault and what is allowed.
absl::StatusOr<client::Tensor> MakeRandom(const std::string& spec);

}  // namespace rlk::cli
