// Contract bf16-k128-v1 of det_linear, written line by line from its text and the law of the
// tensor-core step.
#pragma once

#include <array>
#include <vector>

#include "tests/ops/det_linear/bf16_emulation.h"

namespace rlk::test {

// One side of a sum's pairs; element k stands at data[k * stride].
struct K128Side {
  const uint16_t* data;
  size_t stride;
};

// D of the chunk from k0 of a reduction that ends at `end`. Each of `terms` is multiplied with b,
// in their order.
inline float K128Chunk(const std::vector<K128Side>& terms, K128Side b, size_t k0, size_t end) {
  uint32_t c = 0;
  for (const K128Side& term : terms) {
    for (size_t i = 0; i < 8; ++i) {
      uint16_t left[16] = {}, right[16] = {};
      for (size_t j = 0; j < 16; ++j) {
        const size_t k = k0 + 16 * i + j;
        if (k < end) left[j] = term.data[k * term.stride], right[j] = b.data[k * b.stride];
      }
      c = arith::TensorStep(left, right, c);
    }
  }
  return arith::BitsFloat(c);
}

inline float K128Run(const std::vector<K128Side>& terms, K128Side b, size_t lo, size_t hi,
                     float q) {
  for (size_t k0 = lo; k0 < hi; k0 += 128) q = q + K128Chunk(terms, b, k0, hi);
  return q;
}

inline float K128Total(const std::vector<K128Side>& terms, K128Side b, size_t length,
                       size_t parts) {
  if (parts == 1) return K128Run(terms, b, 0, length, 0);
  std::vector<float> q;
  for (size_t p = 0; p < parts; ++p) {
    q.push_back(K128Run(terms, b, p * (length / parts), (p + 1) * (length / parts), 0));
  }
  return parts == 2 ? q[0] + q[1] : (q[0] + q[1]) + (q[2] + q[3]);
}

// The parts of a call over a reduction of `length`.
inline size_t K128PartsOf(const OpCall& call, size_t length) {
  const auto found = call.integers.find("fold_parts");
  if (found != call.integers.end() && found->second != 0) {
    return static_cast<size_t>(found->second);
  }
  return length % 512 == 0 && length >= 16384 ? 4 : 1;
}

// What a gradient is multiplied as: itself in BF16, or g2, g1, g0 of an FP32 one.
inline std::vector<std::vector<uint16_t>> K128Terms(const std::vector<float>& g, bool f32) {
  std::vector<uint16_t> g0(g.size()), g1(g.size()), g2(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    g0[i] = arith::FloatToBf16(g[i]);
    const float left = g[i] - arith::Bf16ToFloat(g0[i]);
    g1[i] = arith::FloatToBf16(left);
    g2[i] = arith::FloatToBf16(left - arith::Bf16ToFloat(g1[i]));
  }
  if (!f32) return {g0};
  return {g2, g1, g0};
}

inline std::vector<K128Side> K128Sides(const std::vector<std::vector<uint16_t>>& terms,
                                       size_t first, size_t stride) {
  std::vector<K128Side> sides;
  for (const std::vector<uint16_t>& term : terms) sides.push_back({&term[first], stride});
  return sides;
}

// g [rows, outputs], w [outputs, inputs]; grad_x [rows, inputs].
inline std::vector<float> K128GradX(const std::vector<float>& g, bool f32,
                                    const std::vector<uint16_t>& w, size_t rows, size_t outputs,
                                    size_t inputs, size_t parts) {
  const std::vector<std::vector<uint16_t>> terms = K128Terms(g, f32);
  std::vector<float> grad_x(rows * inputs);
  for (size_t i = 0; i < grad_x.size(); ++i) {
    grad_x[i] = K128Total(K128Sides(terms, i / inputs * outputs, 1), {&w[i % inputs], inputs},
                          outputs, parts);
  }
  return grad_x;
}

// Accumulates into dw [outputs, inputs] and db [outputs].
inline void K128WeightFold(const std::vector<float>& g, bool f32, const std::vector<uint16_t>& x,
                           size_t rows, std::vector<float>& dw, std::vector<float>& db) {
  const std::vector<std::vector<uint16_t>> terms = K128Terms(g, f32);
  const size_t outputs = db.size(), inputs = dw.size() / outputs;
  for (size_t i = 0; i < dw.size(); ++i) {
    dw[i] =
        K128Run(K128Sides(terms, i / inputs, outputs), {&x[i % inputs], inputs}, 0, rows, dw[i]);
  }
  for (size_t n = 0; n < outputs; ++n) {
    for (size_t first = 0; first < rows; first += 128) {
      float p = 0;
      for (size_t t = first; t < rows && t < first + 128; ++t) p = p + g[t * outputs + n];
      db[n] = db[n] + p;
    }
  }
}

inline OpOutputs EmulateK128(const OpCall& call, LinearSize size) {
  const auto rows = static_cast<size_t>(size.rows), outputs = static_cast<size_t>(size.outputs),
             inputs = static_cast<size_t>(size.inputs);
  const bool silu = call.integers.at("activation") == kSilu;
  if (call.method == kLinearMethods[0]) {
    const std::vector<uint16_t> x = Bits(call.input("x")), w = Bits(call.input("weight"));
    std::vector<float> bias(outputs, 0.0f), pre(rows * outputs), y(rows * outputs);
    if (call.input("bias").present()) bias = OpValues(call.input("bias"));
    for (size_t i = 0; i < pre.size(); ++i) {
      pre[i] = K128Total({{&x[i / outputs * inputs], 1}}, {&w[i % outputs * inputs], 1}, inputs,
                         K128PartsOf(call, inputs)) +
               bias[i % outputs];
      y[i] = silu ? EmulatedSilu(pre[i]) : pre[i];
    }
    const auto dtype = static_cast<DType>(call.integers.at("output_dtype"));
    return {{"pre", StoredF32(pre)}, {"y", Stored(dtype, y)}};
  }
  const std::vector<float> g = EmulatedGradient(call);
  const bool f32 = silu || call.input("grad_y").dtype == DType::kF32;
  if (call.method == kLinearMethods[1]) {
    const auto dtype = static_cast<DType>(call.integers.at("output_dtype"));
    return {{"grad_x", Stored(dtype, K128GradX(g, f32, Bits(call.input("weight")), rows, outputs,
                                               inputs, K128PartsOf(call, outputs)))}};
  }
  std::vector<float> dw(outputs * inputs, 0.0f), db(outputs, 0.0f);
  if (call.input("dweight_acc_in").present()) dw = OpValues(call.input("dweight_acc_in"));
  if (call.input("dbias_acc_in").present()) db = OpValues(call.input("dbias_acc_in"));
  K128WeightFold(g, f32, Bits(call.input("x")), rows, dw, db);
  return {{"grad_weight", Stored(DType::kBF16, dw)},
          {"dweight_acc", StoredF32(dw)},
          {"grad_bias", Stored(DType::kBF16, db)},
          {"dbias_acc", StoredF32(db)}};
}

}  // namespace rlk::test
