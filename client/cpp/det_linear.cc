#include "client/cpp/det_linear.h"

#include <utility>

#include "client/cpp/typed_call.h"

namespace rlk::client {

absl::StatusOr<DetLinearForwardResult> DetLinearForward(const Client& client,
                                                        const DetLinearForwardArgs& args) {
  CallRequest request = NewRequest("det_linear.forward", args);
  request.inputs = {{"x", args.x}, {"weight", args.weight}};
  AddInput("bias", args.bias, request);
  AddAttribute("activation", args.activation, request);
  AddAttribute("output_dtype", args.output_dtype, request);
  AddAttribute("fold_parts", args.fold_parts, request);
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  DetLinearForwardResult out;
  out.y = TakeOutput("y", *result);
  out.pre = TakeOutput("pre", *result);
  out.report = std::move(result->report);
  return out;
}

absl::StatusOr<DetLinearBackwardInputResult> DetLinearBackwardInput(
    const Client& client, const DetLinearBackwardInputArgs& args) {
  CallRequest request = NewRequest("det_linear.backward_input", args);
  request.inputs = {{"grad_y", args.grad_y}, {"weight", args.weight}};
  AddInput("pre", args.pre, request);
  AddAttribute("activation", args.activation, request);
  AddAttribute("output_dtype", args.output_dtype, request);
  AddAttribute("fold_parts", args.fold_parts, request);
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  DetLinearBackwardInputResult out;
  out.grad_x = TakeOutput("grad_x", *result);
  out.report = std::move(result->report);
  return out;
}

absl::StatusOr<DetLinearBackwardWeightResult> DetLinearBackwardWeight(
    const Client& client, const DetLinearBackwardWeightArgs& args) {
  CallRequest request = NewRequest("det_linear.backward_weight", args);
  request.inputs = {{"grad_y", args.grad_y}, {"x", args.x}};
  AddInput("pre", args.pre, request);
  AddInput("dweight_acc_in", args.dweight_acc_in, request);
  AddInput("dbias_acc_in", args.dbias_acc_in, request);
  AddAttribute("activation", args.activation, request);
  AddAttribute("rows_before", args.rows_before, request);
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  DetLinearBackwardWeightResult out;
  out.grad_weight = TakeOutput("grad_weight", *result);
  out.grad_bias = TakeOutput("grad_bias", *result);
  out.dweight_acc = TakeOutput("dweight_acc", *result);
  out.dbias_acc = TakeOutput("dbias_acc", *result);
  out.report = std::move(result->report);
  return out;
}

}  // namespace rlk::client
