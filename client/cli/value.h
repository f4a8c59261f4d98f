// NAME=VALUE of `rlk call`: what a VALUE can be, and how it becomes a tensor or an attribute.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"

namespace rlk::cli {

// "x=random:..." -> {"x", "random:..."}; INVALID_ARGUMENT without a name or an "=".
absl::StatusOr<std::pair<std::string, std::string>> SplitNameValue(const std::string& argument);

// file.npy, file.safetensors#key (the key may be left out where the file has one tensor),
// random:SHAPE:DTYPE:SEED[:SCALE], or a number, which becomes an F32 tensor of rank 0.
absl::StatusOr<client::Tensor> LoadTensor(const std::string& text);

// "handle:HEX" or HEX, as rlk put prints it; "handle:HEX@GENERATION" for that generation alone.
bool IsHandle(const std::string& text);
absl::StatusOr<rlk::v1::TensorHandle> ParseHandle(const std::string& text);
// "handle:HEX".
std::string HandleText(const rlk::v1::TensorHandle& handle);

// By the attribute's kind: a number (also "nan", "inf", "1e-46", "0x1.8p3": the server says what it
// takes), an integer, true or false, a dtype's name, an enumerator's name.
absl::StatusOr<client::Attribute> ParseAttribute(const AttributeSpec& spec,
                                                 const std::string& text);

}  // namespace rlk::cli
