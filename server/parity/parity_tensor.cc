#include "server/parity/parity_tensor.h"

#include <algorithm>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/core/strided.h"
#include "server/engine/host_memory.h"

namespace rlk::server {
namespace {

Device* DeviceOf(const DeviceInfo& info, std::span<Device* const> devices) {
  for (Device* device : devices) {
    if (device->info().kind == info.kind && device->info().ordinal == info.ordinal) return device;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<std::byte>> Block(int64_t bytes) {
  std::shared_ptr<std::byte> block =
      HostMemory::Make(0)->Allocate(std::max<int64_t>(bytes, kHostAlignment));
  if (block == nullptr) return HostMemoryError(bytes);
  return block;
}

// A kernel that reads elements at another place than a multiple of their size ends the device.
absl::Status CheckAligned(std::string_view name, const TensorArg& tensor) {
  const auto size = static_cast<uint64_t>(DTypeSize(tensor.dtype));
  if (tensor.source != TensorSource::kResident || tensor.resident.offset % size == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument(Reason::kMisaligned, name,
                         "offset " + std::to_string(tensor.resident.offset),
                         "a multiple of " + std::to_string(size), "the view is not aligned");
}

// Elements between the first and the last of a view, both included.
int64_t Span(const Dims& shape, const Dims& strides) {
  int64_t last = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 0) return 0;
    last += (shape[d] - 1) * strides[d];
  }
  return last + 1;
}

}  // namespace

int64_t ParityTensor::rows() const {
  int64_t rows = 1;
  for (int d = 0; d + 1 < shape.rank(); ++d) rows *= shape[d];
  return rows;
}

int64_t ParityTensor::columns() const { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }

TensorView ParityTensor::view() const {
  const std::byte* const at = on_host() ? data : memory->data() + memory_offset;
  return {dtype, shape, ContiguousStrides(shape), at};
}

absl::StatusOr<ParityTensor> MakeParityTensor(DType dtype, const Dims& shape,
                                              const HostBytes& bytes) {
  ParityTensor result;
  result.dtype = dtype;
  result.shape = shape;
  const Contiguous block = MakeContiguous(bytes, DTypeSize(dtype));
  if (block.data == nullptr && bytes.size > 0) return HostMemoryError(bytes.size);
  result.data = block.data;
  result.owner = block.copy != nullptr ? block.copy : bytes.owner;
  return result;
}

absl::StatusOr<ParityTensor> MakeParityTensor(std::string_view name, const TensorArg& tensor,
                                              std::span<Device* const> devices) {
  RLK_RETURN_IF_ERROR(CheckAligned(name, tensor));
  const bool contiguous = IsContiguous(tensor.shape, tensor.strides);
  const int64_t bytes = ByteCount(tensor.shape, tensor.dtype);
  if (!contiguous && bytes > kGatheredBytesMax) {
    return InvalidArgument(
        Reason::kLimitExceeded, name, std::to_string(bytes) + " bytes",
        "at most " + std::to_string(kGatheredBytesMax) + " bytes of a view that is not in C order",
        "the view is too large to gather");
  }
  ParityTensor result;
  result.dtype = tensor.dtype;
  result.shape = tensor.shape;
  result.pin = tensor.pin;
  result.digest = tensor.digest;
  const bool on_device =
      tensor.memory != nullptr && tensor.memory->device().kind != DeviceKind::kHost;
  if (on_device) {
    result.memory = tensor.memory;
    result.memory_offset = tensor.memory_offset;
    result.device = DeviceOf(tensor.memory->device(), devices);
    if (result.device == nullptr) {
      return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, "device", {}, {}},
                       "a tensor lies on a device that the server does not have");
    }
    if (contiguous) return result;
    // The span that the strides reach over, as a tensor of one dimension, then as from the host.
    result.shape = Dims{Span(tensor.shape, tensor.strides)};
    RLK_ASSIGN_OR_RETURN(result, ToHost(result));
  } else {
    RLK_ASSIGN_OR_RETURN(ParityTensor host,
                         MakeParityTensor(tensor.dtype, tensor.shape, tensor.data));
    result.data = host.data;
    result.owner = std::move(host.owner);
    if (contiguous) return result;
  }
  const TensorView view{tensor.dtype, tensor.shape, tensor.strides, result.data};
  RLK_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> gathered, Block(view.bytes()));
  GatherElements(view, 0, view.elements(), gathered.get());
  result.shape = tensor.shape;
  result.data = gathered.get();
  result.owner = std::move(gathered);
  return result;
}

absl::StatusOr<TensorReader> TensorReader::Make(const ParityTensor& tensor) {
  TensorReader reader;
  reader.tensor_ = &tensor;
  if (!tensor.on_host()) {
    RLK_ASSIGN_OR_RETURN(reader.transfer_, tensor.device->NewTransfer());
  }
  return reader;
}

absl::StatusOr<HostBytes> TensorReader::Read(int64_t begin, int64_t count) {
  const int64_t size = DTypeSize(tensor_->dtype);
  if (transfer_ != nullptr) {
    return transfer_->Read(tensor_->memory, tensor_->memory_offset + begin * size, count * size);
  }
  HostBytes bytes;
  bytes.size = count * size;
  if (count > 0) {
    bytes.pieces.emplace_back(tensor_->data + begin * size, static_cast<size_t>(bytes.size));
  }
  bytes.owner = tensor_->owner;
  return bytes;
}

absl::StatusOr<ParityTensor> ToHost(const ParityTensor& tensor) {
  if (tensor.on_host()) return tensor;
  RLK_ASSIGN_OR_RETURN(TensorReader reader, TensorReader::Make(tensor));
  RLK_ASSIGN_OR_RETURN(const HostBytes bytes, reader.Read(0, tensor.elements()));
  RLK_ASSIGN_OR_RETURN(ParityTensor host, MakeParityTensor(tensor.dtype, tensor.shape, bytes));
  host.digest = tensor.digest;
  return host;
}

absl::StatusOr<ParityTensor> ToDevice(const ParityTensor& tensor, Device* device) {
  if (tensor.device == device) return tensor;
  RLK_ASSIGN_OR_RETURN(const ParityTensor host, ToHost(tensor));
  ParityTensor result;
  result.dtype = host.dtype;
  result.shape = host.shape;
  result.digest = host.digest;
  result.device = device;
  RLK_ASSIGN_OR_RETURN(result.memory, device->AllocateResident(host.bytes()));
  if (host.bytes() == 0) return result;
  RLK_ASSIGN_OR_RETURN(const std::unique_ptr<Transfer> transfer, device->NewTransfer());
  const std::span<const std::byte> bytes(host.data, static_cast<size_t>(host.bytes()));
  RLK_RETURN_IF_ERROR(transfer->Write(*result.memory, 0, {&bytes, 1}));
  RLK_RETURN_IF_ERROR(transfer->Flush());
  return result;
}

}  // namespace rlk::server
