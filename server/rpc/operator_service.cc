#include "server/rpc/operator_service.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "kernels/core/status.h"
#include "proto/wire/call_codec.h"
#include "server/rpc/byte_buffer.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/session_auth.h"
#include "server/rpc/status_map.h"
#include "server/rpc/trace_context.h"

namespace rlk::server {
namespace {

using std::chrono::steady_clock;

int64_t NanosSince(steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now() - start).count();
}

// A method that is served: everything that does not change from call to call.
struct ServedMethod {
  const Method* method = nullptr;
  const google::protobuf::Descriptor* request = nullptr;
  const google::protobuf::Descriptor* response = nullptr;
  const OperatorServiceContext* context = nullptr;
};

steady_clock::time_point SteadyDeadline(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return steady_clock::time_point::max();
  }
  const auto left = deadline - std::chrono::system_clock::now();
  // A client may name a deadline of centuries, which would overflow.
  constexpr auto kFar = std::chrono::hours(24 * 365);
  if (left > kFar) return steady_clock::time_point::max();
  return steady_clock::now() + left;
}

// What a caller did is of no interest to the operator of a server; what a device did is.
LogLevel LevelOf(absl::StatusCode code, Reason reason) {
  if (code == absl::StatusCode::kInternal || code == absl::StatusCode::kDataLoss) {
    return LogLevel::kError;
  }
  const bool device = reason == Reason::kDeviceLost || reason == Reason::kDeviceMemoryExhausted;
  return device ? LogLevel::kWarning : LogLevel::kDebug;
}

// One call, from its arrival until gRPC is done with it. It keeps itself alive; the engine may
// hold its cancel flag a little longer.
class CallReactor final : public grpc::ServerUnaryReactor,
                          public std::enable_shared_from_this<CallReactor> {
 public:
  CallReactor(const ServedMethod& served, grpc::ByteBuffer* reply)
      : served_(served), reply_(reply), received_(steady_clock::now()) {
    if (served_.context->counter != nullptr) served_.context->counter->Enter();
  }

  void Start(const IncomingCall& incoming, const grpc::ByteBuffer& request) {
    self_ = shared_from_this();
    context_ = incoming.context;
    ReadTraceparent(context_);
    absl::StatusOr<Call> call = DecodeInSession(incoming, request);
    if (!call.ok()) {
      RefuseUndecoded(call.status(), static_cast<int64_t>(request.Length()));
      return;
    }
    call->received = received_;
    call->deadline = SteadyDeadline(*context_);
    call->cancelled = std::shared_ptr<const CancelFlag>(self_, &cancelled_);
    call->trace_id = trace_id_;
    if (session_ != nullptr) session_->BeginWork();
    served_.context->engine->Submit(*std::move(call), [this](absl::StatusOr<CallResult>&& result) {
      // Not at OnDone: a caller that does not read its reply is no use of the session.
      if (session_ != nullptr) session_->EndWork(cancelled_, SessionClock::now());
      Reply(result);
    });
  }

  void OnCancel() override { cancelled_.store(true, std::memory_order_relaxed); }

  // May destroy the object.
  void OnDone() override {
    const OperatorServiceContext& context = *served_.context;
    if (context.on_sent) context.on_sent(NanosSince(finished_));
    if (held_bytes_ > 0) context.counter->Release(peer_, held_bytes_);
    if (held_small_bytes_ > 0) context.counter->ReleaseSmall(held_small_bytes_);
    if (session_ != nullptr) session_->LeaveCall();
    self_.reset();
    if (context.counter != nullptr) context.counter->Leave();
  }

 private:
  // OnDone and OnCancel do nothing that blocks: no hop to another thread for them.
  bool InternalInlineable() override { return true; }

  void ReadTraceparent(grpc::CallbackServerContext* context) {
    const auto& metadata = context->client_metadata();
    const auto found = metadata.find("traceparent");
    if (found == metadata.end()) return;
    const std::string_view header(found->second.data(), found->second.size());
    const std::optional<std::string_view> trace = ParseTraceparent(header);
    if (!trace.has_value()) return;
    trace_id_ = std::string(*trace);
    context->AddTrailingMetadata("traceparent", std::string(header));
  }

  // Without a token in the metadata there is no session.
  absl::StatusOr<Call> DecodeInSession(const IncomingCall& incoming,
                                       const grpc::ByteBuffer& request) {
    if (SessionTable* const sessions = served_.context->sessions; sessions != nullptr) {
      const int64_t calls_max = served_.context->engine->options().limits.session_calls_max;
      RLK_ASSIGN_OR_RETURN(session_, EnterSession(incoming, *sessions, calls_max));
    }
    RLK_ASSIGN_OR_RETURN(Call call, Decode(request));
    call.principal = session_;
    return call;
  }

  absl::StatusOr<Call> Decode(const grpc::ByteBuffer& request) const {
    const Limits& limits = served_.context->engine->options().limits;
    RLK_ASSIGN_OR_RETURN(wire::InputBytes bytes, TakeSlices(request));
    return wire::DecodeCall(*served_.method, served_.request, bytes, limits);
  }

  void RefuseUndecoded(const absl::Status& status, int64_t request_bytes) {
    if (Observer* observer = served_.context->observer; observer != nullptr) {
      const std::optional<ErrorDetail> detail = GetErrorDetail(status);
      observer->OnRejected(detail ? detail->reason : Reason::kInternal);
      observer->OnCallDone(served_.method, status, nullptr, request_bytes, 0,
                           NanosSince(received_));
    }
    FinishError(status);
  }

  void Reply(const absl::StatusOr<CallResult>& result) {
    if (!result.ok()) {
      FinishError(result.status());
      return;
    }
    const ToleranceContract& tolerance = served_.context->engine->tolerance();
    FillBuffer(wire::EncodeResult(*result, served_.response,
                                  {.provenance_id = served_.context->provenance_id,
                                   .tolerance_contract_version = tolerance.version(),
                                   .tolerance_contract_sha256 = tolerance.sha256()}),
               reply_);
    if (absl::Status status = HoldReply(static_cast<int64_t>(reply_->Length())); !status.ok()) {
      reply_->Clear();
      FinishError(status);
      return;
    }
    const Logger* logger = served_.context->logger;
    if (logger->enabled(LogLevel::kDebug)) {
      logger->Log(LogLevel::kDebug, "call",
                  {{"method", served_.method->decl.method},
                   {"backend", BackendName(result->report.backend)},
                   {"duration_seconds", static_cast<double>(NanosSince(received_)) * 1e-9}},
                  trace_id_);
    }
    finished_ = steady_clock::now();
    Finish(grpc::Status::OK);
  }

  // Room for a reply until the transport is done with it.
  absl::Status HoldReply(int64_t bytes) {
    constexpr int64_t kSmallBelow = 16 << 10;
    CallCounter* const counter = served_.context->counter;
    if (counter == nullptr) return absl::OkStatus();
    const int64_t bytes_max = served_.context->engine->options().limits.queue_bytes_max;
    if (bytes < kSmallBelow && counter->HoldSmall(bytes, bytes_max)) {
      held_small_bytes_ = bytes;
      return absl::OkStatus();
    }
    peer_ = context_->peer();
    if (counter->Hold(peer_, bytes, bytes_max)) {
      held_bytes_ = bytes;
      return absl::OkStatus();
    }
    if (Observer* observer = served_.context->observer; observer != nullptr) {
      observer->OnRejected(Reason::kBytesExhausted);
    }
    return MakeError(
        absl::StatusCode::kResourceExhausted,
        {.reason = Reason::kBytesExhausted,
         .field = "queue_bytes_max",
         .value = std::to_string(bytes) + " bytes of reply",
         .allowed = std::to_string(bytes_max) + " bytes of replies that nobody read, " +
                    "a quarter of them for one connection",
         .retry_after_ms = 100},
        "earlier replies were not read yet");
  }

  void FinishError(const absl::Status& status) {
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    const LogLevel level = LevelOf(status.code(), detail ? detail->reason : Reason::kUnknown);
    const Logger* logger = served_.context->logger;
    if (logger->enabled(level)) {
      logger->Log(level, "call refused",
                  {{"method", served_.method->decl.method},
                   {"code", absl::StatusCodeToString(status.code())},
                   {"reason", ReasonName(detail ? detail->reason : Reason::kUnknown)},
                   {"field", detail ? detail->field : std::string()},
                   {"error", std::string(status.message())}},
                  trace_id_);
    }
    finished_ = steady_clock::now();
    Finish(ToGrpcStatus(status));
  }

  const ServedMethod& served_;
  grpc::ByteBuffer* const reply_;
  const steady_clock::time_point received_;
  steady_clock::time_point finished_;
  grpc::CallbackServerContext* context_ = nullptr;
  // Of a reply that takes room: one of the two, and `peer_` with the first.
  int64_t held_bytes_ = 0, held_small_bytes_ = 0;
  std::string peer_;
  CancelFlag cancelled_ = false;
  // Null without one; counts this call.
  std::shared_ptr<Session> session_;
  std::string trace_id_;
  std::shared_ptr<CallReactor> self_;
};

class OperatorService final : public RawService {
 public:
  using RawService::RawService;

  void Add(ServedMethod served) {
    served_.push_back(served);
    const ServedMethod& kept = served_.back();
    AddUnary(
        kept.method->signature.rpc,
        [&kept](const IncomingCall& call, const grpc::ByteBuffer& request,
                grpc::ByteBuffer* reply) -> grpc::ServerUnaryReactor* {
          auto reactor = std::make_shared<CallReactor>(kept, reply);
          reactor->Start(call, request);
          return reactor.get();
        },
        [&kept](const absl::Status& status, std::chrono::nanoseconds total) {
          CountMessageless(kept, status, total);
        });
  }

 private:
  static void CountMessageless(const ServedMethod& served, const absl::Status& status,
                               std::chrono::nanoseconds total) {
    Observer* const observer = served.context->observer;
    if (observer == nullptr) return;
    if (status.code() == absl::StatusCode::kInvalidArgument) {
      observer->OnRejected(Reason::kMalformedMessage);
    } else {
      observer->OnCancelled(CancelStage::kQueue);
    }
    observer->OnCallDone(served.method, status, nullptr, 0, 0, total.count());
  }

  // A deque: handlers keep references.
  std::deque<ServedMethod> served_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<grpc::Service>> MakeOperatorService(
    const google::protobuf::ServiceDescriptor* service, const OperatorServiceContext& context,
    const Gate* gate) {
  auto result = std::make_unique<OperatorService>(gate);
  for (int i = 0; i < service->method_count(); ++i) {
    const google::protobuf::MethodDescriptor* descriptor = service->method(i);
    const std::string path = "/" + service->full_name() + "/" + descriptor->name();
    const Method* method = context.engine->registry().FindRpc(path);
    if (method == nullptr) {
      return MakeError(absl::StatusCode::kInternal,
                       {.reason = Reason::kInternal, .field = "", .value = path, .allowed = ""},
                       "the method is in the proto, but no operator declares it");
    }
    result->Add({method, descriptor->input_type(), descriptor->output_type(), &context});
  }
  return std::unique_ptr<grpc::Service>(std::move(result));
}

}  // namespace rlk::server
