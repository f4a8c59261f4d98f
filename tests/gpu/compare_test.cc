// Comparisons and row digests over device memory give the host's numbers, bit for bit.
#include "kernels/compare/compare.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/compare/compare_cuda.h"
#include "kernels/cuda/pinned.h"
#include "kernels/digest/digest.h"
#include "kernels/digest/digest_cuda.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/softcap_runner.h"

namespace rlk::gpu_test {
namespace {

using Bytes = std::vector<uint8_t>;

std::span<std::byte> Span(std::byte* data, int64_t bytes) {
  return {data, static_cast<size_t>(bytes)};
}

compare::Stats OnDevice(const compare::Spec& spec, const void* left, const void* right,
                        int64_t elements) {
  const int64_t bytes = compare::CompareScratchBytes(elements);
  const GuardedOutput scratch(bytes);
  const auto pinned = cuda::PinnedBuffer::Allocate(bytes);
  EXPECT_TRUE(pinned.ok());
  const cuda::Stream stream = NewStream();
  const auto stats = compare::CompareCuda(spec, left, right, elements,
                                          Span(static_cast<std::byte*>(scratch.data()), bytes),
                                          Span(pinned->data(), bytes), stream.ref());
  EXPECT_TRUE(stats.ok()) << stats.status();
  scratch.ExpectGuardsIntact();
  return stats.ok() ? *stats : compare::Stats();
}

compare::RowStats RowsOnDevice(DType dtype, const void* left, const void* right, int64_t rows,
                               int64_t columns) {
  const int64_t bytes = compare::RowScratchBytes(rows);
  const GuardedOutput scratch(bytes);
  const auto pinned = cuda::PinnedBuffer::Allocate(bytes);
  EXPECT_TRUE(pinned.ok());
  const cuda::Stream stream = NewStream();
  const auto stats = compare::CompareRowsCuda(dtype, left, right, rows, columns, 8,
                                              Span(static_cast<std::byte*>(scratch.data()), bytes),
                                              Span(pinned->data(), bytes), stream.ref());
  EXPECT_TRUE(stats.ok()) << stats.status();
  scratch.ExpectGuardsIntact();
  return stats.ok() ? *stats : compare::RowStats();
}

void ExpectEqual(const compare::Stats& device, const compare::Stats& host) {
  EXPECT_EQ(device.compared, host.compared);
  for (size_t c = 0; c < host.counts.size(); ++c) {
    EXPECT_EQ(device.counts[c], host.counts[c]) << "counter " << c;
  }
  EXPECT_EQ(device.first, host.first);
  // Bits, not values: NaN would be equal to nothing.
  EXPECT_EQ(std::memcmp(&device.sums, &host.sums, sizeof(host.sums)), 0)
      << device.sums.error << " " << host.sums.error << " " << device.sums.product << " "
      << host.sums.product;
  EXPECT_EQ(std::memcmp(&device.extremes, &host.extremes, sizeof(host.extremes)), 0)
      << device.extremes.absolute << " " << host.extremes.absolute << " "
      << device.extremes.excess_index << " " << host.extremes.excess_index;
}

constexpr DType kAll[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64,
                          DType::kI32, DType::kI64, DType::kU8,   DType::kBool};

// Every bit pattern is as likely: NaN, infinities, subnormals and all.
TEST(GpuCompare, EqualsHostForEveryDtypeAndLength) {
  for (const DType dtype : kAll) {
    for (const int64_t n : {1, 2, 7, 255, 256, 4095, 4096, 4097, 65535, 65536, 65537, 200003}) {
      const Bytes left = RandomBits(dtype, n, 1);
      const Bytes noise = RandomBits(dtype, n, 2);
      for (const int every : {0, 1, 1000}) {
        Bytes right = left;
        const auto size = static_cast<size_t>(DTypeSize(dtype));
        for (int64_t i = 0; every > 0 && i < n; i += every) {
          std::memcpy(right.data() + static_cast<size_t>(i) * size,
                      noise.data() + static_cast<size_t>(i) * size, size);
        }
        const compare::Spec spec = {dtype, 1e-3, 1e-3, 1e-12};
        compare::Stats host;
        compare::Accumulate(spec, left.data(), right.data(), nullptr, 0, n, nullptr, host);
        const cuda::DeviceBuffer a = Upload(left), b = Upload(right);
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(n) + " every " +
                     std::to_string(every));
        ExpectEqual(OnDevice(spec, a.data(), b.data(), n), host);
      }
    }
  }
}

TEST(GpuCompare, EqualsHostAtUnalignedAddresses) {
  const int64_t n = 70000;
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kU8}) {
    const int64_t size = DTypeSize(dtype);
    const Bytes left = RandomBits(dtype, n + 1, 3);
    Bytes right = left;
    right[static_cast<size_t>(size * (n - 1))] ^= 1;
    const cuda::DeviceBuffer a = Upload(left), b = Upload(right);
    compare::Stats host;
    const compare::Spec spec = {dtype, 0, 0, 1e-12};
    compare::Accumulate(spec, left.data() + size, right.data() + size, nullptr, 0, n, nullptr,
                        host);
    ExpectEqual(OnDevice(spec, a.data() + size, b.data() + size, n), host);
    EXPECT_EQ(host.first, n - 2);
  }
}

TEST(GpuCompare, FindsOneFlippedBitInAHundredMillionElements) {
  const int64_t n = 100'000'000, at = 71'234'567;
  Bytes left = RandomBits(DType::kBF16, n, 4);
  Bytes right = left;
  right[static_cast<size_t>(2 * at)] ^= 1;
  const cuda::DeviceBuffer a = Upload(left), b = Upload(right);
  const compare::Stats stats = OnDevice({DType::kBF16, 0, 0, 1e-12}, a.data(), b.data(), n);
  EXPECT_EQ(stats.counts[compare::kMismatched], 1);
  EXPECT_EQ(stats.counts[compare::kSingleBit], 1);
  EXPECT_EQ(stats.first, at);
}

TEST(GpuCompare, RowsEqualTheHostsRows) {
  const std::pair<int64_t, int64_t> shapes[] = {
      {1, 1}, {5, 3}, {1000, 33}, {64, 4096}, {9, 100000}};
  for (const auto& [rows, columns] : shapes) {
    const Bytes left = RandomBits(DType::kF32, rows * columns, 5);
    Bytes right = left;
    for (size_t i = 3; i < right.size(); i += 40009) right[i] ^= 0x10;
    const cuda::DeviceBuffer a = Upload(left), b = Upload(right);
    const compare::RowStats device = RowsOnDevice(DType::kF32, a.data(), b.data(), rows, columns);
    const compare::RowStats host =
        compare::CompareRows(DType::kF32, left.data(), right.data(), rows, columns, 8, nullptr);
    EXPECT_EQ(device.mismatched, host.mismatched);
    EXPECT_EQ(device.first, host.first);
    EXPECT_EQ(device.last, host.last);
    EXPECT_EQ(device.first_column, host.first_column);
    EXPECT_EQ(device.last_column, host.last_column);
    EXPECT_EQ(device.column_or, host.column_or);
    EXPECT_EQ(device.column_and, host.column_and);
    EXPECT_EQ(device.listed, host.listed);
    ASSERT_EQ(device.worst.size(), host.worst.size());
    for (size_t i = 0; i < host.worst.size(); ++i) {
      EXPECT_EQ(device.worst[i].row, host.worst[i].row);
      EXPECT_EQ(device.worst[i].mismatched, host.worst[i].mismatched);
    }
  }
}

void ExpectRowDigests(DType dtype, int64_t rows, int64_t columns, int64_t offset) {
  const int64_t row_bytes = columns * DTypeSize(dtype);
  const Bytes data = RandomBits(DType::kU8, rows * row_bytes + offset, 6);
  const cuda::DeviceBuffer device = Upload(data);
  const int64_t scratch_bytes = RowDigestScratchBytes(rows, row_bytes);
  const GuardedOutput scratch(scratch_bytes);
  const cuda::Stream stream = NewStream();
  const auto roots =
      EnqueueRowDigests(dtype, columns, device.data() + offset, rows, row_bytes,
                        Span(static_cast<std::byte*>(scratch.data()), scratch_bytes), stream.ref());
  ASSERT_TRUE(roots.ok()) << roots.status();
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  scratch.ExpectGuardsIntact();
  Bytes found(static_cast<size_t>(16 * rows));
  ToHost(found.data(), *roots, 16 * rows);
  const Dims shape = {rows, columns};
  const std::vector<Digest> expected =
      ComputeRowDigests({dtype, shape, ContiguousStrides(shape), data.data() + offset});
  int64_t wrong = 0;
  for (int64_t row = 0; row < rows; ++row) {
    wrong += std::memcmp(found.data() + 16 * row, expected[static_cast<size_t>(row)].bytes.data(),
                         16) != 0;
  }
  EXPECT_EQ(wrong, 0) << rows << " rows of " << row_bytes << " bytes at offset " << offset;
}

TEST(GpuRowDigests, EqualTheHostsForEveryLengthOfARow) {
  for (const int64_t bytes :
       {1,    3,    16,   17,   240,  241,  256,   272,   1024,  1040,  2048,
        4080, 4096, 4097, 4112, 8192, 8208, 10240, 12288, 65536, 65552, 262144}) {
    ExpectRowDigests(DType::kU8, bytes < 5000 ? 77 : 9, bytes, 0);
  }
  // Two levels above the leaves.
  ExpectRowDigests(DType::kBF16, 3, 800000, 0);
  for (const int64_t offset : {1, 2, 8, 15}) ExpectRowDigests(DType::kU8, 5, 5000, offset);
  ExpectRowDigests(DType::kBF16, 4096, 2048, 0);
}

}  // namespace
}  // namespace rlk::gpu_test
