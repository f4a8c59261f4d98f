#include "server/tensors/arena_store.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/engine/job.h"
#include "server/sessions/random_id.h"
#include "server/tensors/tensor_table.h"

namespace rlk::server {
namespace {

constexpr int64_t kPageBytes = 4096;
// An arena's id begins with so many bytes of its server's, so that every server knows those of
// others.
constexpr size_t kServerPrefixBytes = 8;

absl::Status NotFound(std::string_view field) {
  return MakeError(absl::StatusCode::kNotFound,
                   {Reason::kTensorNotFound, std::string(field), "an arena or a slot",
                    "a slot of this session, by its arena and generation"},
                   "the session has no such arena or slot");
}

absl::Status ReachesOut(std::string_view field, uint64_t offset, int64_t bytes, const Slot& slot) {
  return InvalidArgument(Reason::kOffsetOutOfRange, field,
                         std::to_string(bytes) + " bytes at offset " + std::to_string(offset),
                         "within the slot's " + std::to_string(slot.bytes) + " bytes at " +
                             std::to_string(slot.offset),
                         "the tensor reaches beyond its slot");
}

// The slot begins within the arena, so that nothing here overflows.
bool Within(uint64_t offset, int64_t bytes, const Slot& slot) {
  const auto begin = static_cast<uint64_t>(slot.offset);
  if (offset < begin || bytes > slot.bytes) return false;
  return offset - begin <= static_cast<uint64_t>(slot.bytes - bytes);
}

// Host memory of an arena: the lock goes before the pages.
class HostArenaMemory final : public ResidentMemory {
 public:
  HostArenaMemory(DeviceInfo host, std::unique_ptr<SharedPages> pages,
                  std::shared_ptr<const void> lock, std::shared_ptr<std::atomic<int64_t>> counter)
      : host_(std::move(host)),
        counter_(std::move(counter)),
        pages_(std::move(pages)),
        lock_(std::move(lock)) {
    counter_->fetch_add(pages_->bytes(), std::memory_order_relaxed);
  }
  ~HostArenaMemory() override { counter_->fetch_sub(pages_->bytes(), std::memory_order_relaxed); }

  std::byte* data() const override { return pages_->data(); }
  int64_t bytes() const override { return pages_->bytes(); }
  const DeviceInfo& device() const override { return host_; }
  bool page_locked() const override { return lock_ != nullptr; }

 private:
  const DeviceInfo host_;
  const std::shared_ptr<std::atomic<int64_t>> counter_;
  const std::unique_ptr<SharedPages> pages_;
  const std::shared_ptr<const void> lock_;
};

// Memory and the room that it takes. The memory is freed before its room is given away.
class ChargedMemory final : public ResidentMemory {
 public:
  ChargedMemory(std::shared_ptr<const Budget::Charge> charge,
                std::shared_ptr<ResidentMemory> memory)
      : charge_(std::move(charge)), memory_(std::move(memory)) {}
  std::byte* data() const override { return memory_->data(); }
  int64_t bytes() const override { return memory_->bytes(); }
  const DeviceInfo& device() const override { return memory_->device(); }
  bool page_locked() const override { return memory_->page_locked(); }

 private:
  const std::shared_ptr<const Budget::Charge> charge_;
  const std::shared_ptr<ResidentMemory> memory_;
};

absl::Status NoRoom(int64_t bytes, int64_t largest) {
  constexpr int64_t kRetryMs = 10;
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kBytesExhausted, "bytes", std::to_string(bytes) + " bytes",
       "at most " + std::to_string(largest) + " bytes, the largest free place", kRetryMs},
      "the arena has no room for the slot");
}

absl::Status Ended() {
  return MakeError(absl::StatusCode::kUnauthenticated,
                   {Reason::kUnauthenticated, "open_arena", {}, "a session that has not ended"},
                   "the session has ended");
}

// The pages of an input arena are taken out of every mapping when its session ends; others stay
// where they are mapped.
bool Stays(ArenaKind kind) { return kind != ArenaKind::kHostInput; }

}  // namespace

struct ArenaStore::Arena {
  std::string id;
  ArenaKind kind = ArenaKind::kHostInput;
  std::shared_ptr<ResidentMemory> memory;
  // Shared with the memory, which may go before what maps it elsewhere.
  std::shared_ptr<const Budget::Charge> charge;
  std::shared_ptr<const ArenaPeer> peer;
  std::optional<SlotMap> slots;  // guarded by the table's mutex, and so is what it holds

  TensorPlace place() const {
    return kind == ArenaKind::kDevice ? TensorPlace::kDeviceArena : TensorPlace::kHostArena;
  }
};

struct ArenaStore::Table {
  using Arenas = std::unordered_map<std::string, ArenaRef>;

  // With the mutex held.
  absl::StatusOr<ArenaRef> Find(uint64_t owner, std::string_view field, std::string_view id,
                                std::string_view server_id) const;
  absl::StatusOr<std::pair<ArenaRef, std::shared_ptr<Slot>>> FindSlot(
      const Principal* principal, std::string_view field, const ArenaSlot& slot,
      std::string_view server_id) const;

  std::shared_ptr<std::atomic<int64_t>> host_bytes = std::make_shared<std::atomic<int64_t>>(0);
  std::mutex mutex;
  std::unordered_map<uint64_t, Arenas> owners;  // guarded by mutex
};

absl::StatusOr<ArenaStore::ArenaRef> ArenaStore::Table::Find(uint64_t owner, std::string_view field,
                                                             std::string_view id,
                                                             std::string_view server_id) const {
  const std::string_view server = server_id.substr(0, 2 * kServerPrefixBytes);
  if (id.size() > kServerPrefixBytes && HexText(id.substr(0, kServerPrefixBytes)) != server) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kWrongServer, std::string(field), "an arena of another server",
                      "an arena of this server, " + std::string(server_id)},
                     "another server made the arena");
  }
  const auto arenas = owners.find(owner);
  if (arenas == owners.end()) return NotFound(field);
  const auto found = arenas->second.find(std::string(id));
  if (found == arenas->second.end()) return NotFound(field);
  return found->second;
}

absl::StatusOr<std::pair<ArenaStore::ArenaRef, std::shared_ptr<Slot>>> ArenaStore::Table::FindSlot(
    const Principal* principal, std::string_view field, const ArenaSlot& named,
    std::string_view server_id) const {
  if (principal == nullptr) return NoPrincipal(field);
  RLK_ASSIGN_OR_RETURN(ArenaRef arena, Find(principal->id(), field, named.arena, server_id));
  std::shared_ptr<Slot> slot = arena->slots->Find(named.generation);
  if (slot == nullptr) return NotFound(field);
  return std::pair(std::move(arena), std::move(slot));
}

ArenaStore::ArenaStore(const Limits& limits, std::string server_id, std::vector<Device*> devices)
    : limits_(limits),
      server_id_(std::move(server_id)),
      devices_(std::move(devices)),
      budget_(limits, Budget::Kind::kArenas),
      table_(std::make_shared<Table>()),
      left_(limits) {
  for (const auto writers : {SharedPages::Writers::kWhoeverMaps, SharedPages::Writers::kNobody}) {
    const auto pages = SharedPages::Make(kPageBytes, writers);
    if (!pages.ok()) host_problem_ = std::string(pages.status().message());
  }
  const absl::StatusOr<Device*> gpu = FindGpu({});
  device_problem_ = gpu.ok() ? (*gpu)->sharing_problem() : "this server has no GPU";
}

ArenaStore::~ArenaStore() = default;

absl::StatusOr<Device*> ArenaStore::FindGpu(std::string_view uuid) const {
  std::string known;
  for (Device* const device : devices_) {
    const DeviceInfo& info = device->info();
    if (info.kind == DeviceKind::kHost) continue;
    if (uuid.empty() ? device->healthy() : info.uuid == uuid) {
      if (device->healthy()) return device;
      return DeviceLostError(info, "the device is lost");
    }
    known += (known.empty() ? "" : ", ") + info.uuid;
  }
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kDeviceNotFound, "device_uuid", std::string(uuid), known},
                   "this server has no such GPU");
}

absl::StatusOr<SharedMemory> ArenaStore::MakeHost(ArenaKind kind, int64_t bytes) const {
  using Writers = SharedPages::Writers;
  const Writers writers = kind == ArenaKind::kHostOutput ? Writers::kNobody : Writers::kWhoeverMaps;
  RLK_ASSIGN_OR_RETURN(auto pages, SharedPages::Make(AlignUp(bytes, kPageBytes), writers));
  SharedMemory made;
  made.descriptor = pages->TakeDescriptor();
  std::shared_ptr<const void> lock;
  DeviceInfo host;
  for (Device* const device : devices_) {
    if (device->info().kind == DeviceKind::kHost) {
      host = device->info();
    } else if (lock == nullptr && device->healthy()) {
      RLK_ASSIGN_OR_RETURN(lock, device->LockPages(pages->data(), pages->bytes()));
    }
  }
  made.memory = std::make_shared<HostArenaMemory>(std::move(host), std::move(pages),
                                                  std::move(lock), table_->host_bytes);
  return made;
}

absl::StatusOr<OpenedArena> ArenaStore::Open(const std::shared_ptr<const Principal>& principal,
                                             ArenaKind kind, int64_t bytes,
                                             std::string_view device_uuid,
                                             std::shared_ptr<const ArenaPeer> peer) {
  if (principal == nullptr) return NoPrincipal("open_arena");
  if (principal->ended()) return Ended();
  const int64_t ever = std::min(limits_.session_arena_bytes_max, limits_.arena_bytes_max);
  if (bytes <= 0 || bytes > ever) {
    return InvalidArgument(
        Reason::kLimitExceeded, "bytes", std::to_string(bytes) + " bytes",
        "1 to " + std::to_string(ever) + " (session_arena_bytes_max, arena_bytes_max)",
        "the size is not allowed");
  }
  Device* gpu = nullptr;
  if (kind == ArenaKind::kDevice) {
    RLK_ASSIGN_OR_RETURN(gpu, FindGpu(device_uuid));
  }
  if (Stays(kind) && peer != nullptr) RLK_RETURN_IF_ERROR(left_.CheckRoom(peer));
  // Of what is made, which is no smaller than a page.
  const int64_t unit = gpu == nullptr ? kPageBytes : gpu->sharing_granularity();
  RLK_ASSIGN_OR_RETURN(auto charge,
                       budget_.Take(principal->id(), AlignUp(bytes, unit), principal->share()));
  RLK_ASSIGN_OR_RETURN(SharedMemory made,
                       gpu == nullptr ? MakeHost(kind, bytes) : gpu->AllocateShared(bytes));
  auto arena = std::make_shared<Arena>();
  std::string random = RandomId();
  arena->id.reserve(kServerPrefixBytes + random.size());
  for (size_t i = 0; i < kServerPrefixBytes; ++i) {
    arena->id += static_cast<char>(std::stoi(server_id_.substr(2 * i, 2), nullptr, 16));
  }
  arena->id += random;
  arena->kind = kind;
  arena->charge = std::move(charge);
  arena->peer = std::move(peer);
  arena->memory = std::make_shared<ChargedMemory>(arena->charge, std::move(made.memory));
  arena->slots.emplace(arena->memory->bytes());
  OpenedArena opened{arena->id, arena->memory->bytes(), {}, std::move(made.descriptor)};
  if (gpu != nullptr) opened.device_uuid = gpu->info().uuid;
  const std::lock_guard lock(table_->mutex);
  // ReleaseOwner comes after the end and takes the mutex: either it finds the arena or this sees
  // the end.
  if (principal->ended()) return Ended();
  table_->owners[principal->id()].emplace(arena->id, std::move(arena));
  return opened;
}

absl::Status ArenaStore::Close(const Principal& principal, std::string_view id) {
  ArenaRef arena;  // freed without the mutex
  const std::lock_guard lock(table_->mutex);
  RLK_ASSIGN_OR_RETURN(arena, table_->Find(principal.id(), "arena", id, server_id_));
  const auto arenas = table_->owners.find(principal.id());
  arenas->second.erase(arena->id);
  if (arenas->second.empty()) table_->owners.erase(arenas);
  return absl::OkStatus();
}

absl::StatusOr<SlotPlace> ArenaStore::TakeSlot(const Principal& principal, std::string_view id,
                                               int64_t bytes) {
  const std::lock_guard lock(table_->mutex);
  RLK_ASSIGN_OR_RETURN(const ArenaRef arena, table_->Find(principal.id(), "arena", id, server_id_));
  if (bytes < 0 || bytes > arena->memory->bytes()) {
    return InvalidArgument(Reason::kLimitExceeded, "bytes", std::to_string(bytes) + " bytes",
                           "0 to the arena's " + std::to_string(arena->memory->bytes()),
                           "the slot cannot lie in the arena");
  }
  if (arena->slots->count() >= limits_.arena_slots_max) {
    constexpr int64_t kRetryMs = 10;
    return MakeError(
        absl::StatusCode::kResourceExhausted,
        {Reason::kTensorsExhausted, "arena", "one more slot",
         "at most " + std::to_string(limits_.arena_slots_max) + " (arena_slots_max)", kRetryMs},
        "the arena has too many slots");
  }
  const std::shared_ptr<Slot> slot = arena->slots->Take(bytes);
  if (slot == nullptr) return NoRoom(bytes, arena->slots->largest());
  return SlotPlace{slot->generation, static_cast<uint64_t>(slot->offset), slot->bytes};
}

absl::Status ArenaStore::FreeSlot(const Principal& principal, std::string_view id,
                                  uint64_t generation) {
  const std::lock_guard lock(table_->mutex);
  RLK_ASSIGN_OR_RETURN(const ArenaRef arena, table_->Find(principal.id(), "arena", id, server_id_));
  const std::shared_ptr<Slot> slot = arena->slots->Find(generation);
  if (slot == nullptr) return NotFound("generation");
  arena->slots->Free(slot);
  return absl::OkStatus();
}

void ArenaStore::ReleaseOwner(uint64_t principal) {
  Table::Arenas taken;  // freed without the mutex
  {
    const std::lock_guard lock(table_->mutex);
    const auto found = table_->owners.find(principal);
    if (found == table_->owners.end()) return;
    taken = std::move(found->second);
    table_->owners.erase(found);
  }
  for (const auto& [id, arena] : taken) {
    if (Stays(arena->kind) && arena->peer != nullptr) left_.Add(arena->peer, arena->charge);
  }
  taken.clear();
  Sweep();
}

void ArenaStore::Sweep() { left_.Sweep(); }

Usage ArenaStore::usage(uint64_t principal) const { return budget_.Of(principal); }
Usage ArenaStore::usage() const { return budget_.Total(); }
int64_t ArenaStore::host_bytes() const {
  return table_->host_bytes->load(std::memory_order_relaxed);
}

absl::Status ArenaStore::Resolve(const Principal* principal, std::string_view field,
                                 TensorArg& tensor) {
  const std::optional<int64_t> bytes = SpanBytes(tensor.dtype, tensor.shape, tensor.strides);
  if (!bytes) {
    return InvalidArgument(Reason::kInvalidStrides, field, ShapeText(tensor.strides),
                           "sizes and strides of at least 0, an extent that fits in 63 bits",
                           "the tensor reaches too far");
  }
  const std::lock_guard lock(table_->mutex);
  RLK_ASSIGN_OR_RETURN(const auto found,
                       table_->FindSlot(principal, field, tensor.arena, server_id_));
  const auto& [arena, slot] = found;
  if (!Within(tensor.arena.offset, *bytes, *slot)) {
    return ReachesOut(field, tensor.arena.offset, *bytes, *slot);
  }
  if (slot->writing) return TensorBusy(field, "a call is writing into the slot");
  tensor.place = arena->place();
  tensor.live = arena->kind != ArenaKind::kHostOutput;
  tensor.memory = arena->memory;
  tensor.memory_offset = static_cast<int64_t>(tensor.arena.offset);
  tensor.data = {};
  tensor.data.size = *bytes;
  if (tensor.place == TensorPlace::kHostArena && *bytes > 0) {
    tensor.data.pieces.emplace_back(tensor.memory->data() + tensor.memory_offset,
                                    static_cast<size_t>(*bytes));
    tensor.data.owner = tensor.memory;
  }
  ++slot->readers;
  tensor.pin = std::shared_ptr<const void>(
      slot.get(), [table = table_, held = arena, read = slot](const void*) {
        const std::lock_guard unpin(table->mutex);
        --read->readers;
        held->slots->Leave(*read);
      });
  return absl::OkStatus();
}

absl::StatusOr<DeviceInfo> ArenaStore::Locate(const Principal* principal, std::string_view field,
                                              const ArenaSlot& slot) {
  const std::lock_guard lock(table_->mutex);
  RLK_ASSIGN_OR_RETURN(const auto found, table_->FindSlot(principal, field, slot, server_id_));
  return found.first->memory->device();
}

class ArenaStore::Output final : public ResidentOutput {
 public:
  Output(std::shared_ptr<Table> table, ArenaRef arena, std::shared_ptr<Slot> slot, ArenaSlot named)
      : table_(std::move(table)),
        arena_(std::move(arena)),
        slot_(std::move(slot)),
        named_(std::move(named)) {}
  // Not before: after a loss the device may go on writing, and the call keeps this.
  ~Output() override {
    const std::lock_guard lock(table_->mutex);
    Leave();
  }

  const std::shared_ptr<ResidentMemory>& memory() const override { return arena_->memory; }
  int64_t offset() const override { return static_cast<int64_t>(named_.offset); }
  TensorPlace place() const override { return arena_->place(); }
  void OnLaunch() override {}
  void Commit(const std::optional<Digest>&, OutputTensor& output) override {
    output.arena = named_;
    const std::lock_guard lock(table_->mutex);
    Leave();
  }
  void Abandon() override {}

 private:
  void Leave() {
    if (std::exchange(left_, true)) return;
    slot_->writing = false;
    arena_->slots->Leave(*slot_);
  }

  const std::shared_ptr<Table> table_;
  const ArenaRef arena_;
  const std::shared_ptr<Slot> slot_;
  const ArenaSlot named_;
  bool left_ = false;  // guarded by the table's mutex
};

absl::StatusOr<std::unique_ptr<ResidentOutput>> ArenaStore::Reserve(const Principal* principal,
                                                                    std::string_view field,
                                                                    const PlannedOutput& output,
                                                                    const ArenaSlot& named,
                                                                    const DeviceInfo& device) {
  const int64_t bytes = ByteCount(output.shape, output.dtype);
  const std::lock_guard lock(table_->mutex);
  RLK_ASSIGN_OR_RETURN(auto found, table_->FindSlot(principal, field, named, server_id_));
  auto& [arena, slot] = found;
  if (arena->kind == ArenaKind::kHostInput) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kPlacementUnavailable, std::string(field), "ARENA_KIND_HOST_INPUT",
                      "ARENA_KIND_HOST_OUTPUT, ARENA_KIND_DEVICE"},
                     "calls do not write where the client writes");
  }
  const DeviceInfo& home = arena->memory->device();
  if (home.kind != DeviceKind::kHost && home.uuid != device.uuid) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kPlacementUnavailable, std::string(field), home.uuid, device.uuid},
                     "the arena lies on another device than the one that runs the call");
  }
  if (!Within(named.offset, bytes, *slot)) return ReachesOut(field, named.offset, bytes, *slot);
  if (named.offset % static_cast<uint64_t>(DTypeSize(output.dtype)) != 0) {
    return InvalidArgument(Reason::kMisaligned, field, "offset " + std::to_string(named.offset),
                           "a multiple of " + std::to_string(DTypeSize(output.dtype)),
                           "the output is not aligned");
  }
  if (slot->busy()) return TensorBusy(field, "another call uses the slot");
  slot->writing = true;
  return std::unique_ptr<ResidentOutput>(
      std::make_unique<Output>(table_, std::move(arena), std::move(slot), named));
}

}  // namespace rlk::server
