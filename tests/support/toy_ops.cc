#include "tests/support/toy_ops.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/status.h"

namespace rlk::test {
namespace {

template <typename Body>
void ForEachElement(const TensorView& view, Body body) {
  const int64_t count = view.elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (int d = view.shape.rank() - 1; d >= 0; --d) {
      offset += rest % view.shape[d] * view.strides[d];
      rest /= view.shape[d];
    }
    body(i, offset);
  }
}

absl::Status ScaleLaunch(const KernelArgs& args) {
  const TensorView& x = args.Input("x");
  const float factor = args.F32("factor");
  float* const y = args.Output("y").as<float>();
  ForEachElement(x, [&](int64_t i, int64_t offset) { y[i] = factor * x.as<float>()[offset]; });
  return absl::OkStatus();
}

// A rule that only the selected contract can tell.
absl::Status ScaleValidate(const KernelArgs& args) {
  if (args.F32("factor") != kToyRefusedFactor) return absl::OkStatus();
  return InvalidArgument(Reason::kAttributeOutOfRange, "factor", std::string(args.contract),
                         "another factor", "the contract refuses the factor");
}

absl::Status ScaleGolden(const KernelArgs& args) {
  const TensorView& x = args.Input("x");
  const double factor = args.F32("factor");
  double* const y = args.Output("y").as<double>();
  ForEachElement(x, [&](int64_t i, int64_t offset) { y[i] = factor * x.as<float>()[offset]; });
  return absl::OkStatus();
}

absl::Status Zeros(const KernelArgs& args) {
  for (const MutableTensorView& output : args.outputs) {
    if (output.present()) std::memset(output.data, 0, static_cast<size_t>(output.bytes()));
  }
  return absl::OkStatus();
}

std::vector<Variant> Variants(LaunchFn launch, const std::string& contract) {
  std::vector<Variant> variants;
  for (const auto& [backend, kernel] :
       {std::pair{Backend::kCuda, "toy_cuda"}, std::pair{Backend::kCpu, "toy_cpu"}}) {
    Variant& variant = variants.emplace_back();
    variant.backend = backend;
    variant.kernel = kernel;
    variant.contracts = {{contract, ClaimLevel::kL3Portable}};
    variant.launch = launch;
  }
  return variants;
}

DimsPattern Pattern(bool leading, std::vector<DimPattern> dims) {
  return {.leading = leading, .dims = std::move(dims)};
}

TensorSpec Spec(const std::string& name, std::vector<DType> dtypes, DimsPattern dims,
                const std::string& text) {
  TensorSpec spec;
  spec.name = name;
  spec.dtypes = std::move(dtypes);
  spec.dims = std::move(dims);
  spec.dims_text = text;
  return spec;
}

MethodSignature ScaleSignature() {
  MethodSignature signature;
  signature.method = "toy.scale";
  signature.operator_name = "toy";
  signature.rpc = "/rlk.test.Toy/Scale";
  signature.inputs = {Spec("x", {DType::kF32}, Pattern(true, {}), "...")};
  AttributeSpec factor;
  factor.name = "factor";
  factor.default_number = 2;
  factor.finite = true;
  signature.attributes = {factor};
  signature.outputs = {Spec("y", {DType::kF32}, Pattern(true, {}), "...")};
  return signature;
}

std::vector<TensorSpec> RichInputs() {
  TensorSpec a =
      Spec("a", {DType::kF32, DType::kF16, DType::kBF16}, Pattern(true, {{1, 'H'}}), "..., H");
  TensorSpec b = Spec("b", {DType::kF32}, Pattern(false, {{1, 'H'}}), "H");
  b.same_dtype_as = Rich::kA;
  b.optional = true;
  TensorSpec list = Spec("list", {DType::kI32}, Pattern(false, {{1, 'T'}, {2, 'H'}}), "T, 2*H");
  list.repeated = true;
  list.max_count = 3;
  list.optional = true;
  TensorSpec fixed = Spec("fixed", {DType::kU8}, Pattern(false, {{4, 0}}), "4");
  fixed.contiguous = true;
  fixed.alignment = 16;
  fixed.optional = true;
  TensorSpec last = Spec("last", {DType::kF32}, Pattern(true, {{1, 'T'}}), "..., T");
  last.optional = true;
  return {a, b, list, fixed, last};
}

std::vector<AttributeSpec> RichAttributes() {
  AttributeSpec factor;
  factor.name = "factor";
  factor.default_number = 30;
  factor.finite = true;
  factor.greater_than = 0;
  AttributeSpec count;
  count.name = "count";
  count.kind = AttributeKind::kI64;
  count.default_integer = 8;
  count.at_least = 8;
  count.at_most = 64;
  count.multiple_of = 8;
  AttributeSpec flag;
  flag.name = "flag";
  flag.kind = AttributeKind::kBool;
  flag.default_integer = 0;
  AttributeSpec dtype;
  dtype.name = "output_dtype";
  dtype.kind = AttributeKind::kDType;
  dtype.dtypes = {DType::kF32};
  dtype.same_dtype_as = Rich::kA;
  AttributeSpec activation;
  activation.name = "activation";
  activation.kind = AttributeKind::kEnum;
  activation.default_integer = 1;
  activation.enumerators = {{1, "none"}, {2, "silu"}};
  AttributeSpec required;
  required.name = "required";
  required.less_than = 10;
  AttributeSpec wide;
  wide.name = "wide";
  wide.kind = AttributeKind::kF64;
  wide.default_number = 0;
  return {factor, count, flag, dtype, activation, required, wide};
}

MethodSignature RichSignature() {
  MethodSignature signature;
  signature.method = "toy.rich";
  signature.operator_name = "toy";
  signature.rpc = "/rlk.test.Toy/Rich";
  signature.inputs = RichInputs();
  signature.attributes = RichAttributes();
  TensorSpec y = Spec("y", {}, Pattern(true, {{1, 'H'}}), "..., H");
  y.dtype_attribute = Rich::kDType;
  TensorSpec pairs = Spec("pairs", {}, Pattern(false, {{3, 'H'}, {1, 'H'}}), "3*H, H");
  pairs.same_dtype_as = Rich::kA;
  pairs.on_request = true;
  TensorSpec scalar = Spec("scalar", {DType::kI64}, Pattern(false, {}), "");
  signature.outputs = {y, pairs, scalar};
  return signature;
}

template <typename S>
std::vector<std::string> Names(const std::vector<S>& specs) {
  std::vector<std::string> names;
  for (const S& spec : specs) names.push_back(spec.name);
  return names;
}

MethodDecl Declare(const MethodSignature& signature, LaunchFn launch, LaunchFn golden) {
  MethodDecl decl;
  decl.method = signature.method;
  decl.inputs = Names(signature.inputs);
  decl.attributes = Names(signature.attributes);
  decl.outputs = Names(signature.outputs);
  decl.contracts = {{"toy/v1", "as the tests say"}};
  decl.variants = Variants(launch, "toy/v1");
  decl.golden = golden;
  return decl;
}

}  // namespace

std::unique_ptr<Registry> MakeToyRegistry(bool cuda) {
  auto registry = std::make_unique<Registry>();
  registry->SetBackend(Backend::kCpu, {.available = true, .reason = ""});
  registry->SetBackend(Backend::kGolden, {.available = true, .reason = ""});
  registry->SetBackend(Backend::kCuda, {.available = cuda, .reason = cuda ? "" : "no CUDA device"});
  MethodSignature scale = ScaleSignature();
  MethodSignature rich = RichSignature();
  MethodDecl scale_decl = Declare(scale, &ScaleLaunch, &ScaleGolden);
  scale_decl.validate = &ScaleValidate;
  registry->Add(std::move(scale_decl));
  registry->Add(Declare(rich, &Zeros, nullptr));
  if (absl::Status status = registry->Bind({scale, rich}); !status.ok()) {
    std::fprintf(stderr, "toy registry: %s\n", status.ToString().c_str());
    std::abort();
  }
  return registry;
}

}  // namespace rlk::test
