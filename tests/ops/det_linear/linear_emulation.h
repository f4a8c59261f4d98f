// The FP32 contract of det_linear, written line by line from its text and from nothing of the
// kernels but the function sigmoid.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/arith/functions.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {

inline std::vector<std::byte> StoredF32(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * 4);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = arith::FloatBits(values[i]);
    if (values[i] != values[i]) bits = 0x7fffffffu;
    memcpy(&bytes[i * 4], &bits, 4);
  }
  return bytes;
}

// One output of h3-det-linear-v1 before its bias.
inline float EmulatedDot(const float* x, const float* w, size_t inputs) {
  float a[32] = {};
  for (size_t k = 0; k < inputs; ++k) {
    const size_t chunk = k / 4;
    a[chunk % 32] = std::fmaf(x[k], w[k], a[chunk % 32]);
  }
  for (size_t s : {16, 8, 4, 2, 1}) {
    float next[32];
    for (size_t l = 0; l < 32; ++l) next[l] = a[l] + a[l ^ s];
    memcpy(a, next, sizeof(a));
  }
  return a[0];
}

inline float EmulatedSilu(float v) { return v * arith::Sigmoid(v); }

inline std::vector<float> EmulatedGradient(const OpCall& call) {
  std::vector<float> g = OpValues(call.input("grad_y"));
  if (call.integers.at("activation") == kNoActivation) return g;
  const std::vector<float> pre = OpValues(call.input("pre"));
  for (size_t i = 0; i < g.size(); ++i) {
    const float s = arith::Sigmoid(pre[i]);
    g[i] = g[i] * (s * std::fmaf(pre[i], 1.0f - s, 1.0f));
  }
  return g;
}

// g [rows, outputs], w [outputs, inputs]; grad_x [rows, inputs].
inline std::vector<float> EmulatedGradX(const std::vector<float>& g, const std::vector<float>& w,
                                        size_t rows, size_t outputs, size_t inputs) {
  std::vector<float> grad_x(rows * inputs);
  for (size_t t = 0; t < rows; ++t) {
    for (size_t k = 0; k < inputs; ++k) {
      float d = 0;
      for (size_t c = 0; c * 64 < outputs; ++c) {
        float p = 0;
        for (size_t n = c * 64; n < outputs && n < c * 64 + 64; ++n) {
          p = std::fmaf(g[t * outputs + n], w[n * inputs + k], p);
        }
        d = c == 0 ? p : d + p;
      }
      grad_x[t * inputs + k] = d;
    }
  }
  return grad_x;
}

// Accumulates into dw [outputs, inputs] and db [outputs].
inline void EmulatedWeightFold(const std::vector<float>& g, const std::vector<float>& x,
                               size_t rows, std::vector<float>& dw, std::vector<float>& db) {
  const size_t outputs = db.size(), inputs = dw.size() / outputs;
  for (size_t n = 0; n < outputs; ++n) {
    for (size_t t = 0; t < rows; ++t) db[n] = db[n] + g[t * outputs + n];
    for (size_t k = 0; k < inputs; ++k) {
      for (size_t t = 0; t < rows; ++t) {
        dw[n * inputs + k] = std::fmaf(g[t * outputs + n], x[t * inputs + k], dw[n * inputs + k]);
      }
    }
  }
}

inline OpOutputs EmulateLinear(const OpCall& call, LinearSize size) {
  const auto rows = static_cast<size_t>(size.rows), outputs = static_cast<size_t>(size.outputs),
             inputs = static_cast<size_t>(size.inputs);
  if (call.method == kLinearMethods[0]) {
    const std::vector<float> x = OpValues(call.input("x")), w = OpValues(call.input("weight"));
    std::vector<float> bias(outputs, 0.0f), pre(rows * outputs), y(rows * outputs);
    if (call.input("bias").present()) bias = OpValues(call.input("bias"));
    for (size_t i = 0; i < pre.size(); ++i) {
      const size_t t = i / outputs, n = i % outputs;
      pre[i] = EmulatedDot(&x[t * inputs], &w[n * inputs], inputs) + bias[n];
      y[i] = call.integers.at("activation") == kSilu ? EmulatedSilu(pre[i]) : pre[i];
    }
    return {{"pre", StoredF32(pre)}, {"y", StoredF32(y)}};
  }
  const std::vector<float> g = EmulatedGradient(call);
  if (call.method == kLinearMethods[1]) {
    return {{"grad_x",
             StoredF32(EmulatedGradX(g, OpValues(call.input("weight")), rows, outputs, inputs))}};
  }
  std::vector<float> dw(outputs * inputs, 0.0f), db(outputs, 0.0f);
  if (call.input("dweight_acc_in").present()) dw = OpValues(call.input("dweight_acc_in"));
  if (call.input("dbias_acc_in").present()) db = OpValues(call.input("dbias_acc_in"));
  EmulatedWeightFold(g, OpValues(call.input("x")), rows, dw, db);
  return {{"grad_weight", StoredF32(dw)},
          {"dweight_acc", StoredF32(dw)},
          {"grad_bias", StoredF32(db)},
          {"dbias_acc", StoredF32(db)}};
}

}  // namespace rlk::test
