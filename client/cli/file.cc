#include "client/cli/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace rlk::cli {
namespace {

absl::Status ErrnoStatus(const std::string& path, const std::string& what, int error) {
  const std::string text = path + ": " + what + ": " + std::strerror(error);
  return error == ENOENT ? absl::NotFoundError(text) : absl::FailedPreconditionError(text);
}

absl::Status WriteAll(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(path, "cannot write", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(path, "cannot open", errno);
  struct stat info;
  InputFile file(path, descriptor, 0);
  if (fstat(descriptor, &info) != 0) return ErrnoStatus(path, "cannot look at", errno);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(path + ": not a regular file");
  file.size_ = info.st_size;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status InputFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(path_, "cannot read", errno);
    if (got == 0) return absl::InvalidArgumentError(path_ + ": the file ends too early");
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path,
                       const std::vector<std::span<const std::byte>>& pieces) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".part";
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return ErrnoStatus(temporary, "cannot create", errno);
  absl::Status status;
  for (const auto& piece : pieces) {
    if (status.ok()) status = WriteAll(descriptor, piece, temporary);
  }
  if (close(descriptor) != 0 && status.ok()) status = ErrnoStatus(path, "cannot close", errno);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(path, "cannot replace", errno);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace rlk::cli
