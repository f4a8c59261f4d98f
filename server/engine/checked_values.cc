#include "server/engine/checked_values.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/core/status.h"
#include "server/engine/host_memory.h"

namespace rlk::server {
namespace {

bool IsChecked(const Method& method, const TensorArg& input) {
  const std::vector<std::string>& checked = method.decl.checked_inputs;
  const std::string& name = method.signature.inputs[static_cast<size_t>(input.spec)].name;
  return std::find(checked.begin(), checked.end(), name) != checked.end();
}

absl::Status TakeCopy(TensorArg& input, const FindDeviceFn& find_device) {
  if (input.memory == nullptr) return absl::OkStatus();
  const DeviceInfo& info = input.memory->device();
  const bool on_host = info.kind == DeviceKind::kHost;
  if (on_host && !input.live) return absl::OkStatus();
  if (!on_host) {
    RLK_ASSIGN_OR_RETURN(Device* const device, find_device(info));
    RLK_ASSIGN_OR_RETURN(const auto transfer, device->NewTransfer());
    RLK_ASSIGN_OR_RETURN(input.data,
                         transfer->Read(input.memory, input.memory_offset, input.data.size));
  }
  RLK_ASSIGN_OR_RETURN(input.data, CopyBytes(input.data, kHostAlignment));
  input.memory.reset();
  input.memory_offset = 0;
  input.live = false;
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckValues(Job& job, const KernelArgs& args, const FindDeviceFn& find_device) {
  const MethodDecl& decl = job.method().decl;
  std::vector<TensorView> views(args.inputs.begin(), args.inputs.end());
  std::vector<Contiguous> held;
  for (size_t i = 0; i < views.size(); ++i) {
    TensorArg& input = job.call.inputs[i];
    if (!IsChecked(job.method(), input)) continue;
    RLK_RETURN_IF_ERROR(TakeCopy(input, find_device));
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
