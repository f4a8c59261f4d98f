// Tensors and calls as values: what a check has read once and runs again in other layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/tensor_view.h"
#include "kernels/registry/call.h"
#include "kernels/registry/registry.h"

namespace rlk::server {

// Elements in host memory, in C order, shared and never changed once they are written.
struct HostTensor {
  DType dtype = DType::kUnspecified;
  Dims shape;
  std::shared_ptr<const std::byte> data;

  int64_t elements() const { return ElementCount(shape); }
  int64_t bytes() const { return ByteCount(shape, dtype); }
  TensorView view() const { return {dtype, shape, ContiguousStrides(shape), data.get()}; }
};

// Room for the elements, aligned for every kernel; contents undefined. RESOURCE_EXHAUSTED.
absl::StatusOr<std::shared_ptr<std::byte>> AllocateElements(DType dtype, const Dims& shape);

// The elements of `view` (its data is `bytes`, of the strides' whole extent) in C order; without a
// copy where they lie so already.
absl::StatusOr<HostTensor> ToHostTensor(const TensorView& view, const HostBytes& bytes);

// As an input of a call, or as an output of one.
HostBytes ToHostBytes(const HostTensor& tensor);

struct ValueInput {
  int32_t spec = 0;  // index into MethodSignature::inputs
  HostTensor tensor;
};

// A call whose tensors are values.
struct ValueCall {
  const Method* method = nullptr;
  std::vector<ValueInput> inputs;  // in signature order
  std::vector<Call::GivenAttribute> attributes;
  // Empty: every output that is not on request.
  std::vector<std::string> wanted_outputs;

  const MethodSignature& signature() const { return method->signature; }
};

struct ValueOutput {
  int32_t spec = 0;  // index into MethodSignature::outputs
  HostTensor tensor;
};

// -1 where there is none.
int32_t FindInput(const MethodSignature& signature, std::string_view name);
int32_t FindAttribute(const MethodSignature& signature, std::string_view name);
int32_t FindOutput(const MethodSignature& signature, std::string_view name);

// The first tensor of that input or output; null where it is absent.
const HostTensor* InputOf(const ValueCall& call, std::string_view name);
const HostTensor* OutputOf(const MethodSignature& signature,
                           const std::vector<ValueOutput>& outputs, std::string_view name);

// Adds a tensor to a call, in its place; one that is there is replaced.
void SetInput(ValueCall& call, int32_t spec, HostTensor tensor);

// Elements that are NaN; 0 for integers.
int64_t CountNan(const HostTensor& tensor);
// Every element of every float input is finite.
bool InputsFinite(const ValueCall& call);

}  // namespace rlk::server
