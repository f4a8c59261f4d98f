#include <cstring>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/digest/digest.h"
#include "kernels/digest/digest_cuda.h"
#include "kernels/digest/xxh3_leaf.h"

namespace rlk {
namespace {

constexpr int kThreads = 256;
// Four threads hash a leaf. Each holds two of the eight accumulators, which are independent but for
// their neighbour's data, and reads its 16 bytes of every stripe.
constexpr int kThreadsPerLeaf = 4;
constexpr int kLeavesPerBlock = kThreads / kThreadsPerLeaf;
constexpr int64_t kNodeBytes = 16;
constexpr int kBlocksPerLeaf = static_cast<int>(kDigestLeafBytes) / xxh3::kBlockBytes;
static_assert(kDigestFanout * kNodeBytes == kDigestLeafBytes, "a node is hashed like a leaf");

int64_t LeafCount(int64_t bytes) { return (bytes - 1) / kDigestLeafBytes + 1; }

// Key words of a block, and of the last stripe of a leaf, where every lane finds its own.
struct SharedSecret {
  uint64_t words[xxh3::kSecretBytes / 8];
  uint64_t last[xxh3::kLanes];
  uint64_t initial[xxh3::kLanes];

  __device__ void Fill() {
    constexpr int kWords = xxh3::kSecretBytes / 8;
    const int i = threadIdx.x;
    if (i < kWords) words[i] = xxh3::Secret(8 * i);
    if (i < xxh3::kLanes) {
      last[i] = xxh3::Secret(xxh3::kSecretBytes - xxh3::kStripeBytes - 7 + 8 * i);
      initial[i] = xxh3::InitialLane(i);
    }
    __syncthreads();
  }
};

__device__ __forceinline__ uint64_t Join(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}

// The part of one whole 16-byte aligned leaf that `thread` (0 .. 3) of its group has: the sums of
// all groups' threads finish the hash.
__device__ __forceinline__ xxh3::Hash128 HashLeafPart(const uint4* leaf, int thread,
                                                      const SharedSecret& secret) {
  using namespace xxh3;
  uint64_t even = secret.initial[2 * thread];
  uint64_t odd = secret.initial[2 * thread + 1];
#pragma unroll 1
  for (int block = 0; block < kBlocksPerLeaf; ++block) {
    uint4 data[kStripesPerBlock];
#pragma unroll
    for (int s = 0; s < kStripesPerBlock; ++s) {
      data[s] = __ldcs(leaf + (block * kStripesPerBlock + s) * kThreadsPerLeaf + thread);
    }
    const bool last_block = block == kBlocksPerLeaf - 1;
#pragma unroll
    for (int s = 0; s < kStripesPerBlock; ++s) {
      uint64_t even_secret = secret.words[s + 2 * thread];
      uint64_t odd_secret = secret.words[s + 2 * thread + 1];
      if (s == kStripesPerBlock - 1 && last_block) {
        even_secret = secret.last[2 * thread];
        odd_secret = secret.last[2 * thread + 1];
      }
      AccumulatePair(even, odd, Join(data[s].x, data[s].y), Join(data[s].z, data[s].w), even_secret,
                     odd_secret);
    }
    if (!last_block) {
      even = Scramble(even, secret.words[kStripesPerBlock + 2 * thread]);
      odd = Scramble(odd, secret.words[kStripesPerBlock + 2 * thread + 1]);
    }
  }
  return MergePair(even, odd, thread);
}

__device__ __forceinline__ void StoreNode(const xxh3::Hash128& hash, ulonglong2* node) {
  *node = make_ulonglong2(xxh3::Swap64(hash.high), xxh3::Swap64(hash.low));
}

// The whole hash by one thread, out of line: few leaves take this way.
__device__ __noinline__ xxh3::Hash128 HashAlone(const uint8_t* data, int length) {
  return xxh3::Hash(data, length);
}

// data: [bytes]; nodes: [ceil(bytes / 4096)], one for each leaf. A level of nodes is hashed the
// same way. A leaf that is not whole, or not 16-byte aligned, goes through one thread.
__global__ void __launch_bounds__(kThreads)
    HashLeavesKernel(const uint8_t* __restrict__ data, int64_t bytes,
                     ulonglong2* __restrict__ nodes) {
  __shared__ SharedSecret secret;
  secret.Fill();
  const int64_t leaf = int64_t{blockIdx.x} * kLeavesPerBlock + threadIdx.x / kThreadsPerLeaf;
  const int thread = threadIdx.x % kThreadsPerLeaf;
  const int64_t begin = leaf * kDigestLeafBytes;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % sizeof(uint4) == 0;
  const bool whole = begin + kDigestLeafBytes <= bytes;
  const bool by_group = whole && aligned;
  const unsigned group_lanes = __ballot_sync(0xffffffffu, by_group);
  if (by_group) {
    xxh3::Hash128 hash = HashLeafPart(reinterpret_cast<const uint4*>(data + begin), thread, secret);
#pragma unroll
    for (int lanes = 1; lanes < kThreadsPerLeaf; lanes *= 2) {
      hash.low += __shfl_xor_sync(group_lanes, hash.low, lanes);
      hash.high += __shfl_xor_sync(group_lanes, hash.high, lanes);
    }
    if (thread == 0) StoreNode(xxh3::FinishLong(hash, kDigestLeafBytes), nodes + leaf);
  } else if (thread == 0 && begin < bytes) {
    const int length = whole ? static_cast<int>(kDigestLeafBytes) : static_cast<int>(bytes - begin);
    StoreNode(HashAlone(data + begin, length), nodes + leaf);
  }
}

// The part of a leaf of `length` bytes, more than 240 and a multiple of 16, that `thread` has.
__device__ __forceinline__ xxh3::Hash128 HashShortLeafPart(const uint4* leaf, int length,
                                                           int thread, const SharedSecret& secret) {
  using namespace xxh3;
  uint64_t even = secret.initial[2 * thread];
  uint64_t odd = secret.initial[2 * thread + 1];
  const int stripes = (length - 1) / kStripeBytes;
#pragma unroll 4
  for (int stripe = 0; stripe < stripes; ++stripe) {
    const int s = stripe % kStripesPerBlock;
    const uint4 data = __ldcs(leaf + stripe * kThreadsPerLeaf + thread);
    AccumulatePair(even, odd, Join(data.x, data.y), Join(data.z, data.w),
                   secret.words[s + 2 * thread], secret.words[s + 2 * thread + 1]);
    if (s == kStripesPerBlock - 1) {
      even = Scramble(even, secret.words[kStripesPerBlock + 2 * thread]);
      odd = Scramble(odd, secret.words[kStripesPerBlock + 2 * thread + 1]);
    }
  }
  // The last stripe ends with the leaf and may overlap the one before.
  const uint4 data = __ldcs(leaf + (length - kStripeBytes) / 16 + thread);
  AccumulatePair(even, odd, Join(data.x, data.y), Join(data.z, data.w), secret.last[2 * thread],
                 secret.last[2 * thread + 1]);
  return MergePair(even, odd, thread);
}

// data: [rows][row_bytes]; nodes: [rows][leaves], one for each leaf of a row. A level of nodes is
// hashed the same way. Leaves that are not 16-byte aligned, and short ones, go through one thread.
__global__ void __launch_bounds__(kThreads)
    HashRowLeavesKernel(const uint8_t* __restrict__ data, int64_t rows, int64_t row_bytes,
                        int64_t leaves, ulonglong2* __restrict__ nodes) {
  constexpr int kLongest = 240;
  __shared__ SharedSecret secret;
  secret.Fill();
  const int64_t index = int64_t{blockIdx.x} * kLeavesPerBlock + threadIdx.x / kThreadsPerLeaf;
  const int thread = threadIdx.x % kThreadsPerLeaf;
  const bool there = index < rows * leaves;
  const int64_t row = leaves == 1 ? index : index / leaves;
  const int64_t offset = (index - row * leaves) * kDigestLeafBytes;
  const uint8_t* const leaf = data + row * row_bytes + offset;
  const int64_t rest = row_bytes - offset;
  const int length = static_cast<int>(rest < kDigestLeafBytes ? rest : kDigestLeafBytes);
  const bool by_group = there && length > kLongest && length % 16 == 0 &&
                        reinterpret_cast<uintptr_t>(leaf) % sizeof(uint4) == 0;
  const unsigned group_lanes = __ballot_sync(0xffffffffu, by_group);
  if (by_group) {
    const auto* vectors = reinterpret_cast<const uint4*>(leaf);
    xxh3::Hash128 hash = length == kDigestLeafBytes
                             ? HashLeafPart(vectors, thread, secret)
                             : HashShortLeafPart(vectors, length, thread, secret);
#pragma unroll
    for (int lanes = 1; lanes < kThreadsPerLeaf; lanes *= 2) {
      hash.low += __shfl_xor_sync(group_lanes, hash.low, lanes);
      hash.high += __shfl_xor_sync(group_lanes, hash.high, lanes);
    }
    if (thread == 0) {
      StoreNode(xxh3::FinishLong(hash, static_cast<uint64_t>(length)), nodes + index);
    }
  } else if (there && thread == 0) {
    StoreNode(HashAlone(leaf, length), nodes + index);
  }
}

// The preamble of a tensor of rank 1.
struct RowPreamble {
  uint64_t words[4];
};

// nodes: [rows], the last node of each; digests: [rows]. In place is allowed.
__global__ void __launch_bounds__(kThreads)
    RowRootsKernel(RowPreamble preamble, const ulonglong2* nodes, int64_t rows,
                   ulonglong2* digests) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= rows) return;
  const ulonglong2 node = nodes[row];
  const uint64_t bytes[6] = {
      preamble.words[0], preamble.words[1], preamble.words[2], preamble.words[3], node.x, node.y};
  StoreNode(HashAlone(reinterpret_cast<const uint8_t*>(bytes), sizeof(bytes)), digests + row);
}

}  // namespace

int64_t RowDigestScratchBytes(int64_t rows, int64_t row_bytes) {
  int64_t total = 0;
  for (int64_t level = row_bytes; level > 0;) {
    const int64_t leaves = LeafCount(level);
    total += rows * leaves * kNodeBytes;
    if (leaves == 1) break;
    level = leaves * kNodeBytes;
  }
  return total;
}

absl::StatusOr<const std::byte*> EnqueueRowDigests(DType dtype, int64_t columns, const void* data,
                                                   int64_t rows, int64_t row_bytes,
                                                   std::span<std::byte> scratch, StreamRef stream) {
  if (rows <= 0 || row_bytes <= 0 ||
      static_cast<int64_t>(scratch.size()) < RowDigestScratchBytes(rows, row_bytes)) {
    ErrorDetail detail;
    detail.reason = Reason::kInternal;
    detail.field = "digest";
    return MakeError(absl::StatusCode::kInternal, std::move(detail),
                     "device digests of rows need bytes and room for their nodes");
  }
  const cudaStream_t handle = cuda::CudaStream(stream);
  const auto* level = static_cast<const uint8_t*>(data);
  std::byte* nodes = scratch.data();
  for (;;) {
    const int64_t leaves = LeafCount(row_bytes);
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(rows * leaves, kLeavesPerBlock));
    RLK_RETURN_IF_ERROR(cuda::Launch(HashRowLeavesKernel, blocks, kThreads, handle, level, rows,
                                     row_bytes, leaves, reinterpret_cast<ulonglong2*>(nodes)));
    if (leaves == 1) break;
    level = reinterpret_cast<const uint8_t*>(nodes);
    row_bytes = leaves * kNodeBytes;
    nodes += rows * leaves * kNodeBytes;
  }
  RowPreamble preamble;
  const std::vector<std::byte> bytes = DigestPreamble(dtype, Dims{columns});
  static_assert(sizeof(preamble) == 32, "id, dtype, rank and one size");
  memcpy(&preamble, bytes.data(), sizeof(preamble));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(rows, kThreads));
  auto* last = reinterpret_cast<ulonglong2*>(nodes);
  RLK_RETURN_IF_ERROR(cuda::Launch(RowRootsKernel, blocks, kThreads, handle, preamble,
                                   static_cast<const ulonglong2*>(last), rows, last));
  return nodes;
}

int64_t DigestScratchBytes(int64_t bytes) {
  int64_t total = 0;
  for (int64_t level = bytes; level > 0;) {
    const int64_t nodes = LeafCount(level);
    total += nodes * kNodeBytes;
    if (nodes == 1) break;
    level = nodes * kNodeBytes;
  }
  return total;
}

absl::StatusOr<const std::byte*> EnqueueDigest(const void* data, int64_t bytes,
                                               std::span<std::byte> scratch, StreamRef stream) {
  if (bytes <= 0 || static_cast<int64_t>(scratch.size()) < DigestScratchBytes(bytes)) {
    ErrorDetail detail;
    detail.reason = Reason::kInternal;
    detail.field = "digest";
    return MakeError(absl::StatusCode::kInternal, std::move(detail),
                     "a device digest needs bytes and room for its nodes");
  }
  const auto* level = static_cast<const uint8_t*>(data);
  std::byte* nodes = scratch.data();
  while (true) {
    const int64_t count = LeafCount(bytes);
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(count, kLeavesPerBlock));
    RLK_RETURN_IF_ERROR(cuda::Launch(HashLeavesKernel, blocks, kThreads, cuda::CudaStream(stream),
                                     level, bytes, reinterpret_cast<ulonglong2*>(nodes)));
    if (count == 1) return nodes;
    level = reinterpret_cast<const uint8_t*>(nodes);
    bytes = count * kNodeBytes;
    nodes += bytes;
  }
}

}  // namespace rlk
