// Values that the contract names: signed zero, infinities, NaN, subnormals, saturation; and
// refusals of what the signature would not have let through.
#include <bit>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "tests/ops/final_logit_softcap/softcap_call.h"

namespace rlk::test {
namespace {

uint32_t ForwardBits(uint32_t x, float cap) {
  SoftcapCall call;
  call.x = View(DType::kF32, {}, &x);
  call.softcap = cap;
  return std::bit_cast<uint32_t>(DecodeAll(DType::kF32, call.RunCpu())[0]);
}

uint32_t BackwardBits(uint32_t x, uint32_t g, float cap) {
  SoftcapCall call;
  call.x = View(DType::kF32, {}, &x);
  call.grad_y = View(DType::kF32, {}, &g);
  call.softcap = cap;
  return std::bit_cast<uint32_t>(DecodeAll(DType::kF32, call.RunCpu())[0]);
}

constexpr uint32_t kInf = 0x7f800000u, kNegInf = 0xff800000u, kNegZero = 0x80000000u,
                   kNan = 0x7fffffffu, kOne = 0x3f800000u, kTwo = 0x40000000u;

TEST(SoftcapValues, Forward) {
  struct Row {
    uint32_t x;
    float cap;
    uint32_t y;
  };
  const uint32_t thirty = std::bit_cast<uint32_t>(30.0f);
  for (const Row& row :
       std::vector<Row>{{0, 30.0f, 0},
                        {kNegZero, 30.0f, kNegZero},
                        {kInf, 30.0f, thirty},
                        {kNegInf, 30.0f, thirty | kNegZero},
                        {0x7f7fffffu, 30.0f, thirty},
                        {std::bit_cast<uint32_t>(300.0f), 30.0f, thirty},
                        {std::bit_cast<uint32_t>(-300.0f), 30.0f, thirty | kNegZero},
                        // 30 / 30 = 1: 30 tanh(1)
                        {thirty, 30.0f, std::bit_cast<uint32_t>(30.0f * 0x1.85efacp-1f)},
                        // Subnormal x with cap 1 passes; with cap 30 the quotient rounds first.
                        {1, 1.0f, 1},
                        {0x007fffffu, 1.0f, 0x007fffffu},
                        {1, 30.0f, 0},
                        {0x80000001u, 30.0f, kNegZero},
                        {30, 30.0f, 30},
                        // Caps at the ends of FP32.
                        {kOne, 0x1p-149f, 1},
                        {kOne, 0x1.fffffep+127f, 0x3f7fffffu},  // the quotient is subnormal
                        {0x7fc00000u, 30.0f, kNan},
                        {0xffc00000u, 30.0f, kNan},
                        {0x7f800001u, 30.0f, kNan},
                        {0xffabcdefu, 30.0f, kNan}}) {
    EXPECT_EQ(ForwardBits(row.x, row.cap), row.y) << std::hex << row.x << " cap " << row.cap;
  }
}

TEST(SoftcapValues, Backward) {
  struct Row {
    uint32_t x, g, grad_x;
  };
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  for (const Row& row : std::vector<Row>{{0, kTwo, kTwo},
                                         {kNegZero, kTwo, kTwo},
                                         {kInf, kTwo, 0},
                                         {kNegInf, kTwo | kNegZero, kNegZero},
                                         {kInf, kInf, kNan},
                                         {0, kInf, kInf},
                                         {kOne, kNegInf, kNegInf},
                                         {0x7fc00001u, kTwo, kNan},
                                         {kOne, 0xffc00001u, kNan},
                                         {1, kTwo, kTwo},
                                         {0, 1, 1},
                                         {bits(1000.0f), kTwo, 0},
                                         {bits(-1000.0f), kTwo | kNegZero, kNegZero},
                                         // m = 0 from |q| = 8.4910536 on; at 8.4, t = 1 - 2^-23.
                                         {bits(8.4910536f * 30.0f + 0.001f), kOne, 0},
                                         {bits(8.4f * 30.0f), kOne, bits(0x1.fffffep-23f)}}) {
    EXPECT_EQ(BackwardBits(row.x, row.g, 30.0f), row.grad_x) << std::hex << row.x << " g " << row.g;
  }
}

TEST(SoftcapValues, SixteenBitOverflowNanAndSubnormals) {
  // FP16: a cap above 65504 saturates to infinity in the cast, never to the largest number.
  const uint16_t largest = 0x7bff;
  SoftcapCall call;
  call.x = View(DType::kF16, {}, &largest);
  call.softcap = 1e9f;
  call.output = DType::kF16;
  EXPECT_EQ(std::bit_cast<uint16_t>(*reinterpret_cast<const uint16_t*>(call.RunCpu().data())),
            0x7bff);
  const uint16_t infinity = 0x7c00;
  call.x = View(DType::kF16, {}, &infinity);
  EXPECT_EQ(*reinterpret_cast<const uint16_t*>(call.RunCpu().data()), 0x7c00);
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (uint16_t nan : {0x7fff, 0xffff, 0x7f81, 0xff81}) {
      if (dtype == DType::kF16) nan |= 0x7c01;
      call.x = View(dtype, {}, &nan);
      call.output = dtype;
      EXPECT_EQ(*reinterpret_cast<const uint16_t*>(call.RunCpu().data()), 0x7fff);
    }
    const uint16_t subnormal = 1;
    call.x = View(dtype, {}, &subnormal);
    call.softcap = 1.0f;
    EXPECT_EQ(*reinterpret_cast<const uint16_t*>(call.RunCpu().data()), 1);
  }
}

TEST(SoftcapValues, BrokenInvariantsAreInternalErrors) {
  const float x = 1.0f;
  float y = 0.0f;
  const std::vector<TensorView> inputs = {View(DType::kF64, {1}, &x)};
  const std::vector<int32_t> begin = {0, 1};
  std::vector<AttributeValue> attributes(2);
  attributes[0].number = 30;
  MutableTensorView output{DType::kF32, Dims{1}, &y};
  KernelArgs args;
  args.signature = &SoftcapSignature(false);
  args.inputs = inputs;
  args.input_begin = begin;
  args.outputs = {&output, 1};
  args.attributes = attributes;
  EXPECT_EQ(LaunchSoftcapForwardCpu(args).code(), absl::StatusCode::kInternal);
  const std::vector<TensorView> right = {View(DType::kF32, {1}, &x)};
  args.inputs = right;
  output.shape = Dims{2};
  EXPECT_EQ(LaunchSoftcapForwardCpu(args).code(), absl::StatusCode::kInternal);
  output = {DType::kBF16, Dims{1}, &y};
  EXPECT_EQ(LaunchSoftcapForwardCpu(args).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(GetErrorDetail(LaunchSoftcapForwardCpu(args))->reason, Reason::kInternal);
}

}  // namespace
}  // namespace rlk::test
