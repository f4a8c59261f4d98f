// An independent straight-line emulation of contract final_logit_softcap/portable-v1, written from
// its text: every FP32 operation is done in FP64 or wider and rounded once by hand. It shares
// nothing with kernels/arith, and must give the same bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"
#include "tests/ops/final_logit_softcap/softcap_call.h"

namespace rlk::test {
namespace {

// binary128 holds every product of two FP32 numbers exactly, and their sum with a third one up to a
// sticky error far below the last place of FP32.
using Wide = __float128;

// One rounding to FP32 by way of an odd rounding to FP64, so that there is no double rounding.
float Round(Wide exact) {
  auto near = static_cast<double>(exact);
  const auto back = static_cast<Wide>(near);
  auto bits = std::bit_cast<uint64_t>(near);
  if (back != exact && std::isfinite(near) && (bits & 1) == 0) {
    // Inexact with an even last bit: go to the odd neighbour on the side of the exact value.
    const bool away = (near >= 0) ? (exact > back) : (exact < back);
    if (near != 0) bits = away ? bits + 1 : bits - 1;
    near = std::bit_cast<double>(bits);
  }
  return static_cast<float>(near);
}

float add(float a, float b) { return Round(Wide(a) + Wide(b)); }
float sub(float a, float b) { return Round(Wide(a) - Wide(b)); }
float mul(float a, float b) { return Round(Wide(a) * Wide(b)); }
float div(float a, float b) { return Round(Wide(a) / Wide(b)); }
float fma32(float a, float b, float c) {
  const Wide product = Wide(a) * Wide(b);
  const Wide sum = product + Wide(c);
  if (!std::isfinite(static_cast<double>(sum))) return static_cast<float>(sum);
  // What the sum dropped decides only at an exact tie: move off it, to the side of the rest.
  const Wide from_product = sum - Wide(c);
  const Wide rest = (product - from_product) + (Wide(c) - (sum - from_product));
  if (rest == 0) return Round(sum);
  const Wide nudge = (sum < 0 ? -sum : sum) * Wide(0x1p-100);
  return Round(rest > 0 ? sum + nudge : sum - nudge);
}

float tanh_contract(float x) {
  float a = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  if (a > 10.0f) a = 10.0f;
  const float j = fma32(a, -0x1.715476p+1f, 12582912.0f);
  const float n = sub(j, 12582912.0f);
  float r = fma32(n, 0x1.62e430p-2f, a);
  r = fma32(n, -0x1.05c610p-30f, r);
  float q = -0x1.9d55e2p-6f;
  for (float c : {0x1.6d42a4p-4f, -0x1.11135ep-2f, 0x1.5554f0p-1f, -0x1.555554p+0f, 2.0f}) {
    q = fma32(q, r, c);
  }
  const float p = fma32(mul(r, r), q, mul(-2.0f, r));
  const float s = std::ldexp(1.0f, static_cast<int>(n));
  const float u = fma32(s, p, sub(s, 1.0f));
  const float d = add(2.0f, u);
  const float dl = add(sub(2.0f, d), u);
  const float y = div(1.0f, d);
  float t = mul(-u, y);
  float e = fma32(-t, d, -u);
  e = fma32(-t, dl, e);
  t = fma32(e, y, t);
  return std::copysign(t, x);
}

uint32_t Forward(float x, float cap) {
  if (std::isnan(x)) return 0x7fffffffu;
  return std::bit_cast<uint32_t>(mul(cap, tanh_contract(div(x, cap))));
}

uint32_t Backward(float x, float g, float cap) {
  if (std::isnan(x) || std::isnan(g)) return 0x7fffffffu;
  const float t = tanh_contract(div(x, cap));
  const float m = fma32(-t, t, 1.0f);
  if (std::isinf(g) && m == 0.0f) return 0x7fffffffu;
  return std::bit_cast<uint32_t>(mul(g, m));
}

// The cast, from its definition: nearest even on the integer grid of the target.
uint16_t Cast(uint32_t bits32, int exponent_bits) {
  const float x = std::bit_cast<float>(bits32);
  if (std::isnan(x)) return 0x7fff;
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::abs(static_cast<double>(x));
  if (std::isinf(x)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const double steps = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
  const double bits = steps + static_cast<double>(exponent + bias - 1) * (1 << fraction_bits);
  return sign | static_cast<uint16_t>(std::min<double>(bits, infinity));
}

float Decode16(uint16_t h, DType dtype) {
  if (dtype == DType::kBF16) return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
  const int exponent = (h >> 10) & 31, fraction = h & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude = fraction != 0 ? NAN : INFINITY;
  } else {
    magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return std::copysign(magnitude, (h & 0x8000) != 0 ? -1.0f : 1.0f);
}

std::vector<uint32_t> Words(const std::vector<std::byte>& bytes, size_t width) {
  std::vector<uint32_t> words(bytes.size() / width);
  for (size_t i = 0; i < words.size(); ++i) memcpy(&words[i], &bytes[i * width], width);
  return words;
}

// Patterns of every magnitude, dense where the result bends.
std::vector<uint32_t> Patterns() {
  std::mt19937 random(5);
  std::vector<uint32_t> patterns;
  for (int i = 0; i < 20000; ++i) patterns.push_back(random());
  for (int i = 0; i < 60000; ++i) {
    const auto exponent = 110 + random() % 28;  // 2^-17 .. 2^10
    patterns.push_back((random() & 0x807fffffu) | (exponent << 23));
  }
  for (uint32_t special : {0u, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u,
                           0x7f800001u, 1u, 0x80000001u, 0x007fffffu, 0x00800000u, 0x7f7fffffu}) {
    patterns.push_back(special);
  }
  return patterns;
}

TEST(SoftcapEmulation, Fp32BitsAreEqual) {
  const std::vector<uint32_t> x = Patterns();
  std::vector<uint32_t> g = Patterns();
  std::shuffle(g.begin(), g.end(), std::mt19937(6));
  const Dims shape{static_cast<int64_t>(x.size())};
  for (float cap : {20.0f, 30.0f, 7.3f, 0.1f, 1e-30f, 1e30f}) {
    SoftcapCall call;
    call.x = View(DType::kF32, shape, x.data());
    call.softcap = cap;
    const std::vector<uint32_t> y = Words(call.RunCpu(), 4);
    call.grad_y = View(DType::kF32, shape, g.data());
    const std::vector<uint32_t> grad_x = Words(call.RunCpu(), 4);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto xf = std::bit_cast<float>(x[i]), gf = std::bit_cast<float>(g[i]);
      ASSERT_EQ(y[i], Forward(xf, cap)) << std::hex << x[i] << " cap " << cap;
      ASSERT_EQ(grad_x[i], Backward(xf, gf, cap))
          << std::hex << x[i] << " g " << g[i] << " cap " << cap;
    }
  }
}

TEST(SoftcapEmulation, SixteenBitTypesAreEqualForAllPatterns) {
  std::vector<uint16_t> x(1 << 16), g(1 << 16);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<uint16_t>(i);
    g[i] = static_cast<uint16_t>(i * 40503 + 7);
  }
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    const int exponent_bits = dtype == DType::kF16 ? 5 : 8;
    SoftcapCall call;
    call.x = View(dtype, {1 << 16}, x.data());
    const std::vector<uint32_t> wide = Words(call.RunCpu(), 4);
    call.output = dtype;
    const std::vector<uint32_t> narrow = Words(call.RunCpu(), 2);
    call.grad_y = View(dtype, {1 << 16}, g.data());
    const std::vector<uint32_t> grad_x = Words(call.RunCpu(), 2);
    for (size_t i = 0; i < x.size(); ++i) {
      const float xf = Decode16(x[i], dtype), gf = Decode16(g[i], dtype);
      ASSERT_EQ(wide[i], Forward(xf, 30.0f)) << DTypeName(dtype) << " " << i;
      ASSERT_EQ(narrow[i], Cast(Forward(xf, 30.0f), exponent_bits)) << i;
      ASSERT_EQ(grad_x[i], Cast(Backward(xf, gf, 30.0f), exponent_bits)) << i;
    }
  }
}

}  // namespace
}  // namespace rlk::test
