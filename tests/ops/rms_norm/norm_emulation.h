// The contracts of the RMSNorm family, written line by line from their text and from nothing of the
// kernels but the function sigmoid.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/arith/functions.h"
#include "kernels/registry/golden_reader.h"
#include "kernels/registry/golden_variant.h"
#include "tests/ops/rms_norm/norm_call.h"

namespace rlk::test {

// One cast from FP32, and its value.
inline float RoundOnce(DType dtype, float v) {
  if (dtype == DType::kF32) return v;
  const uint16_t bits = dtype == DType::kF16 ? RoundF64ToF16(v) : RoundF64ToBf16(v);
  return static_cast<float>(golden::DecodeAs(dtype, bits));
}

inline void PutElement(std::vector<std::byte>& bytes, DType dtype, size_t i, float v) {
  uint32_t bits = dtype == DType::kF32   ? arith::FloatBits(v)
                  : dtype == DType::kF16 ? RoundF64ToF16(v)
                                         : RoundF64ToBf16(v);
  if (dtype == DType::kF32 && v != v) bits = 0x7fffffffu;
  const auto size = static_cast<size_t>(DTypeSize(dtype));
  memcpy(&bytes[i * size], &bits, size);
}

// rowsum-v1 by its definition, with every addition of the tree where the definition has it.
inline float EmulatedRowSum(const std::vector<float>& a, const std::vector<float>& b) {
  const auto h = static_cast<int>(a.size());
  int w = 4096;
  if (h <= 8192) w = 1024;
  if (h <= 2048) w = 256;
  if (h <= 256) {
    w = 8;
    while (w < h) w = 2 * w;
  }
  std::vector<float> acc(static_cast<size_t>(w), 0.0f);
  for (int i = 0; i < (h + w - 1) / w; ++i) {
    for (int j = 0; j < w; ++j) {
      const int at = i * w + j;
      acc[j] = std::fmaf(at < h ? a[at] : 0.0f, at < h ? b[at] : 0.0f, acc[j]);
    }
  }
  for (int s = 1; s <= w / 2; s *= 2) {
    for (int j = 0; j < w; j += 2 * s) acc[j] = acc[j] + acc[j + s];
  }
  return acc[0] + 0.0f;
}

class NormEmulation {
 public:
  explicit NormEmulation(const NormCall& call) : call_(call), t_(call.x.dtype) {
    h_ = static_cast<size_t>(call.length());
    rows_ = static_cast<size_t>(call.rows());
    x_ = NormValues(call.x);
    w_ = NormValues(call.weight);
    if (call.gated()) z_ = NormValues(call.gate);
    const float offset =
        call.op == "qwen3_next_rms_norm" ? 1.0f : static_cast<float>(call.weight_offset);
    wf_ = w_;
    if (offset != 0) {
      for (float& w : wf_) w = w + offset;
    }
    hf_ = call.contract == "hf-v1";
    same_ = call.weight.dtype == t_;
  }

  NormOutputs Run() { return call_.backward ? Backward() : Forward(); }

 private:
  float Rstat(const std::vector<float>& x) const {
    const float m = EmulatedRowSum(x, x) / static_cast<float>(h_);
    const float v = m + static_cast<float>(call_.eps);
    return static_cast<float>(1.0L / std::sqrt(static_cast<long double>(v)));
  }
  std::vector<float> Row(size_t t) const {
    return {x_.begin() + static_cast<int64_t>(t * h_),
            x_.begin() + static_cast<int64_t>((t + 1) * h_)};
  }
  float Act(float z) const {
    const float s = arith::Sigmoid(z);
    return call_.activation == 3 ? s : z * s;
  }
  float ActSlope(float z) const {
    const float s = arith::Sigmoid(z);
    if (call_.activation == 3) return s * (1.0f - s);
    return s * std::fmaf(z, 1.0f - s, 1.0f);
  }
  float CastIfSame(float v) const { return same_ ? RoundOnce(t_, v) : v; }

  NormOutputs Forward() const {
    NormOutputs out;
    out["y"].resize(x_.size() * static_cast<size_t>(DTypeSize(t_)));
    out["rstd"].resize(rows_ * 4);
    for (size_t t = 0; t < rows_; ++t) {
      const float r = Rstat(Row(t));
      PutElement(out["rstd"], DType::kF32, t, r);
      for (size_t h = 0; h < h_; ++h) {
        const size_t i = t * h_ + h;
        const float xh = x_[i] * r;
        float y;
        if (!hf_) {
          y = xh * wf_[h];
          if (call_.gated()) y = y * Act(z_[i]);
        } else {
          const float n = RoundOnce(t_, xh);
          y = w_[h] * n;
          if (call_.gated()) y = CastIfSame(y) * (z_[i] * arith::Sigmoid(z_[i]));
        }
        PutElement(out["y"], t_, i, y);
      }
    }
    return out;
  }

  // g, c and grad_gate of element i (column h).
  void Element(size_t i, size_t h, float xh, float dy, float& g, float& c, float& dgate) const {
    if (!call_.gated() && !hf_) {
      g = dy * wf_[h];
      c = dy * xh;
    } else if (!call_.gated()) {
      const float n = RoundOnce(t_, xh);
      g = RoundOnce(t_, dy * w_[h]);
      c = RoundOnce(t_, dy * n);
    } else if (!hf_) {
      const float b = dy * Act(z_[i]);
      g = b * wf_[h];
      c = b * xh;
      const float weighted = xh * wf_[h];
      dgate = (dy * weighted) * ActSlope(z_[i]);
    } else {
      const float z = z_[i];
      const float n = RoundOnce(t_, xh);
      const float m = CastIfSame(w_[h] * n);
      const float sig = arith::Sigmoid(z);
      const float s = z * sig;
      const float dm = CastIfSame(dy * s);
      const float da = dy * m;
      dgate = (da * sig) * std::fmaf(z, 1.0f - sig, 1.0f);
      c = CastIfSame(dm * n);
      g = RoundOnce(t_, w_[h] * dm);
    }
  }

  NormOutputs Backward() const {
    NormOutputs out;
    const auto size = static_cast<size_t>(DTypeSize(t_));
    out["grad_x"].resize(x_.size() * size);
    if (call_.gated()) out["grad_gate"].resize(x_.size() * size);
    out["grad_weight"].resize(h_ * static_cast<size_t>(DTypeSize(call_.weight.dtype)));
    out["dweight_acc"].resize(h_ * 4);
    const std::vector<float> dy = NormValues(call_.grad_y);
    std::vector<float> terms(x_.size()), given;
    if (call_.rstd.present()) given = NormValues(call_.rstd);
    for (size_t t = 0; t < rows_; ++t) {
      const float r = given.empty() ? Rstat(Row(t)) : given[t];
      std::vector<float> xh(h_), g(h_);
      for (size_t h = 0; h < h_; ++h) {
        const size_t i = t * h_ + h;
        xh[h] = x_[i] * r;
        float dgate = 0;
        Element(i, h, xh[h], dy[i], g[h], terms[i], dgate);
        if (call_.gated()) PutElement(out["grad_gate"], t_, i, dgate);
      }
      const float k = EmulatedRowSum(g, xh) / static_cast<float>(h_);
      for (size_t h = 0; h < h_; ++h) {
        PutElement(out["grad_x"], t_, t * h_ + h, r * std::fmaf(-xh[h], k, g[h]));
      }
    }
    std::vector<float> carry(h_, 0.0f);
    if (call_.dweight_acc_in.present()) carry = NormValues(call_.dweight_acc_in);
    for (size_t h = 0; h < h_; ++h) {
      const float acc = Fold(terms, h, carry[h]);
      PutElement(out["dweight_acc"], DType::kF32, h, acc);
      PutElement(out["grad_weight"], call_.weight.dtype, h, acc);
    }
    return out;
  }

  float Fold(const std::vector<float>& terms, size_t h, float carry) const {
    float total = carry;
    if (call_.contract != "chunk128-v1") {
      for (size_t t = 0; t < rows_; ++t) total = total + terms[t * h_ + h];
      return total;
    }
    for (size_t block = 0; block < rows_; block += 128) {
      float p = 0.0f;
      for (size_t t = block; t < rows_ && t < block + 128; ++t) p = p + terms[t * h_ + h];
      total = total + p;
    }
    return total;
  }

  const NormCall& call_;
  const DType t_;
  size_t h_ = 0, rows_ = 0;
  std::vector<float> x_, w_, wf_, z_;
  bool hf_ = false, same_ = false;
};

}  // namespace rlk::test
