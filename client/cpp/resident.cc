#include "client/cpp/resident.h"

namespace rlk::client {

TensorRef ResidentTensor::ref() const {
  return {.dtype = dtype, .shape = shape, .resident = handle};
}

ResidentTensor FromDescription(const rlk::v1::TensorDescription& description) {
  ResidentTensor tensor;
  tensor.handle = description.handle();
  tensor.dtype = static_cast<DType>(description.dtype());
  for (const int64_t size : description.shape()) {
    if (tensor.shape.rank() < kMaxRank) tensor.shape.push_back(size);
  }
  tensor.bytes = description.bytes();
  tensor.digest = description.digest();
  tensor.device_uuid = description.device_uuid();
  tensor.label = description.label();
  tensor.lease_ms = description.lease_ms();
  tensor.poisoned = description.poisoned();
  tensor.synthetic = description.synthetic();
  return tensor;
}

}  // namespace rlk::client
