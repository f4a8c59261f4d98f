// Calls of timestep_sinusoid_h3 for tests, and the contract written line by line from its text and
// from nothing of the kernels but the function set: `Functions` is that of the contract.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/arith/functions.h"
#include "nlohmann/json.hpp"
#include "tests/support/op_call.h"

namespace rlk::test {

inline constexpr const char* kSinusoidForward = "timestep_sinusoid_h3.forward";
inline constexpr const char* kSinusoidBackward = "timestep_sinusoid_h3.backward";
inline constexpr DType kSinusoidDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr int64_t kSinusoidChannels[] = {2, 4, 6, 30, 64, 66, 254, 256, 258, 510, 1030};

// Fractions, the two ends first.
inline OpTensor Fractions(DType dtype, int64_t rows, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(rows));
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-24f;
  }
  values[0] = 1;
  if (rows > 1) values[1] = 0;
  return MakeOpTensor(dtype, {rows}, values);
}

inline OpCall SinusoidForward(DType dtype, int64_t rows, int64_t channels, double max_period,
                              uint32_t seed) {
  OpCall call;
  call.method = kSinusoidForward;
  call.contract = "timestep_sinusoid_h3/portable-v1";
  call.inputs["timestep"] = Fractions(dtype, rows, seed);
  call.integers["num_channels"] = channels;
  call.numbers["max_period"] = max_period;
  return call;
}

inline OpCall SinusoidBackward(DType dtype, int64_t rows, int64_t channels, double max_period,
                               uint32_t seed) {
  OpCall call;
  call.method = kSinusoidBackward;
  call.contract = "timestep_sinusoid_h3/portable-v1";
  call.inputs["grad_embedding"] = NormalTensor(DType::kF32, {rows, channels}, 1.5f, seed);
  call.inputs["embedding"] = {
      DType::kF32,
      {rows, channels},
      RunOpCpu(SinusoidForward(DType::kF32, rows, channels, max_period, seed)).at("embedding")};
  call.integers["timestep_dtype"] = static_cast<int64_t>(dtype);
  call.numbers["max_period"] = max_period;
  return call;
}

inline std::vector<float> EmulatedFrequencies(const OpCall& call, size_t half) {
  const auto period = static_cast<double>(static_cast<float>(call.numbers.at("max_period")));
  const auto c0 = static_cast<float>(-std::log(period));
  const float inverse = 1.0f / static_cast<float>(half);
  std::vector<float> frequencies(half);
  for (size_t k = 0; k < half; ++k) {
    const float product = c0 * static_cast<float>(k);
    frequencies[k] = arith::Exp(product * inverse);
  }
  return frequencies;
}

inline std::vector<std::byte> StoredAs(DType dtype, const std::vector<float>& values) {
  std::vector<float> canonical = values;
  for (float& v : canonical) {
    if (v != v) v = arith::BitsFloat(0x7fffffffu);
  }
  return MakeOpTensor(dtype, {static_cast<int64_t>(values.size())}, canonical).bytes;
}

inline OpOutputs EmulateSinusoid(const OpCall& call) {
  if (call.method == kSinusoidForward) {
    const auto half = static_cast<size_t>(call.integers.at("num_channels") / 2);
    const std::vector<float> t = OpValues(call.input("timestep"));
    const std::vector<float> f = EmulatedFrequencies(call, half);
    std::vector<float> embedding(t.size() * 2 * half);
    for (size_t i = 0; i < t.size(); ++i) {
      for (size_t k = 0; k < half; ++k) {
        const float angle = t[i] * f[k];
        embedding[i * 2 * half + k] = arith::Cos(angle);
        embedding[i * 2 * half + half + k] = arith::Sin(angle);
      }
    }
    return {{"embedding", StoredAs(DType::kF32, embedding)}};
  }
  const auto rows = static_cast<size_t>(call.input("embedding").shape[0]);
  const auto channels = static_cast<size_t>(call.input("embedding").shape[1]);
  const size_t half = channels / 2;
  const std::vector<float> g = OpValues(call.input("grad_embedding"));
  const std::vector<float> e = OpValues(call.input("embedding"));
  const std::vector<float> f = EmulatedFrequencies(call, half);
  size_t padded = 1;
  while (padded < channels) padded = 2 * padded;
  std::vector<float> grad(rows);
  for (size_t t = 0; t < rows; ++t) {
    std::vector<float> v(padded, 0.0f);
    for (size_t k = 0; k < half; ++k) {
      const float cosine = e[t * channels + k], sine = e[t * channels + half + k];
      const float through_cosine = g[t * channels + k] * sine;
      const float through_sine = g[t * channels + half + k] * cosine;
      v[k] = -through_cosine * f[k];
      v[half + k] = through_sine * f[k];
    }
    for (size_t w = padded / 2; w >= 1; w = w / 2) {
      for (size_t i = 0; i < w; ++i) v[i] = v[i] + v[i + w];
    }
    grad[t] = v[0];
  }
  const auto dtype = static_cast<DType>(call.integers.at("timestep_dtype"));
  return {{"grad_timestep", StoredAs(dtype, grad)}};
}

inline std::string SinusoidName(const OpCall& call) {
  const bool forward = call.method == kSinusoidForward;
  const OpTensor& first = call.input(forward ? "timestep" : "embedding");
  return call.method + " T " + std::to_string(first.shape[0]) + " C " +
         std::to_string(forward ? call.integers.at("num_channels") : first.shape[1]) +
         " max_period " + std::to_string(call.numbers.at("max_period"));
}

struct SinusoidDigestCase {
  OpCall call;
  std::map<std::string, std::string> digests;
};

// tests/golden/digests_timestep_sinusoid_h3.json, which has their definition.
inline std::vector<SinusoidDigestCase> SinusoidDigestCases(const nlohmann::json& golden) {
  std::vector<SinusoidDigestCase> cases;
  for (const auto& c : golden.at("cases")) {
    DType dtype = DType::kF32;
    for (DType candidate : kSinusoidDTypes) {
      if (DTypeName(candidate) == c.at("dtype").get<std::string>()) dtype = candidate;
    }
    const bool forward = c.at("method") == "forward";
    SinusoidDigestCase result;
    result.call = (forward ? SinusoidForward : SinusoidBackward)(
        dtype, c.at("rows"), c.at("channels"), c.at("max_period"), 1);
    if (!forward) {
      OpTensor& grad = result.call.inputs["grad_embedding"];
      grad = CongruentTensor(DType::kF32, grad.shape, 4, 0x1p-22f);
    }
    result.digests = c.at("digests").get<std::map<std::string, std::string>>();
    cases.push_back(std::move(result));
  }
  return cases;
}

}  // namespace rlk::test
