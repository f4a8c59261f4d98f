#include "kernels/cuda/status.h"

#include <string>

#include "kernels/core/status.h"

namespace rlk::cuda {
namespace {

// "cudaMalloc(&p, n)" -> "cudaMalloc": arguments are of no use to a reader of the message.
std::string_view OperationName(std::string_view call) {
  const std::string_view name = call.substr(0, call.find('('));
  return name.starts_with("::") ? name.substr(2) : name;
}

}  // namespace

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorCudartUnloading:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

absl::Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string operation(OperationName(what));
  std::string message =
      operation + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  ErrorDetail detail;
  detail.field = "device";
  detail.value = cudaGetErrorName(error);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: later checks must not see it
    detail.reason = Reason::kDeviceMemoryExhausted;
    detail.retry_after_ms = 100;
    return MakeError(absl::StatusCode::kResourceExhausted, std::move(detail), message);
  }
  if (IsSticky(error)) {
    detail.reason = Reason::kDeviceLost;
    return MakeError(absl::StatusCode::kUnavailable, std::move(detail), message);
  }
  cudaGetLastError();
  detail.reason = Reason::kInternal;
  return MakeError(absl::StatusCode::kInternal, std::move(detail), message);
}

bool IsDeviceLost(const absl::Status& status) {
  if (status.ok()) return false;
  const auto detail = GetErrorDetail(status);
  return detail.has_value() && detail->reason == Reason::kDeviceLost;
}

}  // namespace rlk::cuda
