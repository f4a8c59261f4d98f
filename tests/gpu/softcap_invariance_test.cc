// Bits do not depend on size, place, strides, alignment, neighbours or what else runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/gpu/device_memory.h"
#include "tests/gpu/softcap_runner.h"

namespace rlk::gpu_test {
namespace {

constexpr int64_t kBlock = 2048;  // elements of a block of the streaming kernels

struct Types {
  DType x, other;
};
const Types kTypes[] = {{DType::kBF16, DType::kF32},
                        {DType::kBF16, DType::kBF16},
                        {DType::kF16, DType::kF32},
                        {DType::kF16, DType::kF16},
                        {DType::kF32, DType::kF32}};

// Inputs that take every path: normal values with some random patterns between.
std::vector<uint8_t> Inputs(DType dtype, int64_t count, uint64_t seed) {
  std::vector<uint8_t> values = NormalValues(dtype, count, 30.0f, seed);
  const std::vector<uint8_t> bits = RandomBits(dtype, count, seed + 1);
  const int64_t size = DTypeSize(dtype);
  for (int64_t i = 0; i < count; i += 37) {
    std::memcpy(values.data() + i * size, bits.data() + i * size, static_cast<size_t>(size));
  }
  return values;
}

std::vector<uint8_t> ForwardAt(const std::byte* x, Types types, int64_t count, float cap,
                               int64_t output_offset) {
  const int64_t bytes = count * DTypeSize(types.other);
  const GuardedOutput output(bytes, output_offset);
  const cuda::Stream stream = NewStream();
  LaunchCuda(Forward{View(types.x, count, x), MutableView(types.other, count, output.data()), cap},
             stream.get());
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  output.ExpectGuardsIntact();
  return Download<uint8_t>(output.data(), bytes);
}

TEST(SoftcapInvariance, SizesAroundBlockEdgesAndSlicesAtOddOffsets) {
  const int64_t whole = 5 * kBlock + 17;
  for (const Types& types : kTypes) {
    const int64_t x_size = DTypeSize(types.x), y_size = DTypeSize(types.other);
    const std::vector<uint8_t> x = Inputs(types.x, whole, 21);
    const cuda::DeviceBuffer device = Upload(x);
    const std::vector<uint8_t> all = ForwardAt(device.data(), types, whole, 20.0f, 0);
    for (int64_t count : {int64_t{1}, int64_t{7}, int64_t{8}, int64_t{9}, int64_t{255}, kBlock - 1,
                          kBlock, kBlock + 1, 2 * kBlock - 8, 4 * kBlock + 3}) {
      for (int64_t first : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{8}, int64_t{13}}) {
        for (int64_t output_offset : {int64_t{0}, y_size, 5 * y_size}) {
          const std::vector<uint8_t> part =
              ForwardAt(device.data() + first * x_size, types, count, 20.0f, output_offset);
          const std::vector<uint8_t> expected(all.begin() + first * y_size,
                                              all.begin() + (first + count) * y_size);
          ExpectSameBytes(part, expected, y_size, "slice");
        }
      }
    }
  }
}

// A [rows, columns] view with gaps, transposed: as the contiguous copy of it.
TEST(SoftcapInvariance, StridedEqualsContiguous) {
  constexpr int64_t kRows = 33, kColumns = 129, kRowStride = 140;
  for (const Types& types : kTypes) {
    const int64_t x_size = DTypeSize(types.x), g_size = DTypeSize(types.other);
    const std::vector<uint8_t> x = Inputs(types.x, kRows * kRowStride, 5);
    const std::vector<uint8_t> g = NormalValues(types.other, kRows * kColumns, 1.0f, 6);
    std::vector<uint8_t> dense;  // [kColumns, kRows]
    for (int64_t c = 0; c < kColumns; ++c) {
      for (int64_t r = 0; r < kRows; ++r) {
        const auto at = x.begin() + (r * kRowStride + c) * x_size;
        dense.insert(dense.end(), at, at + x_size);
      }
    }
    const cuda::DeviceBuffer strided_x = Upload(x), dense_x = Upload(dense), grad = Upload(g);
    const Dims shape{kColumns, kRows};
    const TensorView view{types.x, shape, Dims{1, kRowStride}, strided_x.data()};
    const TensorView plain{types.x, shape, ContiguousStrides(shape), dense_x.data()};
    const TensorView grad_view{types.other, shape, ContiguousStrides(shape), grad.data()};
    const cuda::Stream stream = NewStream();
    std::array<std::vector<uint8_t>, 2> forward, backward;
    for (int i = 0; i < 2; ++i) {
      const GuardedOutput y(kRows * kColumns * g_size), grad_x(kRows * kColumns * x_size);
      LaunchCuda(Forward{i == 0 ? view : plain, {types.other, shape, y.data()}, 30.0f},
                 stream.get());
      LaunchCuda(Backward{i == 0 ? view : plain, grad_view, {types.x, shape, grad_x.data()}, 30.0f},
                 stream.get());
      RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
      y.ExpectGuardsIntact();
      grad_x.ExpectGuardsIntact();
      forward[static_cast<size_t>(i)] = Download<uint8_t>(y.data(), kRows * kColumns * g_size);
      backward[static_cast<size_t>(i)] =
          Download<uint8_t>(grad_x.data(), kRows * kColumns * x_size);
    }
    ExpectSameBytes(forward[0], forward[1], g_size, "forward");
    ExpectSameBytes(backward[0], backward[1], x_size, "backward");
  }
}

TEST(SoftcapInvariance, NeighboursDoNotMatter) {
  const Types types{DType::kBF16, DType::kF32};
  const int64_t count = 3 * kBlock + 5;
  std::vector<uint8_t> x = Inputs(types.x, count, 31);
  const std::vector<uint8_t> before = ForwardAt(Upload(x).data(), types, count, 30.0f, 0);
  // Every element but one in 100 becomes NaN, zero or the smallest subnormal.
  for (int64_t i = 0; i < count; ++i) {
    if (i % 100 == 0) continue;
    const uint16_t bits = i % 3 == 0 ? 0x7fc0 : i % 3 == 1 ? 0x0000 : 0x0001;
    std::memcpy(x.data() + 2 * i, &bits, 2);
  }
  const std::vector<uint8_t> after = ForwardAt(Upload(x).data(), types, count, 30.0f, 0);
  for (int64_t i = 0; i < count; i += 100) {
    EXPECT_EQ(std::memcmp(before.data() + 4 * i, after.data() + 4 * i, 4), 0) << "element " << i;
  }
}

TEST(SoftcapInvariance, ConcurrentStreamsGiveTheSameBits) {
  const Types types{DType::kBF16, DType::kF32};
  constexpr int64_t kCount = (int64_t{1} << 22) + 3;
  constexpr int kStreams = 8, kRounds = 20;
  const std::vector<uint8_t> x = Inputs(types.x, kCount, 41);
  const cuda::DeviceBuffer device = Upload(x);
  const std::vector<uint8_t> expected = ForwardAt(device.data(), types, kCount, 20.0f, 0);
  std::vector<std::thread> threads;
  std::array<int, kStreams> differing = {};
  for (int s = 0; s < kStreams; ++s) {
    threads.emplace_back([&, s] {
      const cuda::Stream stream = NewStream();
      const cuda::DeviceBuffer output = NewBuffer(kCount * 4);
      for (int round = 0; round < kRounds; ++round) {
        RLK_GPU_CHECK(cudaMemsetAsync(output.data(), 0xa5, kCount * 4, stream.get()));
        LaunchCuda(Forward{View(types.x, kCount, device.data()),
                           MutableView(types.other, kCount, output.data()), 20.0f},
                   stream.get());
        RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
        differing[static_cast<size_t>(s)] +=
            Download<uint8_t>(output.data(), kCount * 4) != expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int count : differing) EXPECT_EQ(count, 0);
}

// 64-bit offsets: the elements past 2^31 are those of a small call on the same values.
TEST(SoftcapInvariance, MoreThanTwoToThe31Elements) {
  const Types types{DType::kBF16, DType::kBF16};
  constexpr int64_t kCount = (int64_t{1} << 31) + 1000;
  constexpr int64_t kPeriod = int64_t{1} << 20;
  const std::vector<uint8_t> pattern = Inputs(types.x, kPeriod, 51);
  const cuda::DeviceBuffer x = NewBuffer(kCount * 2), y = NewBuffer(kCount * 2);
  const cuda::Stream stream = NewStream();
  const cuda::DeviceBuffer period = Upload(pattern);
  for (int64_t first = 0; first < kCount; first += kPeriod) {
    RLK_GPU_CHECK(cudaMemcpyAsync(x.data() + 2 * first, period.data(),
                                  static_cast<size_t>(2 * std::min(kPeriod, kCount - first)),
                                  cudaMemcpyDeviceToDevice, stream.get()));
  }
  RLK_GPU_CHECK(cudaMemsetAsync(y.data(), 0xa5, static_cast<size_t>(kCount) * 2, stream.get()));
  LaunchCuda(
      Forward{View(types.x, kCount, x.data()), MutableView(types.other, kCount, y.data()), 30.0f},
      stream.get());
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  const std::vector<uint8_t> expected = ForwardAt(period.data(), types, kPeriod, 30.0f, 0);
  for (int64_t first : {int64_t{0}, (int64_t{1} << 30) / kPeriod * kPeriod,
                        ((int64_t{1} << 31) - 1) / kPeriod * kPeriod}) {
    ExpectSameBytes(Download<uint8_t>(y.data() + 2 * first, 2 * kPeriod), expected, 2, "period");
  }
  const int64_t last = int64_t{1} << 31;
  ExpectSameBytes(Download<uint8_t>(y.data() + 2 * last, 2000),
                  std::vector<uint8_t>(expected.begin(), expected.begin() + 2000), 2, "tail");
}

}  // namespace
}  // namespace rlk::gpu_test
