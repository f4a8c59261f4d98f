// The stored digests of final_logit_softcap/portable-v1, recomputed on the GPU.
// tests/golden/digests_softcap.json has the definition; the cpu backend's test reads the same file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "tests/gpu/device_memory.h"
#include "tests/gpu/function_kernels.h"
#include "tests/gpu/golden_files.h"
#include "tests/gpu/softcap_runner.h"

namespace rlk::gpu_test {
namespace {

constexpr int64_t kPiece = int64_t{1} << 28;

DType ParseDType(const std::string& name) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  ADD_FAILURE() << name;
  return DType::kF32;
}

TEST(SoftcapStoredDigests, AreThoseOfTheDevice) {
  const nlohmann::json golden = LoadGolden("digests_softcap.json");
  const auto& cases = golden.at("cases");
  ASSERT_GT(cases.size(), 0u);
  const cuda::DeviceBuffer x = NewBuffer(4 * kPiece), grad_y = NewBuffer(4 * kPiece),
                           result = NewBuffer(4 * kPiece), sum = NewBuffer(8);
  const cuda::Stream stream = NewStream();
  for (const auto& c : cases) {
    const DType x_dtype = ParseDType(c.at("x")), result_dtype = ParseDType(c.at("result"));
    const bool backward = c.at("method") == "backward";
    const float cap = static_cast<float>(c.at("softcap").get<double>());
    const uint64_t step = c.at("inputs") == "all" ? 1 : 61;
    const bool of_pattern = backward && c.at("grad_y") == "pattern";
    const uint64_t patterns = x_dtype == DType::kF32 ? uint64_t{1} << 32 : uint64_t{1} << 16;
    const auto inputs = static_cast<int64_t>((patterns - 1) / step + 1);
    Fill(sum.data(), 0, 8);
    for (int64_t done = 0; done < inputs; done += kPiece) {
      const int64_t count = std::min(kPiece, inputs - done);
      const uint64_t first = static_cast<uint64_t>(done) * step;
      FillPatterns(x.data(), DTypeSize(x_dtype), first, step, count, stream.get());
      if (backward) {
        FillGradients(reinterpret_cast<float*>(grad_y.data()), of_pattern, first, step, count,
                      stream.get());
        LaunchCuda(Backward{View(x_dtype, count, x.data()), View(DType::kF32, count, grad_y.data()),
                            MutableView(result_dtype, count, result.data()), cap},
                   stream.get());
      } else {
        LaunchCuda(Forward{View(x_dtype, count, x.data()),
                           MutableView(result_dtype, count, result.data()), cap},
                   stream.get());
      }
      AddDigestTerms(result.data(), DTypeSize(result_dtype), first, step, count,
                     reinterpret_cast<unsigned long long*>(sum.data()), stream.get());
    }
    RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx",
                  static_cast<unsigned long long>(Download<uint64_t>(sum.data(), 1).front()));
    EXPECT_EQ(text, c.at("digest").get<std::string>()) << c.dump();
  }
}

}  // namespace
}  // namespace rlk::gpu_test
