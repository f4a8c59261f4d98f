#include "server/tensors/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kernels/core/status.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace rlk::server {
namespace {

absl::Status NoMemory(int64_t bytes) {
  constexpr int64_t kRetryMs = 500;
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kBytesExhausted, "bytes", std::to_string(bytes) + " bytes",
                    "the memory of the host", kRetryMs},
                   "the host has no memory for the arena");
}

absl::Status CannotSeal(const char* what) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kPlacementUnavailable,
                    "kind",
                    {},
                    "a kernel with memfd_create and F_SEAL_FUTURE_WRITE (5.1)"},
                   std::string("the host cannot make an arena: ") + what + ": " + strerror(errno));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedPages>> SharedPages::Make(int64_t bytes, Writers writers) {
  OwnedFd file(memfd_create("rlk-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return CannotSeal("memfd_create");
  // All pages now: a page that is missing later would be a signal, not an error.
  const int error = posix_fallocate(file.get(), 0, bytes);
  if (error != 0) return NoMemory(bytes);
  // Mapped before writing is sealed, which leaves this mapping as it is.
  void* const mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (mapped == MAP_FAILED) return NoMemory(bytes);
  std::unique_ptr<SharedPages> pages(
      new SharedPages(static_cast<std::byte*>(mapped), bytes, writers, std::move(file)));
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (writers == Writers::kNobody) seals |= F_SEAL_FUTURE_WRITE;
  if (fcntl(pages->descriptor_.get(), F_ADD_SEALS, seals) != 0) return CannotSeal("F_ADD_SEALS");
  return pages;
}

SharedPages::~SharedPages() {
  if (writers_ == Writers::kWhoeverMaps) {
    (void)madvise(data_, static_cast<size_t>(bytes_), MADV_REMOVE);
  }
  munmap(data_, static_cast<size_t>(bytes_));
}

}  // namespace rlk::server
