// Claim L3: the cuda variants give the bytes of the cpu variants, for every input that the dtypes
// have where that can be tried.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/arith/scalar.h"
#include "kernels/core/parallel.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/softcap_runner.h"

namespace rlk::gpu_test {
namespace {

constexpr int64_t kChunk = int64_t{1} << 26;

struct Types {
  DType x, other;  // other: y or grad_y
};

std::string Name(const Types& types) {
  return std::string(DTypeName(types.x)) + "_" + std::string(DTypeName(types.other));
}

// Caps with the fast division at its limits and just outside, and where it does not apply.
const float kCaps[] = {20.0f,          30.0f,          50.0f,           7.3f,
                       0.1f,           1.0f,           0x1p-20f,        0x1p20f,
                       0x1.fffffep19f, 0x1.000002p20f, 0x1.fffffep-21f, 0x1.5p-30f,
                       3.4e38f,        0x1p-126f,      0x1p-149f,       0x1.8p-140f,
                       1e30f};

std::vector<uint8_t> CudaForward(const Types& types, const std::vector<uint8_t>& x, float cap) {
  const auto count = static_cast<int64_t>(x.size()) / DTypeSize(types.x);
  const cuda::DeviceBuffer input = Upload(x);
  const int64_t bytes = count * DTypeSize(types.other);
  const GuardedOutput output(bytes);
  const cuda::Stream stream = NewStream();
  LaunchCuda(
      {View(types.x, count, input.data()), MutableView(types.other, count, output.data()), cap},
      stream.get());
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  output.ExpectGuardsIntact();
  EXPECT_EQ(Download<uint8_t>(input.data(), input.bytes()), x) << "the input was written";
  return Download<uint8_t>(output.data(), bytes);
}

std::vector<uint8_t> CpuForward(const Types& types, const std::vector<uint8_t>& x, float cap) {
  const auto count = static_cast<int64_t>(x.size()) / DTypeSize(types.x);
  std::vector<uint8_t> y(static_cast<size_t>(count * DTypeSize(types.other)));
  RunCpu(Forward{View(types.x, count, x.data()), MutableView(types.other, count, y.data()), cap});
  return y;
}

std::vector<uint8_t> CudaBackward(const Types& types, const std::vector<uint8_t>& x,
                                  const std::vector<uint8_t>& g, float cap) {
  const auto count = static_cast<int64_t>(x.size()) / DTypeSize(types.x);
  const cuda::DeviceBuffer input = Upload(x), grad = Upload(g);
  const GuardedOutput output(static_cast<int64_t>(x.size()));
  const cuda::Stream stream = NewStream();
  LaunchCuda(Backward{View(types.x, count, input.data()), View(types.other, count, grad.data()),
                      MutableView(types.x, count, output.data()), cap},
             stream.get());
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  output.ExpectGuardsIntact();
  return Download<uint8_t>(output.data(), static_cast<int64_t>(x.size()));
}

std::vector<uint8_t> CpuBackward(const Types& types, const std::vector<uint8_t>& x,
                                 const std::vector<uint8_t>& g, float cap) {
  const auto count = static_cast<int64_t>(x.size()) / DTypeSize(types.x);
  std::vector<uint8_t> grad_x(x.size());
  RunCpu(Backward{View(types.x, count, x.data()), View(types.other, count, g.data()),
                  MutableView(types.x, count, grad_x.data()), cap});
  return grad_x;
}

// All patterns of a 16-bit dtype.
std::vector<uint8_t> AllPatterns16() {
  std::vector<uint16_t> values(1 << 16);
  std::iota(values.begin(), values.end(), uint16_t{0});
  std::vector<uint8_t> bytes(values.size() * 2);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<uint8_t> Patterns32(uint32_t first, int64_t count, uint32_t step) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count) * 4);
  auto* values = reinterpret_cast<uint32_t*>(bytes.data());
  for (int64_t i = 0; i < count; ++i) values[i] = first + static_cast<uint32_t>(i) * step;
  return bytes;
}

std::vector<uint8_t> Repeated(DType dtype, int64_t count, float value) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count * DTypeSize(dtype)));
  const uint32_t bits = dtype == DType::kF32    ? arith::FloatBits(value)
                        : dtype == DType::kBF16 ? arith::FloatBits(value) >> 16
                                                : 0x3c00u;  // FP16: only 1 is asked for
  const auto size = static_cast<size_t>(DTypeSize(dtype));
  for (int64_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * size, &bits, size);
  return bytes;
}

class SoftcapPortable : public testing::TestWithParam<Types> {};

TEST_P(SoftcapPortable, ForwardOfAll16BitInputs) {
  const Types types = GetParam();
  if (types.x == DType::kF32) {
    // One in 61 patterns; AllF32Inputs tries the rest for caps 20 and 30.
    const std::vector<uint8_t> x = Patterns32(0, int64_t{1} << 26, 61);
    for (float cap : {50.0f, 7.3f, 0.1f, 0x1p-20f, 0x1p20f, 1e-30f}) {
      ExpectSameBytes(CudaForward(types, x, cap), CpuForward(types, x, cap), 4,
                      ("cap " + std::to_string(cap)).c_str());
    }
    return;
  }
  const std::vector<uint8_t> x = AllPatterns16();
  for (float cap : kCaps) {
    ExpectSameBytes(CudaForward(types, x, cap), CpuForward(types, x, cap), DTypeSize(types.other),
                    ("cap " + std::to_string(cap)).c_str());
  }
}

TEST_P(SoftcapPortable, BackwardOfAll16BitInputs) {
  const Types types = GetParam();
  const std::vector<uint8_t> x =
      types.x == DType::kF32 ? Patterns32(3, int64_t{1} << 24, 253) : AllPatterns16();
  const auto count = static_cast<int64_t>(x.size()) / DTypeSize(types.x);
  const std::vector<uint8_t> gradients[] = {Repeated(types.other, count, 1.0f),
                                            NormalValues(types.other, count, 1.0f, 11),
                                            RandomBits(types.other, count, 12)};
  for (float cap : kCaps) {
    for (const std::vector<uint8_t>& g : gradients) {
      ExpectSameBytes(CudaBackward(types, x, g, cap), CpuBackward(types, x, g, cap),
                      DTypeSize(types.x), ("cap " + std::to_string(cap)).c_str());
    }
  }
}

TEST_P(SoftcapPortable, NanIsCanonical) {
  const Types types = GetParam();
  const std::vector<uint8_t> x =
      types.x == DType::kF32 ? Patterns32(0x7f800001u, 1 << 20, 7) : AllPatterns16();
  const std::vector<uint8_t> y = CudaForward(types, x, 30.0f);
  const int64_t size = DTypeSize(types.other);
  int64_t nans = 0;
  for (size_t i = 0; i < y.size() / static_cast<size_t>(size); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, y.data() + i * static_cast<size_t>(size), static_cast<size_t>(size));
    const uint32_t infinity = types.other == DType::kF32    ? 0x7f800000u
                              : types.other == DType::kBF16 ? 0x7f80u
                                                            : 0x7c00u;
    const uint32_t magnitude = size == 4 ? 0x7fffffffu : 0x7fffu;
    if ((bits & magnitude) <= infinity) continue;
    ++nans;
    ASSERT_EQ(bits, magnitude) << "element " << i;
  }
  EXPECT_GT(nans, 0);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SoftcapPortable,
                         testing::Values(Types{DType::kBF16, DType::kF32},
                                         Types{DType::kBF16, DType::kBF16},
                                         Types{DType::kF16, DType::kF32},
                                         Types{DType::kF16, DType::kF16},
                                         Types{DType::kF32, DType::kF32}),
                         [](const auto& info) { return Name(info.param); });

// All 2^32 FP32 inputs, chunk by chunk, against the cpu variant.
class SoftcapAllF32 : public testing::TestWithParam<float> {
 protected:
  static constexpr int64_t kGrain = 1 << 16;

  SoftcapAllF32() : x_(kChunk), expected_(kChunk), ones_(kChunk, 1.0f) {
    void* pinned = nullptr;
    RLK_GPU_CHECK(cudaHostAlloc(&pinned, kChunk * sizeof(uint32_t), cudaHostAllocDefault));
    actual_ = static_cast<uint32_t*>(pinned);
    ToDevice(device_ones_.data(), ones_.data(), device_ones_.bytes());
  }
  ~SoftcapAllF32() override { cudaFreeHost(actual_); }

  template <typename RunDevice, typename RunHost>
  void CompareAll(const RunDevice& run_device, const RunHost& run_host) {
    for (int64_t first = 0; first < int64_t{1} << 32; first += kChunk) {
      pool_.ParallelFor(kChunk, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          x_[static_cast<size_t>(i)] = static_cast<uint32_t>(first + i);
        }
      });
      RLK_GPU_CHECK(cudaMemcpyAsync(device_x_.data(), x_.data(), kChunk * sizeof(uint32_t),
                                    cudaMemcpyHostToDevice, stream_.get()));
      run_device();
      RLK_GPU_CHECK(cudaMemcpyAsync(actual_, device_y_.data(), kChunk * sizeof(uint32_t),
                                    cudaMemcpyDeviceToHost, stream_.get()));
      run_host();
      RLK_GPU_CHECK(cudaStreamSynchronize(stream_.get()));
      std::atomic<int64_t> first_bad{kChunk};
      pool_.ParallelFor(kChunk, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          if (actual_[i] == expected_[static_cast<size_t>(i)]) continue;
          int64_t seen = first_bad;
          while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
          }
          return;
        }
      });
      if (first_bad < kChunk) {
        FAIL() << "input " << std::hex << first + first_bad << " gives " << actual_[first_bad]
               << ", the cpu " << expected_[static_cast<size_t>(first_bad)];
      }
    }
  }

  ThreadPool pool_{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  std::vector<uint32_t> x_, expected_;
  std::vector<float> ones_;
  uint32_t* actual_ = nullptr;
  cuda::Stream stream_ = NewStream();
  cuda::DeviceBuffer device_x_ = NewBuffer(kChunk * 4), device_y_ = NewBuffer(kChunk * 4),
                     device_ones_ = NewBuffer(kChunk * 4);
};

TEST_P(SoftcapAllF32, ForwardEqualsCpu) {
  const Forward device{View(DType::kF32, kChunk, device_x_.data()),
                       MutableView(DType::kF32, kChunk, device_y_.data()), GetParam()};
  const Forward host{View(DType::kF32, kChunk, x_.data()),
                     MutableView(DType::kF32, kChunk, expected_.data()), GetParam()};
  CompareAll([&] { LaunchCuda(device, stream_.get()); }, [&] { RunCpu(host); });
}

TEST_P(SoftcapAllF32, BackwardOfOneEqualsCpu) {
  const Backward device{View(DType::kF32, kChunk, device_x_.data()),
                        View(DType::kF32, kChunk, device_ones_.data()),
                        MutableView(DType::kF32, kChunk, device_y_.data()), GetParam()};
  const Backward host{View(DType::kF32, kChunk, x_.data()), View(DType::kF32, kChunk, ones_.data()),
                      MutableView(DType::kF32, kChunk, expected_.data()), GetParam()};
  CompareAll([&] { LaunchCuda(device, stream_.get()); }, [&] { RunCpu(host); });
}

INSTANTIATE_TEST_SUITE_P(Caps, SoftcapAllF32, testing::Values(20.0f, 30.0f));

}  // namespace
}  // namespace rlk::gpu_test
