// Calls of timestep_mlp_fp32 for tests, and the contract from the emulation of its layers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/ops/det_linear/linear_emulation.h"
#include "tests/support/op_call.h"

namespace rlk::test {

inline constexpr const char* kMlpForward = "timestep_mlp_fp32.forward";
inline constexpr const char* kMlpBackward = "timestep_mlp_fp32.backward";

struct MlpSize {
  int64_t rows, inputs, hidden, outputs;
};

// K, M and N that cross every tile, chunk and tail.
inline constexpr MlpSize kMlpSizes[] = {{1, 4, 4, 1},     {1, 256, 1044, 65}, {2, 20, 132, 3},
                                        {3, 36, 12, 17},  {5, 132, 36, 33},   {8, 256, 260, 130},
                                        {9, 12, 20, 65},  {17, 256, 132, 33}, {63, 20, 36, 17},
                                        {64, 36, 132, 3}, {65, 132, 20, 65}};

inline OpCall MakeMlpCall(bool backward, const MlpSize& size, uint32_t seed) {
  OpCall call;
  call.method = backward ? kMlpBackward : kMlpForward;
  call.contract = "timestep_mlp_fp32/portable-v1";
  const auto add = [&](const char* name, const Dims& shape, float scale) {
    call.inputs[name] = NormalTensor(DType::kF32, shape, scale, ++seed);
  };
  add("x", {size.rows, size.inputs}, 0.9f);
  add("w1", {size.hidden, size.inputs}, 0.6f);
  add("b1", {size.hidden}, 1.0f);
  add("w2", {size.outputs, size.hidden}, 0.5f);
  if (backward) {
    add("grad_y", {size.rows, size.outputs}, 1.3f);
  } else {
    add("b2", {size.outputs}, 1.0f);
  }
  return call;
}

inline OpOutputs EmulateMlp(const OpCall& call, const MlpSize& size) {
  const auto rows = static_cast<size_t>(size.rows), inputs = static_cast<size_t>(size.inputs),
             hidden = static_cast<size_t>(size.hidden), outputs = static_cast<size_t>(size.outputs);
  const std::vector<float> x = OpValues(call.input("x")), w1 = OpValues(call.input("w1")),
                           b1 = OpValues(call.input("b1")), w2 = OpValues(call.input("w2"));
  std::vector<float> pre(rows * hidden), h(rows * hidden);
  for (size_t i = 0; i < pre.size(); ++i) {
    pre[i] =
        EmulatedDot(&x[i / hidden * inputs], &w1[i % hidden * inputs], inputs) + b1[i % hidden];
    if (call.input("pre").present()) pre[i] = OpValues(call.input("pre"))[i];
    h[i] = EmulatedSilu(pre[i]);
  }
  if (call.method == kMlpForward) {
    const std::vector<float> b2 = OpValues(call.input("b2"));
    std::vector<float> y(rows * outputs);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = EmulatedDot(&h[i / outputs * hidden], &w2[i % outputs * hidden], hidden) +
             b2[i % outputs];
    }
    return {{"y", StoredF32(y)}, {"pre", StoredF32(pre)}};
  }
  const std::vector<float> g = OpValues(call.input("grad_y"));
  std::vector<float> d = EmulatedGradX(g, w2, rows, outputs, hidden);
  for (size_t i = 0; i < d.size(); ++i) {
    const float s = arith::Sigmoid(pre[i]);
    d[i] = d[i] * (s * std::fmaf(pre[i], 1.0f - s, 1.0f));
  }
  std::vector<float> dw1(hidden * inputs, 0.0f), db1(hidden, 0.0f);
  std::vector<float> dw2(outputs * hidden, 0.0f), db2(outputs, 0.0f);
  EmulatedWeightFold(g, h, rows, dw2, db2);
  EmulatedWeightFold(d, x, rows, dw1, db1);
  return {{"grad_x", StoredF32(EmulatedGradX(d, w1, rows, hidden, inputs))},
          {"grad_w1", StoredF32(dw1)},
          {"grad_b1", StoredF32(db1)},
          {"grad_w2", StoredF32(dw2)},
          {"grad_b2", StoredF32(db2)}};
}

inline std::string MlpName(const OpCall& call, const MlpSize& size) {
  return call.method + " T " + std::to_string(size.rows) + " K " + std::to_string(size.inputs) +
         " M " + std::to_string(size.hidden) + " N " + std::to_string(size.outputs);
}

struct MlpDigestCase {
  OpCall call;
  MlpSize size;
  std::map<std::string, std::string> digests;
};

// tests/golden/digests_timestep_mlp_fp32.json, which has their definition.
inline std::vector<MlpDigestCase> MlpDigestCases(const nlohmann::json& golden) {
  const std::map<std::string, std::pair<uint32_t, float>> tensors = {
      {"x", {1, 0x1p-22f}},  {"w1", {2, 0x1p-23f}}, {"b1", {3, 0x1p-22f}},
      {"w2", {4, 0x1p-24f}}, {"b2", {5, 0x1p-22f}}, {"grad_y", {6, 0x1p-22f}}};
  std::vector<MlpDigestCase> cases;
  for (const auto& c : golden.at("cases")) {
    MlpDigestCase result;
    result.size = {c.at("rows"), c.at("inputs"), c.at("hidden"), c.at("outputs")};
    result.call = MakeMlpCall(c.at("method") == "backward", result.size, 0);
    for (auto& [name, tensor] : result.call.inputs) {
      const auto& [seed, scale] = tensors.at(name);
      tensor = CongruentTensor(DType::kF32, tensor.shape, seed, scale);
    }
    result.digests = c.at("digests").get<std::map<std::string, std::string>>();
    cases.push_back(std::move(result));
  }
  return cases;
}

}  // namespace rlk::test
