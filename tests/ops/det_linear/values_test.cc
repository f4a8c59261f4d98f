// What is refused, by name; defaults by dtype; the saved pre-activation.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/registry/selector.h"
#include "server/engine/contract_check.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {
namespace {

constexpr const char* kForward = kLinearMethods[0];
constexpr const char* kBackwardInput = kLinearMethods[1];
constexpr const char* kBackwardWeight = kLinearMethods[2];

OpCall Resized(const char* method, const LinearSize& size) {
  return MakeLinearCall(method, size, kNoActivation, false, 1);
}

struct Refusal {
  OpCall call;
  Reason reason;
  const char *field, *value;
};

TEST(LinearValues, RefusesByName) {
  const auto with = [](OpCall call, const char* attribute, int64_t value) {
    call.integers[attribute] = value;
    return call;
  };
  const auto without = [](OpCall call, const char* input) {
    call.inputs.erase(input);
    return call;
  };
  const OpCall silu = MakeLinearCall(kBackwardWeight, {2, 3, 4}, kSilu, false, 1);
  const Refusal cases[] = {
      {Resized(kForward, {0, 3, 4}), Reason::kShapeMismatch, "x", "T = 0"},
      {Resized(kForward, {2, 0, 4}), Reason::kShapeMismatch, "weight", "N = 0"},
      {Resized(kForward, {2, 3, 0}), Reason::kShapeMismatch, "weight", "K = 0"},
      {Resized(kForward, {2, 3, 6}), Reason::kShapeMismatch, "weight", "K = 6"},
      {Resized(kBackwardInput, {0, 3, 4}), Reason::kShapeMismatch, "grad_y", "T = 0"},
      {Resized(kBackwardInput, {2, 3, 5}), Reason::kShapeMismatch, "weight", "K = 5"},
      {Resized(kBackwardWeight, {0, 3, 4}), Reason::kShapeMismatch, "grad_y", "T = 0"},
      {Resized(kBackwardWeight, {2, 0, 4}), Reason::kShapeMismatch, "grad_y", "N = 0"},
      {Resized(kBackwardWeight, {2, 3, 7}), Reason::kShapeMismatch, "x", "K = 7"},
      {with(Resized(kForward, {2, 3, 4}), "fold_parts", 2), Reason::kAttributeOutOfRange,
       "fold_parts", "2"},
      {with(Resized(kBackwardInput, {2, 3, 4}), "fold_parts", 4), Reason::kAttributeOutOfRange,
       "fold_parts", "4"},
      {without(silu, "pre"), Reason::kMissingTensor, "pre", "absent"},
      {with(silu, "activation", kNoActivation), Reason::kUnexpectedTensor, "pre", "given"},
  };
  for (const Refusal& c : cases) {
    const ErrorDetail detail = OpRefusal(c.call);
    EXPECT_EQ(detail.reason, c.reason) << c.field << " " << c.value;
    EXPECT_EQ(detail.field, c.field) << c.value;
    EXPECT_EQ(detail.value, c.value) << c.field;
    EXPECT_FALSE(detail.allowed.empty()) << c.field;
  }
}

// A call as the engine gets it, to be spoiled.
Call EngineCall(const OpCall& from) {
  Call call;
  call.method = &OpMethod(from);
  for (size_t i = 0; i < call.method->signature.inputs.size(); ++i) {
    const OpTensor& tensor = from.input(call.method->signature.inputs[i].name);
    if (!tensor.present()) continue;
    TensorArg arg;
    arg.spec = static_cast<int32_t>(i);
    arg.dtype = tensor.dtype;
    arg.shape = tensor.shape;
    arg.strides = ContiguousStrides(tensor.shape);
    arg.data.pieces.push_back(std::as_bytes(std::span(tensor.bytes)));
    arg.data.size = static_cast<int64_t>(tensor.bytes.size());
    call.inputs.push_back(std::move(arg));
  }
  return call;
}

// Every input of every method must be contiguous and aligned to 16 bytes.
TEST(LinearValues, RefusesStridedAndMisalignedTensorsByName) {
  for (const char* method : kLinearMethods) {
    const OpCall good = MakeLinearCall(method, {4, 4, 4}, kSilu, true, 1);
    ASSERT_TRUE(server::CheckCall(EngineCall(good), {}).ok());
    for (size_t i = 0; i < good.inputs.size(); ++i) {
      Call strided = EngineCall(good);
      TensorArg& tensor = strided.inputs[i];
      const std::string name =
          strided.method->signature.inputs[static_cast<size_t>(tensor.spec)].name;
      if (tensor.shape.rank() == 2) {
        std::swap(tensor.strides[0], tensor.strides[1]);
      } else {
        tensor.strides[0] = 0;
      }
      absl::Status status = server::CheckCall(strided, {}).status();
      ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail{});
      EXPECT_EQ(detail.reason, Reason::kInvalidStrides) << status;
      EXPECT_EQ(detail.field, name);

      Call misaligned = EngineCall(good);
      misaligned.inputs[i].source = TensorSource::kArena;
      misaligned.inputs[i].arena.offset = 8;
      status = server::CheckCall(misaligned, {}).status();
      detail = GetErrorDetail(status).value_or(ErrorDetail{});
      EXPECT_EQ(detail.reason, Reason::kMisaligned) << status;
      EXPECT_EQ(detail.field, name);
      misaligned.inputs[i].arena.offset = 16;
      EXPECT_TRUE(server::CheckCall(misaligned, {}).ok()) << name;
    }
  }
}

absl::StatusOr<Selection> SelectOn(const OpCall& call, const std::string& contract,
                                   const std::string& backend = "") {
  BoundOp bound(call, &OnTheHost);
  SelectionQuery query;
  query.contract = contract;
  query.backend = backend;
  return Select(OpRegistry(), OpMethod(call), query, bound.args());
}

TEST(LinearValues, ActivationSiluCudaIsRefusedWithoutCuda) {
  for (const char* method : kLinearMethods) {
    const OpCall call = MakeLinearCall(method, {4, 4, 4}, kSiluCuda, true, 1);
    const absl::Status status = SelectOn(call, "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(GetErrorDetail(status).value_or(ErrorDetail{}).reason, Reason::kBackendUnavailable);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("silu_cuda"));
    EXPECT_EQ(SelectOn(MakeLinearCall(method, {4, 4, 4}, kSilu, true, 1), "")->contract->id,
              call.contract);
  }
}

TEST(LinearValues, TheFp32ContractRefusesOtherOperandsByName) {
  const struct {
    const char *method, *field;
  } cases[] = {{kForward, "x"}, {kBackwardInput, "weight"}, {kBackwardWeight, "x"}};
  for (const auto& c : cases) {
    OpCall call = MakeLinearCall(c.method, {4, 4, 8}, kNoActivation, false, 1);
    for (auto& [name, tensor] : call.inputs) {
      if (name != "grad_y") {
        tensor = MakeOpTensor(DType::kBF16, tensor.shape, OpValues(tensor));
      }
    }
    const absl::Status status = SelectOn(call, call.contract).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail{});
    EXPECT_EQ(detail.reason, Reason::kDtypeNotAllowed);
    EXPECT_EQ(detail.field, c.field);
    EXPECT_EQ(detail.value, "BF16");
    EXPECT_EQ(detail.allowed, "F32");
    EXPECT_EQ(SelectOn(call, "", "golden")->contract->id, "det_linear/golden-f64");
  }
}

TEST(LinearValues, ThePreActivationIsWhatTheActivationWasGiven) {
  const OpCall silu = MakeLinearCall(kForward, {5, 33, 132}, kSilu, true, 9);
  OpCall none = silu;
  none.integers["activation"] = kNoActivation;
  const OpOutputs with = RunOpCpu(silu), plain = RunOpCpu(none);
  EXPECT_EQ(with.at("pre"), plain.at("y"));
  EXPECT_EQ(plain.at("pre"), plain.at("y"));
  EXPECT_NE(with.at("y"), plain.at("y"));
}

TEST(LinearValues, AnAbsentBiasIsABiasOfPositiveZero) {
  OpCall call = MakeLinearCall(kForward, {3, 17, 36}, kNoActivation, true, 4);
  call.inputs["bias"] = MakeOpTensor(DType::kF32, {17}, std::vector<float>(17, 0.0f));
  const OpOutputs zero = RunOpCpu(call);
  call.inputs.erase("bias");
  ExpectSameOp(RunOpCpu(call), zero, "no bias");
}

TEST(LinearValues, StoredNanIsCanonicalAndInfinitiesStay) {
  OpCall call = MakeLinearCall(kForward, {3, 2, 8}, kNoActivation, false, 4);
  std::vector<float> x = OpValues(call.input("x"));
  x[0] = arith::BitsFloat(0xffc12345u);
  x[8] = INFINITY;
  call.inputs["x"] = MakeOpTensor(DType::kF32, {3, 8}, x);
  call.inputs["weight"] = MakeOpTensor(DType::kF32, {2, 8}, std::vector<float>(16, 1.0f));
  const std::vector<float> y = OpValues(DType::kF32, RunOpCpu(call).at("y"));
  EXPECT_EQ(arith::FloatBits(y[0]), 0x7fffffffu);
  EXPECT_EQ(arith::FloatBits(y[1]), 0x7fffffffu);
  EXPECT_EQ(y[2], INFINITY);
  EXPECT_TRUE(std::isfinite(y[4]));
}

}  // namespace
}  // namespace rlk::test
