// The device seam: what the executor needs of a device, and nothing that names CUDA. The host
// device, the CUDA device and the faulty device of the tests implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/compare/compare.h"
#include "kernels/core/tensor_view.h"
#include "kernels/digest/digest.h"
#include "kernels/registry/call.h"
#include "kernels/registry/registry.h"
#include "server/engine/owned_fd.h"

namespace rlk::server {

// Begin's byte counts hold every tensor rounded up to this.
inline constexpr int64_t kStageAlignment = 256;

// The resources of one call in flight: a stream, staging and device memory, leased by the executor
// and reused. Operations of one lane run in order; lanes overlap. Not thread-safe; only the
// executor's thread uses it.
class Lane {
 public:
  virtual ~Lane() = default;

  // Begins a call that needs so many bytes of inputs, outputs and workspace on the device,
  // alignment included; `largest_bytes` are those of the largest tensor, also of one that lies
  // elsewhere on the device. Grows the lane when it must. RESOURCE_EXHAUSTED
  // (kDeviceMemoryExhausted) leaves the lane usable.
  virtual absl::Status Begin(int64_t input_bytes, int64_t output_bytes, int64_t workspace_bytes,
                             int64_t largest_bytes) = 0;

  // Brings a tensor to the device: one of the host, or the device's own copy of one that lies on it
  // (`memory`). The view is valid until End. The bytes must live until Wait returns; those of
  // page-locked memory may be read until then.
  virtual absl::StatusOr<TensorView> StageIn(const TensorArg& tensor) = 0;

  // Room for an output on the device. With poisoning on (tests), filled with the canary byte.
  virtual absl::StatusOr<MutableTensorView> Output(DType dtype, const Dims& shape) = 0;

  // Fills an output with one byte, before what is enqueued next.
  virtual absl::Status Fill(const MutableTensorView& output, std::byte value) = 0;

  virtual std::span<std::byte> Workspace(int64_t bytes) = 0;

  // Enqueues (or runs) the variant. `args` carries the views above; stream and pool are filled in
  // here.
  virtual absl::Status Launch(const Variant& variant, KernelArgs args) = 0;

  // Enqueues the digest of a tensor that lies on this device and that nothing later in the call
  // writes, so that ComputeDigest finds it done. A lane may leave it to ComputeDigest.
  virtual absl::Status PrepareDigest(const TensorView& /*tensor*/) { return absl::OkStatus(); }

  // Digest of a tensor that lies on this device, after everything enqueued so far. Blocks.
  virtual absl::StatusOr<Digest> ComputeDigest(const TensorView& tensor) = 0;

  // Enqueues the copy of an output to the host. The bytes may be read after Wait.
  virtual absl::StatusOr<HostBytes> StageOut(const MutableTensorView& tensor) = 0;
  // The same, into host memory that the caller has.
  virtual absl::Status StageOutTo(const MutableTensorView& tensor, std::byte* to) = 0;

  // True when everything enqueued is done; never blocks. An error here is the device's.
  virtual absl::StatusOr<bool> Done() = 0;
  // Blocks until everything enqueued is done.
  virtual absl::Status Wait() = 0;

  // Device time of stage-in, kernels and stage-out since Begin, after Wait.
  virtual PhaseNanos Phases() const = 0;

  // Ends the call: views and staging may be reused. HostBytes given out stay valid through their
  // owner.
  virtual void End() = 0;
};

// Moves bytes between the host and resident memory, off the executor's thread: one stream of bytes,
// used by one thread at a time.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Copies the pieces to `memory`, from `offset` on. They are not read after this returns; the
  // bytes are there after Flush.
  virtual absl::Status Write(ResidentMemory& memory, int64_t offset,
                             std::span<const std::span<const std::byte>> pieces) = 0;
  // Blocks until everything written is in place.
  virtual absl::Status Flush() = 0;

  // `size` bytes from `offset` on, which may be the memory itself.
  virtual absl::StatusOr<HostBytes> Read(const std::shared_ptr<ResidentMemory>& memory,
                                         int64_t offset, int64_t size) = 0;
};

// Looks at tensors in resident memory where they lie, off the executor's thread. Thread-safe; its
// methods block, one after the other. Tensors are in C order, and nobody writes into them
// meanwhile. RESOURCE_EXHAUSTED (kDeviceMemoryExhausted) where there is no room to work.
class Inspector {
 public:
  virtual ~Inspector() = default;
  virtual absl::StatusOr<Digest> ComputeDigest(const TensorView& tensor) = 0;
  // One for each row along the last dimension.
  virtual absl::StatusOr<std::vector<Digest>> ComputeRowDigests(const TensorView& tensor) = 0;
  // As compare::Accumulate over all elements, and compare::CompareRows: the same numbers.
  virtual absl::StatusOr<compare::Stats> Compare(const compare::Spec& spec, const TensorView& left,
                                                 const TensorView& right) = 0;
  virtual absl::StatusOr<compare::RowStats> CompareRows(const TensorView& left,
                                                        const TensorView& right, int rows_max) = 0;
};

// Memory that another process can map by the descriptor.
struct SharedMemory {
  std::shared_ptr<ResidentMemory> memory;
  OwnedFd descriptor;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // A lane; the executor makes them at start. Also binds the calling thread to the device.
  virtual absl::StatusOr<std::unique_ptr<Lane>> NewLane() = 0;

  // Small calls may run on the caller's thread when the device is idle (host only).
  virtual bool runs_inline() const = 0;

  // False after a sticky error: the device is out of rotation for good.
  virtual bool healthy() const = 0;

  // Bytes of device memory held by lanes.
  virtual int64_t memory_bytes_in_use() const = 0;

  // Memory for a tensor that stays; its contents are undefined until they are written, and nobody
  // is shown them before. Thread-safe; the memory may outlive the device object. RESOURCE_EXHAUSTED
  // (kDeviceMemoryExhausted).
  virtual absl::StatusOr<std::shared_ptr<ResidentMemory>> AllocateResident(int64_t bytes) = 0;
  // Thread-safe.
  virtual absl::StatusOr<std::unique_ptr<Transfer>> NewTransfer() = 0;
  // Null where tensors are looked at on the host.
  virtual Inspector* inspector() const { return nullptr; }
  // Bytes of the memory that AllocateResident gave out.
  virtual int64_t resident_bytes_in_use() const = 0;
  // Makes host memory page-locked until the object goes, for all GPUs of the process. Null where
  // there is nothing to do.
  virtual absl::StatusOr<std::shared_ptr<const void>> LockPages([[maybe_unused]] std::byte* data,
                                                                [[maybe_unused]] int64_t bytes) {
    return nullptr;
  }
  // Memory of this device for another process too. Its size is `bytes` or a little more, its
  // contents are zero. RESOURCE_EXHAUSTED (kDeviceMemoryExhausted), FAILED_PRECONDITION
  // (kPlacementUnavailable) where it cannot be shared. Thread-safe.
  virtual absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes);
  // Empty where memory can be shared, otherwise why not.
  virtual std::string sharing_problem() const { return "the device's memory cannot be shared"; }
  // What AllocateShared rounds sizes up to.
  virtual int64_t sharing_granularity() const { return 4096; }
  // Bytes of the memory that AllocateShared gave out.
  virtual int64_t shared_bytes_in_use() const { return 0; }
  // Freed resident memory that was kept for the next tensor, and that none came for in a while,
  // goes back to the device. Called now and then; thread-safe.
  virtual void ReleaseIdleMemory() {}
};

}  // namespace rlk::server
