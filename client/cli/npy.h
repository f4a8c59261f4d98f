// NumPy's .npy files, format versions 1 to 3.
//
// Types: <f2 <f4 <f8 <i4 <i8 |u1 |b1, and 2-byte elements named "bfloat16", '<V2' or '|V2' as BF16
// (numpy has no name for it and saves it as raw 2-byte elements). Big-endian and structured types
// are refused. Arrays in Fortran order are put into C order while they are read.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"

namespace rlk::cli {

absl::StatusOr<client::Tensor> ReadNpy(const std::string& path);

// Version 1, C order; BF16 as '<V2'.
absl::Status WriteNpy(const std::string& path, const client::Tensor& tensor);

}  // namespace rlk::cli
