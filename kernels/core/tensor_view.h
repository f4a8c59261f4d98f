// Shapes, and views of tensors that somebody else owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "kernels/core/dtype.h"

namespace rlk {

inline constexpr int kMaxRank = 8;

// Up to kMaxRank sizes (or strides, in elements), kept in place.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values)
      : Dims(std::span<const int64_t>(values.begin(), values.size())) {}
  // Takes at most kMaxRank values; the caller has checked the rank.
  explicit Dims(std::span<const int64_t> values) : rank_(static_cast<int>(values.size())) {
    for (int i = 0; i < rank_; ++i) values_[i] = values[i];
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return values_[i]; }
  int64_t& operator[](int i) { return values_[i]; }
  std::span<const int64_t> span() const { return {values_.data(), static_cast<size_t>(rank_)}; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  void push_back(int64_t value) { values_[rank_++] = value; }

  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a.values_[i] != b.values_[i]) return false;
    }
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> values_ = {};
  int rank_ = 0;
};

// Elements of a checked shape (the product is known not to overflow).
inline int64_t ElementCount(const Dims& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

// Of a checked tensor without gaps.
inline int64_t ByteCount(const Dims& shape, DType dtype) {
  return ElementCount(shape) * DTypeSize(dtype);
}

// Strides of C order, in elements.
inline Dims ContiguousStrides(const Dims& shape) {
  Dims strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

// True when the elements lie in C order without gaps. Strides of size-1 dimensions do not matter,
// and an empty tensor is always contiguous.
inline bool IsContiguous(const Dims& shape, const Dims& strides) {
  int64_t step = 1;
  bool contiguous = true;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != step) contiguous = false;
    step *= shape[i];
  }
  return contiguous;
}

// A tensor in memory of the host or of a device. Strides are in elements and not negative.
struct TensorView {
  DType dtype = DType::kUnspecified;
  Dims shape;
  Dims strides;
  const void* data = nullptr;

  bool present() const { return dtype != DType::kUnspecified; }
  int64_t elements() const { return ElementCount(shape); }
  int64_t bytes() const { return ByteCount(shape, dtype); }
  bool contiguous() const { return IsContiguous(shape, strides); }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

// An output: always in C order.
struct MutableTensorView {
  DType dtype = DType::kUnspecified;
  Dims shape;
  void* data = nullptr;

  bool present() const { return dtype != DType::kUnspecified; }
  int64_t elements() const { return ElementCount(shape); }
  int64_t bytes() const { return ByteCount(shape, dtype); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  TensorView view() const { return {dtype, shape, ContiguousStrides(shape), data}; }
};

}  // namespace rlk
