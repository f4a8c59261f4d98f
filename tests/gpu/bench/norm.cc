// The RMSNorm family behind the C interface of the benchmark script: the shipped launchers.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/ops/rms_norm/rms_norm.h"

#define RLK_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using rlk::Dims;
using rlk::DType;

// A declared method with the part of its signature that the launchers look up.
struct Declared {
  rlk::MethodSignature signature;
  rlk::Variant variant;
};

const Declared* Find(const std::string& method) {
  static const std::map<std::string, Declared> declared = [] {
    std::map<std::string, Declared> methods;
    for (const rlk::MethodDecl& decl : rlk::DeclareRmsNorm()) {
      Declared entry;
      for (const std::string& name : decl.inputs) entry.signature.inputs.emplace_back().name = name;
      for (const std::string& name : decl.attributes) {
        entry.signature.attributes.emplace_back().name = name;
      }
      for (const std::string& name : decl.outputs) {
        entry.signature.outputs.emplace_back().name = name;
      }
      for (const rlk::Variant& variant : decl.variants) {
        if (variant.backend == rlk::Backend::kCuda) entry.variant = variant;
      }
      methods[decl.method] = std::move(entry);
    }
    return methods;
  }();
  const auto found = declared.find(method);
  return found == declared.end() || found->second.variant.launch == nullptr ? nullptr
                                                                            : &found->second;
}

}  // namespace

// Contiguous tensors in device memory; a null input is absent, a null output not wanted. x, gate,
// grad_y and the outputs of their shape are of x_dtype and [rows, length].
struct NormBenchCall {
  const char* method;
  const char* contract;
  int64_t x_dtype, weight_dtype, rows, length;
  double weight_offset;
  const void *x, *weight, *gate, *grad_y, *rstd;
  void *y, *grad_weight, *grad_gate;  // y: also grad_x
  void* workspace;
  int64_t workspace_bytes;  // filled in
};

namespace {

// Launches, or only fills in workspace_bytes. The library's error text is the script's concern only
// where a launch fails, so a number will do: 0 is success.
int Run(NormBenchCall* call, void* stream, bool launch) {
  const Declared* method = Find(call->method);
  if (method == nullptr) return 2;
  const auto x_dtype = static_cast<DType>(call->x_dtype);
  const auto weight_dtype = static_cast<DType>(call->weight_dtype);
  const Dims full = {call->rows, call->length}, row = {call->length}, column = {call->rows};
  std::vector<rlk::TensorView> inputs;
  std::vector<int32_t> begin;
  const auto add = [&](DType dtype, const Dims& shape, const void* data) {
    if (data != nullptr) inputs.push_back({dtype, shape, rlk::ContiguousStrides(shape), data});
  };
  for (const rlk::TensorSpec& spec : method->signature.inputs) {
    begin.push_back(static_cast<int32_t>(inputs.size()));
    if (spec.name == "x") add(x_dtype, full, call->x);
    if (spec.name == "weight") add(weight_dtype, row, call->weight);
    if (spec.name == "gate") add(x_dtype, full, call->gate);
    if (spec.name == "grad_y") add(x_dtype, full, call->grad_y);
    if (spec.name == "rstd") add(DType::kF32, column, call->rstd);
  }
  begin.push_back(static_cast<int32_t>(inputs.size()));
  std::vector<rlk::AttributeValue> attributes(method->signature.attributes.size());
  for (size_t i = 0; i < attributes.size(); ++i) {
    const std::string& name = method->signature.attributes[i].name;
    if (name == "eps") attributes[i].number = 1e-6f;
    if (name == "weight_offset") attributes[i].number = call->weight_offset;
    if (name == "activation") attributes[i].integer = 1;
  }
  std::vector<rlk::MutableTensorView> outputs;
  for (const rlk::TensorSpec& spec : method->signature.outputs) {
    rlk::MutableTensorView view;
    if (spec.name == "y" || spec.name == "grad_x") view = {x_dtype, full, call->y};
    if (spec.name == "grad_gate") view = {x_dtype, full, call->grad_gate};
    if (spec.name == "grad_weight") view = {weight_dtype, row, call->grad_weight};
    outputs.push_back(view.data != nullptr ? view : rlk::MutableTensorView());
  }
  rlk::KernelArgs args;
  args.signature = &method->signature;
  args.contract = call->contract;
  args.inputs = inputs;
  args.input_begin = begin;
  args.outputs = outputs;
  args.attributes = attributes;
  args.stream = {stream};
  if (!launch) {
    const auto workspace_bytes = method->variant.workspace_bytes;
    call->workspace_bytes = workspace_bytes == nullptr ? 0 : workspace_bytes(args);
    return 0;
  }
  args.workspace = {static_cast<std::byte*>(call->workspace),
                    static_cast<size_t>(call->workspace_bytes)};
  return method->variant.launch(args).ok() ? 0 : 1;
}

}  // namespace

RLK_EXPORT int rlk_bench_norm_workspace(NormBenchCall* call) { return Run(call, nullptr, false); }
RLK_EXPORT int rlk_bench_norm(NormBenchCall* call, void* stream) { return Run(call, stream, true); }
