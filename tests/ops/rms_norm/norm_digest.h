// The stored digests of the RMSNorm family, tests/golden/digests_rms_norm.json, which has their
// definition. Read by the tests of the cpu backend and of the GPU.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/digest/digest.h"
#include "nlohmann/json.hpp"
#include "tests/ops/rms_norm/norm_call.h"

namespace rlk::test {

struct NormDigestCase {
  NormCall call;
  std::map<std::string, std::string> digests;  // by output
  std::string name;
};

// state = state * 1664525 + 1013904223 from `seed`; the value is its top 24 bits, signed, times
// `scale`, cast once.
inline NormTensor CongruenceTensor(DType dtype, const Dims& shape, uint32_t seed, float scale) {
  std::vector<float> values(static_cast<size_t>(ElementCount(shape)));
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) * scale;
  }
  return MakeNormTensor(dtype, shape, values);
}

inline std::vector<NormDigestCase> NormDigestCases(const nlohmann::json& golden) {
  const auto dtype = [](const nlohmann::json& name) {
    for (DType candidate : kNormDTypes) {
      if (DTypeName(candidate) == name.get<std::string>()) return candidate;
    }
    ADD_FAILURE() << name;
    return DType::kF32;
  };
  std::vector<NormDigestCase> cases;
  for (const auto& c : golden.at("cases")) {
    NormDigestCase result;
    NormCall& call = result.call;
    call.op = c.at("operator");
    call.contract = c.at("contract");
    call.backward = c.at("method") == "backward";
    call.weight_offset = c.at("weight_offset");
    call.activation = c.at("activation");
    call.eps = c.at("eps");
    const Dims shape = {c.at("rows").get<int64_t>(), c.at("length").get<int64_t>()};
    call.x = CongruenceTensor(dtype(c.at("x")), shape, 1, 0x1p-21f);
    call.weight = CongruenceTensor(dtype(c.at("weight")), {shape[1]}, 2, 0x1p-22f);
    if (call.gated()) call.gate = CongruenceTensor(call.x.dtype, shape, 3, 0x1p-20f);
    if (call.backward) {
      call.grad_y = CongruenceTensor(dtype(c.at("grad_y")), shape, 4, 0x1p-22f);
      call.dweight_acc_in = CongruenceTensor(DType::kF32, {shape[1]}, 5, 0x1p-20f);
    }
    result.digests = c.at("digests").get<std::map<std::string, std::string>>();
    result.name = NormName(call);
    cases.push_back(std::move(result));
  }
  return cases;
}

// By output name.
inline std::map<std::string, std::string> DigestsOf(const NormCall& call,
                                                    const NormOutputs& outputs) {
  std::map<std::string, std::string> digests;
  for (const auto& [name, bytes] : outputs) {
    const bool row = name == "y" || name == "grad_x" || name == "grad_gate";
    TensorView view;
    view.dtype = row ? call.x.dtype : name == "grad_weight" ? call.weight.dtype : DType::kF32;
    view.shape = row ? call.x.shape : name == "rstd" ? call.leading() : Dims{call.length()};
    view.strides = ContiguousStrides(view.shape);
    view.data = bytes.data();
    digests[name] = ComputeDigest(view).Text();
  }
  return digests;
}

}  // namespace rlk::test
