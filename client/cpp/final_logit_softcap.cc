#include "client/cpp/final_logit_softcap.h"

#include <utility>

#include "kernels/core/status.h"

namespace rlk::client {
namespace {

// The reply's only output, and what the report says.
absl::StatusOr<Tensor> TakeOutput(const char* name, CallResult& result) {
  for (auto& [output, tensor] : result.outputs) {
    if (output == name) return std::move(tensor);
  }
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, name, "", "", 0},
                   "the reply lacks this output");
}

}  // namespace

absl::StatusOr<FinalLogitSoftcapForwardResult> FinalLogitSoftcapForward(
    const Client& client, const FinalLogitSoftcapForwardArgs& args) {
  CallRequest request;
  request.method = "final_logit_softcap.forward";
  request.inputs = {{"x", args.x}};
  if (args.softcap) request.attributes["softcap"] = *args.softcap;
  if (args.output_dtype) request.attributes["output_dtype"] = *args.output_dtype;
  request.options = args.options;
  request.timeout = args.timeout;
  RLK_ASSIGN_OR_RETURN(CallResult result, client.Call(request));
  FinalLogitSoftcapForwardResult out;
  RLK_ASSIGN_OR_RETURN(out.y, TakeOutput("y", result));
  out.report = std::move(result.report);
  return out;
}

absl::StatusOr<FinalLogitSoftcapBackwardResult> FinalLogitSoftcapBackward(
    const Client& client, const FinalLogitSoftcapBackwardArgs& args) {
  CallRequest request;
  request.method = "final_logit_softcap.backward";
  request.inputs = {{"x", args.x}, {"grad_y", args.grad_y}};
  if (args.softcap) request.attributes["softcap"] = *args.softcap;
  request.options = args.options;
  request.timeout = args.timeout;
  RLK_ASSIGN_OR_RETURN(CallResult result, client.Call(request));
  FinalLogitSoftcapBackwardResult out;
  RLK_ASSIGN_OR_RETURN(out.grad_x, TakeOutput("grad_x", result));
  out.report = std::move(result.report);
  return out;
}

}  // namespace rlk::client
