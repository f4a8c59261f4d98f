#include "server/rpc/tensor_stream.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "kernels/core/status.h"
#include "proto/wire/call_parts.h"
#include "proto/wire/chunk.h"
#include "server/rpc/session_auth.h"
#include "server/rpc/status_map.h"
#include "server/rpc/tensor_messages.h"
#include "server/rpc/unary.h"

namespace rlk::server {
namespace {

// Cancels the stream unless it is over. The lock is recursive, because gRPC may run the end of the
// stream inside TryCancel.
class CancelHandle {
 public:
  explicit CancelHandle(grpc::CallbackServerContext* context) : context_(context) {}
  void Cancel() {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  void Over() {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  }

 private:
  std::recursive_mutex mutex_;
  grpc::CallbackServerContext* context_;
};

// What both directions have: session, counters, cancellation, the end.
class StreamGuard {
 public:
  StreamGuard(const TensorServiceContext& service, const IncomingCall& call)
      : service_(service), call_(call), cancel_(std::make_shared<CancelHandle>(call.context)) {
    service_.counter->Enter();
    EchoTraceparent(call.context);
  }

  ~StreamGuard() {
    cancel_->Over();
    if (session_ != nullptr) {
      session_->Forget(stop_);
      session_->LeaveCall();
    }
    service_.counter->Leave();
  }

  absl::Status Enter() {
    if (!service_.engine->serving()) {
      return MakeError(absl::StatusCode::kUnavailable, {Reason::kDraining, {}, {}, {}},
                       "the server is shutting down");
    }
    RLK_RETURN_IF_ERROR(RequireSession(call_, *service_.sessions).status());
    RLK_ASSIGN_OR_RETURN(session_,
                         EnterSession(call_, *service_.sessions, limits().session_calls_max));
    stop_ = session_->AtEnd([handle = cancel_] { handle->Cancel(); });
    return absl::OkStatus();
  }

  // Bytes moved: the session is in use.
  void Moved() { session_->Touch(SessionClock::now()); }

  grpc::Status Refuse(const absl::Status& status) const {
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    const Reason reason = detail ? detail->reason : Reason::kInternal;
    if (service_.on_rejected) service_.on_rejected(reason);
    if (service_.logger->enabled(LogLevel::kDebug)) {
      service_.logger->Log(LogLevel::kDebug, "stream refused",
                           {{"code", absl::StatusCodeToString(status.code())},
                            {"reason", ReasonName(reason)},
                            {"error", std::string(status.message())}},
                           "");
    }
    return ToGrpcStatus(status);
  }

  static absl::Status Cancelled() {
    return MakeError(absl::StatusCode::kCancelled, {Reason::kCancelled, {}, {}, {}},
                     "the stream was cancelled");
  }

  const std::shared_ptr<Session>& session() const { return session_; }
  const TensorServiceContext& service() const { return service_; }
  const Limits& limits() const { return service_.engine->options().limits; }

 private:
  const TensorServiceContext& service_;
  const IncomingCall call_;
  const std::shared_ptr<CancelHandle> cancel_;
  std::shared_ptr<Session> session_;
  uint64_t stop_ = 0;
};

class UploadReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  UploadReactor(const TensorServiceContext& service, const IncomingCall& call,
                grpc::ByteBuffer* reply)
      : context_(call.context), guard_(service, call), reply_(reply) {
    if (absl::Status status = guard_.Enter(); !status.ok()) {
      End(status);
      return;
    }
    StartRead(&buffer_);
  }

  void OnCancel() override { cancelled_.store(true, std::memory_order_relaxed); }

  void OnReadDone(bool ok) override {
    if (finished_) return;
    if (!ok) {
      // The end of a stream that broke off may be seen before OnCancel is.
      const bool gone = cancelled_.load(std::memory_order_relaxed) || context_->IsCancelled();
      End(gone ? StreamGuard::Cancelled() : Complete());
      return;
    }
    absl::Status status = Take();
    buffer_.Clear();
    if (!status.ok()) {
      End(status);
      return;
    }
    guard_.Moved();
    StartRead(&buffer_);
  }

  void OnDone() override { delete this; }

 private:
  absl::Status Take() {
    using Request = rlk::v1::UploadRequest;
    if (digest_) return Malformed("nothing after the digest");
    RLK_ASSIGN_OR_RETURN(const wire::InputBytes bytes, TakeSlices(buffer_));
    RLK_ASSIGN_OR_RETURN(const std::optional<HostBytes> data,
                         wire::DecodeChunk(Request::kDataFieldNumber, bytes));
    if (data) {
      if (upload_ == nullptr) return Malformed("a header before the data");
      return TakeData(*data);
    }
    RLK_RETURN_IF_ERROR(CheckChunk(static_cast<int64_t>(buffer_.Length())));
    RLK_ASSIGN_OR_RETURN(const Request request, ParseRequest<Request>(buffer_));
    if (request.has_header()) {
      if (upload_ != nullptr) return Malformed("one header");
      RLK_ASSIGN_OR_RETURN(const NewTensor tensor, FromProto(request.header(), guard_.limits()));
      // From here on the memory is there: only now is more read.
      RLK_ASSIGN_OR_RETURN(upload_, guard_.service().store->Upload(guard_.session(), tensor));
      return absl::OkStatus();
    }
    if (!request.has_digest() || upload_ == nullptr) return Malformed("header, data, digest");
    RLK_RETURN_IF_ERROR(wire::CheckText("digest", request.digest(), guard_.limits()));
    digest_ = request.digest();
    return absl::OkStatus();
  }

  absl::Status TakeData(const HostBytes& data) {
    RLK_RETURN_IF_ERROR(CheckChunk(data.size));
    RLK_RETURN_IF_ERROR(upload_->Write(data.pieces));
    bytes_ += data.size;
    return absl::OkStatus();
  }

  absl::Status CheckChunk(int64_t size) const {
    const int64_t max = guard_.limits().chunk_bytes_max;
    if (size <= max) return absl::OkStatus();
    return InvalidArgument(Reason::kLimitExceeded, "data", std::to_string(size) + " bytes",
                           "at most " + std::to_string(max) + " bytes (chunk_bytes_max)",
                           "the chunk is too large");
  }

  static absl::Status Malformed(const char* allowed) {
    return InvalidArgument(Reason::kMalformedMessage, "part", {}, allowed,
                           "the parts of the stream are out of order");
  }

  absl::Status Complete() {
    if (upload_ == nullptr) return Malformed("a header, then the data");
    RLK_ASSIGN_OR_RETURN(const TensorInfo info, upload_->Finish(digest_));
    rlk::v1::UploadResponse response;
    FillDescription(info, *response.mutable_tensor());
    FillReply(response, reply_);
    return absl::OkStatus();
  }

  void End(const absl::Status& status) {
    finished_ = true;
    // What was reserved is given back before the caller hears of the end.
    upload_.reset();
    if (bytes_ > 0 && guard_.service().on_stream_bytes) {
      guard_.service().on_stream_bytes(true, bytes_);
    }
    Finish(status.ok() ? grpc::Status::OK : guard_.Refuse(status));
  }

  grpc::CallbackServerContext* const context_;
  StreamGuard guard_;
  grpc::ByteBuffer* const reply_;
  grpc::ByteBuffer buffer_;
  std::unique_ptr<TensorUpload> upload_;
  std::optional<std::string> digest_;
  int64_t bytes_ = 0;
  bool finished_ = false;
  std::atomic<bool> cancelled_{false};
};

class DownloadReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
  // The good end of a stream, which waits for the pieces: who lets go of the last one brings it.
  class Ending {
   public:
    explicit Ending(DownloadReactor* reactor) : reactor_(reactor) {}
    ~Ending() {
      if (reactor_ != nullptr) reactor_->Finish(grpc::Status::OK);
    }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;
    // Only by who holds it, before it lets go.
    void Forget() { reactor_ = nullptr; }

   private:
    DownloadReactor* reactor_;
  };
  // What a piece keeps until the transport is done with it. Its bytes go first.
  struct Piece {
    std::shared_ptr<const Ending> ending;
    std::shared_ptr<const void> bytes;
  };

 public:
  DownloadReactor(const TensorServiceContext& service, const IncomingCall& call,
                  const grpc::ByteBuffer& request)
      : guard_(service, call) {
    if (absl::Status status = Begin(request); !status.ok()) {
      Finish(guard_.Refuse(status));
      return;
    }
    ending_ = std::make_shared<Ending>(this);
    StartWrite(&buffer_);
  }

  void OnWriteDone(bool ok) override {
    buffer_.Clear();
    if (!ok) {
      End(guard_.Refuse(StreamGuard::Cancelled()));
      return;
    }
    guard_.Moved();
    if (download_->bytes_left() == 0) {
      End(grpc::Status::OK);
      return;
    }
    absl::StatusOr<HostBytes> bytes = download_->Next(guard_.limits().chunk_bytes_max);
    if (!bytes.ok()) {
      End(guard_.Refuse(bytes.status()));
      return;
    }
    bytes_ += bytes->size;
    bytes->owner = std::make_shared<Piece>(Piece{ending_, std::move(bytes->owner)});
    FillBuffer(wire::EncodeChunk(rlk::v1::DownloadResponse::kDataFieldNumber, *bytes), &buffer_);
    StartWrite(&buffer_);
  }

  void OnDone() override { delete this; }

 private:
  absl::Status Begin(const grpc::ByteBuffer& bytes) {
    RLK_RETURN_IF_ERROR(guard_.Enter());
    RLK_ASSIGN_OR_RETURN(const auto request, ParseRequest<rlk::v1::DownloadRequest>(bytes));
    RLK_ASSIGN_OR_RETURN(
        download_, guard_.service().store->Download(guard_.session().get(),
                                                    FromProto(request.handle()), request.bytes()));
    rlk::v1::DownloadResponse response;
    FillDescription(download_->info(), *response.mutable_tensor());
    FillReply(response, &buffer_);
    return absl::OkStatus();
  }

  // A write is done before the transport lets go of its bytes. The caller hears of a good end after
  // that, so that the tensor may be written into again, or its room be used, once it was read. What
  // a stream that broke off has not sent stays in the transport until the stream is finished.
  void End(const grpc::Status& status) {
    download_.reset();
    if (bytes_ > 0 && guard_.service().on_stream_bytes) {
      guard_.service().on_stream_bytes(false, bytes_);
    }
    if (status.ok()) {
      ending_.reset();
      return;
    }
    ending_->Forget();
    Finish(status);
  }

  StreamGuard guard_;
  grpc::ByteBuffer buffer_;
  std::unique_ptr<TensorDownload> download_;
  int64_t bytes_ = 0;
  std::shared_ptr<Ending> ending_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* NewUpload(const TensorServiceContext& service,
                                                     const IncomingCall& call,
                                                     grpc::ByteBuffer* reply) {
  return new UploadReactor(service, call, reply);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* NewDownload(const TensorServiceContext& service,
                                                        const IncomingCall& call,
                                                        const grpc::ByteBuffer& request) {
  return new DownloadReactor(service, call, request);
}

}  // namespace rlk::server
