// The rows of tests/golden/digests_softcap.json, which the tests of every backend recompute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/dtype.h"
#include "tests/support/golden_json.h"

namespace rlk::test {

struct SoftcapDigest {
  bool backward = false;
  DType x = DType::kF32, result = DType::kF32;
  float softcap = 0;
  // Inputs are the bit patterns 0, step, 2 step, .. of x, `count` of them.
  uint64_t step = 1;
  int64_t count = 0;
  // grad_y: the float whose bits are GradientBits(pattern of x), or 1.0.
  bool grad_pattern = false;
  uint64_t digest = 0;
  std::string name;
};

constexpr uint32_t GradientBits(uint32_t pattern) { return pattern * 0x9e3779b1u; }

inline DType ParseFloatDType(const std::string& name) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  ADD_FAILURE() << name;
  return DType::kF32;
}

inline std::vector<SoftcapDigest> LoadSoftcapDigests() {
  std::vector<SoftcapDigest> digests;
  const nlohmann::json golden = LoadGolden("digests_softcap.json");
  for (const auto& row : golden.at("cases")) {
    SoftcapDigest& digest = digests.emplace_back();
    digest.backward = row.at("method") == "backward";
    digest.x = ParseFloatDType(row.at("x"));
    digest.result = ParseFloatDType(row.at("result"));
    digest.softcap = static_cast<float>(row.at("softcap").get<double>());
    digest.step = row.at("inputs") == "all" ? 1 : 61;
    const uint64_t patterns = uint64_t{1} << (8 * DTypeSize(digest.x));
    digest.count = static_cast<int64_t>((patterns - 1) / digest.step + 1);
    digest.grad_pattern = digest.backward && row.at("grad_y") == "pattern";
    digest.digest = Hex64(row.at("digest"));
    digest.name = row.dump();
  }
  return digests;
}

}  // namespace rlk::test
