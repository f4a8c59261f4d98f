// Folders of weights: a manifest of one, and one of made-up values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/h3_weights.h"

namespace rlk::cli {

// The key in a safetensors file's __metadata__ that says how its values were made up.
inline constexpr char kSyntheticKey[] = "rlk.synthetic";

struct PrepareOptions {
  // Whose AdaLN projection it is.
  int64_t block = 0;
  // Names of tensors by role, in place of those that are found.
  std::map<std::string, std::string> names = {};
  // Called with what is hashed, and the bytes done and to do.
  std::function<void(const std::string& file, int64_t done, int64_t total)> progress = nullptr;
};

// A manifest of a folder: of the one *.safetensors.index.json in it and the files that this names,
// or of its one safetensors file, none of them a symbolic link. Where the index or a file is
// malformed, a tensor of the manifest is not there, twice there, or not of the dtype and shape that
// it must have, the error names it.
absl::StatusOr<rlk::v1::WeightsManifest> PrepareH3Weights(const std::string& folder,
                                                          const PrepareOptions& options);

struct SyntheticOptions {
  client::H3Sizes sizes;
  uint64_t seed = 1;
  int64_t block = 0;
  // Files of about equal numbers of tensors; at most 6.
  int64_t shards = 3;
};

// Writes files and an index with the names of the model's own checkpoint. Each file says that its
// values are made up, and how. Weights are nearly normal over the root of their inputs, biases a
// tenth of nearly normal. INVALID_ARGUMENT for sizes that the operators do not take.
absl::Status WriteSyntheticH3(const std::string& folder, const SyntheticOptions& options);

// Lower-case hex of SHA-256.
std::string Sha256Hex(const std::string& bytes);

}  // namespace rlk::cli
