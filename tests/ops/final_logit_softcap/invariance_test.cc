// Bits do not depend on how a call is made: repeated, sliced, padded, reshaped, strided,
// misaligned, on more threads, with another instruction set, at any block edge.
#include <functional>
#include <set>

#include "gtest/gtest.h"
#include "tests/ops/final_logit_softcap/softcap_call.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rlk::test {
namespace {

struct Config {
  DType dtype;
  bool backward;
  DType grad;    // of grad_y
  DType output;  // of y
  float cap;
};

std::vector<Config> Configs() {
  std::vector<Config> configs;
  for (DType dtype : kSoftcapDTypes) {
    for (DType other : std::set<DType>{DType::kF32, dtype}) {
      for (float cap : {20.0f, 30.0f}) {
        configs.push_back({dtype, false, DType::kUnspecified, other, cap});
        configs.push_back({dtype, true, other, dtype, cap});
      }
    }
  }
  return configs;
}

std::string Name(const Config& c) {
  return std::string(DTypeName(c.dtype)) + (c.backward ? " backward " : " forward ") +
         std::string(DTypeName(c.backward ? c.grad : c.output)) + " " + std::to_string(c.cap);
}

struct Tensors {
  Tensors(const Config& c, int64_t count)
      : config(c),
        x(Encode(c.dtype, RandomValues(count, 4.0f * c.cap, 21))),
        grad_y(c.backward ? Encode(c.grad, RandomValues(count, 2.0f, 22))
                          : std::vector<std::byte>()) {}

  // Elements [first, first + elements of shape).
  SoftcapCall Call(const Dims& shape, int64_t first = 0) const {
    SoftcapCall call;
    call.softcap = config.cap;
    call.output = config.output;
    call.x = View(config.dtype, shape, x.data() + first * DTypeSize(config.dtype));
    if (config.backward) {
      call.grad_y = View(config.grad, shape, grad_y.data() + first * DTypeSize(config.grad));
    }
    return call;
  }

  Config config;
  std::vector<std::byte> x, grad_y;
};

TEST(SoftcapInvariance, RepeatSliceReshapeAndBlockEdges) {
  constexpr int64_t kCount = 5000;
  for (const Config& c : Configs()) {
    SCOPED_TRACE(Name(c));
    const Tensors tensors(c, kCount);
    const std::vector<std::byte> x_before = tensors.x, grad_before = tensors.grad_y;
    const std::vector<std::byte> whole = tensors.Call({kCount}).RunCpu();
    EXPECT_EQ(tensors.Call({kCount}).RunCpu(), whole) << "repeated";
    EXPECT_EQ(tensors.Call({5, 10, 100}).RunCpu(), whole) << "reshaped";
    EXPECT_EQ(tensors.Call({1, 2, 1, 5, 5, 1, 10, 10}).RunCpu(), whole) << "rank 8";
    const int64_t size = DTypeSize(c.output);
    for (int64_t count : {1, 7, 8, 15, 16, 17, 1023, 1024, 1025, 4095}) {
      for (int64_t first : {0, 1, 3, 900}) {
        const std::vector<std::byte> expected(whole.begin() + first * size,
                                              whole.begin() + (first + count) * size);
        EXPECT_EQ(tensors.Call({count}, first).RunCpu(), expected)
            << count << " elements from " << first;
      }
    }
    EXPECT_EQ(tensors.x, x_before) << "inputs are never written";
    EXPECT_EQ(tensors.grad_y, grad_before);
  }
}

TEST(SoftcapInvariance, GoldenSlicesAreThoseOfTheWhole) {
  constexpr int64_t kCount = 1000;
  for (const Config& c : Configs()) {
    SCOPED_TRACE(Name(c));
    const Tensors tensors(c, kCount);
    const std::vector<double> whole = tensors.Call({kCount}).RunGolden();
    // As bits: NaN differs from itself.
    const auto same = [&whole](const std::vector<double>& part, int64_t first) {
      return memcmp(part.data(), whole.data() + first, part.size() * sizeof(double)) == 0;
    };
    EXPECT_TRUE(same(tensors.Call({kCount}).RunGolden(), 0)) << "repeated";
    EXPECT_TRUE(same(tensors.Call({10, 100}).RunGolden(), 0)) << "reshaped";
    for (int64_t count : {1, 7, 64, 99}) {
      EXPECT_TRUE(same(tensors.Call({count}, 900).RunGolden(), 900)) << count << " elements";
    }
  }
}

TEST(SoftcapInvariance, ScalarAndEmpty) {
  for (const Config& c : Configs()) {
    SCOPED_TRACE(Name(c));
    const Tensors tensors(c, 1);
    EXPECT_EQ(tensors.Call({}).RunCpu(), tensors.Call({1}).RunCpu());
    EXPECT_EQ(tensors.Call({}).RunCpu().size(), static_cast<size_t>(DTypeSize(c.output)));
    for (const Dims& shape : {Dims{0}, Dims{3, 0, 5}}) {
      EXPECT_TRUE(tensors.Call(shape).RunCpu().empty());
    }
    SoftcapCall empty = tensors.Call({0});
    empty.x.data = nullptr;
    EXPECT_TRUE(empty.RunCpu().empty());
  }
}

// Spreads the rows of `dense` over memory with the strides, the gaps filled with NaN patterns.
std::vector<std::byte> Spread(const std::vector<std::byte>& dense, DType dtype, const Dims& shape,
                              const Dims& strides) {
  int64_t extent = 1;
  for (int d = 0; d < shape.rank(); ++d) extent += (shape[d] - 1) * strides[d];
  const int64_t size = DTypeSize(dtype);
  std::vector<std::byte> memory(static_cast<size_t>(extent * size), std::byte{0xff});
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    int64_t rest = i, offset = 0;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      offset += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    memcpy(&memory[static_cast<size_t>(offset * size)], &dense[static_cast<size_t>(i * size)],
           static_cast<size_t>(size));
  }
  return memory;
}

TEST(SoftcapInvariance, StridedInputsGiveTheBitsOfContiguousOnes) {
  struct Layout {
    Dims shape, x_strides, grad_strides;
  };
  const std::vector<Layout> layouts = {
      {{33, 77}, {1, 33}, {77, 1}},  // transposed x
      {{33, 77}, {80, 1}, {1, 33}},  // padded rows, transposed gradient
      {{2541}, {3}, {2}},            // every third element
      {{3, 7, 121}, {2000, 250, 2}, {847, 121, 1}},
      {{3, 1, 7, 1, 11, 1, 11, 1}, {847, 9, 121, 9, 11, 9, 1, 9}, {1, 5, 3, 5, 21, 5, 231, 5}},
  };
  for (const Config& c : Configs()) {
    SCOPED_TRACE(Name(c));
    const Tensors tensors(c, 2541);
    for (const Layout& layout : layouts) {
      const std::vector<std::byte> expected = tensors.Call(layout.shape).RunCpu();
      const std::vector<std::byte> x = Spread(tensors.x, c.dtype, layout.shape, layout.x_strides);
      SoftcapCall call = tensors.Call(layout.shape);
      call.x.strides = layout.x_strides;
      call.x.data = x.data();
      EXPECT_EQ(call.RunCpu(), expected);
      std::vector<std::byte> grad_y;
      if (c.backward) {
        grad_y = Spread(tensors.grad_y, c.grad, layout.shape, layout.grad_strides);
        call.grad_y.strides = layout.grad_strides;
        call.grad_y.data = grad_y.data();
        EXPECT_EQ(call.RunCpu(), expected);
      }
    }
  }
}

TEST(SoftcapInvariance, BroadcastViewsRepeatTheirElements) {
  const std::vector<float> values = RandomValues(50, 100.0f, 3);
  std::vector<float> repeated;
  for (int i = 0; i < 40; ++i) repeated.insert(repeated.end(), values.begin(), values.end());
  SoftcapCall call, dense;
  call.x = {DType::kF32, Dims{40, 50}, Dims{0, 1}, values.data()};
  dense.x = View(DType::kF32, {40, 50}, repeated.data());
  EXPECT_EQ(call.RunCpu(), dense.RunCpu());
}

TEST(SoftcapInvariance, MisalignedBytesGiveTheSameBits) {
  for (const Config& c : Configs()) {
    const Tensors tensors(c, 3000);
    const std::vector<std::byte> expected = tensors.Call({3000}).RunCpu();
    std::vector<std::byte> x(tensors.x.size() + 1), grad_y(tensors.grad_y.size() + 1);
    memcpy(x.data() + 1, tensors.x.data(), tensors.x.size());
    if (c.backward) memcpy(grad_y.data() + 1, tensors.grad_y.data(), tensors.grad_y.size());
    SoftcapCall call = tensors.Call({3000});
    call.x.data = x.data() + 1;
    if (c.backward) call.grad_y.data = grad_y.data() + 1;
    EXPECT_EQ(call.RunCpu(), expected) << Name(c);
  }
}

TEST(SoftcapInvariance, ThreadsDoNotMatter) {
  constexpr int64_t kCount = 200003;
  for (const Config& c : Configs()) {
    const Tensors tensors(c, kCount);
    const std::vector<std::byte> expected = tensors.Call({kCount}).RunCpu();
    for (int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      SoftcapCall call = tensors.Call({kCount});
      call.pool = &pool;
      EXPECT_EQ(call.RunCpu(), expected) << Name(c) << ", " << threads << " threads";
    }
  }
}

TEST(SoftcapInvariance, InstructionSetsDoNotMatter) {
  constexpr int64_t kCount = 70001;
  for (const Config& c : Configs()) {
    const Tensors tensors(c, kCount);
    const std::vector<std::byte> expected = tensors.Call({kCount}).RunIsa(Isa::kBase);
    for (Isa isa : AvailableIsas()) {
      EXPECT_EQ(tensors.Call({kCount}).RunIsa(isa), expected) << Name(c) << " " << IsaName(isa);
    }
  }
}

#if defined(__x86_64__)
TEST(SoftcapInvariance, TheCallersFloatingPointEnvironmentDoesNotMatter) {
  // Subnormal results, and inexact ones of both signs.
  const std::vector<float> x = {0x1p-140f, -0x1p-149f, 3.3f, -17.9f, 29.0f, -41.0f, 1e-39f};
  SoftcapCall call;
  call.x = View(DType::kF32, {static_cast<int64_t>(x.size())}, x.data());
  const std::vector<std::byte> expected = call.RunCpu();
  ThreadPool pool(2);
  call.pool = &pool;
  const unsigned before = _mm_getcsr();
  for (unsigned hostile : {0x2000u, 0x4000u, 0x6000u, 0x8000u, 0x0040u, 0xe040u}) {
    _mm_setcsr(0x1f80u | hostile);
    const std::vector<std::byte> got = call.RunCpu();
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(got, expected) << std::hex << hostile;
    EXPECT_EQ(after & 0xffc0u, 0x1f80u | hostile);
  }
}
#endif

}  // namespace
}  // namespace rlk::test
