// The CUDA kernels of the contracts of BF16 operands against the cpu backend, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/arith/step_vectors.h"
#include "kernels/linear/cublaslt.h"
#include "kernels/linear/step_law.h"
#include "kernels/ops/det_linear/det_linear.h"
#include "tests/gpu/bf16_runner.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::gpu_test {
namespace {

using test::kLinearMethods;
using test::LinearSize;
using test::OpCall;

// A method under a contract.
struct Subject {
  const char* method;
  const char* contract;
};

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  for (const char* contract : {det_linear::kBf16Contract, det_linear::kK128Contract}) {
    for (const char* method : kLinearMethods) subjects.push_back({method, contract});
  }
  return subjects;
}

OpCall MakeCall(const Subject& subject, LinearSize size, int64_t activation, DType wide,
                bool extras, uint32_t seed) {
  const std::string method = subject.method;
  OpCall call = test::MakeLinearCall(method, size, activation, extras, seed);
  call.contract = subject.contract;
  for (const char* name : {"x", "weight", "bias", "grad_y"}) {
    if (!call.input(name).present()) continue;
    const DType dtype = std::string(name) == "grad_y" ? wide : DType::kBF16;
    call.inputs[name] =
        test::MakeOpTensor(dtype, call.input(name).shape, test::OpValues(call.input(name)));
  }
  if (method != kLinearMethods[2]) call.integers["output_dtype"] = static_cast<int64_t>(wide);
  return call;
}

TEST(Bf16GpuLaw, TheDeviceFollowsIt) {
  const absl::Status status = linear::CheckCudaStepLaw(0);
  EXPECT_TRUE(status.ok()) << status;
}

class Bf16GpuLinear : public testing::TestWithParam<Subject> {};

TEST_P(Bf16GpuLinear, EqualsCpuOverSizes) {
  uint32_t seed = 1;
  for (int64_t outputs : {1, 15, 17, 64, 90, 257, 594}) {
    for (int64_t inputs : {8, 56, 64, 72, 264, 1032}) {
      for (int64_t rows : {1, 2, 4, 5, 8, 9, 16, 17, 33, 64, 65, 130, 257, 420}) {
        const LinearSize size = {rows, outputs, inputs};
        const int64_t activation = seed % 3 == 0 ? test::kSilu : test::kNoActivation;
        const OpCall call =
            MakeCall(GetParam(), size, activation, seed % 2 == 0 ? DType::kF32 : DType::kBF16,
                     seed % 5 != 0, seed);
        seed += 7;
        ExpectOpCudaEqualsCpu(call, LinearName(call, size));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Bf16GpuLinear, EqualsCpuAtTheSizeOfAnAdaLnSlice) {
  for (int64_t rows : {1, 3, 8, 24, 25, 40, 41, 64, 96, 97, 200, 640}) {
    const LinearSize size = {rows, 5376, 2688};
    const OpCall call = MakeCall(GetParam(), size, test::kNoActivation, DType::kBF16, true, 40);
    ExpectOpCudaEqualsCpu(call, LinearName(call, size));
    if (HasFatalFailure()) return;
  }
}

// So many tiles that blocks of the backward continue each other's: the shares of chunks end within
// tiles.
TEST_P(Bf16GpuLinear, EqualsCpuOverManyTiles) {
  for (int64_t outputs : {16, 90, 330, 1032}) {
    for (DType wide : {DType::kBF16, DType::kF32}) {
      const LinearSize size = {1100, outputs, 2120};
      const OpCall call = MakeCall(GetParam(), size, test::kNoActivation, wide, true, 9);
      ExpectOpCudaEqualsCpu(call, LinearName(call, size));
      if (HasFatalFailure()) return;
    }
  }
}

// So many chunks that those of a slab of rows take each other's place in its ring, and a last one
// that is short.
TEST_P(Bf16GpuLinear, EqualsCpuOverManyChunks) {
  for (int64_t rows : {30, 60, 90, 130}) {
    for (DType wide : {DType::kBF16, DType::kF32}) {
      const LinearSize size = {rows, 70000, 136};
      const OpCall call = MakeCall(GetParam(), size, test::kNoActivation, wide, true, 11);
      ExpectOpCudaEqualsCpu(call, LinearName(call, size));
      if (HasFatalFailure()) return;
    }
  }
}

// Every kind of data of the law's test as operands and gradients.
TEST_P(Bf16GpuLinear, EqualsCpuOnEveryKindOfData) {
  for (int kind = 0; kind < arith::kStepDataCount; ++kind) {
    const auto data = static_cast<arith::StepData>(kind);
    for (int64_t rows : {3, 8, 20, 66}) {
      const LinearSize size = {rows, 70, 200};
      OpCall call = MakeCall(GetParam(), size, test::kNoActivation, DType::kBF16, true, 1);
      uint64_t seed = 0;
      for (auto& [name, tensor] : call.inputs) {
        ++seed;
        const size_t width = tensor.dtype == DType::kBF16 ? 2 : 4;
        for (size_t i = 0; i * width < tensor.bytes.size(); ++i) {
          const uint64_t at = arith::StepMix(seed) + i;
          const uint32_t bits =
              width == 2 ? arith::DrawStepOperand(at, data) : arith::DrawStepAccumulator(at, data);
          memcpy(&tensor.bytes[i * width], &bits, width);
        }
      }
      ExpectOpCudaEqualsCpu(call, LinearName(call, size) + " " + arith::kStepDataNames[kind]);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Bf16GpuLinear, testing::ValuesIn(Subjects()),
                         [](const auto& info) {
                           const std::string method = info.param.method;
                           const bool k128 = info.param.contract == det_linear::kK128Contract;
                           return method.substr(method.find('.') + 1) + (k128 ? "_k128" : "");
                         });

// Small enough for compute-sanitizer: every kernel once, with tails.
TEST(Bf16GpuSmall, EveryKernelEqualsCpu) {
  for (const Subject& subject : Subjects()) {
    for (int64_t rows : {2, 8, 20, 30, 40, 60, 65, 130}) {
      const LinearSize size = {rows, 90, 136};
      const OpCall call = MakeCall(subject, size, test::kSilu, DType::kBF16, true, 4);
      ExpectOpCudaEqualsCpu(call, LinearName(call, size));
    }
  }
  // So many columns that tiles of grad_x are wide, and chunks for its warpgroups to take in turns.
  const LinearSize wide = {3, 300, 8456};
  ExpectOpCudaEqualsCpu(MakeCall({kLinearMethods[1], det_linear::kK128Contract}, wide,
                                 test::kNoActivation, DType::kBF16, true, 4),
                        "wide");
}

// One row's bytes are the same for every number of rows, alone and in company.
TEST(Bf16GpuRows, ARowAloneEqualsTheRowInAnyBatch) {
  for (const char* contract : {det_linear::kBf16Contract, det_linear::kK128Contract}) {
    const LinearSize all_size = {320, 594, 264};
    const OpCall all = MakeCall({kLinearMethods[0], contract}, all_size, test::kNoActivation,
                                DType::kBF16, true, 3);
    const size_t row_bytes = 594 * 2;
    const std::vector<std::byte> whole = RunOpCuda(all, *CudaVariantsOf(all).front()).at("y");
    for (int64_t rows = 1; rows <= 320; rows += rows < 70 ? 1 : 50) {
      for (int64_t first : {int64_t{0}, 320 - rows}) {
        const OpCall part = LinearRowsOf(all, first, rows);
        for (const Variant* variant : CudaVariantsOf(part)) {
          const std::vector<std::byte> got = RunOpCuda(part, *variant).at("y");
          EXPECT_TRUE(std::equal(got.begin(), got.end(),
                                 whole.begin() + static_cast<int64_t>(row_bytes) * first))
              << rows << " rows from " << first << " " << variant->kernel;
        }
      }
    }
  }
}

// Every number of rows to 4,096, whichever kernel that chooses.
TEST(Bf16GpuRows, EveryNumberOfRowsGivesTheSameRows) {
  for (const char* contract : {det_linear::kBf16Contract, det_linear::kK128Contract}) {
    const LinearSize size = {4096, 90, 136};
    const OpCall all =
        MakeCall({kLinearMethods[0], contract}, size, test::kNoActivation, DType::kBF16, true, 6);
    const std::vector<std::byte> whole = RunOpCuda(all, *CudaVariantsOf(all).front()).at("y");
    for (int64_t rows = 1; rows <= size.rows; ++rows) {
      const OpCall part = LinearRowsOf(all, 0, rows);
      for (const Variant* variant : CudaVariantsOf(part)) {
        const std::vector<std::byte> got = RunOpCuda(part, *variant).at("y");
        ASSERT_TRUE(std::equal(got.begin(), got.end(), whole.begin()))
            << rows << " rows, " << variant->kernel;
      }
    }
  }
}

// Two and four parts of the reduction, and a reduction that is long enough to have four by default.
TEST(Bf16GpuK128, PartsEqualCpu) {
  for (const char* method : {kLinearMethods[0], kLinearMethods[1]}) {
    const bool forward = method == kLinearMethods[0];
    for (int64_t parts : {0, 1, 2, 4}) {
      for (int64_t rows : {1, 9, 70, 200}) {
        const int64_t length = parts == 0 ? 16384 : 1024;
        const LinearSize size = {rows, forward ? 90 : length, forward ? length : 72};
        for (DType wide : {DType::kBF16, DType::kF32}) {
          OpCall call = MakeCall({method, det_linear::kK128Contract}, size, test::kNoActivation,
                                 wide, true, 11);
          call.integers["fold_parts"] = parts;
          ExpectOpCudaEqualsCpu(call, LinearName(call, size) + " parts " + std::to_string(parts));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// grad_weight and grad_bias alone, which other kernels write than accumulators: one, two and four
// steps of mma.sync, then wgmma; outputs and inputs that are no multiples of tiles, and so many
// that a block has several.
TEST(Bf16GpuK128, GradWeightAloneEqualsCpu) {
  uint32_t seed = 1;
  for (int64_t rows : {1, 15, 16, 17, 32, 33, 64, 65, 128, 129, 300}) {
    for (const auto& [outputs, inputs] : {std::pair{90, 136}, {8700, 264}, {2056, 1032}}) {
      for (DType wide : {DType::kBF16, DType::kF32}) {
        const LinearSize size = {rows, outputs, inputs};
        OpCall call = MakeCall({kLinearMethods[2], det_linear::kK128Contract}, size,
                               test::kNoActivation, wide, ++seed % 2 == 0, seed);
        call.wanted = {"grad_weight", "grad_bias"};
        ExpectOpCudaEqualsCpu(call, LinearName(call, size));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// grad_x at the edges between its tiles, whose widths follow the number of inputs.
TEST(Bf16GpuK128, GradXEqualsCpuOverWidths) {
  uint32_t seed = 1;
  for (int64_t rows : {1, 7, 64, 65, 128, 129, 256}) {
    for (int64_t inputs : {2048, 2688, 8456, 12296, 17000}) {
      const LinearSize size = {rows, 520, inputs};
      const OpCall call =
          MakeCall({kLinearMethods[1], det_linear::kK128Contract}, size, test::kNoActivation,
                   ++seed % 2 == 0 ? DType::kF32 : DType::kBF16, true, seed);
      ExpectOpCudaEqualsCpu(call, LinearName(call, size));
      if (HasFatalFailure()) return;
    }
  }
}

// The library is no part of rlk; where it is there, its product is close and repeatable.
TEST(Bf16GpuWitness, IsCloseToTheContractAndRepeats) {
  const absl::Status there = linear::CheckCublasLt(0);
  if (!there.ok()) GTEST_SKIP() << there;
  for (int64_t rows : {1, 7, 64, 300}) {
    for (DType wide : {DType::kBF16, DType::kF32}) {
      const OpCall call = MakeCall({kLinearMethods[0], det_linear::kBf16Contract}, {rows, 520, 264},
                                   test::kNoActivation, wide, false, 5);
      OpCall witness = call;
      witness.contract = det_linear::kWitnessContract;
      witness.wanted = {"y"};
      const std::vector<const Variant*> variants = CudaVariantsOf(witness);
      ASSERT_EQ(variants.size(), 1u);
      const test::OpOutputs got = RunOpCuda(witness, *variants[0]);
      test::ExpectSameOp(RunOpCuda(witness, *variants[0]), got, "repeated");
      const std::vector<float> a = test::OpValues(wide, got.at("y"));
      const std::vector<float> b = test::OpValues(wide, test::RunOpCpu(call).at("y"));
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_NEAR(a[i], b[i], 1e-3 + 0.01 * std::fabs(b[i])) << rows << " rows, element " << i;
      }
    }
  }
}

TEST(Bf16GpuRows, RepeatedCallsGiveTheSameBytes) {
  for (const Subject& subject : Subjects()) {
    for (int64_t rows : {8, 64, 300}) {
      const OpCall call =
          MakeCall(subject, {rows, 1300, 520}, test::kNoActivation, DType::kBF16, true, 5);
      for (const Variant* variant : CudaVariantsOf(call)) {
        const test::OpOutputs first = RunOpCuda(call, *variant);
        for (int i = 0; i < 30; ++i) {
          test::ExpectSameOp(RunOpCuda(call, *variant), first, variant->kernel);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rlk::gpu_test
