// Whether two sides compute the same: the client's view of ParityService.
//
//   absl::StatusOr<rlk::v1::Comparison> comparison =
//       client->Compare({.left = ours.ref(), .right = theirs.ref()});
//   if (!comparison->passed()) std::puts(comparison->triage().hint().c_str());
//
// Tensors that are too large for a message go to the server for the call, and are released after
// it. What the fields mean: proto/rlk/v1/comparison.proto, policy.proto; server/parity/README.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "client/cpp/tensor.h"
#include "rlk/v1/parity.pb.h"

namespace rlk::client {

struct CompareArgs {
  TensorRef left;
  // One of the two.
  std::optional<TensorRef> right = std::nullopt;
  std::string right_digest = {};
  rlk::v1::ComparisonOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct ComparePolicyArgs {
  TensorRef rollout;
  TensorRef trainer;
  std::optional<TensorRef> mask = std::nullopt;
  std::optional<TensorRef> cu_seqlens = std::nullopt;
  // Both or none.
  std::optional<TensorRef> rollout_logits = std::nullopt;
  std::optional<TensorRef> trainer_logits = std::nullopt;
  rlk::v1::PolicyOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct DigestArgs {
  TensorRef tensor;
  // Digests of rows along the last dimension as well, all of them.
  bool rows = false;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct TensorDigests {
  std::string digest;  // "xxh3-tree4k-v1:..."
  DType dtype = DType::kUnspecified;
  Dims shape = {};
  int64_t rows = 0;
  // 16 bytes a row, in logical row order.
  std::string row_digests = {};
};

}  // namespace rlk::client
