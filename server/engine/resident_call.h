// The part of a call that concerns tensors that stay on the server.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "server/engine/job.h"
#include "server/engine/residents.h"

namespace rlk::server {

// Resolves the inputs that are not inline. Without a resolver (null) they are refused:
// INVALID_ARGUMENT (kSourceNotSupported).
absl::Status ResolveInputs(Call& call, TensorResolver* resolver);

// The GPU whose memory the call uses, which has to run it; nothing where it uses none. Tensors in
// host memory go to any device. FAILED_PRECONDITION (kPlacementUnavailable) for two GPUs: nothing
// is moved between devices unasked.
absl::StatusOr<std::optional<DeviceInfo>> HomeDevice(const Call& call, TensorResolver* resolver);

// FAILED_PRECONDITION (kPlacementUnavailable) where `device` cannot use what lies at `home`.
absl::Status CheckHome(const std::optional<DeviceInfo>& home, const DeviceInfo& device);

// Reserves job.residents on `device`, and notes in the report what was moved there unasked.
absl::Status ReserveOutputs(Job& job, TensorResolver* resolver, const DeviceInfo& device);

// True where a resident tensor's bytes can be used on `device` as they lie.
bool LiesOn(const ResidentMemory& memory, const DeviceInfo& device);

// The call is done: keeps or gives up its outputs and lets go of its inputs. Memory that a lost
// device may still use stays with the job.
void ConcludeResidents(Job& job, absl::StatusOr<CallResult>& outcome);

}  // namespace rlk::server
