// What protobuf's parser lets pass and we do not: everything that would be lost or ignored.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"

namespace rlk::wire {

// Checks a serialised message against its type, at every depth: framing, unknown field numbers,
// wire types, groups, singular fields and oneofs given twice, enum values that do not exist,
// integers that would be cut, map keys given twice, text that is not UTF-8, and nesting deeper
// than kNestingMax. Bytes fields (google.protobuf.Any's too) are left alone. What passes, protobuf
// parses, and nothing of it is dropped.
absl::Status ValidateMessage(const google::protobuf::Descriptor& descriptor,
                             std::string_view bytes);

}  // namespace rlk::wire
