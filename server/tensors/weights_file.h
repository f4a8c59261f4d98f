// Tensors of safetensors files under one folder, each held to what the caller says that it is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "server/tensors/safetensors_file.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

struct WeightsLoad {
  std::string root;
  // Under `root`: the file of those that name none.
  std::string path;
  std::vector<ExpectedTensor> manifest;
  // What every file must say of its values.
  std::string synthetic = {};
  std::string device_uuid = {};
  int64_t lease_ms = 0;
  // Asked between pieces of the files; its error ends the load. May be empty.
  std::function<absl::Status()> check = {};
};

// Loads the tensors that the manifest names; the result has its order. All of them or none:
// FAILED_PRECONDITION where one is not there or differs in dtype, shape or SHA-256 (kFileMismatch),
// or where a file says another thing of its values than `synthetic` (kSyntheticWeights); NOT_FOUND
// (kFilesUnavailable) for a file that cannot be opened, INVALID_ARGUMENT (kMalformedMessage) for
// one that is no safetensors file. Every header is looked at before the first tensor is read. Also
// what `check` says.
absl::StatusOr<std::vector<TensorInfo>> LoadWeights(
    const WeightsLoad& load, const std::shared_ptr<const Principal>& principal, TensorStore& store);

}  // namespace rlk::server
