// What the backward kernels of the BF16 linear share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/device/vector_access.cuh"
#include "kernels/linear/activation.cuh"
#include "kernels/linear/bf16_cuda.h"

namespace rlk::linear {

// Where the gradient of channel `channel` of a row stands. A null view has no place.
struct GradientPlace {
  const void* from;
  int64_t at;
};
__device__ __forceinline__ GradientPlace PlaceOf(const GradientSource& source, int64_t row,
                                                 int64_t channel) {
  if (source.view_width == 0) return {source.views[0], row * source.outputs + channel};
  const int64_t chunk = channel / source.view_width;  // 6 m + c
  const int64_t column = channel - chunk * source.view_width;
  const int64_t modality = chunk / kViews;
  const int64_t view = chunk - modality * kViews;
  const void* from = nullptr;
#pragma unroll
  for (int c = 0; c < kViews; ++c) {
    if (view == c) from = source.views[c];
  }
  return {from, (row * 3 + modality) * source.view_width + column};
}

// From a row to the next one.
__device__ __forceinline__ int64_t RowElements(const GradientSource& source) {
  return source.view_width == 0 ? source.outputs : 3 * source.view_width;
}

// g[row, channel] in FP32.
__device__ __forceinline__ float Gradient(const GradientSource& source, int64_t row,
                                          int64_t channel) {
  const GradientPlace place = PlaceOf(source, row, channel);
  if (place.from == nullptr) return 0.0f;
  if (source.f32) return static_cast<const float*>(place.from)[place.at];
  return arith::Bf16ToFloat(static_cast<const uint16_t*>(place.from)[place.at]);
}

// Eight BF16 elements as FP32.
__device__ __forceinline__ void Unpack8(const uint4& word, float (&x)[8]) {
  device::UnpackPair<device::Bf16>(word.x, x[0], x[1]);
  device::UnpackPair<device::Bf16>(word.y, x[2], x[3]);
  device::UnpackPair<device::Bf16>(word.z, x[4], x[5]);
  device::UnpackPair<device::Bf16>(word.w, x[6], x[7]);
}

// g[row, channel .. channel + 7], zero from channel `end` on. `vector`: eight channels from a
// multiple of eight on are 16-byte aligned and in one view.
__device__ __forceinline__ void Gradient8(const GradientSource& source, bool vector, int64_t row,
                                          int64_t channel, int64_t end, float (&v)[8]) {
  if (vector && channel + 8 <= end) {
    const GradientPlace place = PlaceOf(source, row, channel);
    if (place.from != nullptr && source.f32) {
      const auto* from =
          reinterpret_cast<const float4*>(static_cast<const float*>(place.from) + place.at);
      const float4 low = __ldg(from), high = __ldg(from + 1);
      v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
      v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
      return;
    }
    uint4 word = make_uint4(0, 0, 0, 0);
    if (place.from != nullptr) {
      word = __ldg(
          reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(place.from) + place.at));
    }
    Unpack8(word, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = channel + i < end ? Gradient(source, row, channel + i) : 0.0f;
}

// Eight channels of all rows, from channel `first` on; those beyond `outputs` are zero.
class GradientColumns {
 public:
  __device__ __forceinline__ GradientColumns(const GradientSource& source, bool vector,
                                             int64_t first)
      : source_(source), first_(first), together_(vector && first + 8 <= source.outputs) {
    const GradientPlace place = PlaceOf(source, 0, first < source.outputs ? first : 0);
    from_ = place.from;
    at_ = place.at;
    row_elements_ = RowElements(source);
  }
  __device__ __forceinline__ void Load(int64_t row, float (&v)[8]) const {
    if (!together_) {
      Gradient8(source_, false, row, first_, source_.outputs, v);
      return;
    }
    const int64_t at = at_ + row * row_elements_;
    if (from_ != nullptr && source_.f32) {
      const auto* const from =
          reinterpret_cast<const float4*>(static_cast<const float*>(from_) + at);
      const float4 low = __ldg(from), high = __ldg(from + 1);
      v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
      v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
      return;
    }
    uint4 word = make_uint4(0, 0, 0, 0);
    if (from_ != nullptr) {
      word = __ldg(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(from_) + at));
    }
    Unpack8(word, v);
  }

  // sum += rows begin .. end - 1, in order.
  __device__ __forceinline__ void Add(int64_t begin, int64_t end, float (&sum)[8]) const {
    if (!together_) {
      for (int64_t t = begin; t < end; ++t) {
        float v[8];
        Gradient8(source_, false, t, first_, source_.outputs, v);
        AddRow(v, sum);
      }
    } else if (from_ != nullptr && source_.f32) {
      AddTogether<2>(begin, end, sum);
    } else if (from_ != nullptr) {
      AddTogether<1>(begin, end, sum);
    }
  }

 private:
  static __device__ __forceinline__ void AddRow(const float (&v)[8], float (&sum)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] = arith::Add(sum[i], v[i]);
  }
  // Rows of kWords 16-byte words, whose loads are under way together.
  template <int kWords>
  __device__ __forceinline__ void AddTogether(int64_t begin, int64_t end, float (&sum)[8]) const {
    constexpr int kBatch = 16 / kWords;
    const auto* const from = static_cast<const std::byte*>(from_) + at_ * (2 * kWords);
    for (int64_t t = begin; t < end; t += kBatch) {
      uint4 words[kBatch][kWords];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          if (t + i >= end) continue;
          words[i][w] = __ldg(
              reinterpret_cast<const uint4*>(from + (t + i) * row_elements_ * (2 * kWords)) + w);
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (t + i >= end) continue;
        float v[8];
        if constexpr (kWords == 1) {
          Unpack8(words[i][0], v);
        } else {
          memcpy(v, words[i], sizeof(v));
        }
        AddRow(v, sum);
      }
    }
  }

  const GradientSource& source_;
  int64_t first_, at_, row_elements_;
  const void* from_;
  bool together_;
};

// Whether eight channels of a row can be read together.
inline bool VectorGradient(const GradientSource& grad) {
  const int views = grad.view_width == 0 ? 1 : kViews;
  for (int i = 0; i < views; ++i) {
    if (reinterpret_cast<uintptr_t>(grad.views[i]) % 16 != 0) return false;
  }
  return grad.outputs % 8 == 0 && grad.view_width % 8 == 0;
}

// The last step of grad_bias, for one channel.
template <typename Problem>
__device__ __forceinline__ void WriteBias(const Problem& problem, int64_t n, float sum) {
  sum = arith::Canonical(sum);
  if (problem.bias_acc != nullptr) problem.bias_acc[n] = sum;
  if (problem.grad_bias.data == nullptr) return;
  if (problem.grad_bias.dtype == DType::kF32) {
    static_cast<float*>(problem.grad_bias.data)[n] = sum;
  } else {
    static_cast<device::Bf16*>(problem.grad_bias.data)[n] = device::FromFloat<device::Bf16>(sum);
  }
}

__device__ __forceinline__ uint4 Pack8(const float (&x)[8]) {
  return make_uint4(
      device::PackPair<device::Bf16>(x[0], x[1]), device::PackPair<device::Bf16>(x[2], x[3]),
      device::PackPair<device::Bf16>(x[4], x[5]), device::PackPair<device::Bf16>(x[6], x[7]));
}

// The last step of grad_x.
template <typename Problem>
__device__ __forceinline__ void WriteGradX(const Problem& problem, int64_t at, float sum) {
  const Activation silu =
      problem.silu == SiluKind::kPortable ? Activation::kSilu : Activation::kSiluCuda;
  const float v = problem.temb != nullptr ? DeviceActivationVjp(silu, sum, problem.temb[at]) : sum;
  if (problem.grad_x.dtype == DType::kF32) {
    static_cast<float*>(problem.grad_x.data)[at] = arith::Canonical(v);
  } else {
    static_cast<device::Bf16*>(problem.grad_x.data)[at] = device::FromFloat<device::Bf16>(v);
  }
}

// Threads of a block that has one of `columns` groups of columns a thread.
inline unsigned RowThreads(int64_t columns, unsigned threads_max) {
  const int64_t blocks = (columns + threads_max - 1) / threads_max;
  const int64_t each = (columns + blocks - 1) / blocks;
  return static_cast<unsigned>((each + 31) / 32 * 32);
}

}  // namespace rlk::linear
