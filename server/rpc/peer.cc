#include "server/rpc/peer.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "proto/wire/codec.h"
#include "server/rpc/byte_buffer.h"
#include "server/rpc/peer_call.h"
#include "server/rpc/peer_messages.h"
#include "server/sessions/token_file.h"

namespace rlk::server {
namespace {

// A peer's other limits leave at least this for what stands around the tensors of a request.
constexpr int64_t kFramingBytes = int64_t{16} << 10;
// Below it an input is sent inline where others are uploaded.
constexpr int64_t kSmallBytes = int64_t{16} << 10;

int64_t InputBytes(const ValueCall& call) {
  int64_t bytes = 0;
  for (const ValueInput& input : call.inputs) bytes += input.tensor.bytes();
  return bytes;
}

bool ReplyTooLarge(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail && detail->reason == Reason::kMessageTooLarge && detail->field == "server.reply";
}

absl::Status Contradiction(const std::string& address, std::string_view what) {
  return MakeError(
      absl::StatusCode::kInternal,
      {Reason::kInternal, "server", address, "a reply that makes sense"},
      absl::StrCat("the reply of the other server contradicts itself: ", std::string(what)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerList>> PeerList::Make(std::vector<std::string> addresses,
                                                         const Credentials& files) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!files.authorities.empty()) {
    grpc::SslCredentialsOptions tls;
    RLK_ASSIGN_OR_RETURN(tls.pem_root_certs, ReadPublicFile("--parity-peer-ca", files.authorities));
    credentials = grpc::SslCredentials(tls);
  }
  if (!files.token.empty()) {
    RLK_ASSIGN_OR_RETURN(std::string token,
                         ReadSecretFile("--parity-peer-token-file", files.token));
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
    if (!IsTokenText(token)) {
      return InvalidArgument(Reason::kUnknownOption, "--parity-peer-token-file", files.token,
                             "one token of letters, digits and -._~+/=", "the file has no token");
    }
    credentials =
        grpc::CompositeChannelCredentials(credentials, grpc::AccessTokenCredentials(token));
  }
  return std::unique_ptr<PeerList>(new PeerList(std::move(addresses), std::move(credentials)));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> PeerList::ChannelTo(const std::string& address) {
  if (std::find(addresses_.begin(), addresses_.end(), address) == addresses_.end()) {
    std::string allowed;
    for (const std::string& listed : addresses_) {
      absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", listed);
    }
    if (allowed.empty()) allowed = "none: --parity-peer lists no server";
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kPeerNotListed, "server", address, allowed},
                     "this server calls only those that its --parity-peer lists");
  }
  const std::lock_guard lock(mutex_);
  std::shared_ptr<grpc::Channel>& channel = channels_[address];
  if (channel == nullptr) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    channel = grpc::CreateCustomChannel(address, credentials_, arguments);
  }
  return channel;
}

PeerRunner::PeerRunner(std::string address, const std::shared_ptr<grpc::Channel>& channel,
                       SideOptions options, const Limits& limits)
    : address_(std::move(address)),
      options_(std::move(options)),
      limits_(limits),
      stub_(channel),
      sessions_(rlk::v1::SessionService::NewStub(channel)),
      tensors_(rlk::v1::TensorService::NewStub(channel)),
      inline_bytes_max_(limits.inline_bytes_max),
      chunk_bytes_max_(limits.chunk_bytes_max) {}

PeerRunner::~PeerRunner() {
  if (session_.empty()) return;
  // Whoever left, the peer gets its memory back; its lease ends what this does not reach.
  std::chrono::milliseconds goodbye(1000);
  // A caller who still waits gets the answer first of all.
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::steady_clock::now());
  if (left.count() > 0) goodbye = std::min(goodbye, left / 2);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + goodbye);
  context.AddMetadata(kPeerSessionKey, session_);
  rlk::v1::CloseSessionResponse response;
  (void)sessions_->CloseSession(&context, {}, &response);
}

absl::StatusOr<rlk::v1::GetInfoResponse> PeerRunner::GetInfo(CheckContext& context) {
  deadline_ = context.interrupt().deadline;
  PeerCall call(address_, limits_, context, session_);
  rlk::v1::GetInfoResponse info;
  RLK_RETURN_IF_ERROR(
      call.Unary(stub_, "/rlk.v1.ServerService/GetInfo", rlk::v1::GetInfoRequest(), &info));
  for (const rlk::v1::Limit& limit : info.limits()) {
    if (limit.name() == "inline_bytes_max") inline_bytes_max_ = limit.value();
    if (limit.name() == "chunk_bytes_max") {
      chunk_bytes_max_ = std::clamp<int64_t>(limit.value(), 1, limits_.chunk_bytes_max);
    }
  }
  return info;
}

absl::Status PeerRunner::OpenSession(CheckContext& context) {
  if (!session_.empty()) return absl::OkStatus();
  PeerCall call(address_, limits_, context, session_);
  rlk::v1::OpenSessionResponse response;
  RLK_RETURN_IF_ERROR(call.Unary(stub_, "/rlk.v1.SessionService/OpenSession",
                                 rlk::v1::OpenSessionRequest(), &response));
  // gRPC ends the process at a header that it cannot send.
  if (!IsTokenText(response.token())) return Contradiction(address_, "its session has no token");
  session_ = response.token();
  return absl::OkStatus();
}

absl::StatusOr<rlk::v1::TensorHandle> PeerRunner::Upload(const HostTensor& tensor,
                                                         CheckContext& context) {
  const auto found = uploaded_.find(tensor.data.get());
  if (found != uploaded_.end()) return found->second.second;
  PeerCall call(address_, limits_, context, session_);
  call.WatchCaller();
  rlk::v1::UploadResponse response;
  const auto writer = tensors_->Upload(call.context(), &response);
  rlk::v1::UploadRequest request;
  request.mutable_header()->set_dtype(static_cast<rlk::v1::DataType>(tensor.dtype));
  for (const int64_t size : tensor.shape) request.mutable_header()->add_shape(size);
  bool open = writer->Write(request);
  for (int64_t at = 0; open && at < tensor.bytes(); at += chunk_bytes_max_) {
    const int64_t size = std::min(chunk_bytes_max_, tensor.bytes() - at);
    request.set_data(tensor.data.get() + at, static_cast<size_t>(size));
    open = writer->Write(request);
  }
  writer->WritesDone();
  RLK_RETURN_IF_ERROR(call.Result(writer->Finish()));
  const rlk::v1::TensorHandle handle = response.tensor().handle();
  uploaded_[tensor.data.get()] = {tensor, handle};
  return handle;
}

absl::StatusOr<HostTensor> PeerRunner::Download(const rlk::v1::Tensor& tensor,
                                                CheckContext& context) {
  HostTensor out{static_cast<DType>(tensor.dtype()), {}, nullptr};
  RLK_ASSIGN_OR_RETURN(out.shape, PeerShape(tensor));
  RLK_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> data, AllocateElements(out.dtype, out.shape));
  PeerCall call(address_, limits_, context, session_);
  call.WatchCaller();
  rlk::v1::DownloadRequest request;
  *request.mutable_handle() = tensor.resident();
  const auto reader = tensors_->Download(call.context(), request);
  int64_t at = 0;
  bool fits = true;
  for (rlk::v1::DownloadResponse part; fits && reader->Read(&part);) {
    const auto size = static_cast<int64_t>(part.data().size());
    fits = size <= out.bytes() - at;
    if (fits) std::memcpy(data.get() + at, part.data().data(), part.data().size());
    at += size;
  }
  if (!fits) call.context()->TryCancel();
  const grpc::Status status = reader->Finish();
  if (!fits) return Contradiction(address_, "a download has more bytes than its tensor");
  RLK_RETURN_IF_ERROR(call.Result(status));
  if (at != out.bytes()) return Contradiction(address_, "a download has too few bytes");
  out.data = std::move(data);
  return out;
}

absl::StatusOr<grpc::ByteBuffer> PeerRunner::Encode(const ValueCall& call, bool upload,
                                                    CheckContext& context) {
  std::map<int32_t, rlk::v1::TensorHandle> handles;
  for (const ValueInput& input : call.inputs) {
    if (!upload || input.tensor.bytes() <= kSmallBytes) continue;
    RLK_ASSIGN_OR_RETURN(handles[input.spec], Upload(input.tensor, context));
  }
  RLK_ASSIGN_OR_RETURN(wire::OutputBytes bytes, EncodePeerCall(call, options_, handles));
  grpc::ByteBuffer buffer;
  FillBuffer(std::move(bytes), &buffer);
  return buffer;
}

absl::StatusOr<MethodRun> PeerRunner::Decode(const ValueCall& call, const grpc::ByteBuffer& reply,
                                             CheckContext& context) {
  RLK_ASSIGN_OR_RETURN(const wire::InputBytes bytes, TakeSlices(reply));
  auto decoded = DecodePeerReply(call, bytes, limits_);
  if (!decoded.ok()) return Contradiction(address_, std::string(decoded.status().message()));
  MethodRun run;
  run.method = call.method;
  run.remote_report = std::move(decoded->report);
  int64_t output_bytes = 0;
  for (PeerOutput& output : decoded->outputs) {
    if (output.resident) {
      RLK_ASSIGN_OR_RETURN(output.tensor, Download(*output.resident, context));
    }
    output_bytes += output.tensor.bytes();
    run.outputs.push_back({output.spec, std::move(output.tensor)});
  }
  RLK_RETURN_IF_ERROR(context.Charge(0, output_bytes));
  return run;
}

absl::StatusOr<MethodRun> PeerRunner::Run(const ValueCall& call, std::byte, CheckContext& context) {
  RLK_RETURN_IF_ERROR(context.CheckCaller());
  const int64_t input_bytes = InputBytes(call);
  RLK_RETURN_IF_ERROR(context.Charge(1, input_bytes));
  const bool upload = input_bytes > inline_bytes_max_ - kFramingBytes;
  if (upload) RLK_RETURN_IF_ERROR(OpenSession(context));
  for (;;) {
    RLK_ASSIGN_OR_RETURN(const grpc::ByteBuffer request, Encode(call, upload, context));
    PeerCall peer(address_, limits_, context, session_);
    absl::StatusOr<grpc::ByteBuffer> reply = peer.Unary(stub_, call.method->signature.rpc, request);
    if (reply.ok()) return Decode(call, *reply, context);
    if (!session_.empty() || !ReplyTooLarge(reply.status())) return std::move(reply).status();
    // Nothing was computed. With a session the outputs can stay there.
    RLK_RETURN_IF_ERROR(OpenSession(context));
  }
}

}  // namespace rlk::server
