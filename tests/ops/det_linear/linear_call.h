// Calls of det_linear for tests, of every method.
#pragma once

#include <string>
#include <vector>

#include "kernels/core/cpu_features.h"
#include "kernels/ops/det_linear/det_linear.h"
#include "tests/support/op_call.h"

namespace rlk::test {

// rlk.v1.LinearActivation.
inline constexpr int64_t kNoActivation = 1, kSilu = 2, kSiluCuda = 3;

inline constexpr const char* kLinearMethods[] = {"det_linear.forward", "det_linear.backward_input",
                                                 "det_linear.backward_weight"};

// N, K and T that cross every tile, chunk and tail.
inline constexpr int64_t kLinearOutputs[] = {1, 3, 17, 33, 65};
inline constexpr int64_t kLinearInputs[] = {4, 12, 20, 36, 132, 1044};
inline std::vector<int64_t> LinearRows() {
  std::vector<int64_t> rows;
  for (int64_t t = 1; t <= 17; ++t) rows.push_back(t);
  for (int64_t t : {63, 64, 65}) rows.push_back(t);
  return rows;
}

struct LinearSize {
  int64_t rows, outputs, inputs;
};

// Normal values; with a bias in the forward and carries in the backward if `extras`.
inline OpCall MakeLinearCall(const std::string& method, LinearSize size, int64_t activation,
                             bool extras, uint32_t seed) {
  const auto [rows, outputs, inputs] = size;
  OpCall call;
  call.method = method;
  call.contract = "det_linear/h3-det-linear-v1";
  call.integers["activation"] = activation;
  const auto add = [&](const char* name, const Dims& shape, float scale) {
    call.inputs[name] = NormalTensor(DType::kF32, shape, scale, ++seed);
  };
  const bool forward = method == "det_linear.forward";
  const bool weight = method == "det_linear.backward_weight";
  if (!forward) add("grad_y", {rows, outputs}, 1.3f);
  if (!forward && activation != kNoActivation) add("pre", {rows, outputs}, 2.5f);
  if (forward || weight) add("x", {rows, inputs}, 1.7f);
  if (!weight) add("weight", {outputs, inputs}, 0.4f);
  if (forward && extras) add("bias", {outputs}, 1.0f);
  if (weight && extras) {
    add("dweight_acc_in", {outputs, inputs}, 3.0f);
    add("dbias_acc_in", {outputs}, 3.0f);
  }
  return call;
}

inline constexpr const char* kBf16LinearContract = "det_linear/h3-det-linear-bf16-mma-v1";
inline constexpr const char* kK128LinearContract = "det_linear/bf16-k128-v1";

// The same with BF16 operands, under one of their contracts; grad_y, y and grad_x in `wide`.
inline OpCall MakeBf16LinearCall(const char* contract, const std::string& method, LinearSize size,
                                 int64_t activation, DType wide, bool extras, uint32_t seed) {
  OpCall call = MakeLinearCall(method, size, activation, extras, seed);
  call.contract = contract;
  for (const char* name : {"x", "weight", "bias", "grad_y"}) {
    if (!call.input(name).present()) continue;
    const DType dtype = std::string(name) == "grad_y" ? wide : DType::kBF16;
    call.inputs[name] = MakeOpTensor(dtype, call.input(name).shape, OpValues(call.input(name)));
  }
  if (method != kLinearMethods[2]) call.integers["output_dtype"] = static_cast<int64_t>(wide);
  return call;
}

inline OpOutputs RunBf16LinearIsa(const OpCall& call, Isa isa) {
  return RunOpWith(call, [&](const KernelArgs& args) {
    if (call.method == kLinearMethods[0]) return RunDetLinearBf16ForwardCpu(args, isa);
    return call.method == kLinearMethods[1] ? RunDetLinearBf16BackwardInputCpu(args, isa)
                                            : RunDetLinearBf16BackwardWeightCpu(args, isa);
  });
}

// Row `row` of outputs that have one for each of `rows`.
inline OpOutputs LinearOutputRow(const OpOutputs& outputs, int64_t row, int64_t rows) {
  OpOutputs cut;
  for (const auto& [name, bytes] : outputs) {
    const auto size = static_cast<int64_t>(bytes.size()) / rows;
    cut[name] = {bytes.begin() + row * size, bytes.begin() + (row + 1) * size};
  }
  return cut;
}

inline OpOutputs RunLinearIsa(const OpCall& call, Isa isa) {
  return RunOpWith(call, [&](const KernelArgs& args) {
    if (call.method == kLinearMethods[0]) return RunDetLinearFp32ForwardCpu(args, isa);
    return call.method == kLinearMethods[1] ? RunDetLinearFp32BackwardInputCpu(args, isa)
                                            : RunDetLinearFp32BackwardWeightCpu(args, isa);
  });
}

// Rows [begin, begin + count) of a call; weights and carries stay.
inline OpCall LinearRowsOf(const OpCall& call, int64_t begin, int64_t count) {
  OpCall part = call;
  for (const char* name : {"x", "grad_y", "pre"}) {
    if (call.input(name).present()) part.inputs[name] = OpRows(call.input(name), begin, count);
  }
  return part;
}

inline std::string LinearName(const OpCall& call, LinearSize size) {
  return call.method + " T " + std::to_string(size.rows) + " N " + std::to_string(size.outputs) +
         " K " + std::to_string(size.inputs) + " activation " +
         std::to_string(call.integers.at("activation"));
}

}  // namespace rlk::test
