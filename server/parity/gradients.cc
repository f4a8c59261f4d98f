#include "server/parity/gradients.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/arith/convert.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"
#include "server/engine/contract_check.h"

namespace rlk::server {
namespace {

constexpr std::string_view kGradient = "grad_";

// The output whose gradient an input is; empty where it is none.
std::string_view GradientOf(const std::string& input) {
  const std::string_view name = input;
  return name.starts_with(kGradient) ? name.substr(kGradient.size()) : std::string_view();
}

template <typename T, typename Value>
void FillAs(std::byte* data, int64_t count, const Value& value) {
  for (int64_t i = 0; i < count; ++i) {
    const T element = value(i);
    std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &element, sizeof(T));
  }
}

// `real` gives the value of a float's element, `integer` that of an integer's.
template <typename Real, typename Integer>
absl::StatusOr<HostTensor> Generate(DType dtype, const Dims& shape, const Real& real,
                                    const Integer& integer) {
  RLK_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> data, AllocateElements(dtype, shape));
  const int64_t count = ElementCount(shape);
  const auto single = [&](int64_t i) { return static_cast<float>(real(i)); };
  switch (dtype) {
    case DType::kF64:
      FillAs<double>(data.get(), count, real);
      break;
    case DType::kF32:
      FillAs<float>(data.get(), count, single);
      break;
    case DType::kF16:
      FillAs<uint16_t>(data.get(), count, [&](int64_t i) { return arith::FloatToF16(single(i)); });
      break;
    case DType::kBF16:
      FillAs<uint16_t>(data.get(), count, [&](int64_t i) { return arith::FloatToBf16(single(i)); });
      break;
    case DType::kI32:
      FillAs<int32_t>(data.get(), count,
                      [&](int64_t i) { return static_cast<int32_t>(integer(i)); });
      break;
    case DType::kI64:
      FillAs<int64_t>(data.get(), count,
                      [&](int64_t i) { return static_cast<int64_t>(integer(i)); });
      break;
    default:
      return InvalidArgument(Reason::kDtypeNotAllowed, "gradient", DTypeName(dtype),
                             "F64, F32, F16, BF16, I32, I64", "no values are made of this dtype");
  }
  return HostTensor{dtype, shape, std::move(data)};
}

// The dtype of a generated gradient: that of the output where the backward takes it, otherwise the
// first that it takes.
absl::StatusOr<DType> GradientDType(const ValueCall& backward, const TensorSpec& spec,
                                    DType output) {
  std::vector<DType> allowed = spec.dtypes;
  if (spec.same_dtype_as >= 0) {
    const TensorSpec& same = backward.signature().inputs[static_cast<size_t>(spec.same_dtype_as)];
    if (const HostTensor* tensor = InputOf(backward, same.name); tensor != nullptr) {
      allowed.push_back(tensor->dtype);
    }
  }
  if (std::find(allowed.begin(), allowed.end(), output) != allowed.end()) return output;
  if (!allowed.empty()) return allowed.front();
  return InvalidArgument(Reason::kDtypeNotAllowed, spec.name, DTypeName(output), "none",
                         "the backward takes no dtype for this gradient");
}

absl::StatusOr<HostTensor> MakeGradient(const ValueCall& backward, const TensorSpec& spec,
                                        const HostTensor& output, int32_t output_spec,
                                        const GradientOptions& options) {
  if (const auto given = options.given.find(spec.name); given != options.given.end()) {
    return given->second;
  }
  RLK_ASSIGN_OR_RETURN(const DType dtype, GradientDType(backward, spec, output.dtype));
  if (options.mode == GradientOptions::Mode::kOnes) return OnesTensor(dtype, output.shape);
  return NormalTensor(dtype, output.shape, options.seed + static_cast<uint64_t>(output_spec));
}

// Whether the backward's attribute can be what the forward's was.
bool Carries(const AttributeSpec& from, const AttributeSpec& to, const Call::GivenAttribute& given,
             const ValueCall& backward) {
  if (from.kind != to.kind) return false;
  if (to.kind != AttributeKind::kDType) return true;
  const auto dtype = static_cast<DType>(given.integer);
  if (std::find(to.dtypes.begin(), to.dtypes.end(), dtype) != to.dtypes.end()) return true;
  if (to.same_dtype_as < 0) return false;
  const TensorSpec& same = backward.signature().inputs[static_cast<size_t>(to.same_dtype_as)];
  const HostTensor* const tensor = InputOf(backward, same.name);
  return tensor != nullptr && tensor->dtype == dtype;
}

void CarryAttributes(const ValueCall& forward, ValueCall& backward) {
  for (const Call::GivenAttribute& given : forward.attributes) {
    const AttributeSpec& from = forward.signature().attributes[static_cast<size_t>(given.spec)];
    const int32_t spec = FindAttribute(backward.signature(), from.name);
    if (spec < 0) continue;
    const AttributeSpec& to = backward.signature().attributes[static_cast<size_t>(spec)];
    if (!Carries(from, to, given, backward)) continue;
    Call::GivenAttribute carried = given;
    carried.spec = spec;
    backward.attributes.push_back(carried);
  }
}

// By default what is not on request, and with it the gradients of the forward's inputs that are.
std::vector<std::string> WantedGradients(const ValueCall& forward, const Method& backward) {
  std::vector<std::string> wanted;
  for (const TensorSpec& spec : backward.signature.outputs) {
    const std::string_view of = GradientOf(spec.name);
    const bool of_input = !of.empty() && InputOf(forward, of) != nullptr;
    if (!spec.on_request || of_input) wanted.push_back(spec.name);
  }
  return wanted;
}

absl::Status Missing(const Method& backward, std::string_view input) {
  return InvalidArgument(Reason::kMissingTensor, input, "absent",
                         "an input or output of the forward, or a gradient of one of its outputs",
                         "no tensor of the forward call is this input of " + backward.decl.method);
}

// The saved output that a refusal asks for; nullopt where it says something else.
std::optional<std::string> AskedOutput(const absl::Status& status, const Method& forward) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  if (!detail || detail->reason != Reason::kMissingTensor) return std::nullopt;
  if (FindOutput(forward.signature, detail->field) < 0) return std::nullopt;
  return detail->field;
}

}  // namespace

absl::StatusOr<HostTensor> NormalTensor(DType dtype, const Dims& shape, uint64_t seed) {
  const auto bits = [seed](int64_t i) { return RandomBits(seed, static_cast<uint64_t>(i)); };
  return Generate(
      dtype, shape, [&](int64_t i) { return NearlyNormal(bits(i)); },
      [&](int64_t i) { return bits(i) % 256; });
}

absl::StatusOr<HostTensor> OnesTensor(DType dtype, const Dims& shape) {
  return Generate(
      dtype, shape, [](int64_t) { return 1.0; }, [](int64_t) { return 1; });
}

absl::StatusOr<std::vector<const Method*>> BackwardMethods(const Registry& registry,
                                                           const Method& forward) {
  std::vector<const Method*> found;
  for (const auto& method : registry.methods()) {
    const MethodSignature& signature = method->signature;
    if (signature.operator_name != forward.signature.operator_name ||
        signature.direction != Direction::kBackward) {
      continue;
    }
    const bool takes =
        std::any_of(signature.inputs.begin(), signature.inputs.end(), [&](const TensorSpec& input) {
          const std::string_view of = GradientOf(input.name);
          return !of.empty() && FindOutput(forward.signature, of) >= 0;
        });
    if (takes) found.push_back(method.get());
  }
  if (!found.empty()) return found;
  const std::string gradient = std::string(kGradient) + forward.signature.outputs.front().name;
  return InvalidArgument(Reason::kMissingTensor, gradient, "no input of a backward method",
                         "a forward whose operator has a backward of its outputs",
                         "there is no gradient of " + forward.decl.method);
}

std::set<std::string> SavedOutputs(const Method& forward,
                                   const std::vector<const Method*>& backwards) {
  std::set<std::string> saved;
  for (const Method* backward : backwards) {
    for (const TensorSpec& input : backward->signature.inputs) {
      if (input.optional || FindInput(forward.signature, input.name) >= 0) continue;
      const int32_t output = FindOutput(forward.signature, input.name);
      if (output < 0) continue;
      if (forward.signature.outputs[static_cast<size_t>(output)].on_request) {
        saved.insert(input.name);
      }
    }
  }
  return saved;
}

absl::StatusOr<ValueCall> BackwardCall(const ValueCall& forward,
                                       const std::vector<ValueOutput>& outputs,
                                       const Method& backward, const GradientOptions& options,
                                       const std::set<std::string>& saved) {
  ValueCall call;
  call.method = &backward;
  const MethodSignature& from = forward.signature();
  const std::vector<TensorSpec>& specs = backward.signature.inputs;
  // First what the forward had: the dtypes of gradients may follow it.
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto spec = static_cast<int32_t>(i);
    if (const HostTensor* tensor = InputOf(forward, specs[i].name); tensor != nullptr) {
      SetInput(call, spec, *tensor);
    } else if (FindOutput(from, specs[i].name) >= 0) {
      if (specs[i].optional && saved.count(specs[i].name) == 0) continue;
      const HostTensor* const output = OutputOf(from, outputs, specs[i].name);
      if (output == nullptr) return Missing(backward, specs[i].name);
      SetInput(call, spec, *output);
    }
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (InputOf(call, specs[i].name) != nullptr) continue;
    const std::string_view of = GradientOf(specs[i].name);
    const HostTensor* const output = of.empty() ? nullptr : OutputOf(from, outputs, of);
    if (output == nullptr) {
      if (specs[i].optional) continue;
      return Missing(backward, specs[i].name);
    }
    RLK_ASSIGN_OR_RETURN(HostTensor gradient,
                         MakeGradient(call, specs[i], *output, FindOutput(from, of), options));
    SetInput(call, static_cast<int32_t>(i), std::move(gradient));
  }
  CarryAttributes(forward, call);
  call.wanted_outputs = WantedGradients(forward, backward);
  return call;
}

namespace {

// One side's runs of a forward call and its gradients.
class GradientRun {
 public:
  GradientRun(const ValueCall& call, CallRunner& runner, const GradientOptions& options,
              std::byte fill, CheckContext& context)
      : forward_(call), runner_(runner), options_(options), fill_(fill), context_(context) {}

  absl::Status Forward(const std::vector<const Method*>& backwards) {
    ValueCall call = forward_;
    const std::set<std::string> saved = SavedOutputs(*call.method, backwards);
    if (!saved.empty()) {
      if (call.wanted_outputs.empty()) call.wanted_outputs = DefaultOutputs(call.signature());
      for (const std::string& name : saved) AddName(call.wanted_outputs, name);
    }
    RLK_ASSIGN_OR_RETURN(MethodRun run, runner_.Run(call, fill_, context_));
    outputs_ = run.outputs;
    runs_.push_back({std::move(call), std::move(run)});
    return absl::OkStatus();
  }

  absl::Status Backward(const Method& backward) {
    std::set<std::string> saved;
    for (;;) {
      RLK_ASSIGN_OR_RETURN(ValueCall call,
                           BackwardCall(forward_, outputs_, backward, options_, saved));
      absl::StatusOr<MethodRun> run = runner_.Run(call, fill_, context_);
      if (run.ok()) {
        runs_.push_back({std::move(call), *std::move(run)});
        return absl::OkStatus();
      }
      const std::optional<std::string> asked = AskedOutput(run.status(), *forward_.method);
      if (!asked || !saved.insert(*asked).second) return std::move(run).status();
      RLK_RETURN_IF_ERROR(Save(*asked));
    }
  }

  std::vector<RunOf> Take() { return std::move(runs_); }

 private:
  static std::vector<std::string> DefaultOutputs(const MethodSignature& signature) {
    std::vector<std::string> names;
    for (const TensorSpec& spec : signature.outputs) {
      if (!spec.on_request) names.push_back(spec.name);
    }
    return names;
  }

  static void AddName(std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }

  // Computes an output that the first run left out.
  absl::Status Save(const std::string& name) {
    if (OutputOf(forward_.signature(), outputs_, name) != nullptr) return absl::OkStatus();
    ValueCall call = forward_;
    call.wanted_outputs = {name};
    RLK_ASSIGN_OR_RETURN(MethodRun run, runner_.Run(call, fill_, context_));
    for (ValueOutput& output : run.outputs) outputs_.push_back(std::move(output));
    return absl::OkStatus();
  }

  const ValueCall& forward_;
  CallRunner& runner_;
  const GradientOptions& options_;
  const std::byte fill_;
  CheckContext& context_;
  // Of the forward.
  std::vector<ValueOutput> outputs_;
  std::vector<RunOf> runs_;
};

}  // namespace

absl::StatusOr<std::vector<RunOf>> RunWithGradients(const Registry& registry, CallRunner& runner,
                                                    const ValueCall& call, bool gradients,
                                                    const GradientOptions& options, std::byte fill,
                                                    CheckContext& context) {
  std::vector<const Method*> backwards;
  if (gradients) {
    RLK_ASSIGN_OR_RETURN(backwards, BackwardMethods(registry, *call.method));
  }
  GradientRun run(call, runner, options, fill, context);
  RLK_RETURN_IF_ERROR(run.Forward(backwards));
  for (const Method* backward : backwards) RLK_RETURN_IF_ERROR(run.Backward(*backward));
  return run.Take();
}

}  // namespace rlk::server
