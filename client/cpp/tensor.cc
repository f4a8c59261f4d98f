#include "client/cpp/tensor.h"

#include <new>

#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

absl::Status BadTensor(Reason reason, const std::string& name, const std::string& value,
                       const std::string& allowed, const std::string& what) {
  return InvalidArgument(reason, name, value, allowed, what);
}

}  // namespace

absl::StatusOr<Tensor> Tensor::Allocate(DType dtype, std::span<const int64_t> shape) {
  const std::string name = "tensor";
  if (shape.size() > kMaxRank) {
    return BadTensor(Reason::kRankTooLarge, name, std::to_string(shape.size()),
                     "rank at most " + std::to_string(kMaxRank), "the rank is too large");
  }
  TensorRef ref{.dtype = dtype, .shape = Dims(shape), .data = &name};
  RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(ref, name));
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = ref.shape;
  tensor.size_ = bytes;
  // One spare byte, so that an empty tensor has an address too.
  auto* memory = new (std::nothrow) std::byte[static_cast<size_t>(bytes) + 1];
  if (memory == nullptr) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     {Reason::kBytesExhausted, name, std::to_string(bytes), "", 0},
                     "no memory for a tensor of " + std::to_string(bytes) + " bytes");
  }
  tensor.data_.reset(memory);
  return tensor;
}

std::span<const std::byte> Tensor::bytes() const {
  return {data_.get(), static_cast<size_t>(size_)};
}

std::span<std::byte> Tensor::mutable_bytes() { return {data_.get(), static_cast<size_t>(size_)}; }

TensorView Tensor::view() const { return {dtype_, shape_, ContiguousStrides(shape_), data_.get()}; }

TensorRef Tensor::ref() const {
  return {.dtype = dtype_, .shape = shape_, .data = data_.get(), .owner = data_};
}

absl::StatusOr<int64_t> SourceBytes(const TensorRef& tensor, const std::string& name) {
  if (DTypeSize(tensor.dtype) == 0) {
    return BadTensor(Reason::kDtypeNotAllowed, name, std::to_string(static_cast<int>(tensor.dtype)),
                     "F32, F16, BF16, F64, I32, I64, U8, BOOL", "the tensor has no dtype");
  }
  bool empty = false;
  for (int64_t size : tensor.shape) {
    if (size < 0) {
      return BadTensor(Reason::kShapeMismatch, name, std::to_string(size), "0 and above",
                       "a size is negative");
    }
    empty = empty || size == 0;
  }
  if (tensor.strides && tensor.strides->rank() != tensor.shape.rank()) {
    return BadTensor(Reason::kInvalidStrides, name, std::to_string(tensor.strides->rank()),
                     "one stride for each of " + std::to_string(tensor.shape.rank()) + " sizes",
                     "strides and shape differ in rank");
  }
  std::optional<int64_t> last = 0;  // index of the last element that is reached
  if (tensor.strides) {
    for (int i = 0; i < tensor.shape.rank() && last; ++i) {
      const int64_t stride = (*tensor.strides)[i];
      if (stride < 0) {
        return BadTensor(Reason::kInvalidStrides, name, std::to_string(stride), "0 and above",
                         "a stride is negative");
      }
      if (empty) continue;
      const auto reach = CheckedMul(tensor.shape[i] - 1, stride);
      last = reach ? CheckedAdd(*last, *reach) : std::nullopt;
    }
  } else {
    const auto product = CheckedProduct(tensor.shape.span());
    last = product ? std::optional<int64_t>(*product - 1) : std::nullopt;
  }
  const auto elements =
      empty ? std::optional<int64_t>(0) : (last ? CheckedAdd(*last, 1) : std::nullopt);
  const auto bytes = elements ? CheckedMul(*elements, DTypeSize(tensor.dtype)) : std::nullopt;
  if (!bytes || *bytes == INT64_MAX) {
    return BadTensor(Reason::kShapeMismatch, name, "overflow", "a size in bytes below 2^63",
                     "the size of the tensor overflows");
  }
  if (*bytes > 0 && tensor.data == nullptr) {
    return BadTensor(Reason::kMissingTensor, name, "null", "a pointer to the first element",
                     "the tensor has elements but no data");
  }
  return *bytes;
}

}  // namespace rlk::client
