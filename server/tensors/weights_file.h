// Tensors of safetensors files under one folder, each held to what the caller says that it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

struct ExpectedTensor {
  std::string key;
  DType dtype = DType::kUnspecified;
  Dims shape;
  // 64 lower-case hex digits.
  std::string sha256;
};

// Loads the tensors that `manifest` names from `path`, which lies under `root` without symbolic
// links; the file is read, not mapped. All of them or none: FAILED_PRECONDITION (kFileMismatch)
// where one is not there or differs in dtype, shape or SHA-256, NOT_FOUND (kFilesUnavailable) for a
// file that cannot be opened so, INVALID_ARGUMENT (kMalformedMessage) for one that is no
// safetensors file.
absl::StatusOr<std::vector<TensorInfo>> LoadWeights(
    const std::string& root, const std::string& path, const std::vector<ExpectedTensor>& manifest,
    const std::string& device_uuid, int64_t lease_ms,
    const std::shared_ptr<const Principal>& principal, TensorStore& store);

}  // namespace rlk::server
