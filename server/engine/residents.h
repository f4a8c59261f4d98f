// What the engine asks of the one who keeps tensors; server/tensors implements it.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "server/engine/contract_check.h"

namespace rlk::server {

// A place on the server for one output, reserved before the launch. Without Commit nothing is kept:
// a new tensor never was, and one that was to be written into stays as it was, or is poisoned where
// the device may have begun to write. The memory lives at least as long as this.
class ResidentOutput {
 public:
  virtual ~ResidentOutput() = default;
  virtual const std::shared_ptr<ResidentMemory>& memory() const = 0;
  virtual int64_t offset() const = 0;
  virtual TensorPlace place() const { return TensorPlace::kResident; }
  // From here on the memory may be written.
  virtual void OnLaunch() = 0;
  // The output is written: names its place in `output`. Thread-safe against everything else that
  // happens to the tensor.
  virtual void Commit(const std::optional<Digest>& digest, OutputTensor& output) = 0;
  // There will be no Commit; the memory may still be in use.
  virtual void Abandon() = 0;
};

// Thread-safe. `field` names the tensor in errors, which are: UNAUTHENTICATED without a principal,
// NOT_FOUND (kTensorNotFound) for a handle that is unknown, foreign or stale, FAILED_PRECONDITION
// (kWrongServer, kTensorBusy, kTensorPoisoned), INVALID_ARGUMENT (kOffsetOutOfRange,
// kDtypeNotAllowed), RESOURCE_EXHAUSTED.
class TensorResolver {
 public:
  virtual ~TensorResolver() = default;

  // Finds a tensor that the call names, fills `memory`, `memory_offset`, `place`, `live`, `digest`,
  // `data` (for host memory with its bytes, otherwise with the size alone) and, where the call
  // leaves them to the server, dtype, shape and strides; the view lies within the tensor, or the
  // arena's slot. No call writes into it while `pin` lives.
  virtual absl::Status Resolve(const Principal* principal, std::string_view field,
                               TensorArg& tensor) = 0;

  // The device of a tensor that is to be written into.
  virtual absl::StatusOr<DeviceInfo> Locate(const Principal* principal, std::string_view field,
                                            const TensorHandle& handle) = 0;

  // Reserves room on `device` for an output, or the tensor that `into` names.
  virtual absl::StatusOr<std::unique_ptr<ResidentOutput>> Reserve(
      const std::shared_ptr<const Principal>& principal, std::string_view field,
      const PlannedOutput& output, const std::optional<TensorHandle>& into,
      const DeviceInfo& device) = 0;

  // The same for slots of arenas, where there are any.
  virtual bool has_arenas() const { return false; }
  virtual absl::StatusOr<DeviceInfo> LocateSlot(const Principal* principal, std::string_view field,
                                                const ArenaSlot& slot);
  virtual absl::StatusOr<std::unique_ptr<ResidentOutput>> ReserveSlot(
      const std::shared_ptr<const Principal>& principal, std::string_view field,
      const PlannedOutput& output, const ArenaSlot& slot, const DeviceInfo& device);
};

}  // namespace rlk::server
