// The tensors that stay on the server. Each belongs to one principal, and for everybody else it is
// not there. Its elements lie in C order in the memory of one device.
//
// Whoever reads a tensor pins it, and a pinned tensor is not written into. A call that writes into
// one names the generation that it expects and raises it; a call that fails after the device may
// have begun to write poisons it. Releasing a tensor, or ending its owner, takes its name away at
// once and its memory when the last reader is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/call.h"
#include "server/engine/device.h"
#include "server/engine/residents.h"
#include "server/tensors/budget.h"

namespace rlk::server {

using LeaseClock = std::chrono::steady_clock;

struct NewTensor {
  DType dtype = DType::kUnspecified;
  Dims shape = {};
  // Empty: the first GPU, or the host where there is none.
  std::string device_uuid = {};
  std::string label = {};
  // 0: as long as its owner.
  int64_t lease_ms = 0;
  // How its values were made up; empty where nothing says that they were.
  std::string synthetic = {};
};

struct TensorInfo {
  TensorHandle handle;
  DType dtype = DType::kUnspecified;
  Dims shape;
  int64_t bytes = 0;
  std::optional<Digest> digest;
  std::string device_uuid;
  std::string label;
  int64_t lease_ms = 0;
  bool poisoned = false;
  int64_t references = 1;
  std::string synthetic;
};

// A tensor on its way in; dropped without Finish, it leaves nothing. One thread at a time.
class TensorUpload {
 public:
  virtual ~TensorUpload() = default;
  virtual int64_t bytes_left() const = 0;
  // The next bytes in C order. INVALID_ARGUMENT (kPayloadSizeMismatch) for more than are left.
  virtual absl::Status Write(std::span<const std::span<const std::byte>> pieces) = 0;
  // INVALID_ARGUMENT (kPayloadSizeMismatch) when bytes are missing; DATA_LOSS (kVerificationFailed)
  // when the digest is another one than `expected`.
  virtual absl::StatusOr<TensorInfo> Finish(const std::optional<std::string>& expected) = 0;
};

// A tensor on its way out, pinned. One thread at a time.
class TensorDownload {
 public:
  virtual ~TensorDownload() = default;
  virtual const TensorInfo& info() const = 0;
  virtual int64_t bytes_left() const = 0;
  // The next bytes, at most `bytes_max`; they stay pinned while their owner lives.
  virtual absl::StatusOr<HostBytes> Next(int64_t bytes_max) = 0;
};

struct TensorStoreOptions {
  Limits limits;
  std::string server_id;
  LeaseClock::time_point (*now)() = nullptr;
};

// Thread-safe. Errors of all methods are those of TensorResolver.
class TensorStore final : public TensorResolver {
 public:
  // The devices outlive every call of a method; tensors may outlive them and the store.
  TensorStore(const TensorStoreOptions& options, std::vector<Device*> devices);
  ~TensorStore() override;

  // Checks the header and takes the memory. Also INVALID_ARGUMENT for a header that is none,
  // FAILED_PRECONDITION (kDeviceNotFound), UNAVAILABLE (kDeviceLost).
  absl::StatusOr<std::unique_ptr<TensorUpload>> Upload(
      const std::shared_ptr<const Principal>& principal, const NewTensor& tensor);
  // `bytes` from handle.offset on; 0 takes all that follow.
  absl::StatusOr<std::unique_ptr<TensorDownload>> Download(const Principal* principal,
                                                           const TensorHandle& handle,
                                                           int64_t bytes);

  absl::StatusOr<TensorInfo> Describe(const Principal* principal, const TensorHandle& handle);
  // At most `count` of the principal's tensors with ids above `after`, in their order.
  absl::StatusOr<std::vector<TensorInfo>> List(const Principal* principal, std::string_view after,
                                               int64_t count);
  // One more reference to a tensor with this digest on this device (empty: as in Upload) that has
  // no lease of its own. Also FAILED_PRECONDITION (kDeviceNotFound).
  absl::StatusOr<std::optional<TensorInfo>> Find(const Principal* principal,
                                                 std::string_view digest,
                                                 std::string_view device_uuid);
  // FAILED_PRECONDITION (kTensorBusy) where a lease would end a tensor that others found.
  absl::StatusOr<TensorInfo> Renew(const Principal* principal, const TensorHandle& handle,
                                   int64_t lease_ms);
  // All or none.
  absl::Status Release(const Principal* principal, std::span<const TensorHandle> handles);

  // The principal has ended.
  void ReleaseOwner(uint64_t principal);
  // Drops the tensors whose lease has passed.
  void Sweep();

  Usage usage(uint64_t principal) const;
  Usage usage() const;

  absl::Status Resolve(const Principal* principal, std::string_view field,
                       TensorArg& tensor) override;
  absl::StatusOr<DeviceInfo> Locate(const Principal* principal, std::string_view field,
                                    const TensorHandle& handle) override;
  absl::StatusOr<std::unique_ptr<ResidentOutput>> Reserve(
      const std::shared_ptr<const Principal>& principal, std::string_view field,
      const PlannedOutput& output, const std::optional<TensorHandle>& into,
      const DeviceInfo& device) override;

 private:
  absl::StatusOr<Device*> FindDevice(std::string_view uuid) const;
  absl::StatusOr<std::shared_ptr<ResidentMemory>> Allocate(const Principal& principal,
                                                           Device& device, int64_t bytes);

  const TensorStoreOptions options_;
  const std::vector<Device*> devices_;
  Budget budget_;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace rlk::server
