// What the forward kernels of the BF16 linear share: the stream of weights of the mma kernel, and
// the epilogue.
//
// A warp owns 16 outputs, the rows of operand A; lane 4 g + q holds those of g and g + 8. One step
// of 32 inputs is two tensor-core steps: of the 16 bytes that the lane reads, inputs 8 q .. 8 q + 7
// of the 32, the first four elements belong to the first and the last four to the second.
#pragma once

#include <cstdint>

#include "kernels/device/async_copy.cuh"
#include "kernels/device/vector_access.cuh"
#include "kernels/linear/activation.cuh"
#include "kernels/linear/bf16_cuda.h"

namespace rlk::linear {

inline constexpr int kWarps = 16;
inline constexpr int kForwardThreads = 32 * kWarps;
inline constexpr int kWarpOutputs = 16;
inline constexpr int kBlockOutputs = kWarps * kWarpOutputs;
// Inputs of one stage of the ring, and stages: 96 KB are on their way while one is used.
inline constexpr int kStageInputs = 64;
inline constexpr int kStages = 4;
// 16-byte pieces of a lane in a stage: two rows, two steps of 32.
inline constexpr int kPieces = 4;
inline constexpr int kRingBytes = kWarps * kStages * kPieces * 32 * 16;

// One lane's part of the ring: it copies what it reads itself, so no barrier is needed.
class WeightRing {
 public:
  __device__ WeightRing(uint4* shared, const Bf16Linear& problem)
      : slots_(shared + static_cast<int>(threadIdx.x) / 32 * (kStages * kPieces * 32) +
               static_cast<int>(threadIdx.x) % 32),
        weight_(problem.weight),
        outputs_(problem.shape.outputs),
        inputs_(problem.shape.inputs) {}

  // Copies inputs [first, first + kStageInputs) of the warp's outputs, those of [output, output +
  // 16), zero beyond the matrix.
  __device__ __forceinline__ void Fetch(int stage, int64_t output, int64_t first) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int64_t n = output + lane / 4 + piece % 2 * 8;
      const int64_t k = first + piece / 2 * 32 + lane % 4 * 8;
      const bool present = n < outputs_ && k < inputs_;
      device::CopyAsync16(slots_ + (stage * kPieces + piece) * 32,
                          weight_ + (present ? n * inputs_ + k : 0), present);
    }
  }

  // Operand A of the two tensor-core steps of step `step`.
  __device__ __forceinline__ void Load(int stage, int step, uint32_t (&first)[4],
                                       uint32_t (&second)[4]) const {
    const uint4 low = slots_[(stage * kPieces + 2 * step) * 32];
    const uint4 high = slots_[(stage * kPieces + 2 * step + 1) * 32];
    first[0] = low.x;
    first[1] = high.x;
    first[2] = low.y;
    first[3] = high.y;
    second[0] = low.z;
    second[1] = high.z;
    second[2] = low.w;
    second[3] = high.w;
  }

 private:
  uint4* slots_;  // [kStages][kPieces][32], at this lane
  const uint16_t* weight_;
  int64_t outputs_, inputs_;
};

// Writes the outputs of one channel.
class ChannelWriter {
 public:
  __device__ ChannelWriter(const Bf16Linear& problem, int64_t channel)
      : out_(problem.out), outputs_(problem.shape.outputs), channel_(channel) {
    if (problem.bias != nullptr) bias_ = arith::Bf16ToFloat(problem.bias[channel]);
    to_ = out_.views[0];
    row_elements_ = outputs_;
    if (out_.view_width == 0) {
      offset_ = channel;
      return;
    }
    const int64_t chunk = channel / out_.view_width;  // 6 m + c
    const int64_t column = channel - chunk * out_.view_width;
    const int64_t modality = chunk / kViews;
    to_ = nullptr;
#pragma unroll
    for (int c = 0; c < kViews; ++c) {
      if (chunk - modality * kViews == c) to_ = out_.views[c];
    }
    row_elements_ = 3 * out_.view_width;
    offset_ = modality * out_.view_width + column;
  }

  __device__ __forceinline__ void Write(int64_t row, float total) const {
    const float v = arith::Add(total, bias_);
    if (out_.pre != nullptr) out_.pre[row * outputs_ + channel_] = v;
    if (to_ == nullptr) return;
    const float y = DeviceActivate(out_.activation, v);
    const int64_t at = row * row_elements_ + offset_;
    if (out_.f32) {
      static_cast<float*>(to_)[at] = y;
    } else {
      static_cast<device::Bf16*>(to_)[at] = device::FromFloat<device::Bf16>(y);
    }
  }

 private:
  const Bf16Output& out_;
  int64_t outputs_, channel_;
  float bias_ = 0.0f;
  void* to_;
  int64_t row_elements_, offset_;
};

}  // namespace rlk::linear
