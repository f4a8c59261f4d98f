// Typed calls of adaln_projection_3mod. kernels/ops/adaln_projection_3mod/README.md states the
// arithmetic.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"

namespace rlk::client {

// silu(temb) weight^T + bias, all of it contiguous.
struct AdalnProjection3modArgs {
  TensorRef temb;    // F32, [T, D]
  TensorRef weight;  // [18 H, D], F32 or BF16
  TensorRef bias;    // [18 H], of weight's dtype
  // Absent: the contract's rule.
  std::optional<int64_t> fold_parts = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

// Each [3 T, H] in weight's dtype, rows t0 m0, t0 m1, t0 m2, t1 m0 and so on. Outputs that the
// call's options did not want are empty.
struct AdalnProjection3modForwardResult {
  std::optional<Tensor> shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp;
  Report report;
};

struct AdalnProjection3modForwardTableResult {
  // [T, 18 H]: channel m 6H + c H + h of modality m and chunk c.
  std::optional<Tensor> table;
  Report report;
};

struct AdalnProjection3modBackwardArgs {
  TensorRef temb;
  TensorRef weight;
  // [3 T, H] each, F32 or weight's dtype, all of one. An absent one is zero; at least one is given.
  std::optional<TensorRef> grad_shift_msa = std::nullopt, grad_scale_msa = std::nullopt,
                           grad_gate_msa = std::nullopt, grad_shift_mlp = std::nullopt,
                           grad_scale_mlp = std::nullopt, grad_gate_mlp = std::nullopt;
  std::optional<int64_t> fold_parts = std::nullopt;
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct AdalnProjection3modBackwardResult {
  std::optional<Tensor> grad_temb;               // F32, [T, D]
  std::optional<Tensor> grad_weight, grad_bias;  // in weight's dtype
  Report report;
};

// All functions give the errors of Client::Call.
absl::StatusOr<AdalnProjection3modForwardResult> AdalnProjection3modForward(
    const Client& client, const AdalnProjection3modArgs& args);
absl::StatusOr<AdalnProjection3modForwardTableResult> AdalnProjection3modForwardTable(
    const Client& client, const AdalnProjection3modArgs& args);
absl::StatusOr<AdalnProjection3modBackwardResult> AdalnProjection3modBackward(
    const Client& client, const AdalnProjection3modBackwardArgs& args);

}  // namespace rlk::client
