// Typed calls of rms_norm, qwen3_next_rms_norm and rms_norm_gated over the last dimension.
// kernels/ops/rms_norm/README.md states the arithmetic.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"

namespace rlk::client {

// y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight), times activation(gate) where gated.
struct RmsNormForwardArgs {
  // F32, F16 or BF16, [..., H]; strides allowed; never modified.
  TensorRef x;
  // [H], F32 or the dtype of x.
  TensorRef weight;
  // Shape and dtype of x; RmsNormGated only.
  std::optional<TensorRef> gate = std::nullopt;
  // Rounded to FP32; finite and above 0 after that. Absent: 1e-6.
  std::optional<double> eps = std::nullopt;
  // Absent: 0. Not for Qwen3NextRmsNorm, whose offset is 1.
  std::optional<double> weight_offset = std::nullopt;
  // "silu", "swish" or "sigmoid"; RmsNormGated only. Absent: "silu".
  std::optional<std::string> activation = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

// Outputs that the call's options did not want are empty.
struct RmsNormForwardResult {
  std::optional<Tensor> y;
  // F32, [...]; where options.wanted_outputs names it.
  std::optional<Tensor> rstd;
  Report report;
};

struct RmsNormBackwardArgs {
  TensorRef x;
  TensorRef weight;
  std::optional<TensorRef> gate = std::nullopt;
  // F32 or the dtype of x; the shape of x.
  TensorRef grad_y;
  // As the forward returned it. Absent: recomputed, with the same bits.
  std::optional<TensorRef> rstd = std::nullopt;
  // F32, [H]: dweight_acc of the rows before these, and how many they were.
  std::optional<TensorRef> dweight_acc_in = std::nullopt;
  std::optional<int64_t> rows_before = std::nullopt;
  std::optional<double> eps = std::nullopt;
  std::optional<double> weight_offset = std::nullopt;
  std::optional<std::string> activation = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct RmsNormBackwardResult {
  std::optional<Tensor> grad_x;       // dtype and shape of x
  std::optional<Tensor> grad_weight;  // dtype and shape of weight
  std::optional<Tensor> grad_gate;    // RmsNormGated: dtype and shape of x
  // F32, [H]: the accumulator before its cast; where options.wanted_outputs names it.
  std::optional<Tensor> dweight_acc;
  Report report;
};

// All functions give the errors of Client::Call. An argument that the operator does not have is
// refused by its name.
absl::StatusOr<RmsNormForwardResult> RmsNormForward(const Client& client,
                                                    const RmsNormForwardArgs& args);
absl::StatusOr<RmsNormBackwardResult> RmsNormBackward(const Client& client,
                                                      const RmsNormBackwardArgs& args);
absl::StatusOr<RmsNormForwardResult> Qwen3NextRmsNormForward(const Client& client,
                                                             const RmsNormForwardArgs& args);
absl::StatusOr<RmsNormBackwardResult> Qwen3NextRmsNormBackward(const Client& client,
                                                               const RmsNormBackwardArgs& args);
absl::StatusOr<RmsNormForwardResult> RmsNormGatedForward(const Client& client,
                                                         const RmsNormForwardArgs& args);
absl::StatusOr<RmsNormBackwardResult> RmsNormGatedBackward(const Client& client,
                                                           const RmsNormBackwardArgs& args);

}  // namespace rlk::client
