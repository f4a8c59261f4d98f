// The stored digests of det_linear, tests/golden/digests_det_linear.json, which has their
// definition. Read by the tests of the cpu backend and of the GPU.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {

struct LinearDigestCase {
  OpCall call;
  std::map<std::string, std::string> digests;  // by output
  std::string name;
};

inline std::vector<LinearDigestCase> LinearDigestCases(const nlohmann::json& golden) {
  std::vector<LinearDigestCase> cases;
  for (const auto& c : golden.at("cases")) {
    const LinearSize size = {c.at("rows"), c.at("outputs"), c.at("inputs")};
    LinearDigestCase result;
    result.call = MakeLinearCall("det_linear." + c.at("method").get<std::string>(), size,
                                 c.at("activation"), c.at("extras"), 0);
    result.call.contract = "det_linear/" + c.at("contract").get<std::string>();
    const auto congruent = [&](const char* name, uint32_t seed, float scale) {
      const auto found = result.call.inputs.find(name);
      if (found == result.call.inputs.end()) return;
      found->second = CongruentTensor(found->second.dtype, found->second.shape, seed, scale);
    };
    congruent("x", 1, 0x1p-21f);
    congruent("weight", 2, 0x1p-23f);
    congruent("bias", 3, 0x1p-22f);
    congruent("grad_y", 4, 0x1p-22f);
    congruent("pre", 5, 0x1p-21f);
    congruent("dweight_acc_in", 6, 0x1p-20f);
    congruent("dbias_acc_in", 7, 0x1p-20f);
    result.digests = c.at("digests").get<std::map<std::string, std::string>>();
    result.name = LinearName(result.call, size);
    cases.push_back(std::move(result));
  }
  return cases;
}

}  // namespace rlk::test
