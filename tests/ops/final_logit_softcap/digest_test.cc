// The stored digests of contract final_logit_softcap/portable-v1: all inputs of the 16-bit types,
// all 2^32 FP32 inputs for caps 20 and 30. tests/golden/digests_softcap.json has the definition.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "gtest/gtest.h"
#include "kernels/arith/function_digest.h"
#include "tests/ops/final_logit_softcap/softcap_call.h"
#include "tests/support/softcap_digests.h"

namespace rlk::test {
namespace {

using Case = SoftcapDigest;

// Inputs first, first + step, .. of one piece.
uint64_t PieceDigest(const Case& c, uint64_t first, int64_t count) {
  std::vector<uint32_t> wide(static_cast<size_t>(count)), grad_y(wide.size());
  std::vector<uint16_t> narrow(wide.size());
  for (size_t k = 0; k < wide.size(); ++k) {
    const auto pattern = static_cast<uint32_t>(first + k * c.step);
    wide[k] = pattern;
    narrow[k] = static_cast<uint16_t>(pattern);
    grad_y[k] = c.grad_pattern ? GradientBits(pattern) : 0x3f800000u;
  }
  SoftcapCall call;
  call.softcap = c.softcap;
  call.output = c.result;
  call.x = View(c.x, {count},
                c.x == DType::kF32 ? static_cast<const void*>(wide.data())
                                   : static_cast<const void*>(narrow.data()));
  if (c.backward) call.grad_y = View(DType::kF32, {count}, grad_y.data());
  const std::vector<std::byte> bytes = call.RunCpu();
  uint64_t sum = 0;
  for (size_t k = 0; k < wide.size(); ++k) {
    uint32_t bits = 0;
    if (c.result == DType::kF32) {
      memcpy(&bits, &bytes[4 * k], 4);
    } else {
      memcpy(&bits, &bytes[2 * k], 2);
    }
    sum += arith::DigestTerm(wide[k], bits);
  }
  return sum;
}

uint64_t DigestOf(const Case& c) {
  ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  std::mutex mutex;
  uint64_t sum = 0;
  constexpr int64_t kPiece = 1 << 15;
  pool.ParallelFor(c.count, kPiece, [&](int64_t begin, int64_t end) {
    uint64_t part = 0;
    for (int64_t k = begin; k < end; k += kPiece) {
      part += PieceDigest(c, static_cast<uint64_t>(k) * c.step, std::min(kPiece, end - k));
    }
    std::lock_guard<std::mutex> lock(mutex);
    sum += part;
  });
  return sum;
}

bool IsLong(const Case& c) { return c.x == DType::kF32 && c.step == 1; }

TEST(SoftcapDigests, OfAll16BitInputsAndOfSamplesAreTheStoredOnes) {
  int checked = 0;
  for (const Case& c : LoadSoftcapDigests()) {
    if (IsLong(c)) continue;
    EXPECT_EQ(DigestOf(c), c.digest) << c.name;
    ++checked;
  }
  EXPECT_GE(checked, 30);
}

TEST(SoftcapDigests, OfAllFp32InputsAreTheStoredOnes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "too long under a sanitizer, which sees the same accesses for the 16-bit types";
#endif
  const char* full = getenv("RLK_TEST_FULL");
  if (BestIsa() < Isa::kV3 && (full == nullptr || std::string(full) != "1")) {
    GTEST_SKIP() << "no AVX2, so this takes many minutes: RLK_TEST_FULL=1 runs it";
  }
  int checked = 0;
  for (const Case& c : LoadSoftcapDigests()) {
    if (!IsLong(c)) continue;
    EXPECT_EQ(DigestOf(c), c.digest) << c.name;
    ++checked;
  }
  EXPECT_EQ(checked, 4);
}

TEST(SoftcapDigests, ADigestSeesOneWrongCap) {
  Case c = LoadSoftcapDigests().front();
  c.softcap = std::nextafter(c.softcap, 100.0f);
  EXPECT_NE(DigestOf(c), c.digest);
}

}  // namespace
}  // namespace rlk::test
