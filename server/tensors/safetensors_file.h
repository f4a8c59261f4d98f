// A safetensors file under one folder: opened without symbolic links, read and never mapped, and
// held to what the caller says that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/dtype.h"
#include "kernels/core/tensor_view.h"

namespace rlk::server {

struct ExpectedTensor {
  std::string key;
  DType dtype = DType::kUnspecified;
  Dims shape;
  // 64 lower-case hex digits.
  std::string sha256;
  // The file that it lies in; empty: the one that the load names.
  std::string path = {};
};

struct FileTensor {
  DType dtype = DType::kUnspecified;
  Dims shape;
  int64_t begin = 0, end = 0;  // in the file
};

struct FileContent {
  // "rlk.synthetic" of the file's __metadata__: how its values were made up. Empty where it is not
  // there.
  std::string synthetic;
  // As they were asked for.
  std::vector<FileTensor> tensors;
};

// INVALID_ARGUMENT (kMalformedMessage), naming the file.
absl::Status NotSafetensors(const std::string& path, const std::string& why);
// FAILED_PRECONDITION (kFileMismatch) for field manifest[key].part; the message names the file.
absl::Status FileMismatch(const std::string& path, const std::string& key, const std::string& part,
                          const std::string& found, const std::string& wanted);

// An open file.
class SafetensorsFile {
 public:
  // NOT_FOUND (kFilesUnavailable) where `path` does not lead to a regular file beneath `root`.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& root, const std::string& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  // Reads the header and finds the tensors in it; the header does not stay in memory. The errors
  // above where one is not there, differs in dtype or shape, or does not lie in the file.
  absl::StatusOr<FileContent> Check(const std::vector<const ExpectedTensor*>& expected) const;
  // False where the file ends before, or cannot be read.
  bool Read(int64_t offset, std::span<std::byte> out) const;

 private:
  SafetensorsFile(int descriptor, std::string path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  absl::Status CheckTensor(const ExpectedTensor& expected, const FileTensor& tensor) const;

  int descriptor_;
  std::string path_;
  int64_t size_ = 0;
};

}  // namespace rlk::server
