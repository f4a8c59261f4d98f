#include "server/engine/checked_values.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/core/strided.h"
#include "server/engine/host_memory.h"

namespace rlk::server {
namespace {

bool IsChecked(const Method& method, const TensorArg& input) {
  const std::vector<std::string>& checked = method.decl.checked_inputs;
  const std::string& name = method.signature.inputs[static_cast<size_t>(input.spec)].name;
  return std::find(checked.begin(), checked.end(), name) != checked.end();
}

// Reads a tensor's memory on a GPU by so many bytes at a time: strides cost no memory.
class Windows {
 public:
  static constexpr int64_t kBytes = int64_t{1} << 20;

  Windows(const TensorArg& input, Transfer* transfer) : input_(input), transfer_(transfer) {}

  // `size` bytes from `offset` of the tensor on, until the next call.
  absl::StatusOr<const std::byte*> At(int64_t offset, int64_t size) {
    if (offset < begin_ || offset + size > begin_ + window_.size) {
      RLK_ASSIGN_OR_RETURN(window_, transfer_->Read(input_.memory, input_.memory_offset + offset,
                                                    std::min(kBytes, input_.data.size - offset)));
      begin_ = offset;
      held_ = MakeContiguous(window_, 1);
    }
    if (held_.data == nullptr) return HostMemoryError(window_.size);
    return held_.data + (offset - begin_);
  }

 private:
  const TensorArg& input_;
  Transfer* const transfer_;
  int64_t begin_ = 0;
  HostBytes window_;
  Contiguous held_;
};

// The elements of a tensor on a GPU, in C order.
absl::Status GatherFromDevice(const TensorArg& input, Transfer* transfer, std::byte* to) {
  const int64_t size = DTypeSize(input.dtype), count = ElementCount(input.shape);
  Windows windows(input, transfer);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (int d = input.shape.rank() - 1; d >= 0; --d) {
      offset += rest % input.shape[d] * input.strides[d];
      rest /= input.shape[d];
    }
    RLK_ASSIGN_OR_RETURN(const std::byte* from, windows.At(offset * size, size));
    std::memcpy(to + i * size, from, static_cast<size_t>(size));
  }
  return absl::OkStatus();
}

absl::StatusOr<HostBytes> CopyElements(const TensorArg& input, Transfer* transfer) {
  const int64_t count = ElementCount(input.shape);
  HostBytes copy;
  copy.size = count * DTypeSize(input.dtype);
  const auto block = HostMemory::Make(0)->Allocate(copy.size);
  if (block == nullptr) return HostMemoryError(copy.size);
  if (transfer != nullptr) {
    RLK_RETURN_IF_ERROR(GatherFromDevice(input, transfer, block.get()));
  } else if (count > 0) {
    const Contiguous on_host = MakeContiguous(input.data, 1);
    if (on_host.data == nullptr) return HostMemoryError(input.data.size);
    GatherElements({input.dtype, input.shape, input.strides, on_host.data}, 0, count, block.get());
  }
  copy.pieces.emplace_back(block.get(), static_cast<size_t>(copy.size));
  copy.owner = block;
  return copy;
}

// The bytes that were copied.
absl::StatusOr<int64_t> TakeCopy(TensorArg& input, const FindDeviceFn& find_device) {
  if (input.memory == nullptr) return 0;
  const DeviceInfo& info = input.memory->device();
  const bool on_host = info.kind == DeviceKind::kHost;
  if (on_host && !input.live) return 0;
  std::unique_ptr<Transfer> transfer;
  if (!on_host) {
    RLK_ASSIGN_OR_RETURN(Device* const device, find_device(info));
    RLK_ASSIGN_OR_RETURN(transfer, device->NewTransfer());
  }
  if (input.data.size > 0) {
    RLK_ASSIGN_OR_RETURN(input.data, CopyElements(input, transfer.get()));
  }
  input.strides = ContiguousStrides(input.shape);
  input.memory.reset();
  input.memory_offset = 0;
  input.live = false;
  return input.data.size;
}

}  // namespace

absl::Status CheckValues(Job& job, const KernelArgs& args, const FindDeviceFn& find_device) {
  const MethodDecl& decl = job.method().decl;
  std::vector<TensorView> views(args.inputs.begin(), args.inputs.end());
  std::vector<Contiguous> held;
  for (size_t i = 0; i < views.size(); ++i) {
    TensorArg& input = job.call.inputs[i];
    if (!IsChecked(job.method(), input)) continue;
    RLK_ASSIGN_OR_RETURN(const int64_t copied, TakeCopy(input, find_device));
    job.copied_bytes += copied;
    views[i].strides = job.checked.input_views[i].strides = input.strides;
    held.push_back(MakeContiguous(input.data, DTypeSize(views[i].dtype)));
    if (held.back().data == nullptr && input.data.size > 0) {
      return HostMemoryError(input.data.size);
    }
    views[i].data = held.back().data;
  }
  KernelArgs with_data = args;
  with_data.inputs = views;
  return decl.validate_values(with_data);
}

}  // namespace rlk::server
