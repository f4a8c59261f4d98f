// Calls of the RMSNorm family as the engine makes them, without the engine. The tensors are plain
// bytes, so that the GPU's tests can put the same call into device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/arith/convert.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "tests/support/op_call.h"

namespace rlk::test {

// A tensor of a call: `shape` as the caller sees it, elements in `bytes` from `begin` on.
struct NormTensor {
  DType dtype = DType::kUnspecified;
  Dims shape, strides;
  std::vector<std::byte> bytes;
  int64_t begin = 0;  // bytes; anything but a multiple of 16 is unaligned

  bool present() const { return dtype != DType::kUnspecified; }
  TensorView view(const void* base) const {
    return {dtype, shape, strides, static_cast<const std::byte*>(base) + begin};
  }
};

inline uint32_t EncodeElement(DType dtype, float value) {
  if (dtype == DType::kF32) return arith::FloatBits(value);
  return dtype == DType::kF16 ? arith::FloatToF16(value) : arith::FloatToBf16(value);
}

inline float DecodeElement(DType dtype, const std::byte* at) {
  uint32_t bits = 0;
  memcpy(&bits, at, static_cast<size_t>(DTypeSize(dtype)));
  if (dtype == DType::kF32) return arith::BitsFloat(bits);
  return dtype == DType::kF16 ? arith::F16ToFloat(static_cast<uint16_t>(bits))
                              : arith::Bf16ToFloat(static_cast<uint16_t>(bits));
}

inline NormTensor MakeNormTensor(DType dtype, const Dims& shape, const std::vector<float>& values) {
  NormTensor tensor{dtype, shape, ContiguousStrides(shape), {}, 0};
  const auto size = static_cast<size_t>(DTypeSize(dtype));
  tensor.bytes.resize(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = EncodeElement(dtype, values[i]);
    memcpy(&tensor.bytes[i * size], &bits, size);
  }
  return tensor;
}

// Elements in C order.
inline std::vector<float> NormValues(const NormTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(ElementCount(tensor.shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t offset = 0;
    auto index = static_cast<int64_t>(i);
    for (int d = tensor.shape.rank() - 1; d >= 0; --d) {
      offset += index % tensor.shape[d] * tensor.strides[d];
      index /= tensor.shape[d];
    }
    values[i] = DecodeElement(
        tensor.dtype,
        &tensor.bytes[static_cast<size_t>(tensor.begin + offset * DTypeSize(tensor.dtype))]);
  }
  return values;
}

// The same elements with gaps of NaN between columns (`column_step` > 1) and after each row.
inline NormTensor Spread(const NormTensor& tensor, int64_t column_step, int64_t gap) {
  if (!tensor.present()) return tensor;
  const std::vector<float> values = NormValues(tensor);
  NormTensor spread = tensor;
  int64_t step = column_step;
  for (int d = tensor.shape.rank() - 1; d >= 0; --d) {
    spread.strides[d] = step;
    step = step * tensor.shape[d] + gap;
  }
  const auto size = static_cast<size_t>(DTypeSize(tensor.dtype));
  spread.begin = static_cast<int64_t>(size);  // unaligned by one element too
  spread.bytes.assign(static_cast<size_t>(step + 2) * size, std::byte{0xff});
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t offset = 0;
    auto index = static_cast<int64_t>(i);
    for (int d = tensor.shape.rank() - 1; d >= 0; --d) {
      offset += index % tensor.shape[d] * spread.strides[d];
      index /= tensor.shape[d];
    }
    const uint32_t bits = EncodeElement(tensor.dtype, values[i]);
    memcpy(&spread.bytes[static_cast<size_t>(spread.begin) + static_cast<size_t>(offset) * size],
           &bits, size);
  }
  return spread;
}

// The same tensor, starting one element after an aligned address.
inline NormTensor Unaligned(const NormTensor& tensor) {
  if (!tensor.present()) return tensor;
  NormTensor moved = tensor;
  moved.begin = DTypeSize(tensor.dtype);
  moved.bytes.insert(moved.bytes.begin(), static_cast<size_t>(moved.begin), std::byte{0xff});
  return moved;
}

inline std::vector<float> NormalRow(int64_t count, float scale, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

using NormOutputs = std::map<std::string, std::vector<std::byte>>;

struct NormCall {
  std::string op = "rms_norm";
  bool backward = false;
  std::string contract = "leftfold-v1";
  NormTensor x, weight, gate, grad_y, rstd, dweight_acc_in;
  double eps = 1e-6, weight_offset = 0;
  int64_t activation = 1;  // rlk.v1.GateActivation
  int64_t rows_before = 0;
  std::vector<std::string> wanted;  // empty: all

  bool gated() const { return op == "rms_norm_gated"; }
  std::string method() const { return op + (backward ? ".backward" : ".forward"); }
  int64_t length() const { return x.shape[x.shape.rank() - 1]; }
  int64_t rows() const { return ElementCount(x.shape) / length(); }
  Dims leading() const {
    return Dims(x.shape.span().first(static_cast<size_t>(x.shape.rank() - 1)));
  }
  const NormTensor& input(const std::string& name) const {
    if (name == "x") return x;
    if (name == "weight") return weight;
    if (name == "gate") return gate;
    if (name == "grad_y") return grad_y;
    return name == "rstd" ? rstd : dweight_acc_in;
  }
  bool wants(const std::string& name) const {
    if (wanted.empty()) return true;
    for (const std::string& w : wanted) {
      if (w == name) return true;
    }
    return false;
  }
};

// What fits together: x and gate [rows, H], weight [H], normal values of useful sizes.
inline NormCall MakeNormCall(const std::string& op, bool backward, DType x, DType weight,
                             DType grad, int64_t rows, int64_t length, uint32_t seed) {
  NormCall call;
  call.op = op;
  call.backward = backward;
  const Dims shape = {rows, length};
  call.x = MakeNormTensor(x, shape, NormalRow(rows * length, 1.7f, seed));
  call.weight = MakeNormTensor(weight, {length}, NormalRow(length, 1.0f, seed + 1));
  if (call.gated()) call.gate = MakeNormTensor(x, shape, NormalRow(rows * length, 2.5f, seed + 2));
  if (backward) call.grad_y = MakeNormTensor(grad, shape, NormalRow(rows * length, 1.3f, seed + 3));
  return call;
}

inline constexpr int64_t kNormGuard = 256;
inline constexpr std::byte kNormCanary{0xa5};

// A call's arguments with its tensors somewhere: `place(tensor)` gives the address of `bytes`.
class BoundNorm {
 public:
  using Place = std::function<const void*(const NormTensor&)>;

  BoundNorm(const Method& method, const NormCall& call, const Place& place, DType golden)
      : contract_(call.op + "/" + call.contract) {
    args_.signature = &method.signature;
    args_.contract = contract_;
    for (const TensorSpec& spec : method.signature.inputs) {
      begin_.push_back(static_cast<int32_t>(inputs_.size()));
      const NormTensor& tensor = call.input(spec.name);
      if (tensor.present()) inputs_.push_back(tensor.view(place(tensor)));
    }
    begin_.push_back(static_cast<int32_t>(inputs_.size()));
    for (const AttributeSpec& spec : method.signature.attributes) {
      AttributeValue value;
      value.kind = spec.kind;
      if (spec.name == "eps") value.number = static_cast<float>(call.eps);
      if (spec.name == "weight_offset") value.number = static_cast<float>(call.weight_offset);
      if (spec.name == "activation") value.integer = call.activation;
      if (spec.name == "rows_before") value.integer = call.rows_before;
      attributes_.push_back(value);
    }
    for (const TensorSpec& spec : method.signature.outputs) {
      MutableTensorView output;
      if (call.wants(spec.name)) {
        const bool row = spec.name == "y" || spec.name == "grad_x" || spec.name == "grad_gate";
        output.dtype = row                          ? call.x.dtype
                       : spec.name == "grad_weight" ? call.weight.dtype
                                                    : DType::kF32;
        if (golden != DType::kUnspecified) output.dtype = golden;
        output.shape = row                   ? call.x.shape
                       : spec.name == "rstd" ? call.leading()
                                             : Dims{call.length()};
      }
      outputs_.push_back(output);
    }
    args_.inputs = inputs_;
    args_.input_begin = begin_;
    args_.attributes = attributes_;
    args_.outputs = outputs_;
  }
  BoundNorm(const BoundNorm&) = delete;
  BoundNorm& operator=(const BoundNorm&) = delete;

  KernelArgs& args() { return args_; }
  std::vector<MutableTensorView>& outputs() { return outputs_; }
  const std::string& name(size_t output) const { return args_.signature->outputs[output].name; }

 private:
  std::string contract_;
  std::vector<TensorView> inputs_;
  std::vector<int32_t> begin_;
  std::vector<AttributeValue> attributes_;
  std::vector<MutableTensorView> outputs_;
  KernelArgs args_;
};

// Runs on the host; outputs lie between guards and hold canaries before the launch.
template <typename Launch>
NormOutputs RunNormWith(const NormCall& call, const Launch& launch,
                        DType golden = DType::kUnspecified, ThreadPool* pool = nullptr) {
  const Method* method = OpRegistry().Find(call.method());
  if (method == nullptr) abort();
  BoundNorm bound(
      *method, call, [](const NormTensor& t) { return t.bytes.data(); }, golden);
  bound.args().pool = pool;
  std::vector<std::vector<std::byte>> memory(bound.outputs().size());
  for (size_t i = 0; i < memory.size(); ++i) {
    MutableTensorView& output = bound.outputs()[i];
    if (!output.present()) continue;
    memory[i].assign(static_cast<size_t>(output.bytes() + 2 * kNormGuard), kNormCanary);
    output.data = memory[i].data() + kNormGuard;
  }
  if (method->decl.validate != nullptr) {
    const absl::Status valid = method->decl.validate(bound.args());
    EXPECT_TRUE(valid.ok()) << valid;
  }
  const absl::Status status = launch(bound.args());
  EXPECT_TRUE(status.ok()) << status;
  NormOutputs outputs;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!bound.outputs()[i].present()) continue;
    for (int64_t b = 0; b < kNormGuard; ++b) {
      EXPECT_EQ(memory[i][static_cast<size_t>(b)], kNormCanary);
      EXPECT_EQ(memory[i][memory[i].size() - 1 - static_cast<size_t>(b)], kNormCanary);
    }
    outputs[bound.name(i)] = {memory[i].begin() + kNormGuard, memory[i].end() - kNormGuard};
  }
  return outputs;
}

inline NormOutputs RunNormCpu(const NormCall& call, ThreadPool* pool = nullptr) {
  return RunNormWith(call, call.backward ? &LaunchRmsNormBackwardCpu : &LaunchRmsNormForwardCpu,
                     DType::kUnspecified, pool);
}

inline NormOutputs RunNormIsa(const NormCall& call, Isa isa) {
  return RunNormWith(call, [&](const KernelArgs& args) {
    return call.backward ? RunRmsNormBackwardCpu(args, isa) : RunRmsNormForwardCpu(args, isa);
  });
}

// The FP64 reference.
inline std::map<std::string, std::vector<double>> RunNormGolden(const NormCall& call) {
  std::map<std::string, std::vector<double>> values;
  for (const auto& [name, bytes] : RunNormWith(
           call, call.backward ? &RmsNormBackwardGolden : &RmsNormForwardGolden, DType::kF64)) {
    values[name].resize(bytes.size() / sizeof(double));
    if (!bytes.empty()) memcpy(values[name].data(), bytes.data(), bytes.size());
  }
  return values;
}

inline std::vector<float> Floats(DType dtype, const std::vector<std::byte>& bytes) {
  const auto size = static_cast<size_t>(DTypeSize(dtype));
  std::vector<float> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) values[i] = DecodeElement(dtype, &bytes[i * size]);
  return values;
}

// Rows [begin, begin + count) of the call; the carry stays.
inline NormCall Rows(const NormCall& call, int64_t begin, int64_t count) {
  NormCall part = call;
  const auto cut = [&](NormTensor& tensor, int64_t length) {
    if (!tensor.present()) return;
    const std::vector<float> values = NormValues(tensor);
    Dims shape = {count};
    if (tensor.shape.rank() == call.x.shape.rank()) shape.push_back(length);
    tensor = MakeNormTensor(
        tensor.dtype, shape,
        {values.begin() + begin * length, values.begin() + (begin + count) * length});
  };
  cut(part.x, call.length());
  cut(part.gate, call.length());
  cut(part.grad_y, call.length());
  cut(part.rstd, 1);
  return part;
}

inline constexpr DType kNormDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr int64_t kNormLengths[] = {1,   2,   7,    8,    9,    64,   127,  128,  255,
                                           256, 257, 2047, 2048, 2049, 5120, 8192, 8193, 65536};

// Every operator and contract, with the attributes that change the arithmetic.
struct NormKind {
  const char *op, *contract;
  double weight_offset;
  int64_t activation;
  bool hf() const { return std::string(contract) == "hf-v1"; }
};
inline constexpr NormKind kNormKinds[] = {
    {"rms_norm", "leftfold-v1", 0, 1},
    {"rms_norm", "leftfold-v1", 1, 1},
    {"rms_norm", "chunk128-v1", 0.25, 1},
    {"rms_norm", "hf-v1", 0, 1},
    {"qwen3_next_rms_norm", "leftfold-v1", 1, 1},
    {"qwen3_next_rms_norm", "chunk128-v1", 1, 1},
    {"rms_norm_gated", "leftfold-v1", 0, 1},
    {"rms_norm_gated", "leftfold-v1", 1, 3},
    {"rms_norm_gated", "chunk128-v1", 0, 2},
    {"rms_norm_gated", "hf-v1", 0, 1},
};

inline NormCall MakeNormCall(const NormKind& kind, bool backward, DType x, DType weight, DType grad,
                             int64_t rows, int64_t length, uint32_t seed) {
  NormCall call = MakeNormCall(kind.op, backward, x, weight, grad, rows, length, seed);
  call.contract = kind.contract;
  call.weight_offset = kind.weight_offset;
  call.activation = kind.activation;
  return call;
}

// Plain hf-v1 takes a weight of x's dtype only.
inline bool Allowed(const NormKind& kind, DType x, DType weight) {
  return !kind.hf() || std::string(kind.op) == "rms_norm_gated" || weight == x;
}

inline std::string NormName(const NormCall& call) {
  std::string name = call.method() + " " + call.contract + " x " +
                     std::string(DTypeName(call.x.dtype)) + " weight " +
                     std::string(DTypeName(call.weight.dtype));
  if (call.backward) name += " grad_y " + std::string(DTypeName(call.grad_y.dtype));
  return name + " offset " + std::to_string(call.weight_offset) + " activation " +
         std::to_string(call.activation) + " rows " + std::to_string(call.rows()) + " H " +
         std::to_string(call.length());
}

// Fails the test at the first element that differs.
inline void ExpectSameOutputs(const NormOutputs& actual, const NormOutputs& expected,
                              const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, bytes] : expected) {
    ASSERT_TRUE(actual.contains(name)) << what << ": " << name;
    const std::vector<std::byte>& got = actual.at(name);
    ASSERT_EQ(got.size(), bytes.size()) << what << ": " << name;
    for (size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(got[i], bytes[i]) << what << ": " << name << " differs at byte " << i;
    }
  }
}

}  // namespace rlk::test
