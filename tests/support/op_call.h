// A call of any operator as the engine makes it, without the engine: shapes and dtypes of outputs
// and the defaults of attributes follow from the compiled signature.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/builtin.h"
#include "kernels/core/parallel.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"
#include "kernels/registry/registry.h"
#include "proto/wire/signatures.h"
#include "tests/support/op_tensor.h"

namespace rlk::test {

// Bytes of each output, by name.
using OpOutputs = std::map<std::string, std::vector<std::byte>>;

struct OpCall {
  std::string method;    // "det_linear.forward"
  std::string contract;  // "det_linear/h3-det-linear-v1"
  std::map<std::string, OpTensor> inputs;
  std::map<std::string, double> numbers;
  std::map<std::string, int64_t> integers;  // also enums and dtypes
  std::vector<std::string> wanted;          // empty: all

  bool wants(const std::string& name) const {
    for (const std::string& w : wanted) {
      if (w == name) return true;
    }
    return wanted.empty();
  }
  const OpTensor& input(const std::string& name) const {
    static const OpTensor kAbsent;
    const auto found = inputs.find(name);
    return found == inputs.end() ? kAbsent : found->second;
  }
};

// The registry of a build, with no GPU, bound to the compiled signatures.
inline const Registry& OpRegistry() {
  static const Registry* const registry = [] {
    auto* built = new Registry();
    RegisterBuiltin({}, *built);
    auto bindings = wire::CompileSignatures(wire::OperatorFiles());
    if (!bindings.ok()) abort();
    std::vector<MethodSignature> signatures;
    for (wire::MethodBinding& binding : *bindings) {
      signatures.push_back(std::move(binding.signature));
    }
    if (const absl::Status status = built->Bind(std::move(signatures)); !status.ok()) {
      fprintf(stderr, "%s\n", status.ToString().c_str());
      abort();
    }
    return built;
  }();
  return *registry;
}

inline const Method& OpMethod(const OpCall& call) {
  const Method* method = OpRegistry().Find(call.method);
  if (method == nullptr) abort();
  return *method;
}

// A call's arguments with its tensors somewhere: `place(tensor)` gives the address of its bytes.
// With `golden` given, that is the dtype of every output.
class BoundOp {
 public:
  using Place = std::function<const void*(const OpTensor&)>;

  BoundOp(const OpCall& call, const Place& place, DType golden = DType::kUnspecified)
      : contract_(call.contract) {
    const MethodSignature& signature = OpMethod(call).signature;
    args_.signature = &signature;
    args_.contract = contract_;
    for (const TensorSpec& spec : signature.inputs) {
      begin_.push_back(static_cast<int32_t>(inputs_.size()));
      const OpTensor& tensor = call.input(spec.name);
      if (!tensor.present()) continue;
      inputs_.push_back(tensor.view(place(tensor)));
      Bind(spec, tensor.shape);
    }
    begin_.push_back(static_cast<int32_t>(inputs_.size()));
    args_.inputs = inputs_;
    args_.input_begin = begin_;
    for (const AttributeSpec& spec : signature.attributes) attributes_.push_back(Value(spec, call));
    args_.attributes = attributes_;
    for (const TensorSpec& spec : signature.outputs) {
      MutableTensorView output;
      if (call.wants(spec.name)) {
        output.dtype = golden != DType::kUnspecified ? golden : OutputDType(spec);
        if (spec.dims.leading) output.shape = leading_;
        for (const DimPattern& dim : spec.dims.dims) {
          output.shape.push_back(Size(dim));
        }
      }
      outputs_.push_back(output);
    }
    args_.outputs = outputs_;
  }
  BoundOp(const BoundOp&) = delete;
  BoundOp& operator=(const BoundOp&) = delete;

  KernelArgs& args() { return args_; }
  std::vector<MutableTensorView>& outputs() { return outputs_; }
  const std::string& name(size_t output) const { return args_.signature->outputs[output].name; }

 private:
  static size_t Letter(char letter) { return static_cast<size_t>(letter) & 127; }

  void Bind(const TensorSpec& spec, const Dims& shape) {
    const int lead = shape.rank() - static_cast<int>(spec.dims.dims.size());
    if (spec.dims.leading) leading_ = Dims(shape.span().first(static_cast<size_t>(lead)));
    for (size_t i = 0; i < spec.dims.dims.size(); ++i) {
      const DimPattern& dim = spec.dims.dims[i];
      const int64_t size = shape[lead + static_cast<int>(i)];
      if (dim.letter != 0) letters_[Letter(dim.letter)] = size / dim.factor;
    }
  }

  int64_t Size(const DimPattern& dim) const {
    if (dim.attribute >= 0) return attributes_[static_cast<size_t>(dim.attribute)].integer;
    return dim.letter == 0 ? dim.factor : dim.factor * letters_[Letter(dim.letter)];
  }

  AttributeValue Value(const AttributeSpec& spec, const OpCall& call) const {
    AttributeValue value;
    value.kind = spec.kind;
    const auto number = call.numbers.find(spec.name);
    const auto integer = call.integers.find(spec.name);
    value.number = number != call.numbers.end() ? number->second : spec.default_number.value_or(0);
    if (spec.kind == AttributeKind::kF32) value.number = static_cast<float>(value.number);
    value.integer = spec.default_integer.value_or(0);
    if (spec.default_same_dtype) {
      const std::string& same = args_.signature->inputs[spec.same_dtype_as].name;
      value.integer = static_cast<int64_t>(args_.Input(same).dtype);
    }
    if (integer != call.integers.end()) value.integer = integer->second;
    return value;
  }

  DType OutputDType(const TensorSpec& spec) const {
    if (spec.dtype_attribute >= 0) {
      return static_cast<DType>(attributes_[static_cast<size_t>(spec.dtype_attribute)].integer);
    }
    if (spec.same_dtype_as >= 0) {
      return args_.Input(args_.signature->inputs[spec.same_dtype_as].name).dtype;
    }
    return spec.dtypes.front();
  }

  std::string contract_;
  std::vector<TensorView> inputs_;
  std::vector<int32_t> begin_;
  std::vector<AttributeValue> attributes_;
  std::vector<MutableTensorView> outputs_;
  std::array<int64_t, 128> letters_ = {};
  Dims leading_;
  KernelArgs args_;
};

inline const void* OnTheHost(const OpTensor& tensor) { return tensor.bytes.data(); }

inline constexpr int64_t kOpGuard = 256;
inline constexpr std::byte kOpCanary{0xa5};

// Runs on the host; outputs lie between guards and hold canaries before the launch.
template <typename Launch>
OpOutputs RunOpWith(const OpCall& call, const Launch& launch, DType golden = DType::kUnspecified,
                    ThreadPool* pool = nullptr) {
  BoundOp bound(call, &OnTheHost, golden);
  bound.args().pool = pool;
  std::vector<std::vector<std::byte>> memory(bound.outputs().size());
  for (size_t i = 0; i < memory.size(); ++i) {
    MutableTensorView& output = bound.outputs()[i];
    if (!output.present()) continue;
    memory[i].assign(static_cast<size_t>(output.bytes() + 2 * kOpGuard), kOpCanary);
    output.data = memory[i].data() + kOpGuard;
  }
  if (const auto validate = OpMethod(call).decl.validate; validate != nullptr) {
    const absl::Status valid = validate(bound.args());
    EXPECT_TRUE(valid.ok()) << valid;
  }
  const absl::Status status = launch(bound.args());
  EXPECT_TRUE(status.ok()) << status;
  OpOutputs outputs;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!bound.outputs()[i].present()) continue;
    for (int64_t b = 0; b < kOpGuard; ++b) {
      EXPECT_EQ(memory[i][static_cast<size_t>(b)], kOpCanary);
      EXPECT_EQ(memory[i][memory[i].size() - 1 - static_cast<size_t>(b)], kOpCanary);
    }
    outputs[bound.name(i)] = {memory[i].begin() + kOpGuard, memory[i].end() - kOpGuard};
  }
  return outputs;
}

// The variant of a backend that takes the call; aborts where there is none.
inline const Variant& OpVariant(const OpCall& call, Backend backend) {
  BoundOp bound(call, &OnTheHost);
  for (const Variant& variant : OpMethod(call).decl.variants) {
    if (variant.backend != backend) continue;
    if (variant.applicable != nullptr && !variant.applicable(bound.args()).ok()) continue;
    for (const ContractClaim& claim : variant.contracts) {
      if (claim.contract == call.contract) return variant;
    }
  }
  fprintf(stderr, "no variant of %s for %s\n", call.contract.c_str(), call.method.c_str());
  abort();
}

inline OpOutputs RunOpCpu(const OpCall& call, ThreadPool* pool = nullptr) {
  return RunOpWith(call, OpVariant(call, Backend::kCpu).launch, DType::kUnspecified, pool);
}

// The FP64 reference.
inline std::map<std::string, std::vector<double>> RunOpGolden(const OpCall& call) {
  std::map<std::string, std::vector<double>> values;
  for (const auto& [name, bytes] : RunOpWith(call, OpMethod(call).decl.golden, DType::kF64)) {
    values[name].resize(bytes.size() / sizeof(double));
    if (!bytes.empty()) memcpy(values[name].data(), bytes.data(), bytes.size());
  }
  return values;
}

inline void ExpectSameOp(const OpOutputs& got, const OpOutputs& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (const auto& [name, bytes] : expected) {
    const auto found = got.find(name);
    ASSERT_NE(found, got.end()) << what << " " << name;
    ASSERT_EQ(found->second.size(), bytes.size()) << what << " " << name;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (found->second[i] == bytes[i]) continue;
      uint32_t a = 0, b = 0;
      memcpy(&a, &found->second[i / 4 * 4], std::min<size_t>(4, bytes.size() - i / 4 * 4));
      memcpy(&b, &bytes[i / 4 * 4], std::min<size_t>(4, bytes.size() - i / 4 * 4));
      char text[64];
      snprintf(text, sizeof(text), "word %zu: %08x, expected %08x", i / 4, a, b);
      FAIL() << what << " " << name << " " << text;
    }
  }
}

// Of each output of a call.
inline std::map<std::string, std::string> OpDigests(const OpCall& call, const OpOutputs& outputs) {
  BoundOp bound(call, &OnTheHost);
  std::map<std::string, std::string> digests;
  for (size_t i = 0; i < bound.outputs().size(); ++i) {
    if (!bound.outputs()[i].present()) continue;
    TensorView view = bound.outputs()[i].view();
    view.data = outputs.at(bound.name(i)).data();
    digests[bound.name(i)] = ComputeDigest(view).Text();
  }
  return digests;
}

// What the method's validation says of a call that it must refuse.
inline ErrorDetail OpRefusal(const OpCall& call) {
  BoundOp bound(call, &OnTheHost);
  const absl::Status status = OpMethod(call).decl.validate(bound.args());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return GetErrorDetail(status).value_or(ErrorDetail{});
}

}  // namespace rlk::test
