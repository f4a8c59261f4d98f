#include "client/cpp/checks.h"

#include "client/cpp/client_impl.h"
#include "client/cpp/message.h"
#include "client/cpp/status_map.h"
#include "client/cpp/uploaded_inputs.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

std::string Flat(const wire::OutputBytes& pieces) {
  std::string bytes;
  for (const wire::OutputPiece& piece : pieces) {
    bytes += piece.text;
    bytes.append(reinterpret_cast<const char*>(piece.payload.data()), piece.payload.size());
  }
  return bytes;
}

// What is large is on the server afterwards.
absl::Status FillInvocation(const Client& client, const CallRequest& call, UploadedInputs& uploaded,
                            rlk::v1::Invocation& out) {
  RLK_ASSIGN_OR_RETURN(const wire::MethodBinding* const method, client.FindMethod(call.method));
  CallRequest smaller = call;
  RLK_RETURN_IF_ERROR(uploaded.Upload(smaller.inputs, call.timeout));
  RLK_ASSIGN_OR_RETURN(const wire::OutputBytes bytes,
                       EncodeRequest(*method, smaller, kInlineBytesMax));
  out.set_method(call.method);
  out.mutable_request()->set_type_url("type.googleapis.com/" +
                                      method->descriptor->input_type()->full_name());
  out.mutable_request()->set_value(Flat(bytes));
  return absl::OkStatus();
}

absl::Status FillTensors(const NamedTensors& tensors, const CallRequest& call,
                         UploadedInputs& uploaded,
                         google::protobuf::RepeatedPtrField<rlk::v1::NamedTensor>& out) {
  NamedTensors smaller = tensors;
  RLK_RETURN_IF_ERROR(uploaded.Upload(smaller, call.timeout));
  for (const auto& [name, tensor] : smaller) {
    RLK_ASSIGN_OR_RETURN(const int64_t bytes,
                         tensor.resident ? absl::StatusOr<int64_t>(0) : SourceBytes(tensor, name));
    rlk::v1::NamedTensor& entry = *out.Add();
    entry.set_name(name);
    rlk::v1::Tensor& message = *entry.mutable_tensor();
    message.set_dtype(static_cast<rlk::v1::DataType>(tensor.dtype));
    for (const int64_t size : tensor.shape) message.add_shape(size);
    if (tensor.strides) {
      for (const int64_t stride : *tensor.strides) message.add_strides(stride);
    }
    if (tensor.resident) {
      *message.mutable_resident() = *tensor.resident;
    } else {
      message.set_data(tensor.data, static_cast<size_t>(bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status FillSide(const CheckSide& side, const CallRequest& call, UploadedInputs& uploaded,
                      rlk::v1::ParitySide& out) {
  out.set_backend(side.backend);
  for (const std::string& contract : side.contracts) out.add_contracts(contract);
  out.set_device_uuid(side.device_uuid);
  out.set_mode(side.mode);
  out.set_server(side.server);
  return FillTensors(side.provided, call, uploaded, *out.mutable_provided());
}

template <typename Request>
absl::Status FillGradients(const std::optional<CheckGradients>& gradients, const CallRequest& call,
                           UploadedInputs& uploaded, Request& request) {
  if (!gradients) return absl::OkStatus();
  rlk::v1::GradientOptions& out = *request.mutable_gradients();
  out.set_mode(gradients->mode);
  out.set_seed(gradients->seed);
  return FillTensors(gradients->given, call, uploaded, *out.mutable_given());
}

}  // namespace

absl::StatusOr<rlk::v1::CheckParityResponse> CheckParity(const Client& client,
                                                         const ParityCheck& check) {
  UploadedInputs uploaded(client);
  rlk::v1::CheckParityRequest request;
  RLK_RETURN_IF_ERROR(FillInvocation(client, check.call, uploaded, *request.mutable_invocation()));
  RLK_RETURN_IF_ERROR(FillSide(check.left, check.call, uploaded, *request.mutable_left()));
  RLK_RETURN_IF_ERROR(FillSide(check.right, check.call, uploaded, *request.mutable_right()));
  request.set_judgment(check.judgment);
  RLK_RETURN_IF_ERROR(FillGradients(check.gradients, check.call, uploaded, request));
  return client.CheckParity(request, check.call.timeout);
}

absl::StatusOr<rlk::v1::CheckInvarianceResponse> CheckInvariance(const Client& client,
                                                                 const InvarianceCheck& check) {
  UploadedInputs uploaded(client);
  rlk::v1::CheckInvarianceRequest request;
  RLK_RETURN_IF_ERROR(FillInvocation(client, check.call, uploaded, *request.mutable_invocation()));
  for (const rlk::v1::InvarianceAxis axis : check.axes) request.add_axes(axis);
  request.set_seed(check.seed);
  request.set_repeats(check.repeats);
  request.set_concurrency(check.concurrency);
  for (const std::string& contract : check.contracts) request.add_contracts(contract);
  RLK_RETURN_IF_ERROR(FillGradients(check.gradients, check.call, uploaded, request));
  return client.CheckInvariance(request, check.call.timeout);
}

absl::StatusOr<rlk::v1::CheckParityResponse> Client::CheckParity(
    const rlk::v1::CheckParityRequest& request,
    std::optional<std::chrono::milliseconds> timeout) const {
  grpc::ClientContext context;
  impl_->Prepare(timeout, context);
  rlk::v1::CheckParityResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->parity->CheckParity(&context, request, &response)));
  return response;
}

absl::StatusOr<rlk::v1::CheckInvarianceResponse> Client::CheckInvariance(
    const rlk::v1::CheckInvarianceRequest& request,
    std::optional<std::chrono::milliseconds> timeout) const {
  grpc::ClientContext context;
  impl_->Prepare(timeout, context);
  rlk::v1::CheckInvarianceResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->parity->CheckInvariance(&context, request, &response)));
  return response;
}

}  // namespace rlk::client
