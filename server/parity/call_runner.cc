#include "server/parity/call_runner.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

int64_t InputBytes(const ValueCall& call) {
  int64_t bytes = 0;
  for (const ValueInput& input : call.inputs) bytes += input.tensor.bytes();
  return bytes;
}

Call ToCall(const ValueCall& values, const SideOptions& options, std::byte fill,
            const CheckContext& context) {
  Call call;
  call.method = values.method;
  for (const ValueInput& input : values.inputs) {
    TensorArg& tensor = call.inputs.emplace_back();
    tensor.spec = input.spec;
    tensor.dtype = input.tensor.dtype;
    tensor.shape = input.tensor.shape;
    tensor.strides = ContiguousStrides(tensor.shape);
    tensor.data = ToHostBytes(input.tensor);
  }
  call.attributes = values.attributes;
  call.options.contract = ContractFor(*values.method, options.contracts);
  call.options.backend = options.backend;
  call.options.device_uuid = options.device_uuid;
  call.options.allow_fallback = options.allow_fallback;
  call.options.minimum_claim = ClaimLevel::kNone;
  call.options.digest_tensors = options.digests;
  call.options.wanted_outputs = values.wanted_outputs;
  call.message_bytes = InputBytes(values);
  call.received = std::chrono::steady_clock::now();
  call.deadline = context.interrupt().deadline;
  call.cancelled = context.flag();
  call.in_process = true;
  call.output_fill = fill;
  return call;
}

}  // namespace

std::string ContractFor(const Method& method, const std::vector<std::string>& contracts) {
  for (const std::string& contract : contracts) {
    if (method.HasContract(contract)) return contract;
  }
  return {};
}

absl::Status CheckContracts(const std::vector<std::string>& contracts,
                            const std::vector<const Method*>& methods) {
  for (const std::string& contract : contracts) {
    const bool known = std::any_of(methods.begin(), methods.end(), [&](const Method* method) {
      return method->HasContract(contract);
    });
    if (known) continue;
    std::vector<std::string> ids;
    for (const Method* method : methods) {
      for (const Contract& candidate : method->decl.contracts) {
        if (std::find(ids.begin(), ids.end(), candidate.id) == ids.end()) {
          ids.push_back(candidate.id);
        }
      }
    }
    std::string allowed;
    for (const std::string& id : ids) allowed += (allowed.empty() ? "" : ", ") + id;
    return InvalidArgument(Reason::kUnknownContract, "contracts", contract, allowed,
                           "no method of the check has this contract");
  }
  return absl::OkStatus();
}

absl::StatusOr<MethodRun> EngineRunner::Run(const ValueCall& call, std::byte fill,
                                            CheckContext& context) {
  RLK_RETURN_IF_ERROR(context.CheckCaller());
  RLK_RETURN_IF_ERROR(context.Charge(1, InputBytes(call)));
  // Shared: the engine's thread may still be inside set_value when the result is here.
  auto done = std::make_shared<std::promise<absl::StatusOr<CallResult>>>();
  std::future<absl::StatusOr<CallResult>> future = done->get_future();
  engine_->Submit(
      ToCall(call, options_, fill, context),
      [done](absl::StatusOr<CallResult>&& outcome) { done->set_value(std::move(outcome)); });
  absl::StatusOr<CallResult> result = context.Await(std::move(future), [] {});
  if (!result.ok()) {
    // The engine says no more than that nobody waits.
    RLK_RETURN_IF_ERROR(context.CheckCaller());
    return std::move(result).status();
  }
  MethodRun run;
  run.method = call.method;
  int64_t output_bytes = 0;
  for (const OutputTensor& output : result->outputs) {
    const TensorView view{output.dtype, output.shape, ContiguousStrides(output.shape), nullptr};
    RLK_ASSIGN_OR_RETURN(HostTensor tensor, ToHostTensor(view, output.data));
    output_bytes += tensor.bytes();
    run.outputs.push_back({output.spec, std::move(tensor)});
  }
  run.report = std::move(result->report);
  RLK_RETURN_IF_ERROR(context.Charge(0, output_bytes));
  return run;
}

}  // namespace rlk::server
