#include "client/cpp/timestep.h"

#include <utility>

#include "client/cpp/typed_call.h"

namespace rlk::client {

absl::StatusOr<TimestepSinusoidH3ForwardResult> TimestepSinusoidH3Forward(
    const Client& client, const TimestepSinusoidH3ForwardArgs& args) {
  CallRequest request = NewRequest("timestep_sinusoid_h3.forward", args);
  request.inputs = {{"timestep", args.timestep}};
  AddAttribute("num_channels", args.num_channels, request);
  AddAttribute("max_period", args.max_period, request);
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  TimestepSinusoidH3ForwardResult out;
  out.embedding = TakeOutput("embedding", *result);
  out.report = std::move(result->report);
  return out;
}

absl::StatusOr<TimestepSinusoidH3BackwardResult> TimestepSinusoidH3Backward(
    const Client& client, const TimestepSinusoidH3BackwardArgs& args) {
  CallRequest request = NewRequest("timestep_sinusoid_h3.backward", args);
  request.inputs = {{"grad_embedding", args.grad_embedding}, {"embedding", args.embedding}};
  AddAttribute("max_period", args.max_period, request);
  AddAttribute("timestep_dtype", args.timestep_dtype, request);
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  TimestepSinusoidH3BackwardResult out;
  out.grad_timestep = TakeOutput("grad_timestep", *result);
  out.report = std::move(result->report);
  return out;
}

absl::StatusOr<TimestepMlpFp32ForwardResult> TimestepMlpFp32Forward(
    const Client& client, const TimestepMlpFp32ForwardArgs& args) {
  CallRequest request = NewRequest("timestep_mlp_fp32.forward", args);
  request.inputs = {
      {"x", args.x}, {"w1", args.w1}, {"b1", args.b1}, {"w2", args.w2}, {"b2", args.b2}};
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  TimestepMlpFp32ForwardResult out;
  out.y = TakeOutput("y", *result);
  out.pre = TakeOutput("pre", *result);
  out.report = std::move(result->report);
  return out;
}

absl::StatusOr<TimestepMlpFp32BackwardResult> TimestepMlpFp32Backward(
    const Client& client, const TimestepMlpFp32BackwardArgs& args) {
  CallRequest request = NewRequest("timestep_mlp_fp32.backward", args);
  request.inputs = {
      {"x", args.x}, {"w1", args.w1}, {"b1", args.b1}, {"w2", args.w2}, {"grad_y", args.grad_y}};
  AddInput("pre", args.pre, request);
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  TimestepMlpFp32BackwardResult out;
  out.grad_x = TakeOutput("grad_x", *result);
  out.grad_w1 = TakeOutput("grad_w1", *result);
  out.grad_b1 = TakeOutput("grad_b1", *result);
  out.grad_w2 = TakeOutput("grad_w2", *result);
  out.grad_b2 = TakeOutput("grad_b2", *result);
  out.report = std::move(result->report);
  return out;
}

}  // namespace rlk::client
