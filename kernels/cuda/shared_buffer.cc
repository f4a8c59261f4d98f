#include "kernels/cuda/shared_buffer.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cuda/driver_function.h"
#include "kernels/cuda/status.h"

namespace rlk::cuda {
namespace {

struct Driver {
  PFN_cuMemGetAllocationGranularity_v10020 granularity = nullptr;
  PFN_cuMemCreate_v10020 create = nullptr;
  PFN_cuMemRelease_v10020 release = nullptr;
  PFN_cuMemExportToShareableHandle_v10020 export_handle = nullptr;
  PFN_cuMemAddressReserve_v10020 reserve = nullptr;
  PFN_cuMemAddressFree_v10020 free = nullptr;
  PFN_cuMemMap_v10020 map = nullptr;
  PFN_cuMemUnmap_v10020 unmap = nullptr;
  PFN_cuMemSetAccess_v10020 set_access = nullptr;

  static absl::StatusOr<Driver> Load();
};

template <typename Function>
absl::Status Find(const char* name, Function* to) {
  return FindDriverFunction(name, 10020, to);
}

absl::StatusOr<Driver> Driver::Load() {
  Driver driver;
  RLK_RETURN_IF_ERROR(Find("cuMemGetAllocationGranularity", &driver.granularity));
  RLK_RETURN_IF_ERROR(Find("cuMemCreate", &driver.create));
  RLK_RETURN_IF_ERROR(Find("cuMemRelease", &driver.release));
  RLK_RETURN_IF_ERROR(Find("cuMemExportToShareableHandle", &driver.export_handle));
  RLK_RETURN_IF_ERROR(Find("cuMemAddressReserve", &driver.reserve));
  RLK_RETURN_IF_ERROR(Find("cuMemAddressFree", &driver.free));
  RLK_RETURN_IF_ERROR(Find("cuMemMap", &driver.map));
  RLK_RETURN_IF_ERROR(Find("cuMemUnmap", &driver.unmap));
  RLK_RETURN_IF_ERROR(Find("cuMemSetAccess", &driver.set_access));
  return driver;
}

const absl::StatusOr<Driver>& TheDriver() {
  static const absl::StatusOr<Driver> driver = Driver::Load();
  return driver;
}

absl::Status FromDriver(CUresult result, const char* what) {
  switch (result) {
    case CUDA_SUCCESS:
      return absl::OkStatus();
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ToStatus(cudaErrorMemoryAllocation, what);
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
      return ToStatus(cudaErrorContextIsDestroyed, what);
    default:
      return absl::InternalError(absl::StrCat(what, ": error ", int{result}));
  }
}

CUmemAllocationProp Properties(int ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

}  // namespace

absl::StatusOr<int64_t> SharedBuffer::Granularity(int ordinal) {
  const absl::StatusOr<Driver>& driver = TheDriver();
  if (!driver.ok()) return driver.status();
  const CUmemAllocationProp properties = Properties(ordinal);
  size_t bytes = 0;
  RLK_RETURN_IF_ERROR(
      FromDriver(driver->granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                 "cuMemGetAllocationGranularity"));
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<std::unique_ptr<SharedBuffer>> SharedBuffer::Allocate(int ordinal, int64_t bytes) {
  RLK_ASSIGN_OR_RETURN(const int64_t unit, Granularity(ordinal));
  std::unique_ptr<SharedBuffer> buffer(new SharedBuffer());
  buffer->bytes_ = (bytes + unit - 1) / unit * unit;
  RLK_RETURN_IF_ERROR(buffer->Map(ordinal));
  // A stream's work that anybody waits for is not asked of the default stream.
  cudaStream_t stream = nullptr;
  RLK_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaError_t error =
      cudaMemsetAsync(buffer->data_, 0, static_cast<size_t>(buffer->bytes_), stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  RLK_RETURN_IF_ERROR(ToStatus(error, "cudaMemsetAsync"));
  return buffer;
}

absl::Status SharedBuffer::Map(int ordinal) {
  const Driver& driver = *TheDriver();
  const auto size = static_cast<size_t>(bytes_);
  const CUmemAllocationProp properties = Properties(ordinal);
  RLK_RETURN_IF_ERROR(FromDriver(driver.create(&handle_, size, &properties, 0), "cuMemCreate"));
  created_ = true;
  CUdeviceptr address = 0;
  RLK_RETURN_IF_ERROR(FromDriver(driver.reserve(&address, size, 0, 0, 0), "cuMemAddressReserve"));
  data_ = reinterpret_cast<std::byte*>(address);
  RLK_RETURN_IF_ERROR(FromDriver(driver.map(address, size, 0, handle_, 0), "cuMemMap"));
  mapped_ = true;
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return FromDriver(driver.set_access(address, size, &access, 1), "cuMemSetAccess");
}

SharedBuffer::~SharedBuffer() {
  if (leaked_) return;
  const Driver& driver = *TheDriver();
  const auto address = reinterpret_cast<CUdeviceptr>(data_);
  const auto size = static_cast<size_t>(bytes_);
  if (mapped_) driver.unmap(address, size);
  if (data_ != nullptr) driver.free(address, size);
  if (created_) driver.release(handle_);
}

absl::StatusOr<int> SharedBuffer::Export() const {
  int descriptor = -1;
  RLK_RETURN_IF_ERROR(FromDriver(
      TheDriver()->export_handle(&descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle"));
  return descriptor;
}

absl::StatusOr<std::unique_ptr<PageLock>> PageLock::Lock(std::byte* data, int64_t bytes) {
  RLK_CUDA_RETURN_IF_ERROR(
      cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable));
  return std::unique_ptr<PageLock>(new PageLock(data));
}

PageLock::~PageLock() {
  if (data_ != nullptr) cudaHostUnregister(data_);
}

}  // namespace rlk::cuda
