#include "client/cpp/device_mapping.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::client {
namespace {

// The part of CUDA's driver interface that is needed, as its documentation defines it.
using Result = int;
using Address = unsigned long long;
using Handle = unsigned long long;
struct Uuid {
  unsigned char bytes[16];
};
struct AccessDesc {
  int location_type, location_id, flags;
};
constexpr int kPosixDescriptor = 1, kLocationDevice = 1, kReadWrite = 3;

struct Driver {
  Result (*init)(unsigned) = nullptr;
  Result (*device_count)(int*) = nullptr;
  Result (*device_get)(int*, int) = nullptr;
  Result (*device_uuid)(Uuid*, int) = nullptr;
  Result (*retain)(void**, int) = nullptr;
  Result (*release_context)(int) = nullptr;
  Result (*import_handle)(Handle*, void*, int) = nullptr;
  Result (*reserve)(Address*, size_t, size_t, Address, unsigned long long) = nullptr;
  Result (*free_address)(Address, size_t) = nullptr;
  Result (*map)(Address, size_t, size_t, Handle, unsigned long long) = nullptr;
  Result (*unmap)(Address, size_t) = nullptr;
  Result (*set_access)(Address, size_t, const AccessDesc*, size_t) = nullptr;
  Result (*release)(Handle) = nullptr;

  static absl::StatusOr<Driver> Load();
};

absl::Status Unavailable(const std::string& what) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      {Reason::kPlacementUnavailable, "arena", "ARENA_KIND_DEVICE", "a process with the GPU"},
      what);
}

template <typename Function>
bool Find(void* library, const char* name, Function* to) {
  *to = reinterpret_cast<Function>(dlsym(library, name));
  return *to != nullptr;
}

absl::StatusOr<Driver> Driver::Load() {
  // Never closed: contexts live as long as the process.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable("there is no NVIDIA driver: libcuda.so.1");
  Driver driver;
  const bool found = Find(library, "cuInit", &driver.init) &&
                     Find(library, "cuDeviceGetCount", &driver.device_count) &&
                     Find(library, "cuDeviceGet", &driver.device_get) &&
                     Find(library, "cuDeviceGetUuid_v2", &driver.device_uuid) &&
                     Find(library, "cuDevicePrimaryCtxRetain", &driver.retain) &&
                     Find(library, "cuDevicePrimaryCtxRelease_v2", &driver.release_context) &&
                     Find(library, "cuMemImportFromShareableHandle", &driver.import_handle) &&
                     Find(library, "cuMemAddressReserve", &driver.reserve) &&
                     Find(library, "cuMemAddressFree", &driver.free_address) &&
                     Find(library, "cuMemMap", &driver.map) &&
                     Find(library, "cuMemUnmap", &driver.unmap) &&
                     Find(library, "cuMemSetAccess", &driver.set_access) &&
                     Find(library, "cuMemRelease", &driver.release);
  if (!found) return Unavailable("the NVIDIA driver is too old to map shared memory");
  if (const Result result = driver.init(0); result != 0) {
    return Unavailable("cuInit: error " + std::to_string(result));
  }
  return driver;
}

// As nvidia-smi prints it.
std::string Text(const Uuid& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", uuid.bytes[i]);
    text += hex;
  }
  return text;
}

}  // namespace

struct DeviceMapping::Impl {
  Driver driver;
  int device = -1;
  size_t bytes = 0;
  Address address = 0;
  Handle handle = 0;
  bool retained = false, imported = false, mapped = false;

  ~Impl() {
    if (mapped) driver.unmap(address, bytes);
    if (address != 0) driver.free_address(address, bytes);
    if (imported) driver.release(handle);
    if (retained) driver.release_context(device);
  }

  absl::Status FindDevice(const std::string& uuid);
  absl::Status Check(Result result, const char* what) const {
    if (result == 0) return absl::OkStatus();
    return Unavailable(std::string(what) + ": error " + std::to_string(result));
  }
};

absl::Status DeviceMapping::Impl::FindDevice(const std::string& uuid) {
  int count = 0;
  RLK_RETURN_IF_ERROR(Check(driver.device_count(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int candidate = -1;
    Uuid bytes = {};
    if (driver.device_get(&candidate, ordinal) != 0 || driver.device_uuid(&bytes, candidate) != 0) {
      continue;
    }
    if (Text(bytes) == uuid) {
      device = candidate;
      return absl::OkStatus();
    }
  }
  return Unavailable("this process does not see the GPU " + uuid);
}

absl::StatusOr<std::unique_ptr<DeviceMapping>> DeviceMapping::Import(int descriptor,
                                                                     const std::string& uuid,
                                                                     int64_t bytes) {
  static const absl::StatusOr<Driver> driver = Driver::Load();
  if (!driver.ok()) return driver.status();
  auto impl = std::make_unique<Impl>();
  impl->driver = *driver;
  impl->bytes = static_cast<size_t>(bytes);
  RLK_RETURN_IF_ERROR(impl->FindDevice(uuid));
  void* context = nullptr;
  RLK_RETURN_IF_ERROR(
      impl->Check(driver->retain(&context, impl->device), "cuDevicePrimaryCtxRetain"));
  impl->retained = true;
  void* const handle = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  RLK_RETURN_IF_ERROR(impl->Check(driver->import_handle(&impl->handle, handle, kPosixDescriptor),
                                  "cuMemImportFromShareableHandle"));
  impl->imported = true;
  RLK_RETURN_IF_ERROR(
      impl->Check(driver->reserve(&impl->address, impl->bytes, 0, 0, 0), "cuMemAddressReserve"));
  RLK_RETURN_IF_ERROR(
      impl->Check(driver->map(impl->address, impl->bytes, 0, impl->handle, 0), "cuMemMap"));
  impl->mapped = true;
  const AccessDesc access = {kLocationDevice, impl->device, kReadWrite};
  RLK_RETURN_IF_ERROR(
      impl->Check(driver->set_access(impl->address, impl->bytes, &access, 1), "cuMemSetAccess"));
  return std::unique_ptr<DeviceMapping>(new DeviceMapping(std::move(impl)));
}

DeviceMapping::DeviceMapping(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceMapping::~DeviceMapping() = default;

void* DeviceMapping::data() const { return reinterpret_cast<void*>(impl_->address); }

}  // namespace rlk::client
