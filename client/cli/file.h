// Files: reading by range, and writing whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rlk::cli {

// A regular file open for reading. Errors name the path.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Fills `out` from `offset`; an error when the file ends before.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const;

 private:
  InputFile(std::string path, int descriptor, int64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// Writes the pieces to a new file beside `path` and renames it: a reader sees the old file or the
// whole new one.
absl::Status WriteFile(const std::string& path,
                       const std::vector<std::span<const std::byte>>& pieces);

}  // namespace rlk::cli
