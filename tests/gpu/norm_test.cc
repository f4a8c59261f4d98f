// The cuda backend of the RMSNorm family against the cpu backend, bit for bit, and the stored
// digests.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/device_memory.h"
#include "tests/gpu/softcap_runner.h"
#include "tests/ops/rms_norm/norm_digest.h"
#include "tests/support/golden_json.h"

namespace rlk::gpu_test {
namespace {

using test::ExpectSameOutputs;
using test::MakeNormCall;
using test::NormCall;
using test::NormKind;
using test::NormOutputs;
using test::NormTensor;

const Variant& CudaVariant(const Method& method) {
  for (const Variant& variant : method.decl.variants) {
    if (variant.backend == Backend::kCuda) return variant;
  }
  ADD_FAILURE() << method.decl.method << " has no variant on cuda";
  std::abort();
}

// The call with everything in device memory; outputs start `output_offset` bytes after an aligned
// address and lie between guards.
NormOutputs RunNormCuda(const NormCall& call, int64_t output_offset = 0) {
  const Method* method = BuiltinRegistry().Find(call.method());
  const Variant& variant = CudaVariant(*method);
  std::vector<cuda::DeviceBuffer> inputs;
  const auto place = [&](const NormTensor& tensor) -> const void* {
    inputs.push_back(NewBuffer(std::max<int64_t>(static_cast<int64_t>(tensor.bytes.size()), 1)));
    ToDevice(inputs.back().data(), tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size()));
    return inputs.back().data();
  };
  test::BoundNorm bound(*method, call, place, DType::kUnspecified);
  std::vector<std::unique_ptr<GuardedOutput>> outputs(bound.outputs().size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    MutableTensorView& view = bound.outputs()[i];
    if (!view.present()) continue;
    outputs[i] = std::make_unique<GuardedOutput>(view.bytes(), output_offset);
    view.data = outputs[i]->data();
  }
  cuda::DeviceBuffer workspace;
  if (variant.workspace_bytes != nullptr) {
    const int64_t bytes = variant.workspace_bytes(bound.args());
    workspace = NewBuffer(std::max<int64_t>(bytes, 1));
    Fill(workspace.data(), 0xff, bytes);
    bound.args().workspace = {workspace.data(), static_cast<size_t>(bytes)};
  }
  const cuda::Stream stream = NewStream();
  bound.args().stream = {stream.get()};
  const absl::Status status = variant.launch(bound.args());
  EXPECT_TRUE(status.ok()) << status;
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  NormOutputs results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr) continue;
    outputs[i]->ExpectGuardsIntact();
    results[bound.name(i)] = Download<std::byte>(outputs[i]->data(), bound.outputs()[i].bytes());
  }
  return results;
}

void ExpectCudaEqualsCpu(const NormCall& call, const std::string& what = "",
                         int64_t output_offset = 0) {
  ExpectSameOutputs(RunNormCuda(call, output_offset), RunNormCpu(call), NormName(call) + what);
}

// Both directions of every contract, dtype of x, weight and grad_y.
std::vector<NormCall> Calls(int64_t rows, int64_t length) {
  std::vector<NormCall> calls;
  for (const NormKind& kind : test::kNormKinds) {
    for (DType x : test::kNormDTypes) {
      for (DType weight : {x, DType::kF32}) {
        for (DType grad : {x, DType::kF32}) {
          if (!Allowed(kind, x, weight)) continue;
          if (x == DType::kF32 && (weight != x || grad != x)) continue;
          const auto seed = static_cast<uint32_t>(rows * 131 + length);
          if (grad == x)
            calls.push_back(MakeNormCall(kind, false, x, weight, grad, rows, length, seed));
          calls.push_back(MakeNormCall(kind, true, x, weight, grad, rows, length, seed));
        }
      }
    }
  }
  return calls;
}

class NormLengths : public testing::TestWithParam<int64_t> {};

TEST_P(NormLengths, CudaEqualsCpu) {
  const int64_t length = GetParam();
  for (const NormCall& call : Calls(length <= 2049 ? 9 : 3, length)) ExpectCudaEqualsCpu(call);
}

TEST_P(NormLengths, StridesAndAlignmentDoNotMatter) {
  const int64_t length = GetParam();
  for (const NormKind& kind : test::kNormKinds) {
    for (DType x : test::kNormDTypes) {
      for (bool backward : {false, true}) {
        const NormCall call = MakeNormCall(kind, backward, x, x, x, 4, length, 3);
        const auto with = [&](const auto& change, const char* what, int64_t offset) {
          NormCall other = call;
          for (NormTensor NormCall::*tensor :
               {&NormCall::x, &NormCall::weight, &NormCall::gate, &NormCall::grad_y}) {
            other.*tensor = change(call.*tensor);
          }
          ExpectSameOutputs(RunNormCuda(other, offset), RunNormCpu(call), NormName(call) + what);
        };
        with([](const NormTensor& t) { return Spread(t, 1, 8); }, " padded", 0);
        with([](const NormTensor& t) { return Spread(t, 2, 3); }, " strided", 0);
        with([](const NormTensor& t) { return Unaligned(t); }, " unaligned", 4);
        with([](const NormTensor& t) { return t; }, " unaligned outputs", 4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, NormLengths, testing::ValuesIn(test::kNormLengths));
// Multiples of 8 and 16 around the changes of shape, which the list above has few of.
INSTANTIATE_TEST_SUITE_P(Vectors, NormLengths,
                         testing::Values(16, 24, 120, 136, 248, 264, 1000, 2040, 2056, 4096, 8184,
                                         8200));

TEST(NormRows, EveryCountOfRowsEqualsCpu) {
  for (int64_t length : {128, 320, 2064}) {
    for (int64_t rows :
         {0, 1, 2, 3, 7, 8, 9, 64, 65, 127, 128, 129, 255, 256, 257, 383, 385, 700}) {
      for (const NormKind& kind : test::kNormKinds) {
        for (bool backward : {false, true}) {
          NormCall call = MakeNormCall(kind, backward, DType::kBF16, DType::kBF16, DType::kBF16,
                                       rows, length, 6);
          ExpectCudaEqualsCpu(call);
          if (!backward) continue;
          call.dweight_acc_in =
              test::MakeNormTensor(DType::kF32, {length}, test::NormalRow(length, 20.0f, 8));
          ExpectCudaEqualsCpu(call, " carried");
        }
      }
    }
  }
}

TEST(NormRows, ManyRowsEqualCpu) {
  for (const NormKind& kind : test::kNormKinds) {
    for (bool backward : {false, true}) {
      ExpectCudaEqualsCpu(
          MakeNormCall(kind, backward, DType::kBF16, DType::kBF16, DType::kBF16, 4096, 128, 6));
    }
  }
}

// Shapes that the kernels for few rows leave to others, with rows and columns left over.
TEST(NormRows, ManyRowsOfEveryWidthEqualCpu) {
  const std::pair<int64_t, int64_t> shapes[] = {{9001, 24},   {5003, 128},  {2101, 248},
                                                {1101, 1000}, {1101, 2048}, {301, 5120},
                                                {301, 5128},  {259, 8192}};
  for (const auto& [rows, length] : shapes) {
    for (const NormKind& kind : test::kNormKinds) {
      for (DType x : test::kNormDTypes) {
        for (bool backward : {false, true}) {
          ExpectCudaEqualsCpu(MakeNormCall(kind, backward, x, x, x, rows, length, 7));
        }
      }
    }
  }
}

TEST(NormRows, ALeftFoldOverSegmentsEqualsCpu) {
  for (const NormKind& kind : test::kNormKinds) {
    // Two whole segments of stored terms and a part of a third.
    NormCall call =
        MakeNormCall(kind, true, DType::kBF16, DType::kF32, DType::kBF16, 66'000, 256, 9);
    if (!Allowed(kind, DType::kBF16, DType::kF32)) {
      call = MakeNormCall(kind, true, DType::kBF16, DType::kBF16, DType::kBF16, 66'000, 256, 9);
    }
    call.dweight_acc_in = test::MakeNormTensor(DType::kF32, {256}, test::NormalRow(256, 20.0f, 8));
    ExpectCudaEqualsCpu(call, " over segments");
  }
}

TEST(NormRows, AGivenStatisticOfAnyValueEqualsCpu) {
  for (const NormKind& kind : test::kNormKinds) {
    for (int64_t length : {24, 200, 1000, 5000, 8184}) {
      for (DType x : test::kNormDTypes) {
        NormCall call = MakeNormCall(kind, true, x, x, x, 133, length, 2);
        std::vector<float> rstd = test::NormalRow(133, 1.0f, 4);
        rstd[3] = 0.0f;
        rstd[64] = std::numeric_limits<float>::infinity();
        rstd[130] = std::numeric_limits<float>::quiet_NaN();
        call.rstd = test::MakeNormTensor(DType::kF32, {133}, rstd);
        ExpectCudaEqualsCpu(call, " with any rstd");
      }
    }
  }
}

TEST(NormRows, ARowAloneEqualsTheRowInABatch) {
  for (const NormKind& kind : test::kNormKinds) {
    for (bool backward : {false, true}) {
      NormCall call =
          MakeNormCall(kind, backward, DType::kBF16, DType::kBF16, DType::kBF16, 257, 2048, 6);
      const char* output = backward ? "grad_x" : "y";
      call.wanted = {output};
      const std::vector<std::byte> whole = RunNormCuda(call).at(output);
      for (int64_t row : {0, 1, 64, 128, 256}) {
        const std::vector<std::byte> alone = RunNormCuda(Rows(call, row, 1)).at(output);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + row * 2048 * 2))
            << NormName(call) << " row " << row;
      }
    }
  }
}

TEST(NormRows, EachOutputAloneAndAGivenStatisticEqualCpu) {
  for (const NormKind& kind : test::kNormKinds) {
    for (int64_t length : {256, 99}) {
      NormCall call =
          MakeNormCall(kind, true, DType::kF16, DType::kF16, DType::kF32, 40, length, 2);
      for (const auto& [name, bytes] : RunNormCpu(call)) {
        NormCall one = call;
        one.wanted = {name};
        ExpectCudaEqualsCpu(one, " " + name);
      }
      call.rstd = test::MakeNormTensor(DType::kF32, {40}, test::NormalRow(40, 1.0f, 4));
      ExpectCudaEqualsCpu(call, " with rstd");
    }
  }
}

TEST(NormValues, RandomBitsEqualCpu) {
  // NaN, infinities, subnormals and overflowing rows.
  for (const NormKind& kind : test::kNormKinds) {
    for (DType x : test::kNormDTypes) {
      for (bool backward : {false, true}) {
        for (int64_t length : {64, 77, 2048}) {
          NormCall call = MakeNormCall(kind, backward, x, x, x, 33, length, 5);
          uint64_t seed = 1;
          for (NormTensor* tensor : {&call.x, &call.weight, &call.gate, &call.grad_y}) {
            if (!tensor->present()) continue;
            const std::vector<uint8_t> bits = RandomBits(x, ElementCount(tensor->shape), seed++);
            // Every third row only, so that numbers meet numbers too.
            for (size_t i = 0; i < bits.size(); ++i) {
              if (i / static_cast<size_t>(length * DTypeSize(x)) % 3 == 0) {
                tensor->bytes[i] = std::byte{bits[i]};
              }
            }
          }
          ExpectCudaEqualsCpu(call, " random bits");
        }
      }
    }
  }
}

TEST(NormStoredDigests, AreThoseOfTheDevice) {
  const nlohmann::json golden = test::LoadGolden("digests_rms_norm.json");
  for (const test::NormDigestCase& c : test::NormDigestCases(golden)) {
    EXPECT_EQ(DigestsOf(c.call, RunNormCuda(c.call)), c.digests) << c.name;
  }
}

}  // namespace
}  // namespace rlk::gpu_test
