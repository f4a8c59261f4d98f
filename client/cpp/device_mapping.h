// GPU memory of another process, mapped into this one. Internal. CUDA's driver library is loaded
// when it is first needed: the client is built and runs without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace rlk::client {

class DeviceMapping {
 public:
  // Imports the allocation of `bytes` that `descriptor` names, on the GPU with that uuid. Makes
  // that GPU's primary context, which the CUDA runtime of this process uses as well.
  // FAILED_PRECONDITION (kPlacementUnavailable) where there is no driver or no such GPU here.
  static absl::StatusOr<std::unique_ptr<DeviceMapping>> Import(int descriptor,
                                                               const std::string& uuid,
                                                               int64_t bytes);
  ~DeviceMapping();
  DeviceMapping(const DeviceMapping&) = delete;
  DeviceMapping& operator=(const DeviceMapping&) = delete;

  // The address on the GPU.
  void* data() const;

 private:
  struct Impl;
  explicit DeviceMapping(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlk::client
