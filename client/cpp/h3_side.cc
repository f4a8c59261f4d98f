#include "client/cpp/h3_side.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "client/cpp/uploaded_inputs.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

constexpr int64_t kModalities = 3;

uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// "random:SHAPE:bf16:SEED".
absl::StatusOr<Tensor> MakeGradient(const Dims& shape, uint64_t seed) {
  RLK_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DType::kBF16, shape.span()));
  uint64_t i = 0;
  for (uint16_t& element : tensor.mutable_as<uint16_t>()) {
    element = ToBf16(static_cast<float>(NearlyNormal(RandomBits(seed, i++))));
  }
  return tensor;
}

bool IsBackward(const H3StageSpec& stage) {
  return std::string(stage.method).ends_with(".backward");
}

void AddAttributes(const H3StageSpec& stage, const H3Weights& weights, const H3RunOptions& options,
                   CallRequest& request) {
  if (!request.method.starts_with("timestep_sinusoid_h3.")) return;
  request.attributes["max_period"] = options.max_period;
  if (!IsBackward(stage)) request.attributes["num_channels"] = weights.sizes.channels;
}

std::string ContractOf(const H3StageSpec& stage, const std::vector<std::string>& contracts) {
  const std::string method = stage.method;
  const std::string operator_name = method.substr(0, method.find('.'));
  for (const std::string& contract : contracts) {
    if (contract.substr(0, contract.find('/')) == operator_name) return contract;
  }
  return "";
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string DigestOf(const rlk::v1::CallReport& report, const std::string& output) {
  for (const auto& digest : report.output_digests()) {
    if (digest.name() == output) return digest.digest();
  }
  return "";
}

// A tensor as an input of a call on that device: inline where it is small.
absl::StatusOr<H3Value> Place(const Client& client, const TensorRef& tensor,
                              const std::string& device_uuid, const H3RunOptions& options,
                              KeptTensors& kept) {
  RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(tensor, "tensor"));
  if (bytes < kUploadFrom) return H3Value{.ref = tensor};
  RLK_ASSIGN_OR_RETURN(ResidentTensor placed, client.Put(tensor, {.device_uuid = device_uuid,
                                                                  .label = "input of a chain",
                                                                  .timeout = options.timeout}));
  kept.Add(placed);
  return H3Value{.ref = placed.ref(), .resident = placed};
}

absl::StatusOr<H3Values> TakeOutputs(const H3StageSpec& stage, CallResult& result,
                                     KeptTensors& kept) {
  for (const auto& [name, tensor] : result.residents) kept.Add(tensor);
  H3Values outputs;
  for (const auto& [output, name] : stage.outputs) {
    H3Value& value = outputs[name];
    value.digest = DigestOf(*result.report, output);
    if (const ResidentTensor* const resident = result.Resident(output)) {
      value.ref = resident->ref();
      value.resident = *resident;
    } else if (const Tensor* const tensor = result.Output(output)) {
      value.ref = tensor->ref();
    } else {
      return absl::InternalError(std::string(stage.method) + " gave no " + output);
    }
  }
  return outputs;
}

}  // namespace

KeptTensors::~KeptTensors() {
  // One at a time: a session that has ended took its tensors along.
  for (const ResidentTensor& tensor : tensors_) (void)client_.Release({tensor});
}

absl::Status KeptTensors::Drop(const ResidentTensor& tensor) {
  std::erase_if(tensors_, [&tensor](const ResidentTensor& each) {
    return each.handle.id() == tensor.handle.id();
  });
  return client_.Release({tensor});
}

absl::StatusOr<H3StageRun> RunH3Stage(const Client& client, const H3StageSpec& stage,
                                      const H3Values& values, const H3Weights& weights,
                                      const H3RunOptions& options,
                                      const std::vector<std::string>& inline_outputs,
                                      KeptTensors& kept) {
  CallRequest request{.method = stage.method};
  for (const auto& [input, name] : stage.inputs) {
    request.inputs.emplace_back(input, values.at(name).ref);
  }
  AddAttributes(stage, weights, options, request);
  request.options.set_backend(options.backend);
  request.options.set_contract(ContractOf(stage, options.contracts));
  request.options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  request.timeout = options.timeout;
  for (const auto& [output, name] : stage.outputs) {
    request.options.add_wanted_outputs(output);
    if (Contains(inline_outputs, name)) continue;
    (*request.options.mutable_outputs())[output].mutable_resident();
  }
  const auto begin = std::chrono::steady_clock::now();
  RLK_ASSIGN_OR_RETURN(CallResult result, client.Call(request));
  H3StageRun run;
  run.call.stage = stage.name;
  run.call.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RLK_ASSIGN_OR_RETURN(run.outputs, TakeOutputs(stage, result, kept));
  RLK_RETURN_IF_ERROR(result.report.status());
  run.call.report = *result.report;
  return run;
}

absl::StatusOr<H3Values> StartH3Values(const Client& client, const H3Weights& weights,
                                       const TensorRef& timesteps, const H3RunOptions& options,
                                       bool gradients, KeptTensors& kept) {
  H3Values values;
  values["timestep"].ref = timesteps;
  for (const H3Role& role : H3Roles(weights.sizes)) {
    const ResidentTensor& tensor = weights.Role(role.name);
    values[role.name] = {.ref = tensor.ref(), .resident = tensor};
  }
  if (!gradients) return values;
  const int64_t count = timesteps.shape.rank() == 1 ? timesteps.shape[0] : 0;
  const Dims shape = {kModalities * count, weights.sizes.width};
  for (size_t i = 0; i < std::size(kH3Views); ++i) {
    RLK_ASSIGN_OR_RETURN(const Tensor made, MakeGradient(shape, options.gradient_seed + i));
    RLK_ASSIGN_OR_RETURN(values[std::string("grad_") + kH3Views[i]],
                         Place(client, made.ref(), weights.device_uuid(), options, kept));
  }
  return values;
}

absl::StatusOr<H3Run> RunH3Chain(const Client& client, const H3Weights& weights,
                                 const TensorRef& timesteps, const H3RunOptions& options) {
  RLK_ASSIGN_OR_RETURN(const auto stages, SelectH3Stages(options.stages, options.backward));
  RLK_RETURN_IF_ERROR(CheckH3Contracts(options.contracts));
  KeptTensors inputs(client), outputs(client);
  RLK_ASSIGN_OR_RETURN(H3Values values, StartH3Values(client, weights, timesteps, options,
                                                      stages.size() > kH3ForwardStages, inputs));
  H3Run run;
  for (size_t i = 0; i < stages.size(); ++i) {
    std::vector<std::string> sent_again;
    for (const auto& [output, name] : stages[i]->outputs) {
      if (options.through_client && TakenLater(stages, i + 1, name)) sent_again.emplace_back(name);
    }
    RLK_ASSIGN_OR_RETURN(H3StageRun made, RunH3Stage(client, *stages[i], values, weights, options,
                                                     sent_again, outputs));
    for (auto& [name, value] : made.outputs) {
      if (value.resident) run.tensors[name] = *value.resident;
      values[name] = std::move(value);
    }
    run.calls.push_back(std::move(made.call));
  }
  outputs.Forget();
  return run;
}

}  // namespace rlk::client
