// The client's tensors on the server, and calls that are too large for a message.
#include <algorithm>
#include <utility>

#include "client/cpp/client_impl.h"
#include "client/cpp/message.h"
#include "client/cpp/status_map.h"
#include "client/cpp/stream.h"
#include "client/cpp/uploaded_inputs.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"

namespace rlk::client {
namespace {

// What a request holds besides its tensors.
constexpr int64_t kFramingBytes = int64_t{16} << 10;
constexpr size_t kReleaseMax = 256;

absl::Status CheckContiguous(const TensorRef& tensor) {
  if (!tensor.strides || IsContiguous(tensor.shape, *tensor.strides)) return absl::OkStatus();
  return InvalidArgument(Reason::kInvalidStrides, "tensor", "strides", "C order",
                         "only a tensor in C order can stay on the server");
}

std::string DigestOf(const TensorRef& tensor) {
  const Dims strides = ContiguousStrides(tensor.shape);
  return ComputeDigest({tensor.dtype, tensor.shape, strides, tensor.data}).Text();
}

// A message above the limit is the server's word on the reply.
bool ReplyWasTooLarge(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail && detail->reason == Reason::kMessageTooLarge && detail->field == "reply";
}

// The server may go on with a call that ended so here.
bool MayRun(const absl::Status& status) {
  if (status.ok()) return false;
  const bool given_up =
      absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) || absl::IsUnavailable(status);
  return given_up || !GetErrorDetail(status);
}

}  // namespace

absl::StatusOr<std::string> Client::Session() const { return impl_->session->Require(); }

absl::StatusOr<Arena> Client::OpenArena(ArenaKind kind, int64_t bytes,
                                        const std::string& device_uuid) const {
  RLK_ASSIGN_OR_RETURN(std::shared_ptr<SideConnection> side, impl_->session->RequireSide());
  return Arena::Open(std::move(side), kind, bytes, device_uuid);
}

absl::StatusOr<LeasedSession> Client::OpenSession(std::chrono::milliseconds lease) const {
  grpc::ClientContext context;
  impl_->Prepare(std::nullopt, context);
  rlk::v1::OpenSessionRequest request;
  request.set_lease_ms(lease.count());
  rlk::v1::OpenSessionResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->sessions->OpenSession(&context, request, &response)));
  return LeasedSession{response.token(), std::chrono::milliseconds(response.lease_ms())};
}

absl::StatusOr<LeasedSession> Client::RenewSession(std::chrono::milliseconds lease) const {
  grpc::ClientContext context;
  impl_->Prepare(std::nullopt, context);
  rlk::v1::RenewSessionRequest request;
  request.set_lease_ms(lease.count());
  rlk::v1::RenewSessionResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->sessions->RenewSession(&context, request, &response)));
  return LeasedSession{impl_->session->token(), std::chrono::milliseconds(response.lease_ms())};
}

absl::Status Client::CloseSession() const {
  grpc::ClientContext context;
  impl_->Prepare(std::nullopt, context);
  rlk::v1::CloseSessionResponse response;
  return FromGrpc(impl_->sessions->CloseSession(&context, {}, &response));
}

absl::StatusOr<ResidentTensor> Client::Put(const TensorRef& tensor,
                                           const PutOptions& options) const {
  RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(tensor, "tensor"));
  RLK_RETURN_IF_ERROR(CheckContiguous(tensor));
  RLK_RETURN_IF_ERROR(impl_->session->Require().status());
  if (options.reuse && options.lease.count() == 0) {
    grpc::ClientContext context;
    impl_->Prepare(options.timeout, context);
    rlk::v1::FindTensorRequest request;
    request.set_digest(DigestOf(tensor));
    request.set_device_uuid(options.device_uuid);
    rlk::v1::FindTensorResponse response;
    RLK_RETURN_IF_ERROR(FromGrpc(impl_->tensors->FindTensor(&context, request, &response)));
    if (response.has_tensor()) return FromDescription(response.tensor());
  }
  rlk::v1::UploadHeader header;
  header.set_dtype(static_cast<rlk::v1::DataType>(tensor.dtype));
  for (const int64_t size : tensor.shape) header.add_shape(size);
  header.set_device_uuid(options.device_uuid);
  header.set_label(options.label);
  header.set_lease_ms(options.lease.count());
  grpc::ClientContext context;
  impl_->Prepare(options.timeout, context);
  return UploadStream(*impl_->stub, context, header, tensor, bytes, options);
}

absl::StatusOr<Tensor> Client::Get(const ResidentTensor& tensor, const GetOptions& options) const {
  RLK_RETURN_IF_ERROR(impl_->session->Require().status());
  grpc::ClientContext context;
  impl_->Prepare(options.timeout, context);
  rlk::v1::DownloadRequest request;
  *request.mutable_handle() = tensor.handle;
  Tensor result;
  const auto place =
      [&result](const ResidentTensor& found) -> absl::StatusOr<std::span<std::byte>> {
    RLK_ASSIGN_OR_RETURN(result, Tensor::Allocate(found.dtype, found.shape.span()));
    return result.mutable_bytes();
  };
  RLK_RETURN_IF_ERROR(DownloadStream(*impl_->stub, context, request, place, options));
  return result;
}

absl::Status Client::GetInto(const ResidentTensor& tensor, int64_t offset, std::span<std::byte> to,
                             const GetOptions& options) const {
  if (to.empty()) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(impl_->session->Require().status());
  grpc::ClientContext context;
  impl_->Prepare(options.timeout, context);
  rlk::v1::DownloadRequest request;
  *request.mutable_handle() = tensor.handle;
  request.mutable_handle()->set_offset(static_cast<uint64_t>(offset));
  request.set_bytes(static_cast<int64_t>(to.size()));
  return DownloadStream(
      *impl_->stub, context, request,
      [to](const ResidentTensor&) { return absl::StatusOr<std::span<std::byte>>(to); }, options);
}

absl::Status Client::Release(const std::vector<ResidentTensor>& tensors) const {
  for (size_t at = 0; at < tensors.size(); at += kReleaseMax) {
    rlk::v1::ReleaseTensorsRequest request;
    for (size_t i = at; i < std::min(tensors.size(), at + kReleaseMax); ++i) {
      *request.add_handles() = tensors[i].handle;
    }
    grpc::ClientContext context;
    impl_->Prepare(std::nullopt, context);
    rlk::v1::ReleaseTensorsResponse response;
    RLK_RETURN_IF_ERROR(FromGrpc(impl_->tensors->ReleaseTensors(&context, request, &response)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ResidentTensor> Client::Describe(const rlk::v1::TensorHandle& handle) const {
  grpc::ClientContext context;
  impl_->Prepare(std::nullopt, context);
  rlk::v1::DescribeTensorRequest request;
  *request.mutable_handle() = handle;
  rlk::v1::DescribeTensorResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->tensors->DescribeTensor(&context, request, &response)));
  return FromDescription(response.tensor());
}

absl::StatusOr<std::vector<ResidentTensor>> Client::ListTensors() const {
  std::vector<ResidentTensor> tensors;
  rlk::v1::ListTensorsRequest request;
  do {
    grpc::ClientContext context;
    impl_->Prepare(std::nullopt, context);
    rlk::v1::ListTensorsResponse response;
    RLK_RETURN_IF_ERROR(FromGrpc(impl_->tensors->ListTensors(&context, request, &response)));
    for (const auto& tensor : response.tensors()) tensors.push_back(FromDescription(tensor));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return tensors;
}

absl::StatusOr<ResidentTensor> Client::Renew(const ResidentTensor& tensor,
                                             std::chrono::milliseconds lease) const {
  grpc::ClientContext context;
  impl_->Prepare(std::nullopt, context);
  rlk::v1::RenewTensorRequest request;
  *request.mutable_handle() = tensor.handle;
  request.set_lease_ms(lease.count());
  rlk::v1::RenewTensorResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->tensors->RenewTensor(&context, request, &response)));
  return FromDescription(response.tensor());
}

absl::StatusOr<std::vector<ResidentTensor>> Client::Load(
    const std::string& path, const std::vector<ExpectedTensor>& manifest,
    const LoadOptions& options) const {
  RLK_RETURN_IF_ERROR(impl_->session->Require().status());
  rlk::v1::LoadTensorsRequest request;
  request.set_path(path);
  request.set_synthetic(options.synthetic);
  request.set_device_uuid(options.device_uuid);
  request.set_lease_ms(options.lease.count());
  for (const ExpectedTensor& expected : manifest) {
    rlk::v1::ExpectedTensor& entry = *request.add_manifest();
    entry.set_key(expected.key);
    entry.set_dtype(static_cast<rlk::v1::DataType>(expected.dtype));
    for (const int64_t size : expected.shape) entry.add_shape(size);
    entry.set_sha256(expected.sha256);
    entry.set_path(expected.path);
  }
  grpc::ClientContext context;
  impl_->Prepare(options.timeout, context);
  rlk::v1::LoadTensorsResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->tensors->LoadTensors(&context, request, &response)));
  std::vector<ResidentTensor> tensors;
  for (const auto& tensor : response.tensors()) tensors.push_back(FromDescription(tensor));
  return tensors;
}

namespace {

// Whether the inputs fit in one message.
bool FitsInline(const CallRequest& request, int64_t inline_bytes_max) {
  int64_t total = kFramingBytes;
  for (const auto& [name, input] : request.inputs) {
    if (input.resident || input.arena) continue;
    const auto bytes = SourceBytes(input, name);
    if (!bytes.ok()) return true;  // the encoder says what is wrong
    if (__builtin_add_overflow(total, *bytes, &total)) return false;
  }
  return total <= inline_bytes_max;
}

}  // namespace

absl::StatusOr<CallResult> Client::Call(const CallRequest& request) const {
  RLK_ASSIGN_OR_RETURN(const wire::MethodBinding* const method, FindMethod(request.method));
  absl::StatusOr<CallResult> result = absl::UnknownError("");
  if (FitsInline(request, impl_->options.inline_bytes_max)) {
    result = CallInline(*method, request);
    if (ReplyWasTooLarge(result.status()) && impl_->session->token().empty()) {
      // Nothing was computed. With a session the reply can stay on the server.
      RLK_RETURN_IF_ERROR(impl_->session->Require().status());
      result = CallInline(*method, request);
    }
  } else {
    result = CallLarge(*method, request);
  }
  if (result.ok()) RLK_RETURN_IF_ERROR(FetchMoved(method->signature, *result));
  return result;
}

absl::Status Client::SideStatus() const { return impl_->session->RequireSide().status(); }

absl::StatusOr<CallResult> Client::CallLarge(const wire::MethodBinding& method,
                                             const CallRequest& request) const {
  CallRequest smaller = request;
  std::string problem;
  RLK_ASSIGN_OR_RETURN(auto staged, impl_->staging->Stage(*this, smaller, &problem));
  if (staged) {
    absl::StatusOr<CallResult> result = CallInline(method, smaller);
    if (MayRun(result.status())) staged->Discard();
    return result;
  }
  UploadedInputs uploaded(*this);
  RLK_RETURN_IF_ERROR(uploaded.Upload(smaller.inputs, smaller.timeout));
  absl::StatusOr<CallResult> result = CallInline(method, smaller);
  if (result.ok()) result->slower = std::move(problem);
  return result;
}

// Outputs that nobody asked to keep come after the reply.
absl::Status Client::FetchMoved(const MethodSignature& signature, CallResult& result) const {
  // Most replies have none, and their report is not looked at here.
  if (result.residents.empty()) return absl::OkStatus();
  const auto& moved = result.report->moved_to_resident();
  if (moved.empty()) return absl::OkStatus();
  std::vector<ResidentTensor> fetched;
  absl::Status status;
  for (const std::string& name : moved) {
    const ResidentTensor* const tensor = result.Resident(name);
    if (tensor == nullptr) continue;
    fetched.push_back(*tensor);
    if (!status.ok()) continue;
    absl::StatusOr<Tensor> output = Get(*tensor);
    status = output.status();
    if (status.ok()) result.outputs.emplace_back(name, *std::move(output));
  }
  const auto rank = [&signature](const std::string& name) {
    const auto& outputs = signature.outputs;
    return std::find_if(outputs.begin(), outputs.end(),
                        [&name](const TensorSpec& spec) { return spec.name == name; }) -
           outputs.begin();
  };
  std::sort(result.outputs.begin(), result.outputs.end(),
            [&rank](const auto& a, const auto& b) { return rank(a.first) < rank(b.first); });
  std::erase_if(result.residents, [&moved](const auto& entry) {
    return std::find(moved.begin(), moved.end(), entry.first) != moved.end();
  });
  RLK_RETURN_IF_ERROR(Release(fetched));
  return status;
}

}  // namespace rlk::client
