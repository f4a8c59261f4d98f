// Any registered operator behind the C interface of the benchmark scripts: the shipped launchers.
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/ops/det_linear/det_linear.h"
#include "kernels/ops/timestep_mlp_fp32/timestep_mlp_fp32.h"
#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"

#define RLK_EXPORT extern "C" __attribute__((visibility("default")))

// A contiguous tensor in device memory.
struct OpBenchTensor {
  const char* name;
  int64_t dtype;  // rlk.v1.DataType
  int64_t rank;
  int64_t shape[4];
  void* data;
};

struct OpBenchAttribute {
  const char* name;
  double value;  // integers and enums too
};

struct OpBenchCall {
  const char* method;
  const char* contract;
  const OpBenchTensor* inputs;
  const OpBenchTensor* outputs;
  const OpBenchAttribute* attributes;
  int64_t input_count, output_count, attribute_count;
  void* workspace;
  int64_t workspace_bytes;  // filled in
};

namespace {

using rlk::Dims;
using rlk::DType;

// A declared method with the names that the launchers look up.
struct Declared {
  rlk::MethodDecl decl;
  rlk::MethodSignature signature;
};

const Declared* Find(const std::string& method) {
  static const std::map<std::string, Declared> declared = [] {
    std::map<std::string, Declared> methods;
    const auto add = [&](std::vector<rlk::MethodDecl> decls) {
      for (rlk::MethodDecl& decl : decls) {
        Declared& entry = methods[decl.method];
        for (const std::string& name : decl.inputs) {
          entry.signature.inputs.emplace_back().name = name;
        }
        for (const std::string& name : decl.attributes) {
          entry.signature.attributes.emplace_back().name = name;
        }
        for (const std::string& name : decl.outputs) {
          entry.signature.outputs.emplace_back().name = name;
        }
        entry.decl = std::move(decl);
      }
    };
    add(rlk::DeclareDetLinear());
    add(rlk::DeclareTimestepSinusoidH3(true));
    add(rlk::DeclareTimestepMlpFp32());
    return methods;
  }();
  const auto found = declared.find(method);
  return found == declared.end() ? nullptr : &found->second;
}

template <typename Entry>
const Entry* ByName(const Entry* entries, int64_t count, const std::string& name) {
  for (int64_t i = 0; i < count; ++i) {
    if (name == entries[i].name) return &entries[i];
  }
  return nullptr;
}

Dims ShapeOf(const OpBenchTensor& tensor) {
  return Dims(std::span<const int64_t>(tensor.shape, static_cast<size_t>(tensor.rank)));
}

const rlk::Variant* VariantOf(const Declared& method, const rlk::KernelArgs& args) {
  for (const rlk::Variant& variant : method.decl.variants) {
    if (variant.backend != rlk::Backend::kCuda) continue;
    if (variant.applicable != nullptr && !variant.applicable(args).ok()) continue;
    for (const rlk::ContractClaim& claim : variant.contracts) {
      if (claim.contract == args.contract) return &variant;
    }
  }
  return nullptr;
}

// Launches, or only fills in workspace_bytes. 0 is success.
int Run(OpBenchCall* call, void* stream, bool launch) {
  const Declared* method = Find(call->method);
  if (method == nullptr) return 2;
  std::vector<rlk::TensorView> inputs;
  std::vector<int32_t> begin;
  for (const rlk::TensorSpec& spec : method->signature.inputs) {
    begin.push_back(static_cast<int32_t>(inputs.size()));
    const OpBenchTensor* tensor = ByName(call->inputs, call->input_count, spec.name);
    if (tensor == nullptr) continue;
    const Dims shape = ShapeOf(*tensor);
    inputs.push_back(
        {static_cast<DType>(tensor->dtype), shape, rlk::ContiguousStrides(shape), tensor->data});
  }
  begin.push_back(static_cast<int32_t>(inputs.size()));
  std::vector<rlk::AttributeValue> attributes;
  for (const rlk::AttributeSpec& spec : method->signature.attributes) {
    rlk::AttributeValue value;
    const auto* given = ByName(call->attributes, call->attribute_count, spec.name);
    if (given != nullptr) {
      value.number = static_cast<float>(given->value);
      value.integer = static_cast<int64_t>(given->value);
    }
    attributes.push_back(value);
  }
  std::vector<rlk::MutableTensorView> outputs;
  for (const rlk::TensorSpec& spec : method->signature.outputs) {
    rlk::MutableTensorView view;
    const OpBenchTensor* tensor = ByName(call->outputs, call->output_count, spec.name);
    if (tensor != nullptr) {
      view = {static_cast<DType>(tensor->dtype), ShapeOf(*tensor), tensor->data};
    }
    outputs.push_back(view);
  }
  rlk::KernelArgs args;
  args.signature = &method->signature;
  args.contract = call->contract;
  args.inputs = inputs;
  args.input_begin = begin;
  args.outputs = outputs;
  args.attributes = attributes;
  args.stream = {stream};
  const rlk::Variant* variant = VariantOf(*method, args);
  if (variant == nullptr) return 2;
  if (!launch) {
    call->workspace_bytes =
        variant->workspace_bytes == nullptr ? 0 : variant->workspace_bytes(args);
    return 0;
  }
  args.workspace = {static_cast<std::byte*>(call->workspace),
                    static_cast<size_t>(call->workspace_bytes)};
  return variant->launch(args).ok() ? 0 : 1;
}

}  // namespace

RLK_EXPORT int rlk_bench_op_workspace(OpBenchCall* call) { return Run(call, nullptr, false); }
RLK_EXPORT int rlk_bench_op(OpBenchCall* call, void* stream) { return Run(call, stream, true); }
