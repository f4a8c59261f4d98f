// Typed calls of timestep_sinusoid_h3 and timestep_mlp_fp32.
// kernels/ops/timestep_sinusoid_h3/README.md and kernels/ops/timestep_mlp_fp32/README.md state the
// arithmetic.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"

namespace rlk::client {

// embedding[t] = [cos(t f_k), sin(t f_k)].
struct TimestepSinusoidH3ForwardArgs {
  // F32, F16 or BF16, [T], each finite and in [0, 1].
  TensorRef timestep;
  // Even. Absent: 256.
  std::optional<int64_t> num_channels = std::nullopt;
  // Rounded to FP32; at least 1e-5. Absent: 10000.
  std::optional<double> max_period = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

// Outputs that the call's options did not want are empty.
struct TimestepSinusoidH3ForwardResult {
  std::optional<Tensor> embedding;  // F32, [T, num_channels]
  Report report;
};

struct TimestepSinusoidH3BackwardArgs {
  // F32, [T, C].
  TensorRef grad_embedding;
  // As the forward returned it.
  TensorRef embedding;
  std::optional<double> max_period = std::nullopt;
  // F32, F16 or BF16. Absent: F32.
  std::optional<DType> timestep_dtype = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct TimestepSinusoidH3BackwardResult {
  std::optional<Tensor> grad_timestep;  // [T]
  Report report;
};

// y = silu(x w1^T + b1) w2^T + b2, all of it F32 and contiguous.
struct TimestepMlpFp32ForwardArgs {
  TensorRef x;   // [T, K]
  TensorRef w1;  // [M, K]
  TensorRef b1;  // [M]
  TensorRef w2;  // [N, M]
  TensorRef b2;  // [N]
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct TimestepMlpFp32ForwardResult {
  std::optional<Tensor> y;  // [T, N]
  // [T, M]: what the activation was given; where options.wanted_outputs names it.
  std::optional<Tensor> pre;
  Report report;
};

struct TimestepMlpFp32BackwardArgs {
  TensorRef x;
  TensorRef w1;
  TensorRef b1;
  TensorRef w2;
  TensorRef grad_y;  // [T, N]
  // As the forward returned it. Absent: recomputed, with the same bits.
  std::optional<TensorRef> pre = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct TimestepMlpFp32BackwardResult {
  std::optional<Tensor> grad_x, grad_w1, grad_b1, grad_w2, grad_b2;
  Report report;
};

// All functions give the errors of Client::Call.
absl::StatusOr<TimestepSinusoidH3ForwardResult> TimestepSinusoidH3Forward(
    const Client& client, const TimestepSinusoidH3ForwardArgs& args);
absl::StatusOr<TimestepSinusoidH3BackwardResult> TimestepSinusoidH3Backward(
    const Client& client, const TimestepSinusoidH3BackwardArgs& args);
absl::StatusOr<TimestepMlpFp32ForwardResult> TimestepMlpFp32Forward(
    const Client& client, const TimestepMlpFp32ForwardArgs& args);
absl::StatusOr<TimestepMlpFp32BackwardResult> TimestepMlpFp32Backward(
    const Client& client, const TimestepMlpFp32BackwardArgs& args);

}  // namespace rlk::client
