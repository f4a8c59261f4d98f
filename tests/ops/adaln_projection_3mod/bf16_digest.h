// The stored digests of det_linear with BF16 operands and of adaln_projection_3mod,
// tests/golden/digests_bf16.json and digests_bf16_k128.json, which have their definition. Read by
// the tests of the cpu backend and of the GPU.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/ops/adaln_projection_3mod/adaln_call.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {

struct Bf16DigestCase {
  OpCall call;
  std::map<std::string, std::string> digests;  // by output
  std::string name;
};

// `wide`: dtype of the gradients given and, of det_linear, of y and grad_x.
inline OpCall Bf16DigestCall(const nlohmann::json& c) {
  const std::string op = c.at("operator");
  const std::string method = op + "." + c.at("method").get<std::string>();
  const DType wide = c.at("wide") == "F32" ? DType::kF32 : DType::kBF16;
  const int64_t rows = c.at("rows"), outputs = c.at("outputs"), inputs = c.at("inputs");
  OpCall call;
  if (op == "det_linear") {
    call = MakeLinearCall(method, {rows, outputs, inputs}, c.at("activation"), true, 0);
    if (method != kLinearMethods[2]) call.integers["output_dtype"] = static_cast<int64_t>(wide);
  } else {
    const DType weight = c.at("weight") == "F32" ? DType::kF32 : DType::kBF16;
    call = MakeAdalnCall(method, {rows, outputs / 18, inputs}, weight, wide, 0);
  }
  call.contract = op + "/" + c.at("contract").get<std::string>();
  if (c.contains("fold_parts")) call.integers["fold_parts"] = c.at("fold_parts");
  const auto congruent = [&](const std::string& name, uint32_t seed, float scale, DType dtype) {
    const auto found = call.inputs.find(name);
    if (found == call.inputs.end()) return;
    found->second = CongruentTensor(dtype, found->second.shape, seed, scale);
  };
  const DType operand = op == "det_linear" ? DType::kBF16 : call.input("weight").dtype;
  congruent("temb", 1, 0x1p-21f, DType::kF32);
  congruent("x", 1, 0x1p-21f, operand);
  congruent("weight", 2, 0x1p-23f, operand);
  congruent("bias", 3, 0x1p-22f, operand);
  congruent("grad_y", 4, 0x1p-22f, wide);
  congruent("pre", 5, 0x1p-21f, DType::kF32);
  congruent("dweight_acc_in", 6, 0x1p-20f, DType::kF32);
  congruent("dbias_acc_in", 7, 0x1p-20f, DType::kF32);
  for (uint32_t i = 0; i < 6; ++i) congruent(adaln::kGradientNames[i], 8 + i, 0x1p-22f, wide);
  return call;
}

inline std::vector<Bf16DigestCase> Bf16DigestCases(const nlohmann::json& golden) {
  std::vector<Bf16DigestCase> cases;
  for (const auto& c : golden.at("cases")) {
    cases.push_back({Bf16DigestCall(c), c.at("digests").get<std::map<std::string, std::string>>(),
                     c.at("operator").get<std::string>() + "." + c.at("method").get<std::string>() +
                         " T " + std::to_string(c.at("rows").get<int64_t>()) + " N " +
                         std::to_string(c.at("outputs").get<int64_t>())});
  }
  return cases;
}

}  // namespace rlk::test
