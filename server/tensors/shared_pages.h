// Host memory that another process can map: an anonymous file (memfd) that neither side can make
// smaller or larger, so that nobody who maps it can be made to fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/owned_fd.h"

namespace rlk::server {

class SharedPages {
 public:
  // Who else may write: with kNobody the kernel refuses every writable mapping but this one, and
  // that pages are punched out of the file.
  enum class Writers { kWhoeverMaps, kNobody };

  // Zeroed pages that are all there from the start. Blocks. `bytes` is a positive multiple of 4096.
  // RESOURCE_EXHAUSTED (kBytesExhausted) where the system has no memory, FAILED_PRECONDITION
  // (kPlacementUnavailable) where its kernel cannot seal files.
  static absl::StatusOr<std::unique_ptr<SharedPages>> Make(int64_t bytes, Writers writers);
  // The pages are freed at once where others may write, whoever still maps them: they then see
  // zeroed memory that is theirs alone. Otherwise they go with the last mapping.
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // What the other process is sent; taken once.
  OwnedFd TakeDescriptor() { return std::move(descriptor_); }

 private:
  SharedPages(std::byte* data, int64_t bytes, Writers writers, OwnedFd descriptor)
      : data_(data), bytes_(bytes), writers_(writers), descriptor_(std::move(descriptor)) {}

  std::byte* const data_;
  const int64_t bytes_;
  const Writers writers_;
  OwnedFd descriptor_;
};

}  // namespace rlk::server
