#include "client/cpp/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "client/cpp/device_mapping.h"
#include "client/cpp/side_connection.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

absl::Status CannotMap(const char* what) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kBytesExhausted, "arena", {}, "address space of this process"},
                   std::string(what) + ": " + strerror(errno));
}

absl::Status WrongReply() { return absl::InternalError("the side socket answered something else"); }

rlk::v1::ArenaKind ToProto(ArenaKind kind) {
  switch (kind) {
    case ArenaKind::kHostInput:
      return rlk::v1::ARENA_KIND_HOST_INPUT;
    case ArenaKind::kHostOutput:
      return rlk::v1::ARENA_KIND_HOST_OUTPUT;
    case ArenaKind::kDevice:
      break;
  }
  return rlk::v1::ARENA_KIND_DEVICE;
}

}  // namespace

struct ArenaSlot::Owner {
  std::shared_ptr<SideConnection> side;
  ArenaKind kind = ArenaKind::kHostInput;
  std::string id, device_uuid;
  int64_t bytes = 0;
  void* host = nullptr;
  std::unique_ptr<DeviceMapping> device;

  ~Owner();
  absl::Status Map(int descriptor);
  std::byte* base() const {
    return static_cast<std::byte*>(device != nullptr ? device->data() : host);
  }
};

ArenaSlot::Owner::~Owner() {
  if (host != nullptr) munmap(host, static_cast<size_t>(bytes));
  device.reset();
  if (id.empty()) return;
  // Where the session has ended meanwhile, so has the arena.
  rlk::v1::SideRequest request;
  request.mutable_close_arena()->set_arena(id);
  (void)side->Ask(request);
}

absl::Status ArenaSlot::Owner::Map(int descriptor) {
  if (kind == ArenaKind::kDevice) {
    RLK_ASSIGN_OR_RETURN(device, DeviceMapping::Import(descriptor, device_uuid, bytes));
    return absl::OkStatus();
  }
  const int access = kind == ArenaKind::kHostOutput ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const mapped =
      mmap(nullptr, static_cast<size_t>(bytes), access, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (mapped == MAP_FAILED) return CannotMap("mmap");
  host = mapped;
  return absl::OkStatus();
}

ArenaSlot::ArenaSlot(std::shared_ptr<Owner> arena, uint64_t generation, int64_t offset,
                     int64_t size, void* data)
    : arena_(std::move(arena)),
      generation_(generation),
      offset_(offset),
      size_(size),
      data_(data) {}

ArenaSlot::ArenaSlot(ArenaSlot&&) noexcept = default;

ArenaSlot& ArenaSlot::operator=(ArenaSlot&& other) noexcept {
  if (this == &other) return *this;
  Free();
  arena_ = std::move(other.arena_);
  generation_ = other.generation_;
  offset_ = other.offset_;
  size_ = other.size_;
  data_ = other.data_;
  return *this;
}

ArenaSlot::~ArenaSlot() { Free(); }

void ArenaSlot::Free() {
  if (arena_ == nullptr) return;
  rlk::v1::SideRequest request;
  request.mutable_free_slot()->set_arena(arena_->id);
  request.mutable_free_slot()->set_generation(generation_);
  (void)arena_->side->Ask(request);
  arena_.reset();
}

std::span<const std::byte> ArenaSlot::bytes() const {
  if (arena_->kind == ArenaKind::kDevice) return {};
  return {static_cast<const std::byte*>(data_), static_cast<size_t>(size_)};
}

std::span<std::byte> ArenaSlot::mutable_bytes() const {
  if (arena_->kind != ArenaKind::kHostInput) return {};
  return {static_cast<std::byte*>(data_), static_cast<size_t>(size_)};
}

rlk::v1::ArenaRef ArenaSlot::place(int64_t offset) const {
  rlk::v1::ArenaRef ref;
  ref.set_arena(arena_->id);
  ref.set_generation(generation_);
  ref.set_offset(static_cast<uint64_t>(offset_) + static_cast<uint64_t>(offset));
  return ref;
}

TensorRef ArenaSlot::ref(DType dtype, const Dims& shape, int64_t offset,
                         const std::optional<Dims>& strides) const {
  TensorRef ref{.dtype = dtype, .shape = shape, .strides = strides};
  ref.arena = place(offset);
  return ref;
}

absl::StatusOr<Arena> Arena::Open(std::shared_ptr<SideConnection> side, ArenaKind kind,
                                  int64_t bytes, const std::string& device_uuid) {
  rlk::v1::SideRequest request;
  request.mutable_open_arena()->set_kind(ToProto(kind));
  request.mutable_open_arena()->set_bytes(bytes);
  request.mutable_open_arena()->set_device_uuid(device_uuid);
  int descriptor = -1;
  RLK_ASSIGN_OR_RETURN(const rlk::v1::SideReply reply, side->Ask(request, &descriptor));
  if (!reply.has_open_arena() || descriptor < 0) {
    if (descriptor >= 0) close(descriptor);
    return WrongReply();
  }
  auto owner = std::make_shared<Owner>();
  owner->side = std::move(side);
  owner->kind = kind;
  owner->id = reply.open_arena().arena();
  owner->device_uuid = reply.open_arena().device_uuid();
  owner->bytes = reply.open_arena().bytes();
  const absl::Status mapped = owner->Map(descriptor);
  close(descriptor);
  RLK_RETURN_IF_ERROR(mapped);
  return Arena(std::move(owner));
}

ArenaKind Arena::kind() const { return owner_->kind; }
int64_t Arena::size() const { return owner_->bytes; }
const std::string& Arena::device_uuid() const { return owner_->device_uuid; }

absl::StatusOr<ArenaSlot> Arena::Take(int64_t bytes) const {
  rlk::v1::SideRequest request;
  request.mutable_take_slot()->set_arena(owner_->id);
  request.mutable_take_slot()->set_bytes(bytes);
  RLK_ASSIGN_OR_RETURN(const rlk::v1::SideReply reply, owner_->side->Ask(request));
  if (!reply.has_take_slot()) return WrongReply();
  const auto& slot = reply.take_slot();
  const auto offset = static_cast<int64_t>(slot.offset());
  if (offset < 0 || slot.bytes() < bytes || slot.bytes() > owner_->bytes ||
      offset > owner_->bytes - slot.bytes()) {
    return WrongReply();
  }
  return ArenaSlot(owner_, slot.generation(), offset, slot.bytes(), owner_->base() + offset);
}

}  // namespace rlk::client
