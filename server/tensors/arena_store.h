// Arenas: memory that the server shares with one session, so that the bytes of a tensor do not move
// at all or move once, by DMA. An arena was nobody's before and is nobody's after its session; the
// other side has its descriptor for good, so memory is never given to a second owner.
//
// Tensors lie in slots. A slot has a generation that its arena never gives again: a reference to
// one that was freed is NOT_FOUND, whatever lies there now. Everything that a call says of a slot
// is checked at each use. A slot is read by any number of calls or written by one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/call.h"
#include "server/engine/device.h"
#include "server/engine/owned_fd.h"
#include "server/engine/residents.h"
#include "server/tensors/budget.h"
#include "server/tensors/left_arenas.h"
#include "server/tensors/shared_pages.h"
#include "server/tensors/slot_map.h"

namespace rlk::server {

enum class ArenaKind : uint8_t {
  kHostInput,   // the client writes, calls read
  kHostOutput,  // calls write and read, the client reads
  kDevice,      // both sides read and write
};

struct OpenedArena {
  std::string id;
  int64_t bytes = 0;
  std::string device_uuid;
  // To be sent to the session's process, and to nobody else.
  OwnedFd descriptor;
};

struct SlotPlace {
  uint64_t generation = 0;
  uint64_t offset = 0;
  int64_t bytes = 0;
};

// Thread-safe. Errors that name an arena or a slot: NOT_FOUND (kTensorNotFound) for one that is
// unknown, foreign, or was freed; FAILED_PRECONDITION (kWrongServer, kTensorBusy).
class ArenaStore {
 public:
  // The devices outlive every call of a method; arenas may outlive them and the store.
  ArenaStore(const Limits& limits, std::string server_id, std::vector<Device*> devices);
  ~ArenaStore();

  // Blocks while memory is made and page-locked. INVALID_ARGUMENT (kLimitExceeded) for a size that
  // is none or could never fit, RESOURCE_EXHAUSTED, FAILED_PRECONDITION (kPlacementUnavailable,
  // kDeviceNotFound), UNAUTHENTICATED (kUnauthenticated) for a principal that has ended. What is
  // left to `peer` (null: nobody) stays charged while that may map it.
  absl::StatusOr<OpenedArena> Open(const std::shared_ptr<const Principal>& principal,
                                   ArenaKind kind, int64_t bytes, std::string_view device_uuid,
                                   std::shared_ptr<const ArenaPeer> peer);
  // The session's process says that it no longer maps it.
  absl::Status Close(const Principal& principal, std::string_view id);
  absl::StatusOr<SlotPlace> TakeSlot(const Principal& principal, std::string_view id,
                                     int64_t bytes);
  absl::Status FreeSlot(const Principal& principal, std::string_view id, uint64_t generation);

  // The principal has ended. Calls in flight finish on the memory that they have.
  void ReleaseOwner(uint64_t principal);
  // Takes charges away whose memory nobody maps any more.
  void Sweep();

  Usage usage(uint64_t principal) const;
  Usage usage() const;
  // Bytes of arenas in host memory that this process maps.
  int64_t host_bytes() const;

  // Empty where arenas of the kind can be opened, otherwise why not. Tried once.
  const std::string& host_problem() const { return host_problem_; }
  const std::string& device_problem() const { return device_problem_; }

  // As TensorResolver.
  absl::Status Resolve(const Principal* principal, std::string_view field, TensorArg& tensor);
  absl::StatusOr<DeviceInfo> Locate(const Principal* principal, std::string_view field,
                                    const ArenaSlot& slot);
  absl::StatusOr<std::unique_ptr<ResidentOutput>> Reserve(const Principal* principal,
                                                          std::string_view field,
                                                          const PlannedOutput& output,
                                                          const ArenaSlot& slot,
                                                          const DeviceInfo& device);

 private:
  struct Arena;
  struct Table;
  class Output;
  using ArenaRef = std::shared_ptr<Arena>;

  absl::StatusOr<SharedMemory> MakeHost(ArenaKind kind, int64_t bytes) const;
  absl::StatusOr<Device*> FindGpu(std::string_view uuid) const;

  const Limits limits_;
  const std::string server_id_;
  const std::vector<Device*> devices_;
  std::string host_problem_, device_problem_;
  Budget budget_;
  std::shared_ptr<Table> table_;
  LeftArenas left_;
};

}  // namespace rlk::server
