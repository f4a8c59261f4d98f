// The digest over device memory equals the host's.
#include "kernels/digest/digest.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/digest/digest_cuda.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/softcap_runner.h"

namespace rlk::gpu_test {
namespace {

std::string DeviceDigest(const void* data, DType dtype, const Dims& shape) {
  const int64_t bytes = ByteCount(shape, dtype);
  const int64_t scratch_bytes = DigestScratchBytes(bytes);
  const GuardedOutput scratch(scratch_bytes);
  const cuda::Stream stream = NewStream();
  const auto node = EnqueueDigest(
      data, bytes, {static_cast<std::byte*>(scratch.data()), static_cast<size_t>(scratch_bytes)},
      stream.ref());
  EXPECT_TRUE(node.ok()) << node.status();
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  scratch.ExpectGuardsIntact();
  std::array<uint8_t, 16> last;
  ToHost(last.data(), *node, 16);
  return DigestRoot(dtype, shape, &last).Text();
}

std::string HostDigest(const std::vector<uint8_t>& bytes, DType dtype, const Dims& shape) {
  return ComputeDigest(TensorView{dtype, shape, ContiguousStrides(shape), bytes.data()}).Text();
}

TEST(DeviceDigest, EqualsHostAroundEveryBoundary) {
  // Bytes around the paths of the hash, leaves, levels.
  for (int64_t bytes : {1,
                        2,
                        3,
                        4,
                        8,
                        9,
                        16,
                        17,
                        128,
                        129,
                        240,
                        241,
                        1024,
                        1025,
                        4095,
                        4096,
                        4097,
                        8191,
                        8192,
                        12288,
                        65535,
                        65536,
                        65537,
                        1048575,
                        1048576,
                        1048577,
                        1048576 + 4096,
                        2097152,
                        3145728 + 5,
                        16 * 1048576,
                        16 * 1048576 + 4097}) {
    const std::vector<uint8_t> data = RandomBits(DType::kU8, bytes, static_cast<uint64_t>(bytes));
    const cuda::DeviceBuffer device = Upload(data);
    EXPECT_EQ(DeviceDigest(device.data(), DType::kU8, Dims{bytes}),
              HostDigest(data, DType::kU8, Dims{bytes}))
        << bytes << " bytes";
  }
}

TEST(DeviceDigest, EqualsHostForEveryDtypeAndShape) {
  const std::pair<DType, Dims> cases[] = {
      {DType::kF32, Dims{2, 3, 257}}, {DType::kF16, Dims{2, 3, 257}},
      {DType::kBF16, Dims{1}},        {DType::kBF16, Dims{}},
      {DType::kF64, Dims{1023}},      {DType::kI32, Dims{7, 1, 9}},
      {DType::kI64, Dims{513}},       {DType::kBool, Dims{31}},
      {DType::kF32, Dims{64, 4096}}};
  for (const auto& [dtype, shape] : cases) {
    const int64_t bytes = ByteCount(shape, dtype);
    const std::vector<uint8_t> data = RandomBits(DType::kU8, bytes, 3);
    const cuda::DeviceBuffer device = Upload(data);
    EXPECT_EQ(DeviceDigest(device.data(), dtype, shape), HostDigest(data, dtype, shape))
        << DTypeName(dtype);
  }
}

TEST(DeviceDigest, EqualsHostAtUnalignedAddresses) {
  const std::vector<uint8_t> data = RandomBits(DType::kU8, 3 * 4096 + 100, 5);
  const cuda::DeviceBuffer device = Upload(data);
  for (int64_t offset : {1, 2, 4, 8, 15}) {
    const std::vector<uint8_t> slice(data.begin() + offset, data.end());
    const Dims shape{static_cast<int64_t>(slice.size())};
    EXPECT_EQ(DeviceDigest(device.data() + offset, DType::kU8, shape),
              HostDigest(slice, DType::kU8, shape))
        << "offset " << offset;
  }
}

// Three levels above the leaves.
TEST(DeviceDigest, EqualsHostAtOneGibibyte) {
  const int64_t bytes = (int64_t{1} << 30) + 12345;
  std::vector<uint8_t> data(static_cast<size_t>(bytes));
  uint64_t state = 88172645463325252ull;
  for (size_t i = 0; i + 8 <= data.size(); i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(data.data() + i, &state, 8);
  }
  const cuda::DeviceBuffer device = Upload(data);
  EXPECT_EQ(DeviceDigest(device.data(), DType::kU8, Dims{bytes}),
            HostDigest(data, DType::kU8, Dims{bytes}));
}

}  // namespace
}  // namespace rlk::gpu_test
