#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/compare/common.cuh"
#include "kernels/compare/compare_cuda.h"
#include "kernels/compare/element.h"
#include "kernels/core/status.h"
#include "kernels/device/warp.cuh"

namespace rlk::compare {
namespace {

constexpr int kBlocksPerWarp = kSegmentBlocks / kWarps;
static_assert(kBlocksPerWarp * kWarps == kSegmentBlocks);
// Vectors of each side that a lane has in flight.
constexpr int kUnroll = 4;

// A segment of the scan: what the right side sums to, and whether any bit differs.
struct Scanned {
  double sum, squared, largest;
  uint32_t differs, pad;
};
// A segment that differs.
struct Detailed {
  Sums sums;
  Extremes extremes;
};
struct Totals {
  unsigned long long counts[kCounterCount];
  unsigned long long first;  // ~0 where nothing differs
};

int64_t SegmentCount(int64_t elements) {
  return std::max<int64_t>((elements + kSegmentElements - 1) / kSegmentElements, 1);
}

// The parts of the scratch memory, and of its copy on the host.
struct Layout {
  explicit Layout(int64_t elements)
      : segments(SegmentCount(elements)),
        scanned(AlignUp(sizeof(Totals))),
        detailed(scanned + AlignUp(segments * static_cast<int64_t>(sizeof(Scanned)))),
        end(detailed + AlignUp(segments * static_cast<int64_t>(sizeof(Detailed)))) {}
  int64_t segments, scanned, detailed, end;
};

// Magnitude bits as a value; not for infinity and NaN.
template <typename F>
__device__ __forceinline__ double MagnitudeValue(typename F::Bits bits) {
  return F::Value(static_cast<typename F::Bits>(bits & F::kMagnitude));
}

// What a lane of the scan has of one block.
template <typename F>
struct LaneScan {
  double sum = 0, squared = 0;
  typename F::Bits largest = 0;  // magnitude bits
  bool differs = false, special = false;

  __device__ __forceinline__ void Add(typename F::Bits right) {
    const auto magnitude = static_cast<typename F::Bits>(right & F::kMagnitude);
    const bool finite = magnitude < F::kInfinity;
    special |= Unwritten<F>(right);
    if constexpr (F::kFloat) {
      special |= !finite;
      const double value = F::Value(finite ? right : typename F::Bits{0});
      sum = sum + value;
      squared = squared + value * value;
      largest = finite && magnitude > largest ? magnitude : largest;
    }
  }
};

template <typename Bits>
union Vector {
  uint4 raw;
  Bits elements[kVectorBytes / sizeof(Bits)];
};

__device__ __forceinline__ bool Differ(const uint4& a, const uint4& b) {
  return ((a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w)) != 0;
}

// A whole block of 16-byte aligned tensors.
template <typename F>
__device__ __forceinline__ void ScanVectors(const typename F::Bits* left,
                                            const typename F::Bits* right, int lane,
                                            LaneScan<F>& scan) {
  using Layout = ElementLayout<F>;
  const auto* a = reinterpret_cast<const uint4*>(left) + lane;
  const auto* b = reinterpret_cast<const uint4*>(right) + lane;
  constexpr int kBatch = Layout::kSteps < kUnroll ? Layout::kSteps : kUnroll;
  static_assert(Layout::kSteps % kBatch == 0);
#pragma unroll 1
  for (int step = 0; step < Layout::kSteps; step += kBatch) {
    Vector<typename F::Bits> x[kBatch], y[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      x[i].raw = __ldcs(a + (step + i) * kLanes);
      y[i].raw = __ldcs(b + (step + i) * kLanes);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      scan.differs |= Differ(x[i].raw, y[i].raw);
#pragma unroll
      for (int e = 0; e < Layout::kVector; ++e) scan.Add(y[i].elements[e]);
    }
  }
}

// Any block: the same elements for each lane, in the same order.
template <typename F, typename Visit>
__device__ __forceinline__ void VisitElements(int64_t begin, int64_t end, int lane, Visit visit) {
  using Layout = ElementLayout<F>;
  for (int step = 0; step < Layout::kSteps; ++step) {
    const int64_t at = begin + (int64_t{step} * kLanes + lane) * Layout::kVector;
    for (int e = 0; e < Layout::kVector; ++e) {
      if (at + e < end) visit(at + e);
    }
  }
}

// Adds the counters of a CTA to shared memory.
struct SharedSink {
  uint32_t* counts;
  uint64_t ulp = 0;
  __device__ __forceinline__ void Count(Counter counter) { atomicAdd(&counts[counter], 1u); }
  __device__ __forceinline__ void Distance(uint64_t distance) {
    ulp = distance > ulp ? distance : ulp;
  }
};

__device__ __forceinline__ void AddCounts(const uint32_t* counts, Totals* totals) {
  for (int c = threadIdx.x; c < kCounterCount; c += kThreads) {
    if (counts[c] > 0) atomicAdd(&totals->counts[c], static_cast<unsigned long long>(counts[c]));
  }
}

// One CTA a segment. left, right: [elements]; scanned: [segments]. Counts what is special only
// where the whole segment is equal: the detail counts the others.
template <typename F>
__global__ void __launch_bounds__(kThreads, 4)
    ScanKernel(const typename F::Bits* __restrict__ left,
               const typename F::Bits* __restrict__ right, int64_t elements, bool aligned,
               Scanned* __restrict__ scanned, Totals* __restrict__ totals) {
  __shared__ double sums[kSegmentBlocks], squares[kSegmentBlocks], largest[kSegmentBlocks];
  __shared__ uint32_t counts[kCounterCount];
  for (int c = threadIdx.x; c < kCounterCount; c += kThreads) counts[c] = 0;
  __syncthreads();
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int64_t start = int64_t{blockIdx.x} * kSegmentElements;
  bool differs = false;
  bool special = false;
#pragma unroll 1
  for (int i = 0; i < kBlocksPerWarp; ++i) {
    const int block = i * kWarps + warp;
    const int64_t begin = start + block * kBlockElements;
    const int64_t end = begin + kBlockElements < elements ? begin + kBlockElements : elements;
    LaneScan<F> scan;
    if (aligned && end - begin == kBlockElements) {
      ScanVectors<F>(left + begin, right + begin, lane, scan);
    } else {
      VisitElements<F>(begin, end, lane, [&](int64_t at) {
        scan.differs |= left[at] != right[at];
        scan.Add(right[at]);
      });
    }
    differs |= scan.differs;
    special |= scan.special;
    const double sum = device::WarpSum(scan.sum);
    const double squared = device::WarpSum(scan.squared);
    const double most = device::WarpReduce(F::kFloat ? MagnitudeValue<F>(scan.largest) : 0.0,
                                           [](double a, double b) { return a > b ? a : b; });
    if (lane == 0) {
      sums[block] = sum;
      squares[block] = squared;
      largest[block] = most;
    }
  }
  const bool any = __syncthreads_or(differs);
  if (!any && special) {
    SharedSink sink{counts};
    for (int i = 0; i < kBlocksPerWarp; ++i) {
      const int64_t begin = start + (i * kWarps + warp) * kBlockElements;
      const int64_t end = begin + kBlockElements < elements ? begin + kBlockElements : elements;
      VisitElements<F>(begin, end, lane, [&](int64_t at) { CountEqual<F>(right[at], sink); });
    }
  }
  __syncthreads();
  AddCounts(counts, totals);
  if (threadIdx.x > 0) return;
  Scanned result = {0, 0, 0, any, 0};
  for (int b = 0; b < kSegmentBlocks; ++b) {
    result.sum = result.sum + sums[b];
    result.squared = result.squared + squares[b];
    result.largest = largest[b] > result.largest ? largest[b] : result.largest;
  }
  scanned[blockIdx.x] = result;
}

__device__ __forceinline__ Extremes WarpMerge(Extremes extremes) {
#pragma unroll
  for (int lanes = 1; lanes < kLanes; lanes *= 2) {
    const auto other = [&](auto value) {
      return __shfl_xor_sync(device::kWholeWarp, value, lanes);
    };
    Extremes later;
    later.left = other(extremes.left);
    later.right = other(extremes.right);
    later.absolute = other(extremes.absolute);
    later.relative = other(extremes.relative);
    later.excess = other(extremes.excess);
    later.excess_index = other(static_cast<long long>(extremes.excess_index));
    later.ulp = other(static_cast<unsigned long long>(extremes.ulp));
    MergeExtremes(later, extremes);
  }
  return extremes;
}

__device__ __forceinline__ Sums WarpTree(Sums sums) {
  sums.left = device::WarpSum(sums.left);
  sums.right = device::WarpSum(sums.right);
  sums.left_squared = device::WarpSum(sums.left_squared);
  sums.right_squared = device::WarpSum(sums.right_squared);
  sums.product = device::WarpSum(sums.product);
  sums.error = device::WarpSum(sums.error);
  sums.error_absolute = device::WarpSum(sums.error_absolute);
  sums.error_squared = device::WarpSum(sums.error_squared);
  sums.magnitude = device::WarpSum(sums.magnitude);
  return sums;
}

// One CTA a segment; those that the scan found equal have nothing to do. detailed: [segments].
template <typename F>
__global__ void __launch_bounds__(kThreads)
    DetailKernel(const typename F::Bits* __restrict__ left,
                 const typename F::Bits* __restrict__ right, int64_t elements, double atol,
                 double rtol, double relative_floor, const Scanned* __restrict__ scanned,
                 Detailed* __restrict__ detailed, Totals* __restrict__ totals) {
  if (scanned[blockIdx.x].differs == 0) return;
  // Structs that are initialised cannot be shared.
  __shared__ double sums_memory[kSegmentBlocks * sizeof(Sums) / sizeof(double)];
  __shared__ double extremes_memory[kSegmentBlocks * sizeof(Extremes) / sizeof(double)];
  auto* const sums = reinterpret_cast<Sums*>(sums_memory);
  auto* const extremes = reinterpret_cast<Extremes*>(extremes_memory);
  __shared__ uint32_t counts[kCounterCount];
  for (int c = threadIdx.x; c < kCounterCount; c += kThreads) counts[c] = 0;
  __syncthreads();
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  unsigned long long first = ~0ull;
#pragma unroll 1
  for (int i = 0; i < kBlocksPerWarp; ++i) {
    const int block = i * kWarps + warp;
    const int64_t begin = int64_t{blockIdx.x} * kSegmentElements + block * kBlockElements;
    const int64_t end = begin + kBlockElements < elements ? begin + kBlockElements : elements;
    Sums lane_sums;
    Extremes lane_extremes;
    SharedSink sink{counts};
    VisitElements<F>(begin, end, lane, [&](int64_t at) {
      const typename F::Bits a = left[at], b = right[at];
      if (a == b) {
        CountEqual<F>(a, sink);
      } else {
        const auto index = static_cast<unsigned long long>(at);
        first = index < first ? index : first;
        CountMismatch<F>(a, b, sink);
      }
      if (!Finite<F>(a) || !Finite<F>(b)) return;
      const double x = F::Value(a), y = F::Value(b);
      lane_extremes.left = fmax(lane_extremes.left, AbsoluteOf(x));
      lane_extremes.right = fmax(lane_extremes.right, AbsoluteOf(y));
      AddValues(x, y, lane_sums);
      if (AddError(x, y, at, atol, rtol, relative_floor, lane_extremes)) sink.Count(kOutside);
    });
    lane_extremes.ulp = sink.ulp;
    lane_sums = WarpTree(lane_sums);
    lane_extremes = WarpMerge(lane_extremes);
    if (lane == 0) {
      sums[block] = lane_sums;
      extremes[block] = lane_extremes;
    }
  }
  if (first != ~0ull) atomicMin(&totals->first, first);
  __syncthreads();
  AddCounts(counts, totals);
  if (threadIdx.x > 0) return;
  Detailed result;
  for (int b = 0; b < kSegmentBlocks; ++b) {
    AddSums(sums[b], result.sums);
    MergeExtremes(extremes[b], result.extremes);
  }
  detailed[blockIdx.x] = result;
}

bool Aligned(const void* left, const void* right) {
  return (reinterpret_cast<uintptr_t>(left) | reinterpret_cast<uintptr_t>(right)) % kVectorBytes ==
         0;
}

absl::Status EnqueueDetail(const Spec& spec, const void* left, const void* right, int64_t elements,
                           std::byte* scratch, StreamRef stream) {
  const Layout layout(elements);
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(layout.segments, 1));
  return WithKnownFormat(spec.dtype, [&](auto format) {
    using F = decltype(format);
    return cuda::Launch(
        DetailKernel<F>, blocks, kThreads, cuda::CudaStream(stream),
        static_cast<const typename F::Bits*>(left), static_cast<const typename F::Bits*>(right),
        elements, spec.atol, spec.rtol, spec.relative_floor,
        reinterpret_cast<const Scanned*>(scratch + layout.scanned),
        reinterpret_cast<Detailed*>(scratch + layout.detailed), reinterpret_cast<Totals*>(scratch));
  });
}

// Segments in order, as the host adds them.
Stats Fold(int64_t elements, const std::byte* host) {
  const Layout layout(elements);
  const auto* totals = reinterpret_cast<const Totals*>(host);
  const auto* scanned = reinterpret_cast<const Scanned*>(host + layout.scanned);
  const auto* detailed = reinterpret_cast<const Detailed*>(host + layout.detailed);
  Stats stats;
  stats.compared = elements;
  for (int c = 0; c < kCounterCount; ++c) {
    stats.counts[static_cast<size_t>(c)] = static_cast<int64_t>(totals->counts[c]);
  }
  if (totals->first != ~0ull) stats.first = static_cast<int64_t>(totals->first);
  for (int64_t s = 0; s < layout.segments; ++s) {
    if (scanned[s].differs != 0) {
      AddSums(detailed[s].sums, stats.sums);
      MergeExtremes(detailed[s].extremes, stats.extremes);
    } else {
      AddSums(EqualSums(scanned[s].sum, scanned[s].squared), stats.sums);
      stats.extremes.left = std::max(stats.extremes.left, scanned[s].largest);
      stats.extremes.right = std::max(stats.extremes.right, scanned[s].largest);
    }
  }
  return stats;
}

}  // namespace

int64_t CompareScratchBytes(int64_t elements) { return Layout(elements).end; }

absl::Status EnqueueScan(DType dtype, const void* left, const void* right, int64_t elements,
                         std::span<std::byte> scratch, StreamRef stream) {
  const Layout layout(elements);
  if (static_cast<int64_t>(scratch.size()) < layout.end || elements <= 0) {
    return Broken("a comparison needs elements and room for its sums");
  }
  const cudaStream_t handle = cuda::CudaStream(stream);
  auto* totals = reinterpret_cast<Totals*>(scratch.data());
  RLK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(totals, 0, sizeof(Totals), handle));
  RLK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(&totals->first, 0xff, sizeof(totals->first), handle));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(layout.segments, 1));
  return WithKnownFormat(dtype, [&](auto format) {
    using F = decltype(format);
    return cuda::Launch(ScanKernel<F>, blocks, kThreads, handle,
                        static_cast<const typename F::Bits*>(left),
                        static_cast<const typename F::Bits*>(right), elements, Aligned(left, right),
                        reinterpret_cast<Scanned*>(scratch.data() + layout.scanned), totals);
  });
}

absl::StatusOr<Stats> CompareCuda(const Spec& spec, const void* left, const void* right,
                                  int64_t elements, std::span<std::byte> scratch,
                                  std::span<std::byte> pinned, StreamRef stream) {
  if (elements == 0) return Stats();
  const Layout layout(elements);
  if (static_cast<int64_t>(pinned.size()) < layout.end) return Broken("too little host memory");
  RLK_RETURN_IF_ERROR(EnqueueScan(spec.dtype, left, right, elements, scratch, stream));
  RLK_RETURN_IF_ERROR(Fetch(0, layout.detailed, scratch, pinned, stream));
  const auto* scanned = reinterpret_cast<const Scanned*>(pinned.data() + layout.scanned);
  const bool differs = std::any_of(scanned, scanned + layout.segments,
                                   [](const Scanned& segment) { return segment.differs != 0; });
  if (differs) {
    RLK_RETURN_IF_ERROR(EnqueueDetail(spec, left, right, elements, scratch.data(), stream));
    RLK_RETURN_IF_ERROR(Fetch(0, layout.scanned, scratch, pinned, stream));
    RLK_RETURN_IF_ERROR(Fetch(layout.detailed, layout.end, scratch, pinned, stream));
  }
  return Fold(elements, pinned.data());
}

}  // namespace rlk::compare
