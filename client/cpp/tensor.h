// Tensors as the client library takes and gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/core/dtype.h"
#include "kernels/core/tensor_view.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::client {

// An input: a look at host memory. Elements are little-endian; FP16, BF16 and FP32 are bits that
// nothing converts, NaN payloads included.
struct TensorRef {
  DType dtype = DType::kUnspecified;
  // Row-major sizes, rank at most 8; a scalar has rank 0. A size may be 0.
  Dims shape = {};
  // Distance between neighbours along each dimension, in elements, not negative. Absent: C order.
  // Only the elements from the first to the last one that the strides reach are sent.
  std::optional<Dims> strides = std::nullopt;
  // The first element. May be null when the tensor has no elements.
  const void* data = nullptr;
  // Keeps `data` alive. With an owner, large payloads are sent by reference: a transport may look
  // at them after a call that was cancelled or ran out of time has returned. Without an owner the
  // payload is copied once before the call starts, so the caller may free it on return.
  std::shared_ptr<const void> owner = nullptr;
  // Instead of `data`: (a view of) a tensor that stays on the server. dtype, shape and strides say
  // what the view is; without a dtype it is the whole tensor, as the server knows it.
  std::optional<rlk::v1::TensorHandle> resident = std::nullopt;
  // Instead of either: a place in an arena of the client's session (client/cpp/arena.h).
  std::optional<rlk::v1::ArenaRef> arena = std::nullopt;
};

// A tensor in host memory that this object owns, in C order. Movable; copies share nothing.
class Tensor {
 public:
  Tensor() = default;
  // Uninitialised elements. INVALID_ARGUMENT where the dtype is not one, a size is negative, the
  // rank is above 8 or the size in bytes overflows; RESOURCE_EXHAUSTED where memory is short.
  static absl::StatusOr<Tensor> Allocate(DType dtype, std::span<const int64_t> shape);

  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  int64_t elements() const { return ElementCount(shape_); }
  // Never null, 16-byte aligned.
  std::span<const std::byte> bytes() const;
  std::span<std::byte> mutable_bytes();
  // T must have the size of the dtype's element.
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes().data()), bytes().size() / sizeof(T)};
  }
  template <typename T>
  std::span<T> mutable_as() {
    return {reinterpret_cast<T*>(mutable_bytes().data()), mutable_bytes().size() / sizeof(T)};
  }
  // Looks; valid while this object lives and is not moved from.
  TensorView view() const;
  // Shares ownership of the elements, so it stays valid on its own.
  TensorRef ref() const;

 private:
  DType dtype_ = DType::kUnspecified;
  Dims shape_;
  int64_t size_ = 0;
  std::shared_ptr<std::byte[]> data_;
};

// Bytes that a tensor's source holds: 1 + sum((shape[i] - 1) * strides[i]) elements, 0 when empty.
// INVALID_ARGUMENT (naming `name`) on an unknown dtype, negative sizes or strides, a stride rank
// that is not the shape's, an overflow, or null data with elements to send.
absl::StatusOr<int64_t> SourceBytes(const TensorRef& tensor, const std::string& name);

}  // namespace rlk::client
