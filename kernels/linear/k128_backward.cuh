// Backward of contract bf16-k128-v1 by `wgmma`: C[m, c] = sum over r of A[r, m] B[r, c].
//
//   grad_x:      A the gradient [T, N], m = row t, r = channel n; B the weights [N, K], c = input
//   k. grad_weight: A the gradient, m = channel n, r = row t; B is x [T, K], c = input k.
//
// Both are read as they lie in memory, as tiles of tensor maps: where rows of memory run along the
// result, the tensor cores transpose. A gradient in FP32 is three BF16 parts: a chunk of 128 then
// chains 24 steps instead of 8, the smallest part first.
#pragma once

#include <cstdint>

#include "kernels/linear/wgmma_feed.cuh"

namespace rlk::linear {

inline constexpr int kProductDepth = 64;  // r of a stage
inline constexpr int kTermsMax = 3;

// Columns c of a tile, warpgroups that multiply (64 m each), stages of the ring.
template <int kTileColumns, int kWarpgroups, int kRingStages>
struct ProductPlan {
  static constexpr int kColumns = kTileColumns, kGroups = kWarpgroups, kStages = kRingStages;
  static constexpr int kM = 64 * kGroups;
  static constexpr int kConsumerWarps = 4 * kGroups;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kConsumerRegisters = ConsumerRegisters(kGroups);
  // Of a stage: tiles of 64 x 64 elements of each operand.
  static constexpr int kTileBytes = 64 * kProductDepth * 2;
  static constexpr int kWeightBytes = kGroups * kTileBytes;
  static constexpr int kXBytes = kColumns / 64 * kTileBytes;
  static constexpr int kSharedBytes =
      kStages * (kWeightBytes + kXBytes + 2 * static_cast<int>(sizeof(device::StageBarrier))) +
      kConsumerWarps * kPatchBytes;
  static_assert(kSharedBytes <= 227 << 10);
};

struct ProductShape {
  int64_t m = 0, columns = 0, length = 0;  // length: of r
  int terms = 1;                           // chained a chunk: A alone, or its three parts
  int parts = 1;                           // of the reduction, each folded by itself

  __host__ __device__ int64_t Chunks() const { return (length + 127) / 128; }
};

struct ProductMaps {
  CUtensorMap a[kTermsMax];
  CUtensorMap b;
};

// C [parts][m, columns] in FP32, in BF16, or both; it begins with `start`, or from +0.
struct ProductOutput {
  float* f32 = nullptr;
  uint16_t* bf16 = nullptr;
  const float* start = nullptr;
  float* copy = nullptr;  // of f32
};

// Items: the part slowest, then m, then c.
template <typename P>
struct ProductWork {
  int m_blocks, column_blocks, items;

  __device__ explicit ProductWork(const ProductShape& shape)
      : m_blocks(static_cast<int>((shape.m + P::kM - 1) / P::kM)),
        column_blocks(static_cast<int>((shape.columns + P::kColumns - 1) / P::kColumns)),
        items(shape.parts * m_blocks * column_blocks) {}
  struct Place {
    int part, m, column;
  };
  __device__ __forceinline__ Place At(int item) const {
    const int row = item / column_blocks;
    return {row / m_blocks, row % m_blocks * P::kM, item % column_blocks * P::kColumns};
  }
};

// kAlongR: rows of A's memory run along r, else along m. By one thread.
template <typename P, bool kAlongR>
__device__ __forceinline__ void ProduceProduct(const ProductMaps& maps, const ProductShape& shape,
                                               const ProductWork<P>& work, const Ring<P>& ring) {
  const int chunks = static_cast<int>(shape.Chunks()) / shape.parts;
  Slot<P> slot;
  for (int item = static_cast<int>(blockIdx.x); item < work.items;
       item += static_cast<int>(gridDim.x)) {
    const auto at = work.At(item);
    int r = at.part * chunks * 128;
    for (int chunk = 0; chunk < chunks; ++chunk, r += 128) {
      for (int stage = 0; stage < 2 * shape.terms; ++stage) {
        const int first = r + stage % 2 * kProductDepth;
        const CUtensorMap& a = maps.a[stage / 2];
        ring.empty[slot.index].Wait(slot.parity ^ 1);
        device::StageBarrier& full = ring.full[slot.index];
        full.ArriveExpect(P::kWeightBytes + P::kXBytes);
        std::byte* const to_a = ring.weights + slot.index * P::kWeightBytes;
        if constexpr (kAlongR) {
          device::TileCopy(to_a, a, at.m, first, full);
        } else {
#pragma unroll
          for (int i = 0; i < P::kGroups; ++i) {
            device::TileCopy(to_a + i * P::kTileBytes, a, first, at.m + 64 * i, full);
          }
        }
#pragma unroll
        for (int i = 0; i < P::kColumns / 64; ++i) {
          device::TileCopy(ring.x + slot.index * P::kXBytes + i * P::kTileBytes, maps.b, first,
                           at.column + 64 * i, full);
        }
        slot.Next();
      }
    }
  }
}

// A warp's sixteen rows of C, by way of its patch: a lane writes eight neighbours of one row.
template <typename P>
__device__ __forceinline__ void WriteProduct(const ProductShape& shape, const ProductOutput& out,
                                             int part, int m0, int c0,
                                             const float (&total)[P::kColumns / 2], float* patch) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t m = m0 + lane / 2;
#pragma unroll
  for (int piece = 0; piece < P::kColumns / 16; ++piece) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(patch + row * kPatchStride + column) = make_float2(
          arith::Canonical(total[piece * 8 + i]), arith::Canonical(total[piece * 8 + i + 1]));
    }
    __syncwarp();
    const int64_t c = c0 + piece * 16 + lane % 2 * 8;
    if (m < shape.m && c < shape.columns) {
      const auto* const v =
          reinterpret_cast<const float4*>(patch + lane / 2 * kPatchStride + lane % 2 * 8);
      const float4 low = v[0], high = v[1];
      const int64_t at = (part * shape.m + m) * shape.columns + c;
      for (float* const to : {out.f32, out.copy}) {
        if (to == nullptr) continue;
        reinterpret_cast<float4*>(to + at)[0] = low;
        reinterpret_cast<float4*>(to + at)[1] = high;
      }
      if (out.bf16 != nullptr) {
        using device::Bf16;
        *reinterpret_cast<uint4*>(out.bf16 + at) = make_uint4(
            device::PackPair<Bf16>(low.x, low.y), device::PackPair<Bf16>(low.z, low.w),
            device::PackPair<Bf16>(high.x, high.y), device::PackPair<Bf16>(high.z, high.w));
      }
    }
    __syncwarp();
  }
}

template <typename P, bool kAlongR>
__global__ void __launch_bounds__(P::kThreads, 1)
    K128ProductKernel(const __grid_constant__ ProductMaps maps, ProductShape shape,
                      ProductOutput out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte shared[];
  const Ring<P> ring(shared);
  ring.Init();
  const ProductWork<P> work(shape);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (warp >= P::kConsumerWarps) {
    GiveRegisters<kProducerRegisters>();
    if (threadIdx.x == 32 * P::kConsumerWarps) ProduceProduct<P, kAlongR>(maps, shape, work, ring);
    return;
  }
  TakeRegisters<P::kConsumerRegisters>();
  const int chunks = static_cast<int>(shape.Chunks()) / shape.parts;
  const int stages = 2 * shape.terms;
  Slot<P> slot;
  for (int item = static_cast<int>(blockIdx.x); item < work.items;
       item += static_cast<int>(gridDim.x)) {
    const auto at = work.At(item);
    float total[P::kColumns / 2];
#pragma unroll
    for (int i = 0; i < P::kColumns / 2; i += 2) {
      const int64_t m = at.m + warp * 16 + lane / 4 + i / 2 % 2 * 8;
      const int64_t c = at.column + i / 4 * 8 + lane % 4 * 2;
      float2 start = make_float2(0.0f, 0.0f);
      if (out.start != nullptr && m < shape.m && c < shape.columns) {
        start = *reinterpret_cast<const float2*>(out.start + m * shape.columns + c);
      }
      total[i] = start.x, total[i + 1] = start.y;
    }
    for (int chunk = 0; chunk < chunks; ++chunk) {
      float part[P::kColumns / 2];
      int last = 0;
      for (int stage = 0; stage < stages; ++stage) {
        ring.full[slot.index].Wait(slot.parity);
        const std::byte* const a_tile =
            ring.weights + slot.index * P::kWeightBytes + warp / 4 * P::kTileBytes;
        const uint64_t a = kAlongR ? device::MakeSwizzledDescriptor(a_tile)
                                   : device::MakeTransposedDescriptor(a_tile, P::kTileBytes);
        const uint64_t b =
            device::MakeTransposedDescriptor(ring.x + slot.index * P::kXBytes, P::kTileBytes);
        Pin(part);
        device::WgmmaFence();
#pragma unroll
        for (int step = 0; step < kProductDepth / 16; ++step) {
          device::WgmmaShared<kAlongR ? 0 : 1, 1>(part, a + step * (kAlongR ? 2 : 128),
                                                  b + step * 128, stage != 0 || step != 0);
        }
        device::WgmmaCommit();
        if (stage != 0) {
          device::WgmmaWait<1>();
          Release(ring.empty[last]);
        }
        last = slot.index;
        slot.Next();
      }
      device::WgmmaWait<0>();
      Release(ring.empty[last]);
      AddPart(total, part);
    }
    WriteProduct<P>(shape, out, at.part, at.m + warp * 16, at.column, total, ring.Patch());
  }
#else
  __trap();
#endif
}

}  // namespace rlk::linear
