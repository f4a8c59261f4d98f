// Tensors that stay on the server.
//
//   absl::StatusOr<ResidentTensor> weight = client->Put(tensor.ref());
//   request.inputs.push_back({"weight", weight->ref()});   // nothing moves
//   absl::StatusOr<Tensor> back = client->Get(*weight);
//
// They belong to the client's session, which is opened when it is first needed, and end with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/tensor.h"
#include "kernels/core/dtype.h"
#include "rlk/v1/tensor_service.pb.h"

namespace rlk::client {

// The name of a resident tensor and what the server says of it. Copies name the same tensor;
// nothing is released with them.
struct ResidentTensor {
  rlk::v1::TensorHandle handle;
  DType dtype = DType::kUnspecified;
  Dims shape = {};
  int64_t bytes = 0;
  // "xxh3-tree4k-v1:..."; empty where the server has none.
  std::string digest = {};
  std::string device_uuid = {};
  std::string label = {};
  // 0: as long as the session.
  int64_t lease_ms = 0;
  bool poisoned = false;
  // How its values were made up, as the file says that it was loaded from; empty for all others.
  std::string synthetic = {};

  // All of it, as an input of a call.
  TensorRef ref() const;
};

// Bytes that have moved, of all; called on the caller's thread.
using Progress = std::function<void(int64_t done, int64_t total)>;

struct PutOptions {
  // By default the server's first GPU, or its host.
  std::string device_uuid = {};
  std::string label = {};
  // The tensor's own lease; 0 lets it live as long as the session.
  std::chrono::milliseconds lease{0};
  // Ask first whether the session has a tensor with these bits there; then nothing is sent. That
  // tensor gets one more reference, for which one more Release is due. A tensor with a lease of its
  // own is never shared: with `lease` nothing is asked.
  bool reuse = false;
  // Send the digest of what was read here, so that the server compares it with what arrived.
  bool verify = true;
  Progress progress = nullptr;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct GetOptions {
  // Compare the digest of what arrived with the server's. DATA_LOSS where they differ.
  bool verify = true;
  Progress progress = nullptr;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

// A session that nobody renews but its calls.
struct LeasedSession {
  std::string token;  // a secret
  std::chrono::milliseconds lease{0};
};

// What a tensor of a file on the server must be.
struct ExpectedTensor {
  std::string key;
  DType dtype = DType::kUnspecified;
  Dims shape;
  std::string sha256;     // 64 lower-case hex digits
  std::string path = {};  // its file; empty: the one that Load is given
};

struct LoadOptions {
  // By default the server's first GPU, or its host.
  std::string device_uuid = {};
  // Of each tensor; 0 lets it live as long as the session.
  std::chrono::milliseconds lease{0};
  // What the files say of their values: how they were made up, empty for weights of a model. Files
  // that say another thing are refused (SYNTHETIC_WEIGHTS).
  std::string synthetic = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

ResidentTensor FromDescription(const rlk::v1::TensorDescription& description);

}  // namespace rlk::client
