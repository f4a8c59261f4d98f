#include "server/rpc/tensor_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "proto/wire/call_parts.h"
#include "rlk/v1/tensor_service.pb.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/session_auth.h"
#include "server/rpc/status_map.h"
#include "server/rpc/tensor_messages.h"
#include "server/rpc/tensor_stream.h"
#include "server/rpc/unary.h"
#include "server/tensors/weights_file.h"

namespace rlk::server {
namespace {

constexpr int32_t kPageMax = 256;
constexpr int kHandlesMax = 256;

class TensorService final : public RawService {
 public:
  TensorService(const TensorServiceContext& context, const Gate* gate)
      : RawService(gate), context_(context) {
    const auto count = [this](const absl::Status& status, std::chrono::nanoseconds) {
      CountRefusal(context_.pooled(), status);
    };
    AddClientStream(Path("Upload"), [this](const IncomingCall& call, grpc::ByteBuffer* reply) {
      return NewUpload(context_, call, reply);
    });
    AddServerStream(
        Path("Download"),
        [this](const IncomingCall& call, const grpc::ByteBuffer& request) {
          return NewDownload(context_, call, request);
        },
        count);
    Add("FindTensor", &TensorService::Find);
    Add("DescribeTensor", &TensorService::Describe);
    Add("ListTensors", &TensorService::List);
    Add("RenewTensor", &TensorService::Renew);
    Add("ReleaseTensors", &TensorService::Release);
    AddUnary(
        Path("LoadTensors"),
        [this](const IncomingCall& call, const grpc::ByteBuffer& request, grpc::ByteBuffer* reply) {
          return LoadTensors(call, request, reply);
        },
        count);
  }

 private:
  static std::string Path(const char* method) {
    return std::string("/rlk.v1.TensorService/") + method;
  }

  template <typename Response>
  void Add(const char* method,
           absl::StatusOr<Response> (TensorService::*handler)(const IncomingCall&,
                                                              const grpc::ByteBuffer&)) {
    AddUnary(Path(method),
             [this, handler](const IncomingCall& call, const grpc::ByteBuffer& request,
                             grpc::ByteBuffer* reply) {
               return FinishUnary(call.context, (this->*handler)(call, request), reply);
             });
  }

  // A disk may take its time, and gRPC's threads may not.
  grpc::ServerUnaryReactor* LoadTensors(const IncomingCall& call, const grpc::ByteBuffer& request,
                                        grpc::ByteBuffer* reply) {
    absl::StatusOr<Loading> loading = CheckLoad(call, request);
    if (!loading.ok()) {
      CountRefusal(context_.pooled(), loading.status());
      return FinishUnary(call.context, loading.status());
    }
    std::shared_ptr<Session> session = loading->session;
    return RunOnPool(context_.pooled(), call.context, std::move(session), reply,
                     [this, loading = *std::move(loading)](const Interrupt& interrupt)
                         -> absl::StatusOr<std::unique_ptr<google::protobuf::Message>> {
                       RLK_ASSIGN_OR_RETURN(rlk::v1::LoadTensorsResponse response,
                                            Load(loading, interrupt));
                       return std::make_unique<rlk::v1::LoadTensorsResponse>(std::move(response));
                     });
  }

  struct Loading {
    std::shared_ptr<Session> session;
    rlk::v1::LoadTensorsRequest request;
    std::vector<ExpectedTensor> manifest;
  };

  template <typename Request>
  absl::StatusOr<std::pair<std::shared_ptr<Session>, Request>> Enter(
      const IncomingCall& call, const grpc::ByteBuffer& bytes) const {
    RLK_ASSIGN_OR_RETURN(auto session, RequireSession(call, *context_.sessions));
    RLK_ASSIGN_OR_RETURN(Request request, ParseRequest<Request>(bytes));
    return std::pair(std::move(session), std::move(request));
  }

  const Limits& limits() const { return context_.engine->options().limits; }

  absl::StatusOr<rlk::v1::FindTensorResponse> Find(const IncomingCall& call,
                                                   const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto entered, Enter<rlk::v1::FindTensorRequest>(call, bytes));
    const auto& [session, request] = entered;
    RLK_ASSIGN_OR_RETURN(
        const std::optional<TensorInfo> info,
        context_.store->Find(session.get(), request.digest(), request.device_uuid()));
    rlk::v1::FindTensorResponse response;
    if (info) FillDescription(*info, *response.mutable_tensor());
    return response;
  }

  absl::StatusOr<rlk::v1::DescribeTensorResponse> Describe(const IncomingCall& call,
                                                           const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto entered, Enter<rlk::v1::DescribeTensorRequest>(call, bytes));
    const auto& [session, request] = entered;
    RLK_ASSIGN_OR_RETURN(const TensorInfo info,
                         context_.store->Describe(session.get(), FromProto(request.handle())));
    rlk::v1::DescribeTensorResponse response;
    FillDescription(info, *response.mutable_tensor());
    return response;
  }

  absl::StatusOr<rlk::v1::ListTensorsResponse> List(const IncomingCall& call,
                                                    const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto entered, Enter<rlk::v1::ListTensorsRequest>(call, bytes));
    const auto& [session, request] = entered;
    if (request.page_size() < 0) {
      return InvalidArgument(Reason::kLimitExceeded, "page_size",
                             std::to_string(request.page_size()), "at least 0",
                             "the page's size is negative");
    }
    const bool most = request.page_size() == 0 || request.page_size() > kPageMax;
    const int64_t count = most ? kPageMax : request.page_size();
    RLK_ASSIGN_OR_RETURN(const std::vector<TensorInfo> infos,
                         context_.store->List(session.get(), request.page_token(), count));
    rlk::v1::ListTensorsResponse response;
    for (const TensorInfo& info : infos) FillDescription(info, *response.add_tensors());
    if (static_cast<int64_t>(infos.size()) == count) {
      response.set_next_page_token(infos.back().handle.id);
    }
    return response;
  }

  absl::StatusOr<rlk::v1::RenewTensorResponse> Renew(const IncomingCall& call,
                                                     const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto entered, Enter<rlk::v1::RenewTensorRequest>(call, bytes));
    const auto& [session, request] = entered;
    RLK_ASSIGN_OR_RETURN(
        const TensorInfo info,
        context_.store->Renew(session.get(), FromProto(request.handle()), request.lease_ms()));
    rlk::v1::RenewTensorResponse response;
    FillDescription(info, *response.mutable_tensor());
    return response;
  }

  absl::StatusOr<rlk::v1::ReleaseTensorsResponse> Release(const IncomingCall& call,
                                                          const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto entered, Enter<rlk::v1::ReleaseTensorsRequest>(call, bytes));
    const auto& [session, request] = entered;
    RLK_RETURN_IF_ERROR(CheckCount("handles", request.handles_size()));
    std::vector<TensorHandle> handles;
    for (const auto& handle : request.handles()) handles.push_back(FromProto(handle));
    RLK_RETURN_IF_ERROR(context_.store->Release(session.get(), handles));
    return rlk::v1::ReleaseTensorsResponse();
  }

  static absl::Status CheckCount(const char* field, int count) {
    if (count <= kHandlesMax) return absl::OkStatus();
    return InvalidArgument(Reason::kLimitExceeded, field, std::to_string(count),
                           "at most " + std::to_string(kHandlesMax), "the list is too long");
  }

  // The session has then counted the call.
  absl::StatusOr<Loading> CheckLoad(const IncomingCall& call, const grpc::ByteBuffer& bytes) {
    if (!context_.engine->serving()) {
      return MakeError(absl::StatusCode::kUnavailable, {Reason::kDraining, {}, {}, {}},
                       "the server is shutting down");
    }
    RLK_ASSIGN_OR_RETURN(auto entered, Enter<rlk::v1::LoadTensorsRequest>(call, bytes));
    Loading loading{std::move(entered.first), std::move(entered.second), {}};
    const rlk::v1::LoadTensorsRequest& request = loading.request;
    if (context_.weights_root.empty()) {
      return MakeError(absl::StatusCode::kFailedPrecondition,
                       {Reason::kFilesUnavailable, "path", {}, "a server with --weights-root"},
                       "this server loads no files");
    }
    RLK_RETURN_IF_ERROR(CheckCount("manifest", request.manifest_size()));
    for (const auto& expected : request.manifest()) {
      RLK_RETURN_IF_ERROR(wire::CheckText("manifest.key", expected.key(), limits()));
      ExpectedTensor& tensor = loading.manifest.emplace_back();
      tensor.key = expected.key();
      tensor.dtype = static_cast<DType>(expected.dtype());
      RLK_ASSIGN_OR_RETURN(tensor.shape,
                           ShapeFromProto("manifest.shape", expected.shape(), limits()));
      tensor.sha256 = expected.sha256();
      RLK_RETURN_IF_ERROR(wire::CheckText("manifest.path", expected.path(), limits()));
      tensor.path = expected.path();
    }
    RLK_RETURN_IF_ERROR(wire::CheckText("synthetic", request.synthetic(), limits()));
    RLK_ASSIGN_OR_RETURN(loading.session,
                         EnterSession(call, *context_.sessions, limits().session_calls_max));
    return loading;
  }

  absl::StatusOr<rlk::v1::LoadTensorsResponse> Load(const Loading& loading,
                                                    const Interrupt& interrupt) {
    const rlk::v1::LoadTensorsRequest& request = loading.request;
    RLK_ASSIGN_OR_RETURN(const std::vector<TensorInfo> infos,
                         LoadWeights({.root = context_.weights_root,
                                      .path = request.path(),
                                      .manifest = loading.manifest,
                                      .synthetic = request.synthetic(),
                                      .device_uuid = request.device_uuid(),
                                      .lease_ms = request.lease_ms(),
                                      .check = [&interrupt] { return interrupt.Check(); }},
                                     loading.session, *context_.store));
    rlk::v1::LoadTensorsResponse response;
    for (const TensorInfo& info : infos) FillDescription(info, *response.add_tensors());
    return response;
  }

  const TensorServiceContext& context_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeTensorService(const TensorServiceContext& context,
                                                 const Gate* gate) {
  return std::make_unique<TensorService>(context, gate);
}

}  // namespace rlk::server
