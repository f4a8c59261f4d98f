// Two runs of one call that gave different bits: all that is needed to run it again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/registry/call.h"
#include "server/engine/verification.h"

namespace rlk::server {

struct RepeatMismatch {
  struct Input {
    std::string name;
    DType dtype = DType::kUnspecified;
    Dims shape, strides;
    TensorSource source = TensorSource::kInline;
    // Absent where the device could not say it.
    std::optional<Digest> digest;
  };
  struct Output {
    std::string name;
    DType dtype = DType::kUnspecified;
    Dims shape;
    std::optional<Digest> first, second;
    BitComparison comparison;
  };

  const Method* method = nullptr;
  // The caller did not ask: the server took the call as a sample.
  bool sampled = false;
  std::string_view contract, kernel;
  Backend backend = Backend::kCpu;
  DeviceInfo device;
  // By attribute spec index, defaults included.
  std::vector<AttributeValue> attributes;
  std::vector<Input> inputs;
  // Those that differ, and those that do not.
  std::vector<Output> outputs;
  std::string trace_id;
};

}  // namespace rlk::server
