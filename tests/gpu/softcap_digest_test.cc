// The stored digests of final_logit_softcap/portable-v1, recomputed on the GPU.
// tests/golden/digests_softcap.json has the definition; the cpu backend's test reads the same file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/gpu/device_memory.h"
#include "tests/gpu/function_kernels.h"
#include "tests/gpu/softcap_runner.h"
#include "tests/support/softcap_digests.h"

namespace rlk::gpu_test {
namespace {

constexpr int64_t kPiece = int64_t{1} << 28;

TEST(SoftcapStoredDigests, AreThoseOfTheDevice) {
  const std::vector<test::SoftcapDigest> cases = test::LoadSoftcapDigests();
  ASSERT_GT(cases.size(), 0u);
  const cuda::DeviceBuffer x = NewBuffer(4 * kPiece), grad_y = NewBuffer(4 * kPiece),
                           result = NewBuffer(4 * kPiece), sum = NewBuffer(8);
  const cuda::Stream stream = NewStream();
  for (const test::SoftcapDigest& c : cases) {
    Fill(sum.data(), 0, 8);
    for (int64_t done = 0; done < c.count; done += kPiece) {
      const int64_t count = std::min(kPiece, c.count - done);
      const uint64_t first = static_cast<uint64_t>(done) * c.step;
      FillPatterns(x.data(), DTypeSize(c.x), first, c.step, count, stream.get());
      if (c.backward) {
        FillGradients(reinterpret_cast<float*>(grad_y.data()), c.grad_pattern, first, c.step, count,
                      stream.get());
        LaunchCuda(Backward{View(c.x, count, x.data()), View(DType::kF32, count, grad_y.data()),
                            MutableView(c.result, count, result.data()), c.softcap},
                   stream.get());
      } else {
        LaunchCuda(Forward{View(c.x, count, x.data()), MutableView(c.result, count, result.data()),
                           c.softcap},
                   stream.get());
      }
      AddDigestTerms(result.data(), DTypeSize(c.result), first, c.step, count,
                     reinterpret_cast<unsigned long long*>(sum.data()), stream.get());
    }
    RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
    EXPECT_EQ(Download<uint64_t>(sum.data(), 1).front(), c.digest) << c.name;
  }
}

}  // namespace
}  // namespace rlk::gpu_test
