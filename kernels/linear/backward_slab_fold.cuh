// The fold of backward_slab.cuh. A warp has groups of 128 sums of a tile, four a lane, as a warp of
// adders wrote them; it brings those of a batch of chunks to shared memory and adds them in order.
#pragma once

#include "kernels/device/async_copy.cuh"
#include "kernels/linear/backward_slab.cuh"

namespace rlk::linear {

inline constexpr int kSlabGroupsMax = 8;
// Places of a thread in shared memory, one for each group and chunk of a batch.
template <typename P>
inline constexpr int kFoldSlots = P::kBeside < 4 ? 24 : 16;
// Chunks that are folded together; the ring has a multiple of the most.
inline constexpr int kSlabBatchMax = 8;
template <typename P>
__host__ __device__ constexpr int SlabBatch(int groups) {
  int batch = kSlabBatchMax;
  while (batch * groups > kFoldSlots<P>) batch /= 2;
  return batch;
}
// The groups that the fold is compiled for, at least as many.
__host__ __device__ constexpr int SlabGroups(int groups) {
  return groups <= 3 ? groups : groups <= 6 ? 6 : kSlabGroupsMax;
}

template <typename P>
using FoldStage = float4[kFoldSlots<P>][kFolders];

// The last step of a group, with -0 where its first sum was to come: x + -0 is x, for every x.
template <typename P>
__device__ __noinline__ void WriteGroup(const SlabWork& work, int tile, int group, int lane,
                                        float4 total) {
  const Place<P> place(group / (kSums / 4) * 32 + lane);
  const int i = group % (kSums / 4);
  const Shape& shape = work.problem.shape;
  const int64_t t = work.first_row + place.Row(i / 2);
  const int64_t k = work.first_column + int64_t{tile} * kTileColumns + place.Column(i % 2 * 4);
  if (t >= shape.rows || k >= shape.inputs) return;
  const int64_t at = t * shape.inputs + k;
#pragma unroll 1
  for (int c = 0; c < 4; ++c) {
    WriteGradX(work.problem, at + c, total.x);
    total.x = total.y, total.y = total.z, total.z = total.w;
  }
}

// `count` groups, kGroups at most, of neighbouring places.
template <typename P, int kGroups>
struct FoldedGroups {
  float4 total[kGroups];

  __device__ __forceinline__ FoldedGroups() {
#pragma unroll
    for (int u = 0; u < kGroups; ++u) total[u] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
  }
  template <int kBatch>
  __device__ __forceinline__ void Fetch(const float4* from, int count, FoldStage<P>& stage,
                                        int thread) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (int u = 0; u < kGroups; ++u) {
        if (u > 0 && u >= count) continue;
        device::CopyAsync16(&stage[b * kGroups + u][thread], from + (b * P::kRows + u) * 32, true);
      }
    }
    device::CopyAsyncCommit();
  }
  template <int kBatch>
  __device__ __forceinline__ void Add(const FoldStage<P>& stage, int thread) {
    device::CopyAsyncWait<0>();
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (int u = 0; u < kGroups; ++u) {
        const float4 v = stage[b * kGroups + u][thread];
        total[u].x = arith::Add(total[u].x, v.x), total[u].y = arith::Add(total[u].y, v.y);
        total[u].z = arith::Add(total[u].z, v.z), total[u].w = arith::Add(total[u].w, v.w);
      }
    }
  }
};

template <typename P, int kGroups>
__device__ __forceinline__ void FoldSlab(const SlabWork& work, FoldStage<P>& stage) {
  constexpr int kBatch = SlabBatch<P>(kGroups);
  const int thread = static_cast<int>(threadIdx.x) - kBringers, lane = thread % 32;
  const int of_tile = static_cast<int>(gridDim.x) * (kFolders / 32) / work.tiles;  // warps
  const int warp = static_cast<int>(blockIdx.x) * (kFolders / 32) + thread / 32;
  const int tile = warp / of_tile, part = warp % of_tile;
  const int first = P::kRows * part / of_tile;
  const int count = tile < work.tiles ? P::kRows * (part + 1) / of_tile - first : 0;
  if (count == 0) return;
  const uint32_t* const written = work.written + int64_t{tile} * work.chunks + lane;
  const auto there = [&](int chunk) {  // the batch from this chunk on
    const bool looks = lane < min(kBatch, work.chunks - chunk);
    return __all_sync(~0u, !looks || device::LoadAcquire(written + chunk) == Place<P>::kWarps) != 0;
  };
  const auto say = [&](int chunk) {  // that the batch has been folded
    if (lane != 0) return;
    device::AddRelease(work.folded + chunk / kBatch, 1);
  };
  FoldedGroups<P, kGroups> groups;
  bool ready = false;
  int place = 0;  // of the ring
#pragma unroll 1
  for (int chunk = 0; chunk < work.chunks; chunk += kBatch) {
    while (!ready && !there(chunk)) {
    }
    __syncwarp();
    const float4* const from = PartialOf<P>(work, tile, place) + first * 32 + lane;
    if (chunk + kBatch <= work.chunks) {
      groups.template Fetch<kBatch>(from, count, stage, thread);
      // While they come:
      if (chunk > 0) say(chunk - kBatch);
      ready = chunk + kBatch < work.chunks && there(chunk + kBatch);
      groups.template Add<kBatch>(stage, thread);
    } else {
#pragma unroll 1
      for (int b = 0; b < work.chunks - chunk; ++b) {
        groups.template Fetch<1>(from + b * (P::kRows * 32), count, stage, thread);
        groups.template Add<1>(stage, thread);
      }
    }
    place += kBatch;
    if (place == work.ring) place = 0;
    __syncwarp();
  }
#pragma unroll
  for (int u = 0; u < kGroups; ++u) {
    if (u < count) WriteGroup<P>(work, tile, first + u, lane, groups.total[u]);
  }
}

// By the threads that fold.
template <typename P>
__device__ __forceinline__ void FoldSlab(const SlabWork& work, FoldStage<P>& stage) {
  switch (work.groups) {
    case 1:
      return FoldSlab<P, 1>(work, stage);
    case 2:
      return FoldSlab<P, 2>(work, stage);
    case 3:
      return FoldSlab<P, 3>(work, stage);
    case 6:
      return FoldSlab<P, 6>(work, stage);
    default:
      return FoldSlab<P, kSlabGroupsMax>(work, stage);
  }
}

}  // namespace rlk::linear
