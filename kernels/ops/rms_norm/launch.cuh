// What the launchers of the RMSNorm family share: forward_launch.cuh, rows_launch.cuh and
// fold_launch.cuh, each instantiated for one dtype of x by cuda_*.cu.
// Which kernel runs depends on shapes, strides and alignment; all of them give the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rms_norm/row.cuh"

namespace rlk::rms_norm {

inline bool Streamable(const TensorView& tensor) {
  return !tensor.present() || (tensor.contiguous() && device::VectorAligned(tensor.data));
}
inline bool Streamable(const MutableTensorView& tensor) {
  return !tensor.present() || device::VectorAligned(tensor.data);
}

inline Scalars MakeScalars(const KernelArgs& args, const Problem& problem) {
  Scalars s = {};
  s.rows = problem.rows;
  s.length = static_cast<int>(problem.length);
  s.eps = problem.eps;
  s.weight_offset = problem.weight_offset;
  s.weight_is_f32 = args.Input("weight").dtype == DType::kF32;
  s.sigmoid = problem.activation == Activation::kSigmoid;
  s.round_weighted = problem.round_weighted;
  return s;
}

inline const TensorView& GateOf(const KernelArgs& args, Convention convention) {
  static const TensorView kAbsent;
  return IsGated(convention) ? args.Input("gate") : kAbsent;
}

inline device::StridedIndex IndexOf(const TensorView& tensor) {
  return device::MakeStridedIndex(tensor.shape, tensor.strides);
}

// Calls body(Shape) with the shape of the register kernels for a length up to this one; longer rows
// do not fit into the registers of a block and take the element kernels.
inline constexpr int64_t kRegisterLengthMax = 8192;

template <int kLanes, int kVectors>
struct Shape {
  static constexpr int lanes = kLanes;
  static constexpr int vectors = kVectors;
};

// For rows of 257 elements or more.
template <typename Body>
absl::Status WithWideShape(int64_t length, const Body& body) {
  if (length <= 2048) return body(Shape<32, 8>());
  if (length <= 5120) return body(Shape<128, 5>());
  return body(Shape<128, 8>());
}

// For rows of kNarrowLengthMax elements or fewer: the lanes of a row.
template <typename Body>
absl::Status WithNarrowLanes(int64_t length, const Body& body) {
  if (length <= 128) return body(std::integral_constant<int, 16>());
  return body(std::integral_constant<int, 32>());
}

template <typename Body>
absl::Status WithConvention(Convention convention, const Body& body) {
  switch (convention) {
    case Convention::kPlain:
      return body(std::integral_constant<Convention, Convention::kPlain>());
    case Convention::kHf:
      return body(std::integral_constant<Convention, Convention::kHf>());
    case Convention::kGated:
      return body(std::integral_constant<Convention, Convention::kGated>());
    case Convention::kGatedHf:
      return body(std::integral_constant<Convention, Convention::kGatedHf>());
  }
  return absl::InternalError("unknown convention");
}

// Threads of an element kernel's block: a power of two that covers the accumulators.
inline unsigned ElementThreads(int64_t length) {
  return std::max(32u, static_cast<unsigned>(arith::RowSumWidth(length)) / kGroup);
}

}  // namespace rlk::rms_norm
