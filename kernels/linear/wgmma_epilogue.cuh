// What becomes of the totals of a warp's tile: bias, one cast, and rows of eight channels that are
// written together. There is no activation: LaunchBf16Activation follows where one is asked for.
#pragma once

#include <cstdint>

#include "kernels/device/vector_access.cuh"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

// A warp's patch of shared memory: sixteen rows of sixteen channels, padded.
inline constexpr int kPatchRows = 16, kPatchStride = 20;
inline constexpr int kPatchBytes = kPatchRows * kPatchStride * static_cast<int>(sizeof(float));

// Element (row, channel) of the output, or null where nobody wants it.
template <typename T>
__device__ __forceinline__ T* OutputElement(const Bf16Linear& problem, int64_t row,
                                            int64_t channel) {
  const Bf16Output& out = problem.out;
  if (out.view_width == 0) {
    return out.views[0] == nullptr
               ? nullptr
               : static_cast<T*>(out.views[0]) + row * problem.shape.outputs + channel;
  }
  const int64_t chunk = channel / out.view_width;  // 6 m + c
  const int64_t column = channel - chunk * out.view_width;
  const int64_t modality = chunk / kViews;
  void* view = nullptr;
#pragma unroll
  for (int c = 0; c < kViews; ++c) {
    if (chunk - modality * kViews == c) view = out.views[c];
  }
  if (view == nullptr) return nullptr;
  return static_cast<T*>(view) + (3 * row + modality) * out.view_width + column;
}

// The eight channels that one lane writes.
class ChannelGroup {
 public:
  __device__ __forceinline__ ChannelGroup(const Bf16Linear& problem, int64_t first)
      : problem_(problem), first_(first) {
    const int64_t left = problem.shape.outputs - first;
    count_ = static_cast<int>(left < 0 ? 0 : left < 8 ? left : 8);
    const int64_t width = problem.out.view_width;
    row_elements_ = width == 0 ? problem.shape.outputs : 3 * width;
    if (problem.out.f32) {
      base_ = OutputElement<float>(problem, 0, first);
    } else {
      base_ = OutputElement<device::Bf16>(problem, 0, first);
    }
    together_ = count_ == 8 && row_elements_ % 8 == 0 && width % 8 == 0 &&
                reinterpret_cast<uintptr_t>(base_) % 16 == 0;
  }

  // v: eight values in shared memory, 16-byte aligned.
  __device__ __forceinline__ void Write(int64_t row, const float* v) const {
    if (row >= problem_.shape.rows || count_ == 0) return;
    if (!together_) return WriteEach(problem_, row, first_, count_, v);
    if (base_ == nullptr) return;
    const float4 a = *reinterpret_cast<const float4*>(v);
    const float4 b = *reinterpret_cast<const float4*>(v + 4);
    if (problem_.out.f32) {
      auto* const to = reinterpret_cast<float4*>(static_cast<float*>(base_) + row * row_elements_);
      to[0] = a;
      to[1] = b;
    } else {
      using device::Bf16;
      *reinterpret_cast<uint4*>(static_cast<Bf16*>(base_) + row * row_elements_) =
          make_uint4(device::PackPair<Bf16>(a.x, a.y), device::PackPair<Bf16>(a.z, a.w),
                     device::PackPair<Bf16>(b.x, b.y), device::PackPair<Bf16>(b.z, b.w));
    }
  }

 private:
  static __device__ __noinline__ void WriteEach(const Bf16Linear& problem, int64_t row,
                                                int64_t first, int count, const float* v) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      if (problem.out.f32) {
        float* const to = OutputElement<float>(problem, row, first + i);
        if (to != nullptr) *to = v[i];
      } else {
        auto* const to = OutputElement<device::Bf16>(problem, row, first + i);
        if (to != nullptr) *to = device::FromFloat<device::Bf16>(v[i]);
      }
    }
  }

  const Bf16Linear& problem_;
  int64_t first_, row_elements_;
  int count_;
  void* base_;
  bool together_;
};

// What a warp's tile needs besides its totals, known before they are: channels first_channel +
// lane_channel + {0, 8} in a lane's registers.
class TileWriter {
 public:
  __device__ __forceinline__ TileWriter(const Bf16Linear& problem, int64_t first_channel,
                                        int lane_channel)
      : group_(problem, first_channel + threadIdx.x % 2 * 8), lane_channel_(lane_channel) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t channel = first_channel + lane_channel + half * 8;
      if (problem.bias != nullptr && channel < problem.shape.outputs) {
        bias_[half] = arith::Bf16ToFloat(__ldg(problem.bias + channel));
      }
    }
  }

  // total: of rows first_row + 8 j + lane % 4 * 2 + {0, 1}. By the warp.
  template <int kHalfRows>
  __device__ __forceinline__ void Write(int64_t first_row, const float (&total)[kHalfRows],
                                        float* patch) const {
    constexpr int kRows = 2 * kHalfRows;
    constexpr int kPieceRows = kRows < kPatchRows ? kRows : kPatchRows;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int piece = 0; piece < kRows / kPieceRows; ++piece) {
#pragma unroll
      for (int i = 0; i < kPieceRows / 2; ++i) {  // of the lane's values of the piece
        const int row = i / 4 * 8 + lane % 4 * 2 + i % 2, half = i / 2 % 2;
        patch[row * kPatchStride + lane_channel_ + half * 8] =
            arith::Add(total[piece * (kPieceRows / 2) + i], bias_[half]);
      }
      __syncwarp();
      if (lane / 2 < kPieceRows) {
        group_.Write(first_row + piece * kPieceRows + lane / 2,
                     patch + lane / 2 * kPatchStride + lane % 2 * 8);
      }
      __syncwarp();
    }
  }

 private:
  ChannelGroup group_;
  int lane_channel_;
  float bias_[2] = {0.0f, 0.0f};
};

}  // namespace rlk::linear
