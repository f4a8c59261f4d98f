// The methods' checks of values: what descriptors cannot say of the elements of an input.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/kernel_args.h"
#include "server/engine/device.h"
#include "server/engine/job.h"

namespace rlk::server {

using FindDeviceFn = std::function<absl::StatusOr<Device*>(const DeviceInfo&)>;

// Runs the check of a method that has one, on bytes that nobody else can write. Values are read
// once, into memory of this process, where their caller can still write them: the call's inputs are
// that copy afterwards, so that a kernel gets what was checked. Those that lie on a GPU come to the
// host for it and go back as inline ones do. A copy has the elements that the shape names, in C
// order, however far apart they lay, and counts in what waits in the queue with the call.
absl::Status CheckValues(Job& job, const KernelArgs& args, const FindDeviceFn& find_device);

}  // namespace rlk::server
