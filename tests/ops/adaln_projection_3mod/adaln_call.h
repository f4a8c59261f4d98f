// Calls of adaln_projection_3mod for tests, and its contracts portable-v1 and k128-v1 written line
// by line.
#pragma once

#include <string>
#include <vector>

#include "kernels/ops/adaln_projection_3mod/adaln_projection_3mod.h"
#include "tests/ops/det_linear/bf16_emulation.h"
#include "tests/ops/det_linear/k128_emulation.h"
#include "tests/support/op_call.h"

namespace rlk::test {

inline constexpr const char* kAdalnMethods[] = {"adaln_projection_3mod.forward",
                                                "adaln_projection_3mod.forward_table",
                                                "adaln_projection_3mod.backward"};

struct AdalnSize {
  int64_t rows, width, inputs;  // T, H, K
};

// Normal values; the six gradients in `grad`.
inline OpCall MakeAdalnCall(const std::string& method, AdalnSize size, DType weight, DType grad,
                            uint32_t seed, const char* contract = adaln::kPortableContract) {
  OpCall call;
  call.method = method;
  call.contract = contract;
  const int64_t outputs = 18 * size.width;
  call.inputs["temb"] = NormalTensor(DType::kF32, {size.rows, size.inputs}, 2.0f, ++seed);
  call.inputs["weight"] = NormalTensor(weight, {outputs, size.inputs}, 0.4f, ++seed);
  if (method != kAdalnMethods[2]) {
    call.inputs["bias"] = NormalTensor(weight, {outputs}, 1.0f, ++seed);
    return call;
  }
  for (const char* name : adaln::kGradientNames) {
    call.inputs[name] = NormalTensor(grad, {3 * size.rows, size.width}, 1.3f, ++seed);
  }
  return call;
}

inline std::string AdalnName(const OpCall& call, AdalnSize size) {
  return call.method + " T " + std::to_string(size.rows) + " H " + std::to_string(size.width) +
         " K " + std::to_string(size.inputs) + " " +
         std::string(DTypeName(call.input("weight").dtype));
}

// Row t, channel n of a table: the chunk and the element of its view.
inline size_t AdalnChunk(size_t n, size_t width) { return n / width % 6; }
inline size_t AdalnElement(size_t t, size_t n, size_t width) {
  return (3 * t + n / (6 * width)) * width + n % width;
}

// silu(temb), cast to the dtype of the weights.
inline std::vector<float> EmulatedAct(const OpCall& call) {
  std::vector<float> act = OpValues(call.input("temb"));
  for (float& a : act) {
    a = EmulatedSilu(a);
    if (call.input("weight").dtype == DType::kBF16) a = arith::Bf16ToFloat(arith::FloatToBf16(a));
  }
  return act;
}

// The table before its cast.
inline std::vector<float> EmulatedTable(const OpCall& call, AdalnSize size) {
  const auto rows = static_cast<size_t>(size.rows), inputs = static_cast<size_t>(size.inputs);
  const auto outputs = static_cast<size_t>(18 * size.width);
  const std::vector<float> act = EmulatedAct(call), bias = OpValues(call.input("bias"));
  const OpTensor ab = MakeOpTensor(call.input("weight").dtype, {size.rows, size.inputs}, act);
  const bool bf16 = call.input("weight").dtype == DType::kBF16;
  const std::vector<float> w = OpValues(call.input("weight"));
  const std::vector<uint16_t> x_bits = bf16 ? Bits(ab) : std::vector<uint16_t>();
  const std::vector<uint16_t> w_bits = bf16 ? Bits(call.input("weight")) : std::vector<uint16_t>();
  std::vector<float> table(rows * outputs);
  for (size_t i = 0; i < table.size(); ++i) {
    const size_t t = i / outputs, n = i % outputs;
    if (call.contract == adaln::kK128Contract) {
      table[i] = K128Total({{&x_bits[t * inputs], 1}}, {&w_bits[n * inputs], 1}, inputs,
                           K128PartsOf(call, inputs));
    } else if (bf16) {
      table[i] = EmulatedBf16Dot(&x_bits[t * inputs], &w_bits[n * inputs], inputs);
    } else {
      table[i] = EmulatedDot(&act[t * inputs], &w[n * inputs], inputs);
    }
    table[i] = table[i] + bias[n];
  }
  return table;
}

inline OpOutputs EmulateAdalnForward(const OpCall& call, AdalnSize size) {
  const DType dtype = call.input("weight").dtype;
  const std::vector<float> table = EmulatedTable(call, size);
  if (call.method == kAdalnMethods[1]) return {{"table", Stored(dtype, table)}};
  const auto width = static_cast<size_t>(size.width);
  std::vector<std::vector<float>> views(6, std::vector<float>(table.size() / 6));
  for (size_t i = 0; i < table.size(); ++i) {
    const size_t t = i / (18 * width), n = i % (18 * width);
    views[AdalnChunk(n, width)][AdalnElement(t, n, width)] = table[i];
  }
  OpOutputs outputs;
  for (size_t c = 0; c < 6; ++c) outputs[adaln::kChunkNames[c]] = Stored(dtype, views[c]);
  return outputs;
}

// Whether the gradients that are given are F32.
inline bool AdalnGradIsF32(const OpCall& call) {
  for (const char* name : adaln::kGradientNames) {
    if (call.input(name).present()) return call.input(name).dtype == DType::kF32;
  }
  return false;
}

inline OpOutputs EmulateAdalnBackward(const OpCall& call, AdalnSize size) {
  const auto rows = static_cast<size_t>(size.rows), inputs = static_cast<size_t>(size.inputs);
  const auto width = static_cast<size_t>(size.width), outputs = 18 * width;
  std::vector<float> g(rows * outputs, 0.0f);
  for (size_t c = 0; c < 6; ++c) {
    if (!call.input(adaln::kGradientNames[c]).present()) continue;
    const std::vector<float> grad = OpValues(call.input(adaln::kGradientNames[c]));
    for (size_t i = 0; i < g.size(); ++i) {
      const size_t t = i / outputs, n = i % outputs;
      if (AdalnChunk(n, width) == c) g[i] = grad[AdalnElement(t, n, width)];
    }
  }
  const bool k128 = call.contract == adaln::kK128Contract, wide = AdalnGradIsF32(call);
  std::vector<float> grad_temb =
      k128 ? K128GradX(g, wide, Bits(call.input("weight")), rows, outputs, inputs,
                       K128PartsOf(call, outputs))
           : EmulatedGradX(g, OpValues(call.input("weight")), rows, outputs, inputs);
  const std::vector<float> temb = OpValues(call.input("temb"));
  for (size_t i = 0; i < grad_temb.size(); ++i) {
    const float s = arith::Sigmoid(temb[i]);
    grad_temb[i] = grad_temb[i] * (s * std::fmaf(temb[i], 1.0f - s, 1.0f));
  }
  std::vector<float> dw(outputs * inputs, 0.0f), db(outputs, 0.0f);
  const std::vector<float> act = EmulatedAct(call);
  if (k128) {
    K128WeightFold(g, wide, Bits(MakeOpTensor(DType::kBF16, {size.rows, size.inputs}, act)), rows,
                   dw, db);
  } else {
    EmulatedWeightFold(g, act, rows, dw, db);
  }
  const DType dtype = call.input("weight").dtype;
  return {{"grad_temb", StoredF32(grad_temb)},
          {"grad_weight", Stored(dtype, dw)},
          {"grad_bias", Stored(dtype, db)}};
}

inline OpOutputs EmulateAdaln(const OpCall& call, AdalnSize size) {
  return call.method == kAdalnMethods[2] ? EmulateAdalnBackward(call, size)
                                         : EmulateAdalnForward(call, size);
}

inline OpOutputs RunAdalnIsa(const OpCall& call, Isa isa) {
  return RunOpWith(call, [&](const KernelArgs& args) {
    return call.method == kAdalnMethods[2] ? RunAdalnBackwardCpu(args, isa)
                                           : RunAdalnForwardCpu(args, isa);
  });
}

// Rows [begin, begin + count) of a call.
inline OpCall AdalnRowsOf(const OpCall& call, int64_t begin, int64_t count) {
  OpCall part = call;
  part.inputs["temb"] = OpRows(call.input("temb"), begin, count);
  for (const char* name : adaln::kGradientNames) {
    if (call.input(name).present()) {
      part.inputs[name] = OpRows(call.input(name), 3 * begin, 3 * count);
    }
  }
  return part;
}

}  // namespace rlk::test
