// Typed calls of det_linear. kernels/ops/det_linear/README.md states the arithmetic.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"

namespace rlk::client {

// y = activation(x weight^T + bias). Tensors are contiguous and never modified.
struct DetLinearForwardArgs {
  // F32, or where a contract takes it BF16; [T, K].
  TensorRef x;
  // [N, K] and [N], in the dtype of x.
  TensorRef weight;
  std::optional<TensorRef> bias = std::nullopt;
  // "none", "silu" or "silu_cuda". Absent: "none".
  std::optional<std::string> activation = std::nullopt;
  // F32 or the dtype of x. Absent: the dtype of x.
  std::optional<DType> output_dtype = std::nullopt;
  // Absent: the contract's rule.
  std::optional<int64_t> fold_parts = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

// Outputs that the call's options did not want are empty.
struct DetLinearForwardResult {
  std::optional<Tensor> y;  // [T, N]
  // F32, [T, N]: what the activation was given; where options.wanted_outputs names it.
  std::optional<Tensor> pre;
  Report report;
};

struct DetLinearBackwardInputArgs {
  // F32 or the dtype of weight; [T, N].
  TensorRef grad_y;
  TensorRef weight;
  // As the forward returned it; with an activation, and only then.
  std::optional<TensorRef> pre = std::nullopt;
  std::optional<std::string> activation = std::nullopt;
  // F32 or the dtype of weight. Absent: F32.
  std::optional<DType> output_dtype = std::nullopt;
  std::optional<int64_t> fold_parts = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct DetLinearBackwardInputResult {
  std::optional<Tensor> grad_x;  // [T, K]
  Report report;
};

struct DetLinearBackwardWeightArgs {
  TensorRef grad_y;
  TensorRef x;
  std::optional<TensorRef> pre = std::nullopt;
  // F32: dweight_acc [N, K] and dbias_acc [N] of the rows before these, and how many they were.
  std::optional<TensorRef> dweight_acc_in = std::nullopt;
  std::optional<TensorRef> dbias_acc_in = std::nullopt;
  std::optional<int64_t> rows_before = std::nullopt;
  std::optional<std::string> activation = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct DetLinearBackwardWeightResult {
  std::optional<Tensor> grad_weight;  // [N, K], in the dtype of x
  // Where options.wanted_outputs names them: [N] in the dtype of x, and the F32 accumulators.
  std::optional<Tensor> grad_bias;
  std::optional<Tensor> dweight_acc;
  std::optional<Tensor> dbias_acc;
  Report report;
};

// All functions give the errors of Client::Call.
absl::StatusOr<DetLinearForwardResult> DetLinearForward(const Client& client,
                                                        const DetLinearForwardArgs& args);
absl::StatusOr<DetLinearBackwardInputResult> DetLinearBackwardInput(
    const Client& client, const DetLinearBackwardInputArgs& args);
absl::StatusOr<DetLinearBackwardWeightResult> DetLinearBackwardWeight(
    const Client& client, const DetLinearBackwardWeightArgs& args);

}  // namespace rlk::client
