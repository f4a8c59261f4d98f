// Typed calls of final_logit_softcap: y = softcap * tanh(x / softcap), elementwise.
// kernels/ops/final_logit_softcap/README.md states the arithmetic.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"

namespace rlk::client {

struct FinalLogitSoftcapForwardArgs {
  // F32, F16 or BF16; any shape of rank at most 8, strides allowed; never modified.
  TensorRef x;
  // Rounded to FP32; finite and above 0 after that. Absent: 30.
  std::optional<double> softcap = std::nullopt;
  // F32 or the dtype of x. Absent: F32.
  std::optional<DType> output_dtype = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct FinalLogitSoftcapForwardResult {
  // The shape of x.
  Tensor y;
  Report report;
};

absl::StatusOr<FinalLogitSoftcapForwardResult> FinalLogitSoftcapForward(
    const Client& client, const FinalLogitSoftcapForwardArgs& args);

// grad_x = grad_y * (1 - tanh(x / softcap)^2), recomputed from x.
struct FinalLogitSoftcapBackwardArgs {
  TensorRef x;
  // F32 or the dtype of x; the shape of x.
  TensorRef grad_y;
  std::optional<double> softcap = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct FinalLogitSoftcapBackwardResult {
  // Dtype and shape of x.
  Tensor grad_x;
  Report report;
};

// Both functions give the errors of Client::Call.
absl::StatusOr<FinalLogitSoftcapBackwardResult> FinalLogitSoftcapBackward(
    const Client& client, const FinalLogitSoftcapBackwardArgs& args);

}  // namespace rlk::client
