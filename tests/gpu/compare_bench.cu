// Times the comparison of two tensors in device memory beside a read of the same bytes, and row
// digests beside the digest of the whole tensor. Medians of blocks that alternate with their floor.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/compare/compare_cuda.h"
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pinned.h"
#include "kernels/cuda/stream.h"
#include "kernels/digest/digest_cuda.h"

namespace {

using rlk::DType;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

constexpr int kThreads = 512, kUnroll = 8;

// Reads both sides and writes nothing that is not needed to keep the loads.
__global__ void __launch_bounds__(kThreads)
    ReadKernel(const uint4* __restrict__ a, const uint4* __restrict__ b, int64_t words,
               uint32_t* out) {
  uint32_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < words; i += kUnroll * stride) {
    uint4 x[kUnroll], y[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      x[u] = __ldcs(a + i + u * stride);
      y[u] = __ldcs(b + i + u * stride);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      sum += x[u].x ^ x[u].y ^ x[u].z ^ x[u].w ^ y[u].x ^ y[u].y ^ y[u].z ^ y[u].w;
    }
  }
  for (; i < words; i += stride) sum += a[i].x ^ a[i].y ^ a[i].z ^ a[i].w ^ b[i].x ^ b[i].w;
  if (sum == 0xfeedbeefu) *out = sum;
}

// Values like those of a model: no infinity, no NaN, all exponents near 1.
__global__ void FillKernel(uint32_t* data, int64_t words, uint32_t clear, uint32_t set) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    data[i] = (x & ~clear) | set;
  }
}

class Timer {
 public:
  Timer() {
    Check(cudaEventCreate(&begin_), "cudaEventCreate");
    Check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  double Milliseconds(cudaStream_t stream, const std::function<void()>& work) const {
    constexpr int kRepeats = 10;
    Check(cudaEventRecord(begin_, stream), "cudaEventRecord");
    for (int i = 0; i < kRepeats; ++i) work();
    Check(cudaEventRecord(end_, stream), "cudaEventRecord");
    Check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return milliseconds / kRepeats;
  }

 private:
  cudaEvent_t begin_, end_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Medians over alternating blocks.
std::pair<double, double> Alternate(const Timer& timer, cudaStream_t stream,
                                    const std::function<void()>& work,
                                    const std::function<void()>& floor) {
  std::vector<double> works, floors;
  for (int block = 0; block < 9; ++block) {
    floors.push_back(timer.Milliseconds(stream, floor));
    works.push_back(timer.Milliseconds(stream, work));
  }
  return {Median(works), Median(floors)};
}

std::span<std::byte> Span(std::byte* data, int64_t bytes) {
  return {data, static_cast<size_t>(bytes)};
}

struct Bench {
  int64_t bytes;
  rlk::cuda::Stream stream;
  rlk::cuda::DeviceBuffer left, right, scratch;
  Timer timer;
  unsigned read_blocks = 0;

  explicit Bench(int64_t size) : bytes(size) {
    stream = *rlk::cuda::Stream::Create();
    left = *rlk::cuda::DeviceBuffer::Allocate(bytes);
    right = *rlk::cuda::DeviceBuffer::Allocate(bytes);
    // Nodes of rows of 1 KiB are the most that anything here needs.
    scratch = *rlk::cuda::DeviceBuffer::Allocate(std::max(
        rlk::compare::CompareScratchBytes(bytes), rlk::RowDigestScratchBytes(bytes / 1024, 1024)));
    read_blocks = static_cast<unsigned>(4 * rlk::cuda::CurrentDeviceShape()->multiprocessors);
  }

  void Fill(uint32_t clear, uint32_t set) {
    for (auto* side : {&left, &right}) {
      Check(rlk::cuda::Launch(FillKernel, 1024u, 256u, stream.get(),
                              reinterpret_cast<uint32_t*>(side->data()), bytes / 4, clear, set));
    }
    Check(cudaStreamSynchronize(stream.get()), "fill");
  }

  void Read() {
    Check(rlk::cuda::Launch(ReadKernel, read_blocks, unsigned{kThreads}, stream.get(),
                            reinterpret_cast<const uint4*>(left.data()),
                            reinterpret_cast<const uint4*>(right.data()), bytes / 16,
                            reinterpret_cast<uint32_t*>(scratch.data())));
  }

  void Compare(DType dtype, const char* name) {
    const int64_t elements = bytes / rlk::DTypeSize(dtype);
    const auto [work, floor] = Alternate(
        timer, stream.get(),
        [&] {
          Check(rlk::compare::EnqueueScan(dtype, left.data(), right.data(), elements,
                                          Span(scratch.data(), scratch.bytes()), stream.ref()));
        },
        [&] { Read(); });
    const double terabytes = 2 * static_cast<double>(bytes) * 1e-9;
    std::printf(
        "ok compare %s 2 x %lld MiB: %.3f ms, %.2f TB/s; read %.3f ms, %.2f TB/s; %.2f of the read "
        "rate\n",
        name, static_cast<long long>(bytes >> 20), work, terabytes / work, floor, terabytes / floor,
        floor / work);
  }

  // Equal and with one difference, with what the host does.
  void Whole(DType dtype, const char* name) {
    const int64_t elements = bytes / rlk::DTypeSize(dtype);
    const int64_t needed = rlk::compare::CompareScratchBytes(elements);
    const auto pinned = *rlk::cuda::PinnedBuffer::Allocate(needed);
    const rlk::compare::Spec spec = {dtype, 0, 0, 1e-12};
    const auto compare = [&] {
      const auto stats = rlk::compare::CompareCuda(
          spec, left.data(), right.data(), elements, Span(scratch.data(), scratch.bytes()),
          Span(pinned.data(), pinned.bytes()), stream.ref());
      Check(stats.status());
      return stats->counts[rlk::compare::kMismatched];
    };
    for (const int differs : {0, 1}) {
      Check(cudaMemsetAsync(right.data() + bytes / 3, differs ? 0x3c : 0x3f, 1, stream.get()),
            "memset");
      Check(cudaMemcpyAsync(left.data() + bytes / 3, right.data() + bytes / 3, 1,
                            cudaMemcpyDeviceToDevice, stream.get()),
            "copy");
      if (differs)
        Check(cudaMemsetAsync(right.data() + bytes / 3, 0x3d, 1, stream.get()), "memset");
      const int64_t mismatched = compare();
      if (mismatched != differs) {
        std::fprintf(stderr, "compare: %lld mismatches, not %d\n",
                     static_cast<long long>(mismatched), differs);
        std::exit(1);
      }
      std::printf("    whole comparison of %s, %d element differs: %.3f ms\n", name, differs,
                  timer.Milliseconds(stream.get(), [&] { compare(); }));
    }
  }

  void RowDigests(int64_t row_bytes) {
    const int64_t rows = bytes / row_bytes;
    const auto [work, floor] = Alternate(
        timer, stream.get(),
        [&] {
          Check(rlk::EnqueueRowDigests(DType::kBF16, row_bytes / 2, left.data(), rows, row_bytes,
                                       Span(scratch.data(), scratch.bytes()), stream.ref())
                    .status());
        },
        [&] {
          Check(rlk::EnqueueDigest(left.data(), bytes, Span(scratch.data(), scratch.bytes()),
                                   stream.ref())
                    .status());
        });
    std::printf(
        "ok row digests, %lld rows of %lld bytes: %.3f ms; the tensor's digest %.3f ms; %.2f "
        "times\n",
        static_cast<long long>(rows), static_cast<long long>(row_bytes), work, floor, work / floor);
  }
};

}  // namespace

int main() {
  Check(cudaSetDevice(0), "cudaSetDevice");
  Bench bench(int64_t{1} << 30);
  // Two BF16 or F16 of exponents around 0 in every word; then F32; then F64.
  bench.Fill(0x48004800u, 0x30003000u);
  bench.Compare(DType::kBF16, "BF16");
  bench.Compare(DType::kF16, "F16");
  bench.Whole(DType::kBF16, "BF16");
  bench.Fill(0x40000000u, 0x30000000u);
  bench.Compare(DType::kF32, "F32");
  bench.Compare(DType::kF64, "F64");
  bench.Compare(DType::kI32, "I32");
  bench.Compare(DType::kU8, "U8");
  for (const int64_t row_bytes : {1024, 4096, 5120, 8192, 10240, 65536, 524288}) {
    bench.RowDigests(row_bytes);
  }
  return 0;
}
