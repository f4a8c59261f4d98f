#include "tests/unit/parity/probe_op.h"

#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/registry/golden_variant.h"
#include "server/parity/gradients.h"

namespace rlk::test {
namespace {

constexpr int64_t kColumns = 6;

void FlipLastBit(float& value) { value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1); }

void WriteY(const KernelArgs& args, Fault fault) {
  const TensorView& x = args.Input("x");
  const float* const w = args.Input("weight").as<float>();
  float* const y = args.Output("y").as<float>();
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    for (int64_t k = 0; k < kColumns; ++k) {
      const int64_t at = t * kColumns + k;
      if (fault == Fault::kUnwrittenTile && t == 1 && k >= 2 && k < 4) continue;
      y[at] = x.as<float>()[at] * w[k];
      if (fault == Fault::kReadsNeighbour && t > 0) {
        y[at] += 0x1p-20f * x.as<float>()[at - kColumns];
      }
      if (fault == Fault::kPositionDependent && t % 8 == 7) FlipLastBit(y[at]);
    }
  }
  static std::atomic<int64_t> launches{0};
  if (fault == Fault::kOneInAThousand && ++launches % 1000 == 0) FlipLastBit(y[3]);
  if (fault == Fault::kCreatesNan) y[2] = std::numeric_limits<float>::quiet_NaN();
}

void WriteSums(const KernelArgs& args, Fault fault) {
  const TensorView& x = args.Input("x");
  const float* const w = args.Input("weight").as<float>();
  float* const s = args.Output("s").as<float>();
  const bool halves = fault == Fault::kBatchDependentSum && x.shape[0] > 4;
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    float sums[2] = {0, 0};
    for (int64_t k = 0; k < kColumns; ++k) {
      sums[halves && k >= kColumns / 2 ? 1 : 0] += x.as<float>()[t * kColumns + k] * w[k];
    }
    s[t] = sums[0] + sums[1];
  }
}

absl::Status ForwardCpu(const KernelArgs& args) {
  const auto fault = static_cast<Fault>(args.I64("fault"));
  if (fault == Fault::kFails) {
    return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, {}, {}, {}}, "planted");
  }
  if (args.Output("y").present()) WriteY(args, fault);
  if (args.Output("s").present()) WriteSums(args, fault);
  return absl::OkStatus();
}

absl::Status BackwardCpu(const KernelArgs& args) {
  const bool carry_last = static_cast<Fault>(args.I64("fault")) == Fault::kCarryAddedLast;
  const TensorView& x = args.Input("x");
  const float* const w = args.Input("weight").as<float>();
  const float* const g = args.Input("grad_y").as<float>();
  const float* const carry = args.Input("dweight_acc_in").as<float>();
  if (float* const dx = args.Output("grad_x").as<float>(); dx != nullptr) {
    for (int64_t at = 0; at < x.elements(); ++at) dx[at] = g[at] * w[at % kColumns];
  }
  for (int64_t k = 0; k < kColumns; ++k) {
    float sum = carry != nullptr && !carry_last ? carry[k] : 0;
    for (int64_t t = 0; t < x.shape[0]; ++t) {
      sum += g[t * kColumns + k] * x.as<float>()[t * kColumns + k];
    }
    if (carry != nullptr && carry_last) sum += carry[k];
    if (float* const out = args.Output("grad_weight").as<float>(); out != nullptr) out[k] = sum;
    if (float* const out = args.Output("dweight_acc").as<float>(); out != nullptr) out[k] = sum;
  }
  return absl::OkStatus();
}

absl::Status ForwardGolden(const KernelArgs& args) {
  const TensorView& x = args.Input("x");
  const float* const w = args.Input("weight").as<float>();
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    double sum = 0;
    for (int64_t k = 0; k < kColumns; ++k) {
      const int64_t at = t * kColumns + k;
      const double y = double{x.as<float>()[at]} * w[k];
      sum += y;
      if (args.Output("y").present()) args.Output("y").as<double>()[at] = y;
    }
    if (args.Output("s").present()) args.Output("s").as<double>()[t] = sum;
  }
  return absl::OkStatus();
}

absl::Status BackwardGolden(const KernelArgs& args) {
  const TensorView& x = args.Input("x");
  const float* const w = args.Input("weight").as<float>();
  const float* const g = args.Input("grad_y").as<float>();
  for (int64_t k = 0; k < kColumns; ++k) {
    double sum = 0;
    for (int64_t t = 0; t < x.shape[0]; ++t) {
      const int64_t at = t * kColumns + k;
      sum += double{g[at]} * x.as<float>()[at];
      if (args.Output("grad_x").present()) {
        args.Output("grad_x").as<double>()[at] = double{g[at]} * w[k];
      }
    }
    if (args.Output("grad_weight").present()) args.Output("grad_weight").as<double>()[k] = sum;
  }
  return absl::OkStatus();
}

absl::Status RoundedForward(const KernelArgs& args) {
  return LaunchGoldenRounded(&ForwardGolden, args);
}
absl::Status RoundedBackward(const KernelArgs& args) {
  return LaunchGoldenRounded(&BackwardGolden, args);
}

TensorSpec Spec(const char* name, std::vector<DimPattern> dims, const char* text) {
  TensorSpec spec;
  spec.name = name;
  spec.dtypes = {DType::kF32};
  spec.dims.dims = std::move(dims);
  spec.dims_text = text;
  return spec;
}

TensorSpec Rows(const char* name) { return Spec(name, {{1, 'T'}, {1, 'K'}}, "T,K"); }
TensorSpec Weight(const char* name) { return Spec(name, {{1, 'K'}}, "K"); }

AttributeSpec Integer(const char* name) {
  AttributeSpec spec;
  spec.name = name;
  spec.kind = AttributeKind::kI64;
  spec.default_integer = 0;
  return spec;
}

MethodSignature Signature(bool backward) {
  MethodSignature signature;
  signature.method = backward ? "probe.backward" : "probe.forward";
  signature.operator_name = "probe";
  signature.rpc = backward ? "/rlk.test.Probe/Backward" : "/rlk.test.Probe/Forward";
  signature.op_class = OpClass::kReduction;
  signature.attributes = {Integer("fault")};
  signature.inputs = {Rows("x"), Weight("weight")};
  if (!backward) {
    signature.outputs = {Rows("y"), Spec("s", {{1, 'T'}}, "T")};
    return signature;
  }
  signature.direction = Direction::kBackward;
  signature.attributes.push_back(Integer("rows_before"));
  signature.inputs.push_back(Rows("grad_y"));
  signature.inputs.push_back(Weight("dweight_acc_in"));
  signature.inputs.back().optional = true;
  signature.outputs = {Rows("grad_x"), Weight("grad_weight"), Weight("dweight_acc")};
  signature.outputs.back().on_request = true;
  return signature;
}

template <typename S>
std::vector<std::string> Names(const std::vector<S>& specs) {
  std::vector<std::string> names;
  for (const S& spec : specs) names.push_back(spec.name);
  return names;
}

MethodDecl Declare(bool backward) {
  const MethodSignature signature = Signature(backward);
  MethodDecl decl;
  decl.method = signature.method;
  decl.inputs = Names(signature.inputs);
  decl.attributes = Names(signature.attributes);
  decl.outputs = Names(signature.outputs);
  decl.contracts = {{"probe/v1", "left to right"}, {"probe/golden-f64", "FP64"}};
  Variant cpu;
  cpu.backend = Backend::kCpu;
  cpu.kernel = "probe_cpu";
  cpu.contracts = {{"probe/v1", ClaimLevel::kL1BatchInvariant}};
  cpu.launch = backward ? &BackwardCpu : &ForwardCpu;
  Variant golden;
  golden.backend = Backend::kGolden;
  golden.kernel = "probe_golden";
  golden.contracts = {{"probe/golden-f64", ClaimLevel::kL1BatchInvariant}};
  golden.launch = backward ? &RoundedBackward : &RoundedForward;
  decl.variants = {cpu, golden};
  decl.golden = backward ? &BackwardGolden : &ForwardGolden;
  return decl;
}

}  // namespace

std::unique_ptr<Registry> MakeProbeRegistry() {
  auto registry = std::make_unique<Registry>();
  registry->SetBackend(Backend::kCpu, {.available = true, .reason = ""});
  registry->SetBackend(Backend::kGolden, {.available = true, .reason = ""});
  registry->Add(Declare(false));
  registry->Add(Declare(true));
  if (absl::Status status = registry->Bind({Signature(false), Signature(true)}); !status.ok()) {
    std::fprintf(stderr, "probe registry: %s\n", status.ToString().c_str());
    std::abort();
  }
  return registry;
}

server::ValueCall ProbeCall(const Registry& registry, int64_t rows, Fault fault) {
  server::ValueCall call;
  call.method = registry.Find("probe.forward");
  auto x = server::NormalTensor(DType::kF32, {rows, kColumns}, 7);
  auto weight = server::NormalTensor(DType::kF32, {kColumns}, 8);
  if (!x.ok() || !weight.ok()) std::abort();
  call.inputs = {{0, *std::move(x)}, {1, *std::move(weight)}};
  call.attributes = {{.spec = 0, .number = 0, .integer = static_cast<int64_t>(fault)}};
  return call;
}

}  // namespace rlk::test
