// A tensor that is compared: its elements in C order without gaps, in memory of the host or of a
// device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/core/tensor_view.h"
#include "kernels/digest/digest.h"
#include "kernels/registry/call.h"
#include "server/engine/device.h"

namespace rlk::server {

struct ParityTensor {
  DType dtype = DType::kUnspecified;
  Dims shape;
  // Host memory; null where `memory` is a device's, or there are no elements.
  const std::byte* data = nullptr;
  std::shared_ptr<const void> owner;
  // A device's, with where in it the tensor begins.
  std::shared_ptr<ResidentMemory> memory;
  int64_t memory_offset = 0;
  Device* device = nullptr;
  // Keeps writers away.
  std::shared_ptr<const void> pin;
  // Where it is known already.
  std::optional<Digest> digest;

  int64_t elements() const { return ElementCount(shape); }
  int64_t bytes() const { return ByteCount(shape, dtype); }
  bool on_host() const { return device == nullptr; }
  // Of the memory where it lies.
  TensorView view() const;
  // Sizes before the last, multiplied; a scalar has one row of one column.
  int64_t rows() const;
  int64_t columns() const;
};

// A view that is not in C order is gathered, and may name many more elements than the memory that
// it looks at has.
inline constexpr int64_t kGatheredBytesMax = int64_t{256} << 20;

// From a tensor that is inline or resolved, `name` in errors. Strided elements are gathered on the
// host. `devices` are those of the engine. INVALID_ARGUMENT (kLimitExceeded) above
// kGatheredBytesMax, (kMisaligned) for a view that begins inside an element; RESOURCE_EXHAUSTED
// (kBytesExhausted) without host memory.
absl::StatusOr<ParityTensor> MakeParityTensor(std::string_view name, const TensorArg& tensor,
                                              std::span<Device* const> devices);

// From elements in C order on the host.
absl::StatusOr<ParityTensor> MakeParityTensor(DType dtype, const Dims& shape,
                                              const HostBytes& bytes);

// Reads elements [begin, begin + count) of a tensor, wherever it lies. One thread at a time.
class TensorReader {
 public:
  static absl::StatusOr<TensorReader> Make(const ParityTensor& tensor);
  absl::StatusOr<HostBytes> Read(int64_t begin, int64_t count);

 private:
  const ParityTensor* tensor_ = nullptr;
  std::unique_ptr<Transfer> transfer_;
};

// The same tensor in host memory.
absl::StatusOr<ParityTensor> ToHost(const ParityTensor& tensor);
// The same tensor in the memory of the device, which a tensor elsewhere takes for as long as it
// lives. RESOURCE_EXHAUSTED (kDeviceMemoryExhausted).
absl::StatusOr<ParityTensor> ToDevice(const ParityTensor& tensor, Device* device);

}  // namespace rlk::server
