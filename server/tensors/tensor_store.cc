#include "server/tensors/tensor_store.h"

#include <algorithm>
#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/engine/job.h"
#include "server/tensors/tensor_table.h"

namespace rlk::server {
namespace {

// What a tensor is charged in, so that many small ones, and their entries, count as what they take.
constexpr int64_t kChargeUnit = 4096;

// Memory and the room that it takes, which go together.
class ChargedMemory final : public ResidentMemory {
 public:
  ChargedMemory(std::unique_ptr<Budget::Charge> charge, std::shared_ptr<ResidentMemory> memory)
      : charge_(std::move(charge)), memory_(std::move(memory)) {}
  std::byte* data() const override { return memory_->data(); }
  int64_t bytes() const override { return memory_->bytes(); }
  const DeviceInfo& device() const override { return memory_->device(); }

  // What the device's transfer knows.
  const std::shared_ptr<ResidentMemory>& memory() const { return memory_; }

 private:
  // The memory is freed before its room is given to somebody else.
  const std::unique_ptr<Budget::Charge> charge_;
  const std::shared_ptr<ResidentMemory> memory_;
};

absl::StatusOr<int64_t> CheckHeader(const NewTensor& tensor, const Limits& limits) {
  if (DTypeSize(tensor.dtype) == 0) {
    return InvalidArgument(Reason::kDtypeNotAllowed, "header.dtype", DTypeName(tensor.dtype),
                           "F32, F16, BF16, F64, I32, I64, U8, BOOL", "the tensor has no dtype");
  }
  std::optional<int64_t> bytes = DTypeSize(tensor.dtype);
  bool empty = false;
  for (const int64_t size : tensor.shape) {
    if (size < 0) {
      return InvalidArgument(Reason::kShapeMismatch, "header.shape", ShapeText(tensor.shape),
                             "sizes >= 0", "the shape has a negative size");
    }
    empty = empty || size == 0;
    if (bytes) bytes = CheckedMul(*bytes, std::max<int64_t>(size, 1));
  }
  if (!bytes) {
    return InvalidArgument(Reason::kLimitExceeded, "header.shape", ShapeText(tensor.shape),
                           "at most " + std::to_string(limits.session_resident_bytes_max) +
                               " bytes (session_resident_bytes_max)",
                           "the shape's size in bytes is beyond 64 bits");
  }
  return empty ? 0 : *bytes;
}

absl::Status CheckLease(int64_t lease_ms, const Limits& limits) {
  if (lease_ms >= 0 && lease_ms <= limits.session_lease_ms_max) return absl::OkStatus();
  return InvalidArgument(
      Reason::kLimitExceeded, "lease_ms", std::to_string(lease_ms),
      "0 to " + std::to_string(limits.session_lease_ms_max) + " (session_lease_ms_max)",
      "the lease is not allowed");
}

class StoreUpload final : public TensorUpload {
 public:
  StoreUpload(std::shared_ptr<TensorTable> table, std::shared_ptr<const Principal> principal,
              StoredTensorRef tensor, int64_t lease_ms, int64_t bytes,
              std::unique_ptr<Transfer> transfer)
      : table_(std::move(table)),
        principal_(std::move(principal)),
        tensor_(std::move(tensor)),
        lease_ms_(lease_ms),
        bytes_(bytes),
        transfer_(std::move(transfer)),
        digest_(tensor_->dtype, tensor_->shape) {}

  // The device may still read the staging of what was written last.
  ~StoreUpload() override {
    if (!finished_) (void)transfer_->Flush();
  }

  int64_t bytes_left() const override { return bytes_ - written_; }

  absl::Status Write(std::span<const std::span<const std::byte>> pieces) override {
    int64_t size = 0;
    for (const auto& piece : pieces) size += static_cast<int64_t>(piece.size());
    if (size > bytes_left()) return SizeMismatch(size);
    if (size == 0) return absl::OkStatus();
    auto& memory = static_cast<ChargedMemory&>(*tensor_->memory);
    RLK_RETURN_IF_ERROR(transfer_->Write(*memory.memory(), written_, pieces));
    for (const auto& piece : pieces) digest_.Update(piece);
    written_ += size;
    return absl::OkStatus();
  }

  absl::StatusOr<TensorInfo> Finish(const std::optional<std::string>& expected) override {
    if (bytes_left() > 0) return SizeMismatch(0);
    RLK_RETURN_IF_ERROR(transfer_->Flush());
    finished_ = true;
    const Digest digest = digest_.Finish();
    if (expected && *expected != digest.Text()) {
      return MakeError(absl::StatusCode::kDataLoss,
                       {Reason::kVerificationFailed, "digest", digest.Text(), *expected},
                       "the bytes that arrived have another digest");
    }
    tensor_->digest = digest;
    const TensorInfo info = table_->Info(*tensor_);
    table_->Insert(*principal_, tensor_, lease_ms_);
    return info;
  }

 private:
  absl::Status SizeMismatch(int64_t more) const {
    return InvalidArgument(
        Reason::kPayloadSizeMismatch, "data",
        std::to_string(written_ + more) + " bytes" + (more > 0 ? " and perhaps more" : ""),
        std::to_string(bytes_) + " bytes", "the stream does not have the size of the tensor");
  }

  const std::shared_ptr<TensorTable> table_;
  const std::shared_ptr<const Principal> principal_;
  const StoredTensorRef tensor_;
  const int64_t lease_ms_;
  const int64_t bytes_;
  const std::unique_ptr<Transfer> transfer_;
  DigestStream digest_;
  int64_t written_ = 0;
  bool finished_ = false;
};

// What a downloaded piece keeps.
struct PinnedBytes {
  std::shared_ptr<const void> pin, bytes;
};

class StoreDownload final : public TensorDownload {
 public:
  StoreDownload(TensorInfo info, StoredTensorRef tensor, std::shared_ptr<const void> pin,
                int64_t offset, int64_t bytes, std::unique_ptr<Transfer> transfer)
      : info_(std::move(info)),
        tensor_(std::move(tensor)),
        pin_(std::move(pin)),
        next_(offset),
        end_(offset + bytes),
        transfer_(std::move(transfer)) {}

  const TensorInfo& info() const override { return info_; }
  int64_t bytes_left() const override { return end_ - next_; }
  absl::StatusOr<HostBytes> Next(int64_t bytes_max) override {
    const int64_t size = std::min(bytes_max, bytes_left());
    const auto& memory = static_cast<ChargedMemory&>(*tensor_->memory);
    RLK_ASSIGN_OR_RETURN(HostBytes bytes, transfer_->Read(memory.memory(), next_, size));
    next_ += size;
    auto owner = std::make_shared<PinnedBytes>();
    owner->pin = pin_;
    owner->bytes = std::move(bytes.owner);
    bytes.owner = std::move(owner);
    return bytes;
  }

 private:
  const TensorInfo info_;
  const StoredTensorRef tensor_;
  const std::shared_ptr<const void> pin_;
  int64_t next_;
  const int64_t end_;
  const std::unique_ptr<Transfer> transfer_;
};

}  // namespace

struct TensorStore::Shared : TensorTable {
  using TensorTable::TensorTable;
};

TensorStore::TensorStore(const TensorStoreOptions& options, std::vector<Device*> devices)
    : options_(options),
      devices_(std::move(devices)),
      budget_(options.limits),
      shared_(std::make_shared<Shared>(options.server_id, options.now)) {}

TensorStore::~TensorStore() = default;

absl::StatusOr<Device*> TensorStore::FindDevice(std::string_view uuid) const {
  std::string known;
  Device* fallback = nullptr;
  for (Device* device : devices_) {
    const DeviceInfo& info = device->info();
    if (!uuid.empty() && info.uuid == uuid) {
      if (device->healthy()) return device;
      return DeviceLostError(info, "the device is lost");
    }
    if (fallback == nullptr || (fallback->info().kind == DeviceKind::kHost &&
                                info.kind != DeviceKind::kHost && device->healthy())) {
      fallback = device;
    }
    known += (known.empty() ? "" : ", ") + info.uuid;
  }
  if (uuid.empty() && fallback != nullptr) return fallback;
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kDeviceNotFound, "device_uuid", std::string(uuid), known},
                   "this server has no such device");
}

absl::StatusOr<std::shared_ptr<ResidentMemory>> TensorStore::Allocate(const Principal& principal,
                                                                      Device& device,
                                                                      int64_t bytes) {
  const int64_t room =
      bytes > INT64_MAX - kChargeUnit ? bytes : AlignUp(std::max<int64_t>(bytes, 1), kChargeUnit);
  RLK_ASSIGN_OR_RETURN(auto charge, budget_.Take(principal.id(), room, principal.share()));
  RLK_ASSIGN_OR_RETURN(auto memory, device.AllocateResident(bytes));
  return std::shared_ptr<ResidentMemory>(
      std::make_shared<ChargedMemory>(std::move(charge), std::move(memory)));
}

absl::StatusOr<std::unique_ptr<TensorUpload>> TensorStore::Upload(
    const std::shared_ptr<const Principal>& principal, const NewTensor& tensor) {
  if (principal == nullptr) return NoPrincipal("header");
  RLK_ASSIGN_OR_RETURN(const int64_t bytes, CheckHeader(tensor, options_.limits));
  RLK_RETURN_IF_ERROR(CheckLease(tensor.lease_ms, options_.limits));
  RLK_ASSIGN_OR_RETURN(Device* const device, FindDevice(tensor.device_uuid));
  RLK_ASSIGN_OR_RETURN(auto memory, Allocate(*principal, *device, bytes));
  RLK_ASSIGN_OR_RETURN(auto transfer, device->NewTransfer());
  StoredTensorRef stored = shared_->New(*principal, tensor.dtype, tensor.shape, std::move(memory));
  stored->label = tensor.label;
  stored->synthetic = tensor.synthetic;
  return std::unique_ptr<TensorUpload>(std::make_unique<StoreUpload>(
      shared_, principal, std::move(stored), tensor.lease_ms, bytes, std::move(transfer)));
}

absl::StatusOr<std::unique_ptr<TensorDownload>> TensorStore::Download(const Principal* principal,
                                                                      const TensorHandle& handle,
                                                                      int64_t bytes) {
  StoredTensorRef tensor;
  TensorInfo info;
  std::shared_ptr<const void> pin;
  {
    const std::lock_guard lock(shared_->mutex());
    RLK_ASSIGN_OR_RETURN(tensor, shared_->FindReadable(principal, "handle", handle));
    info = shared_->Info(*tensor);
    if (bytes < 0) {
      return InvalidArgument(Reason::kOffsetOutOfRange, "bytes", std::to_string(bytes),
                             "at least 0", "the number of bytes is negative");
    }
    RLK_RETURN_IF_ERROR(CheckRange("handle.offset", handle.offset, bytes, info.bytes));
    pin = shared_->Pin(tensor);
  }
  const auto offset = static_cast<int64_t>(handle.offset);
  if (bytes == 0) bytes = info.bytes - offset;
  RLK_ASSIGN_OR_RETURN(Device* const device, FindDevice(info.device_uuid));
  RLK_ASSIGN_OR_RETURN(auto transfer, device->NewTransfer());
  return std::unique_ptr<TensorDownload>(std::make_unique<StoreDownload>(
      std::move(info), std::move(tensor), std::move(pin), offset, bytes, std::move(transfer)));
}

absl::StatusOr<TensorInfo> TensorStore::Describe(const Principal* principal,
                                                 const TensorHandle& handle) {
  const std::lock_guard lock(shared_->mutex());
  RLK_ASSIGN_OR_RETURN(const StoredTensorRef tensor, shared_->Find(principal, "handle", handle));
  return shared_->Info(*tensor);
}

absl::StatusOr<std::vector<TensorInfo>> TensorStore::List(const Principal* principal,
                                                          std::string_view after, int64_t count) {
  if (principal == nullptr) return NoPrincipal("");
  std::vector<TensorInfo> infos;
  const std::lock_guard lock(shared_->mutex());
  const auto* tensors = shared_->TensorsOf(principal->id());
  if (tensors == nullptr) return infos;
  for (auto it = tensors->upper_bound(std::string(after));
       it != tensors->end() && static_cast<int64_t>(infos.size()) < count; ++it) {
    infos.push_back(shared_->Info(*it->second));
  }
  return infos;
}

absl::StatusOr<std::optional<TensorInfo>> TensorStore::Find(const Principal* principal,
                                                            std::string_view digest,
                                                            std::string_view device_uuid) {
  if (principal == nullptr) return NoPrincipal("");
  RLK_ASSIGN_OR_RETURN(const Device* const device, FindDevice(device_uuid));
  const std::lock_guard lock(shared_->mutex());
  const auto* tensors = shared_->TensorsOf(principal->id());
  if (tensors == nullptr) return std::optional<TensorInfo>();
  for (const auto& [id, tensor] : *tensors) {
    if (!tensor->digest || tensor->writing || tensor->poisoned || tensor->deadline) continue;
    if (tensor->memory->device().uuid != device->info().uuid) continue;
    if (tensor->digest->Text() != digest) continue;
    ++tensor->references;
    return std::optional<TensorInfo>(shared_->Info(*tensor));
  }
  return std::optional<TensorInfo>();
}

absl::StatusOr<TensorInfo> TensorStore::Renew(const Principal* principal,
                                              const TensorHandle& handle, int64_t lease_ms) {
  RLK_RETURN_IF_ERROR(CheckLease(lease_ms, options_.limits));
  const std::lock_guard lock(shared_->mutex());
  RLK_ASSIGN_OR_RETURN(const StoredTensorRef tensor, shared_->Find(principal, "handle", handle));
  if (lease_ms > 0 && tensor->references > 1) {
    return TensorBusy("handle", "the tensor is shared: a lease would end it for others");
  }
  shared_->SetLease(tensor, lease_ms);
  return shared_->Info(*tensor);
}

absl::Status TensorStore::Release(const Principal* principal,
                                  std::span<const TensorHandle> handles) {
  // Their memory goes when the mutex is free again.
  std::vector<StoredTensorRef> released;
  const std::lock_guard lock(shared_->mutex());
  for (size_t i = 0; i < handles.size(); ++i) {
    const std::string field = "handles[" + std::to_string(i) + "]";
    RLK_ASSIGN_OR_RETURN(StoredTensorRef tensor, shared_->Find(principal, field, handles[i]));
    const auto same = std::count(released.begin(), released.end(), tensor);
    if (same >= tensor->references) return TensorNotFound(field, handles[i]);
    released.push_back(std::move(tensor));
  }
  for (const StoredTensorRef& tensor : released) {
    if (--tensor->references == 0) shared_->Remove(tensor);
  }
  return absl::OkStatus();
}

void TensorStore::ReleaseOwner(uint64_t principal) { shared_->TakeOwner(principal); }
void TensorStore::Sweep() {
  shared_->TakeExpired();
  for (Device* device : devices_) device->ReleaseIdleMemory();
}

Usage TensorStore::usage(uint64_t principal) const { return budget_.Of(principal); }
Usage TensorStore::usage() const { return budget_.Total(); }

absl::Status TensorStore::Resolve(const Principal* principal, std::string_view field,
                                  TensorArg& arg) {
  const std::lock_guard lock(shared_->mutex());
  RLK_ASSIGN_OR_RETURN(const StoredTensorRef tensor,
                       shared_->FindReadable(principal, field, arg.resident));
  const int64_t size = ByteCount(tensor->shape, tensor->dtype);
  int64_t bytes = size;
  if (arg.dtype == DType::kUnspecified) {
    arg.dtype = tensor->dtype;
    arg.shape = tensor->shape;
    arg.strides = ContiguousStrides(tensor->shape);
  } else if (arg.dtype != tensor->dtype) {
    return InvalidArgument(Reason::kDtypeNotAllowed, field, DTypeName(arg.dtype),
                           DTypeName(tensor->dtype), "the tensor on the server has another dtype");
  } else {
    const std::optional<int64_t> span = SpanBytes(arg.dtype, arg.shape, arg.strides);
    if (!span) {
      return InvalidArgument(Reason::kInvalidStrides, field, ShapeText(arg.strides),
                             "an extent that fits in 63 bits", "the strides reach too far");
    }
    bytes = *span;
  }
  RLK_RETURN_IF_ERROR(CheckRange(field, arg.resident.offset, bytes, size));
  arg.place = TensorPlace::kResident;
  arg.memory = tensor->memory;
  arg.memory_offset = static_cast<int64_t>(arg.resident.offset);
  arg.data = {};
  arg.data.size = bytes;
  if (tensor->memory->device().kind == DeviceKind::kHost && bytes > 0) {
    arg.data.pieces.emplace_back(tensor->memory->data() + arg.memory_offset,
                                 static_cast<size_t>(bytes));
    arg.data.owner = tensor->memory;
  }
  if (arg.shape == tensor->shape && IsContiguous(arg.shape, arg.strides))
    arg.digest = tensor->digest;
  arg.synthetic = !tensor->synthetic.empty();
  arg.pin = shared_->Pin(tensor);
  return absl::OkStatus();
}

absl::StatusOr<DeviceInfo> TensorStore::Locate(const Principal* principal, std::string_view field,
                                               const TensorHandle& handle) {
  const std::lock_guard lock(shared_->mutex());
  RLK_ASSIGN_OR_RETURN(const StoredTensorRef tensor, shared_->Find(principal, field, handle));
  return tensor->memory->device();
}

absl::StatusOr<std::unique_ptr<ResidentOutput>> TensorStore::Reserve(
    const std::shared_ptr<const Principal>& principal, std::string_view field,
    const PlannedOutput& output, const std::optional<TensorHandle>& into,
    const DeviceInfo& device) {
  if (principal == nullptr) return NoPrincipal(field);
  const int64_t bytes = ByteCount(output.shape, output.dtype);
  if (!into) {
    RLK_ASSIGN_OR_RETURN(Device* const target, FindDevice(device.uuid));
    RLK_ASSIGN_OR_RETURN(auto memory, Allocate(*principal, *target, bytes));
    return MakeNewOutput(shared_, principal,
                         shared_->New(*principal, output.dtype, output.shape, std::move(memory)));
  }
  if (into->generation == 0) {
    return InvalidArgument(Reason::kTensorNotFound, field, "generation 0",
                           "the generation that the tensor is expected to have",
                           "a tensor is written only by its generation");
  }
  const std::lock_guard lock(shared_->mutex());
  RLK_ASSIGN_OR_RETURN(StoredTensorRef tensor,
                       shared_->FindReadable(principal.get(), field, *into));
  if (tensor->readers > 0) return TensorBusy(field, "the tensor is being read");
  if (tensor->references > 1) {
    return TensorBusy(field, "the tensor is shared: it was found by its digest");
  }
  if (tensor->dtype != output.dtype) {
    return InvalidArgument(Reason::kDtypeNotAllowed, field, DTypeName(output.dtype),
                           DTypeName(tensor->dtype), "the tensor on the server has another dtype");
  }
  const int64_t size = ByteCount(tensor->shape, tensor->dtype);
  RLK_RETURN_IF_ERROR(CheckRange(field, into->offset, bytes, size));
  if (into->offset % static_cast<uint64_t>(DTypeSize(tensor->dtype)) != 0) {
    return InvalidArgument(Reason::kMisaligned, field, "offset " + std::to_string(into->offset),
                           "a multiple of " + std::to_string(DTypeSize(tensor->dtype)),
                           "the output is not aligned");
  }
  const DeviceInfo& home = tensor->memory->device();
  if (home.uuid != device.uuid) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kPlacementUnavailable, std::string(field), home.uuid, device.uuid},
                     "the tensor lies on another device than the one that runs the call");
  }
  tensor->writing = true;
  const bool whole = bytes == size && output.shape == tensor->shape;
  return MakeInPlaceOutput(shared_, std::move(tensor), static_cast<int64_t>(into->offset), whole);
}

}  // namespace rlk::server
