// The real operator through the engine: the same call gives the same bits whatever runs beside it,
// on however many threads, inline or queued.
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"
#include "tests/unit/engine/engine_harness.h"

namespace rlk::server {
namespace {

using test::Execute;

TensorSpec AnyShape(const std::string& name) {
  TensorSpec spec;
  spec.name = name;
  spec.dtypes = {DType::kF32, DType::kF16, DType::kBF16};
  spec.dims.leading = true;
  spec.dims_text = "...";
  return spec;
}

AttributeSpec Softcap() {
  AttributeSpec spec;
  spec.name = "softcap";
  spec.default_number = 30;
  spec.finite = true;
  spec.greater_than = 0;
  return spec;
}

// As the descriptors say it; this test has no protobuf.
std::vector<MethodSignature> SoftcapSignatures() {
  MethodSignature forward;
  forward.method = "final_logit_softcap.forward";
  forward.operator_name = "final_logit_softcap";
  forward.rpc = "/rlk.v1.ActivationService/FinalLogitSoftcapForward";
  forward.inputs = {AnyShape("x")};
  AttributeSpec dtype;
  dtype.name = "output_dtype";
  dtype.kind = AttributeKind::kDType;
  dtype.dtypes = {DType::kF32};
  dtype.same_dtype_as = 0;
  forward.attributes = {Softcap(), dtype};
  forward.outputs = {AnyShape("y")};
  forward.outputs[0].dtype_attribute = 1;

  MethodSignature backward = forward;
  backward.method = "final_logit_softcap.backward";
  backward.rpc = "/rlk.v1.ActivationService/FinalLogitSoftcapBackward";
  backward.direction = Direction::kBackward;
  backward.inputs = {AnyShape("x"), AnyShape("grad_y")};
  backward.inputs[1].dtypes = {DType::kF32};
  backward.inputs[1].same_dtype_as = 0;
  backward.attributes = {Softcap()};
  backward.outputs = {AnyShape("grad_x")};
  backward.outputs[0].same_dtype_as = 0;
  return {forward, backward};
}

class SoftcapLoad : public testing::Test {
 protected:
  void SetUp() override {
    // This operator alone: the signatures of the others are not written out here.
    for (Backend backend : {Backend::kCpu, Backend::kGolden}) {
      registry_.SetBackend(backend, {.available = true, .reason = ""});
    }
    for (Backend backend : {Backend::kCuda, Backend::kCudaSm90}) {
      registry_.SetBackend(backend, {.available = false, .reason = "not in this test"});
    }
    for (MethodDecl& decl : DeclareFinalLogitSoftcap()) registry_.Add(std::move(decl));
    const absl::Status bound = registry_.Bind(SoftcapSignatures());
    ASSERT_TRUE(bound.ok()) << bound;
  }

  std::unique_ptr<Engine> MakeEngine(int threads, int64_t inline_run_bytes_max) {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(MakeHostDevice({.threads = threads, .poison_outputs = true}));
    EngineOptions options;
    options.inline_run_bytes_max = inline_run_bytes_max;
    auto engine = std::make_unique<Engine>(registry_, options, ToleranceContract::Builtin(),
                                           std::move(devices), nullptr, nullptr);
    EXPECT_TRUE(engine->Start().ok());
    return engine;
  }

  // Sizes around the inline bound and the pool's grain; every BF16 pattern among the values.
  std::vector<Call> Calls(int pieces) const {
    std::vector<Call> calls;
    for (int64_t count : {1, 31, 257, 8192, 16385, 70001}) {
      std::vector<uint16_t> x(static_cast<size_t>(count));
      std::vector<float> grad(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<uint16_t>(i * 40503 + 16384);
        grad[i] = std::ldexp(1.0f + static_cast<float>(i % 8) / 8, static_cast<int>(i % 5) - 2);
      }
      for (double softcap : {20.0, 30.0}) {
        Call& forward = calls.emplace_back();
        forward.method = registry_.Find("final_logit_softcap.forward");
        forward.inputs = {test::Tensor(0, DType::kBF16, {count}, x, pieces)};
        forward.attributes = {{.spec = 0, .number = softcap}};
        forward.options.digest_tensors = true;
        Call& backward = calls.emplace_back();
        backward.method = registry_.Find("final_logit_softcap.backward");
        backward.inputs = {test::Tensor(0, DType::kBF16, {count}, x, pieces),
                           test::Tensor(1, DType::kF32, {count}, grad, pieces)};
        backward.attributes = {{.spec = 0, .number = softcap}};
        backward.options.digest_tensors = true;
      }
    }
    return calls;
  }

  static Digest OutputDigest(Engine& engine, Call call) {
    const auto result = Execute(engine, std::move(call));
    if (!result.ok()) {
      ADD_FAILURE() << result.status();
      return {};
    }
    return *result->report.output_digests.at(0).tensor;
  }

  Registry registry_;
};

TEST_F(SoftcapLoad, LoadThreadsAndPiecesDoNotChangeBits) {
  const auto alone = MakeEngine(/*threads=*/1, /*inline_run_bytes_max=*/0);
  std::vector<Digest> expected;
  for (Call& call : Calls(1)) expected.push_back(OutputDigest(*alone, std::move(call)));

  for (int64_t inline_bytes : {int64_t{0}, int64_t{1} << 16}) {
    const auto loaded = MakeEngine(/*threads=*/3, inline_bytes);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const std::vector<Call> calls = Calls(1 + t);
        for (size_t i = 0; i < calls.size(); ++i) {
          const size_t k = (i * 7 + static_cast<size_t>(t) * 5) % calls.size();
          EXPECT_EQ(OutputDigest(*loaded, calls[k]).Text(), expected[k].Text()) << k;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(SoftcapLoad, PassesRepeatAndReference) {
  const auto engine = MakeEngine(2, 1 << 16);
  for (Verification kind : {Verification::kRepeat, Verification::kReference}) {
    for (Call& call : Calls(2)) {
      call.options.verification = kind;
      const auto result = Execute(*engine, std::move(call));
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->report.verification.kind, kind);
      EXPECT_TRUE(result->report.verification.passed);
      EXPECT_EQ(result->report.verification.outputs.at(0).mismatched, 0);
    }
  }
}

// Golden by name runs as a backend of its own.
TEST_F(SoftcapLoad, GoldenRunsWhenItIsAskedFor) {
  const auto engine = MakeEngine(2, 1 << 16);
  Call call = Calls(1).front();
  call.options.backend = "golden";
  call.options.minimum_claim = ClaimLevel::kNone;
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.backend, Backend::kGolden);
}

}  // namespace
}  // namespace rlk::server
