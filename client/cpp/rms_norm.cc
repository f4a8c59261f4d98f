#include "client/cpp/rms_norm.h"

#include <utility>

namespace rlk::client {
namespace {

std::optional<Tensor> TakeOutput(const char* name, CallResult& result) {
  for (auto& [output, tensor] : result.outputs) {
    if (output == name) return std::move(tensor);
  }
  return std::nullopt;
}

template <typename Args>
CallRequest Request(std::string method, const Args& args) {
  CallRequest request;
  request.method = std::move(method);
  request.inputs = {{"x", args.x}, {"weight", args.weight}};
  if (args.gate) request.inputs.emplace_back("gate", *args.gate);
  if (args.eps) request.attributes["eps"] = *args.eps;
  if (args.weight_offset) request.attributes["weight_offset"] = *args.weight_offset;
  if (args.activation) request.attributes["activation"] = *args.activation;
  request.options = args.options;
  request.timeout = args.timeout;
  return request;
}

absl::StatusOr<RmsNormForwardResult> Forward(const Client& client, const char* op,
                                             const RmsNormForwardArgs& args) {
  absl::StatusOr<CallResult> result = client.Call(Request(std::string(op) + ".forward", args));
  if (!result.ok()) return result.status();
  RmsNormForwardResult out;
  out.y = TakeOutput("y", *result);
  out.rstd = TakeOutput("rstd", *result);
  out.report = std::move(result->report);
  return out;
}

absl::StatusOr<RmsNormBackwardResult> Backward(const Client& client, const char* op,
                                               const RmsNormBackwardArgs& args) {
  CallRequest request = Request(std::string(op) + ".backward", args);
  request.inputs.emplace_back("grad_y", args.grad_y);
  if (args.rstd) request.inputs.emplace_back("rstd", *args.rstd);
  if (args.dweight_acc_in) request.inputs.emplace_back("dweight_acc_in", *args.dweight_acc_in);
  if (args.rows_before) request.attributes["rows_before"] = *args.rows_before;
  absl::StatusOr<CallResult> result = client.Call(request);
  if (!result.ok()) return result.status();
  RmsNormBackwardResult out;
  out.grad_x = TakeOutput("grad_x", *result);
  out.grad_weight = TakeOutput("grad_weight", *result);
  out.grad_gate = TakeOutput("grad_gate", *result);
  out.dweight_acc = TakeOutput("dweight_acc", *result);
  out.report = std::move(result->report);
  return out;
}

}  // namespace

absl::StatusOr<RmsNormForwardResult> RmsNormForward(const Client& client,
                                                    const RmsNormForwardArgs& args) {
  return Forward(client, "rms_norm", args);
}

absl::StatusOr<RmsNormBackwardResult> RmsNormBackward(const Client& client,
                                                      const RmsNormBackwardArgs& args) {
  return Backward(client, "rms_norm", args);
}

absl::StatusOr<RmsNormForwardResult> Qwen3NextRmsNormForward(const Client& client,
                                                             const RmsNormForwardArgs& args) {
  return Forward(client, "qwen3_next_rms_norm", args);
}

absl::StatusOr<RmsNormBackwardResult> Qwen3NextRmsNormBackward(const Client& client,
                                                               const RmsNormBackwardArgs& args) {
  return Backward(client, "qwen3_next_rms_norm", args);
}

absl::StatusOr<RmsNormForwardResult> RmsNormGatedForward(const Client& client,
                                                         const RmsNormForwardArgs& args) {
  return Forward(client, "rms_norm_gated", args);
}

absl::StatusOr<RmsNormBackwardResult> RmsNormGatedBackward(const Client& client,
                                                           const RmsNormBackwardArgs& args) {
  return Backward(client, "rms_norm_gated", args);
}

}  // namespace rlk::client
