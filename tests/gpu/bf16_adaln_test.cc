// adaln_projection_3mod on CUDA against the cpu backend, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu/bf16_runner.h"
#include "tests/ops/adaln_projection_3mod/adaln_call.h"
#include "tests/ops/adaln_projection_3mod/bf16_digest.h"
#include "tests/support/golden_json.h"

namespace rlk::gpu_test {
namespace {

using test::AdalnSize;
using test::kAdalnMethods;
using test::MakeAdalnCall;
using test::OpCall;

class Bf16GpuAdaln : public testing::TestWithParam<const char*> {};

TEST_P(Bf16GpuAdaln, EqualsCpuOverSizes) {
  uint32_t seed = 1;
  for (int64_t width : {1, 2, 5, 33}) {
    for (int64_t inputs : {8, 72, 264}) {
      for (int64_t rows : {1, 3, 8, 9, 17, 64, 65, 130}) {
        const AdalnSize size = {rows, width, inputs};
        const DType grad = seed % 2 == 0 ? DType::kF32 : DType::kBF16;
        const OpCall call = MakeAdalnCall(GetParam(), size, DType::kBF16, grad, seed);
        seed += 7;
        ExpectOpCudaEqualsCpu(call, AdalnName(call, size));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Bf16GpuAdaln, EqualsCpuUnderK128) {
  uint32_t seed = 1;
  for (int64_t width : {1, 5, 33}) {
    for (int64_t inputs : {8, 264}) {
      for (int64_t rows : {1, 3, 9, 20, 64, 65, 130, 260}) {
        const AdalnSize size = {rows, width, inputs};
        const DType grad = seed % 2 == 0 ? DType::kF32 : DType::kBF16;
        OpCall call = MakeAdalnCall(GetParam(), size, DType::kBF16, grad, seed);
        call.contract = adaln::kK128Contract;
        seed += 7;
        ExpectOpCudaEqualsCpu(call, AdalnName(call, size));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Bf16GpuAdaln, EqualsCpuWithF32Weights) {
  uint32_t seed = 1;
  for (int64_t width : {1, 5, 33}) {
    for (int64_t inputs : {4, 76, 1044}) {
      for (int64_t rows : {1, 3, 8, 9, 65, 130}) {
        const AdalnSize size = {rows, width, inputs};
        const OpCall call = MakeAdalnCall(GetParam(), size, DType::kF32, DType::kF32, seed);
        seed += 7;
        ExpectOpCudaEqualsCpu(call, AdalnName(call, size));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Bf16GpuAdaln, EqualsCpuAtTheModelsDepth) {
  for (int64_t rows : {1, 8, 64, 640}) {
    for (const char* contract : {adaln::kPortableContract, adaln::kK128Contract}) {
      const AdalnSize size = {rows, 336, 2688};
      OpCall call = MakeAdalnCall(GetParam(), size, DType::kBF16, DType::kBF16, 5);
      call.contract = contract;
      ExpectOpCudaEqualsCpu(call, AdalnName(call, size));
    }
  }
}

TEST_P(Bf16GpuAdaln, EachOutputAloneEqualsCpu) {
  const AdalnSize size = {9, 5, 72};
  for (const char* contract : {adaln::kPortableContract, adaln::kK128Contract}) {
    OpCall call = MakeAdalnCall(GetParam(), size, DType::kBF16, DType::kBF16, 9);
    call.contract = contract;
    for (const auto& [name, bytes] : test::RunOpCpu(call)) {
      call.wanted = {name};
      ExpectOpCudaEqualsCpu(call, name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Bf16GpuAdaln, testing::ValuesIn(kAdalnMethods),
                         [](const auto& info) {
                           const std::string method = info.param;
                           return method.substr(method.find('.') + 1);
                         });

TEST(Bf16GpuAdalnGradients, AbsentOnesAreZeros) {
  OpCall call = MakeAdalnCall(kAdalnMethods[2], {5, 6, 24}, DType::kBF16, DType::kBF16, 3);
  for (int c : {0, 2, 5}) call.inputs.erase(adaln::kGradientNames[c]);
  for (const char* contract : {adaln::kPortableContract, adaln::kK128Contract}) {
    call.contract = contract;
    ExpectOpCudaEqualsCpu(call, "absent");
  }
}

TEST(Bf16GpuStoredDigests, AreThoseOfTheDevice) {
  int ran = 0;
  for (const char* file : {"digests_bf16.json", "digests_bf16_k128.json"}) {
    for (const auto& c : test::Bf16DigestCases(test::LoadGolden(file))) {
      for (const Variant* variant : CudaVariantsOf(c.call)) {
        EXPECT_EQ(test::OpDigests(c.call, RunOpCuda(c.call, *variant)), c.digests)
            << c.name << " " << variant->kernel;
        ++ran;
      }
    }
  }
  EXPECT_GE(ran, 100);
}

// Contract h3-v1 has CUDA's own SiLU: within two roundings of the portable one before the cast.
TEST(Bf16GpuAdalnH3, IsNearThePortableContractAndRepeats) {
  for (const char* method : kAdalnMethods) {
    const AdalnSize size = {12, 10, 136};
    const OpCall portable = MakeAdalnCall(method, size, DType::kBF16, DType::kF32, 3);
    OpCall h3 = portable;
    h3.contract = adaln::kH3Contract;
    const test::OpOutputs expected = test::RunOpCpu(portable);
    for (const Variant* variant : CudaVariantsOf(h3)) {
      const test::OpOutputs got = RunOpCuda(h3, *variant);
      test::ExpectSameOp(RunOpCuda(h3, *variant), got, "repeated");
      for (const auto& [name, bytes] : expected) {
        const DType dtype = name == "grad_temb" ? DType::kF32 : DType::kBF16;
        const std::vector<float> a = test::OpValues(dtype, got.at(name));
        const std::vector<float> b = test::OpValues(dtype, bytes);
        for (size_t i = 0; i < a.size(); ++i) {
          ASSERT_NEAR(a[i], b[i], 1e-4 + 0.02 * std::fabs(b[i])) << method << " " << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rlk::gpu_test
