#include "client/cpp/adaln.h"

#include <string>
#include <utility>

#include "client/cpp/typed_call.h"

namespace rlk::client {
namespace {

CallRequest ForwardRequest(std::string method, const AdalnProjection3modArgs& args) {
  CallRequest request = NewRequest(std::move(method), args);
  request.inputs = {{"temb", args.temb}, {"weight", args.weight}, {"bias", args.bias}};
  AddAttribute("fold_parts", args.fold_parts, request);
  return request;
}

}  // namespace

absl::StatusOr<AdalnProjection3modForwardResult> AdalnProjection3modForward(
    const Client& client, const AdalnProjection3modArgs& args) {
  absl::StatusOr<CallResult> result =
      client.Call(ForwardRequest("adaln_projection_3mod.forward", args));
  if (!result.ok()) return result.status();
  AdalnProjection3modForwardResult out;
  out.shift_msa = TakeOutput("shift_msa", *result);
  out.scale_msa = TakeOutput("scale_msa", *result);
  out.gate_msa = TakeOutput("gate_msa", *result);
  out.shift_mlp = TakeOutput("shift_mlp", *result);
  out.scale_mlp = TakeOutput("scale_mlp", *result);
  out.gate_mlp = TakeOutput("gate_mlp", *result);
  out.report = std::move(result->report);
  return out;
}

absl::StatusOr<AdalnProjection3modForwardTableResult> AdalnProjection3modForwardTable(
    const Client& client, const AdalnProjection3modArgs& args) {
  absl::StatusOr<CallResult> result =
      client.Call(ForwardRequest("adaln_projection_3mod.forward_table", args));
  if (!result.ok()) return result.status();
  AdalnProjection3modForwardTableResult out;
  out.table = TakeOutput("table", *result);
  out.report = std::move(result->report);
  return out;
}

absl::StatusOr<AdalnProjection3modBackwardResult> AdalnProjection3modBackward(
    const Client& client, const AdalnProjection3modBackwardArgs& args) {
  CallRequest request = NewRequest("adaln_projection_3mod.backward", args);
  request.inputs = {{"temb", args.temb}, {"weight", args.weight}};
  AddInput("grad_shift_msa", args.grad_shift_msa, request);
  AddInput("grad_scale_msa", args.grad_scale_msa, request);
  AddInput("grad_gate_msa", args.grad_gate_msa, request);
  AddInput("grad_shift_mlp", args.grad_shift_mlp, request);
  AddInput("grad_scale_mlp", args.grad_scale_mlp, request);
  AddInput("grad_gate_mlp", args.grad_gate_mlp, request);
  AddAttribute("fold_parts", args.fold_parts, request);
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  AdalnProjection3modBackwardResult out;
  out.grad_temb = TakeOutput("grad_temb", *result);
  out.grad_weight = TakeOutput("grad_weight", *result);
  out.grad_bias = TakeOutput("grad_bias", *result);
  out.report = std::move(result->report);
  return out;
}

}  // namespace rlk::client
