#include "server/parity/host_tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/core/strided.h"
#include "server/engine/host_memory.h"

namespace rlk::server {
namespace {

// Alignments that contracts ask for are at most this.
constexpr size_t kElementAlignment = 64;

template <typename Spec>
int32_t FindName(const std::vector<Spec>& specs, std::string_view name) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return static_cast<int32_t>(i);
  }
  return -1;
}

// How the exponent and the fraction of a float lie; zero exponent bits for integers.
struct FloatFormat {
  uint64_t exponent = 0, fraction = 0;
};

FloatFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {0x7ff0000000000000u, 0x000fffffffffffffu};
    case DType::kF32:
      return {0x7f800000u, 0x007fffffu};
    case DType::kF16:
      return {0x7c00u, 0x03ffu};
    case DType::kBF16:
      return {0x7f80u, 0x007fu};
    default:
      return {};
  }
}

struct NonFinite {
  int64_t nan = 0, infinite = 0;
};

template <typename Bits>
NonFinite CountAs(const HostTensor& tensor, const FloatFormat& format) {
  NonFinite counts;
  const auto exponent = static_cast<Bits>(format.exponent);
  const auto fraction = static_cast<Bits>(format.fraction);
  const int64_t count = tensor.elements();
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, tensor.data.get() + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    if ((bits & exponent) != exponent) continue;
    ((bits & fraction) != 0 ? counts.nan : counts.infinite) += 1;
  }
  return counts;
}

NonFinite CountNonFinite(const HostTensor& tensor) {
  const FloatFormat format = FormatOf(tensor.dtype);
  if (format.exponent == 0) return {};
  switch (DTypeSize(tensor.dtype)) {
    case 8:
      return CountAs<uint64_t>(tensor, format);
    case 4:
      return CountAs<uint32_t>(tensor, format);
    default:
      return CountAs<uint16_t>(tensor, format);
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<std::byte>> AllocateElements(DType dtype, const Dims& shape) {
  const int64_t bytes = ByteCount(shape, dtype);
  // Never null: kernels may take the address of an empty tensor.
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* const block = ::operator new(size, std::align_val_t(kElementAlignment), std::nothrow);
  if (block == nullptr) return HostMemoryError(bytes);
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(block), [](std::byte* data) {
    ::operator delete(data, std::align_val_t(kElementAlignment));
  });
}

absl::StatusOr<HostTensor> ToHostTensor(const TensorView& view, const HostBytes& bytes) {
  HostTensor tensor{view.dtype, view.shape, nullptr};
  const int64_t alignment = static_cast<int64_t>(kElementAlignment);
  if (view.contiguous() && bytes.owner != nullptr && bytes.size == tensor.bytes()) {
    if (const std::byte* const data = InPlace(bytes, alignment); data != nullptr) {
      tensor.data = std::shared_ptr<const std::byte>(bytes.owner, data);
      return tensor;
    }
  }
  RLK_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> copy, AllocateElements(view.dtype, view.shape));
  const Contiguous source = MakeContiguous(bytes, 1);
  if (source.data == nullptr && bytes.size > 0) return HostMemoryError(bytes.size);
  if (tensor.elements() > 0) {
    TensorView strided = view;
    strided.data = source.data;
    GatherElements(strided, 0, tensor.elements(), copy.get());
  }
  tensor.data = std::move(copy);
  return tensor;
}

HostBytes ToHostBytes(const HostTensor& tensor) {
  HostBytes bytes;
  bytes.size = tensor.bytes();
  bytes.owner = tensor.data;
  if (bytes.size > 0) {
    bytes.pieces.emplace_back(tensor.data.get(), static_cast<size_t>(bytes.size));
  }
  return bytes;
}

int32_t FindInput(const MethodSignature& signature, std::string_view name) {
  return FindName(signature.inputs, name);
}
int32_t FindAttribute(const MethodSignature& signature, std::string_view name) {
  return FindName(signature.attributes, name);
}
int32_t FindOutput(const MethodSignature& signature, std::string_view name) {
  return FindName(signature.outputs, name);
}

const HostTensor* InputOf(const ValueCall& call, std::string_view name) {
  const int32_t spec = FindInput(call.signature(), name);
  for (const ValueInput& input : call.inputs) {
    if (input.spec == spec) return &input.tensor;
  }
  return nullptr;
}

const HostTensor* OutputOf(const MethodSignature& signature,
                           const std::vector<ValueOutput>& outputs, std::string_view name) {
  const int32_t spec = FindOutput(signature, name);
  for (const ValueOutput& output : outputs) {
    if (output.spec == spec) return &output.tensor;
  }
  return nullptr;
}

void SetInput(ValueCall& call, int32_t spec, HostTensor tensor) {
  auto at = call.inputs.begin();
  while (at != call.inputs.end() && at->spec < spec) ++at;
  if (at != call.inputs.end() && at->spec == spec) {
    at->tensor = std::move(tensor);
    return;
  }
  call.inputs.insert(at, {spec, std::move(tensor)});
}

int64_t CountNan(const HostTensor& tensor) { return CountNonFinite(tensor).nan; }

bool InputsFinite(const ValueCall& call) {
  return std::all_of(call.inputs.begin(), call.inputs.end(), [](const ValueInput& input) {
    const NonFinite counts = CountNonFinite(input.tensor);
    return counts.nan == 0 && counts.infinite == 0;
  });
}

}  // namespace rlk::server
