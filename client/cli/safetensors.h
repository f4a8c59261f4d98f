// Safetensors files: an 8-byte little-endian header length, a JSON header, the tensors' bytes.
//
// Reading is strict. Refused: a header above 100,000,000 bytes or longer than the file, anything
// but a JSON object of tensors and a __metadata__ object of strings, a key given twice at any
// depth, an unknown dtype, a rank above 8, sizes that overflow, offsets that are out of range,
// overlap, leave a hole, do not cover the file, or do not fit dtype and shape.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"

namespace rlk::cli {

struct SafetensorsEntry {
  std::string key;
  // kUnspecified for a dtype that the format has and rlk has not; such an entry cannot be read.
  DType dtype = DType::kUnspecified;
  std::string dtype_name;
  std::vector<int64_t> shape;
  // In the file.
  int64_t begin = 0, end = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// The entries in the order of their offsets; `metadata`, if given, has __metadata__ afterwards.
absl::StatusOr<std::vector<SafetensorsEntry>> ListSafetensors(
    const std::string& path, SafetensorsMetadata* metadata = nullptr);

// One tensor. An unknown key is NOT_FOUND, naming the keys of the file.
absl::StatusOr<client::Tensor> ReadSafetensors(const std::string& path, const std::string& key);

// Writes tensors under their names, larger elements first, then by name: the same tensors give the
// same file. Names must differ.
absl::Status WriteSafetensors(
    const std::string& path,
    const std::vector<std::pair<std::string, const client::Tensor*>>& tensors,
    const SafetensorsMetadata& metadata = {});

}  // namespace rlk::cli
