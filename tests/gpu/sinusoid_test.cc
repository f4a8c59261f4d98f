// The cuda backend of timestep_sinusoid_h3 against the cpu backend, bit for bit, the stored
// digests, and what can be said of h3-v1 without its provider (conditioning_bench.py has that).
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "kernels/ops/timestep_sinusoid_h3/cuda_launch.h"
#include "tests/gpu/op_cuda.h"
#include "tests/ops/timestep_sinusoid_h3/sinusoid_call.h"
#include "tests/support/golden_json.h"

namespace rlk::gpu_test {
namespace {

using test::ExpectSameOp;
using test::OpCall;
using test::OpOutputs;

std::vector<OpCall> Calls() {
  std::vector<OpCall> calls;
  uint32_t seed = 1;
  for (int64_t channels : {2, 4, 6, 30, 62, 64, 66, 126, 128, 130, 254, 256, 258, 1030, 65536}) {
    for (int64_t rows : {1, 2, 17, 257}) {
      if (channels > 1030 && rows > 2) continue;
      for (DType dtype : test::kSinusoidDTypes) {
        const double period = seed % 4 == 0 ? 1e-5 : seed % 4 == 1 ? 1.0 : 10000.0;
        calls.push_back(test::SinusoidForward(dtype, rows, channels, period, seed));
        calls.push_back(test::SinusoidBackward(dtype, rows, channels, period, seed));
        ++seed;
      }
    }
  }
  return calls;
}

TEST(Sinusoid, CudaEqualsCpu) {
  for (const OpCall& call : Calls()) ExpectCudaEqualsCpu(call, SinusoidName(call));
}

TEST(Sinusoid, EveryThousandthTimestepEqualsCpu) {
  OpCall call = test::SinusoidForward(DType::kF32, 1, 8, 10000, 1);
  std::vector<float> values;
  for (uint32_t bits = 0; bits <= 0x3f800000u; bits += 997)
    values.push_back(arith::BitsFloat(bits));
  call.inputs["timestep"] =
      test::MakeOpTensor(DType::kF32, {static_cast<int64_t>(values.size())}, values);
  ExpectCudaEqualsCpu(call, "FP32 timesteps");
}

TEST(Sinusoid, StridesDoNotMatter) {
  for (const OpCall& call : {test::SinusoidForward(DType::kBF16, 9, 66, 10000, 3),
                             test::SinusoidBackward(DType::kF32, 9, 66, 10000, 3)}) {
    const OpOutputs expected = RunOpCuda(call);
    // Elements two apart, in a buffer of twice the size.
    std::vector<cuda::DeviceBuffer> memory;
    test::BoundOp bound(call, &test::OnTheHost);
    std::vector<TensorView> views(bound.args().inputs.begin(), bound.args().inputs.end());
    for (TensorView& view : views) {
      const int64_t size = DTypeSize(view.dtype), count = view.elements();
      std::vector<std::byte> spread(static_cast<size_t>(2 * count * size), std::byte{0xff});
      for (int64_t e = 0; e < count; ++e) {
        memcpy(&spread[static_cast<size_t>(2 * e * size)], view.as<std::byte>() + e * size,
               static_cast<size_t>(size));
      }
      for (int d = 0; d < view.strides.rank(); ++d) view.strides[d] *= 2;
      memory.push_back(Upload(spread));
      view.data = memory.back().data();
    }
    MutableTensorView& output = bound.outputs()[0];
    const GuardedOutput guarded(output.bytes());
    output.data = guarded.data();
    const cuda::Stream stream = NewStream();
    bound.args().inputs = views;
    bound.args().stream = {stream.get()};
    EXPECT_TRUE(test::OpVariant(call, Backend::kCuda).launch(bound.args()).ok());
    RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
    guarded.ExpectGuardsIntact();
    EXPECT_EQ(Download<std::byte>(guarded.data(), output.bytes()), expected.at(bound.name(0)));
  }
}

TEST(SinusoidStoredDigests, AreThoseOfTheDevice) {
  const nlohmann::json golden = test::LoadGolden("digests_timestep_sinusoid_h3.json");
  for (const test::SinusoidDigestCase& c : test::SinusoidDigestCases(golden)) {
    EXPECT_EQ(OpDigests(c.call, RunOpCuda(c.call)), c.digests) << SinusoidName(c.call);
  }
}

// CUDA's functions are within a few units of the portable ones, repeat, and have the digest that
// the contract is offered by.
TEST(SinusoidH3, IsCloseToPortableAndRepeats) {
  for (const OpCall& portable : {test::SinusoidForward(DType::kF32, 65, 256, 10000, 3),
                                 test::SinusoidBackward(DType::kF32, 65, 256, 10000, 3)}) {
    OpCall h3 = portable;
    h3.contract = "timestep_sinusoid_h3/h3-v1";
    const OpOutputs expected = RunOpCuda(portable), got = RunOpCuda(h3);
    ExpectSameOp(RunOpCuda(h3), got, SinusoidName(h3) + " again");
    for (const auto& [name, bytes] : expected) {
      const std::vector<float> a = test::OpValues(DType::kF32, got.at(name));
      const std::vector<float> b = test::OpValues(DType::kF32, bytes);
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << name << " " << i;
    }
  }
  int ordinal = 0;
  RLK_GPU_CHECK(cudaGetDevice(&ordinal));
  const absl::StatusOr<std::string> digest = timestep_sinusoid::H3Digest(ordinal);
  ASSERT_TRUE(digest.ok()) << digest.status();
  printf("ok  h3-v1 digest on this device: %s\n", digest->c_str());
}

}  // namespace
}  // namespace rlk::gpu_test
