#include "client/cpp/client.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "client/cpp/async_queue.h"
#include "client/cpp/channel.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/message.h"
#include "client/cpp/status_map.h"
#include "client/cpp/transport.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

using Clock = std::chrono::system_clock;

absl::Status WaitForServer(grpc::Channel& channel, const std::string& address,
                           const ClientOptions& options) {
  const auto deadline = Clock::now() + options.connect_timeout;
  for (;;) {
    const grpc_connectivity_state state = channel.GetState(true);
    if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
    const bool refused = state == GRPC_CHANNEL_TRANSIENT_FAILURE && !options.wait_for_server;
    if (refused || !channel.WaitForStateChange(state, deadline)) {
      return absl::UnavailableError(
          "no server answers at " + address +
          (refused ? "" : " within " + std::to_string(options.connect_timeout.count()) + " ms"));
    }
  }
}

absl::StatusOr<CallResult> Finish(const wire::MethodBinding& method, const grpc::Status& status,
                                  grpc::ByteBuffer* reply) {
  if (!status.ok()) return FromGrpc(status);
  RLK_ASSIGN_OR_RETURN(const wire::InputBytes bytes, FromByteBuffer(reply));
  return DecodeReply(method, bytes);
}

// One asynchronous call. It holds itself while it is in flight.
struct Flight final : AsyncEvent {
  // The channel and the bindings must outlive the call.
  std::shared_ptr<const void> client;
  const wire::MethodBinding* method = nullptr;
  grpc::ClientContext context;
  grpc::ByteBuffer request, reply;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call;
  std::function<void(absl::StatusOr<CallResult>)> done;
  std::shared_ptr<Flight> self;

  void Happened(bool ok) override {
    const std::shared_ptr<Flight> last = std::move(self);
    const auto then = std::move(done);
    then(ok ? Finish(*method, status, &reply)
            : absl::InternalError("the call's completion queue ended early"));
  }
};

}  // namespace

const Tensor* CallResult::Output(const std::string& name) const {
  for (const auto& [output, tensor] : outputs) {
    if (output == name) return &tensor;
  }
  return nullptr;
}

const ResidentTensor* CallResult::Resident(const std::string& name) const {
  for (const auto& [output, tensor] : residents) {
    if (output == name) return &tensor;
  }
  return nullptr;
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

struct PendingCall::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<absl::StatusOr<CallResult>> result;
  std::shared_ptr<void> flight;  // a Flight; null where nothing was sent

  void Set(absl::StatusOr<CallResult> value) {
    std::lock_guard lock(mutex);
    result.emplace(std::move(value));
    changed.notify_all();
  }
};

PendingCall::PendingCall(std::shared_ptr<State> state) : state_(std::move(state)) {}
PendingCall::PendingCall(PendingCall&&) noexcept = default;

PendingCall& PendingCall::operator=(PendingCall&& other) noexcept {
  if (this != &other) {
    if (state_ != nullptr) Cancel();
    state_ = std::move(other.state_);
  }
  return *this;
}

PendingCall::~PendingCall() {
  if (state_ != nullptr) Cancel();
}

bool PendingCall::Ready() const {
  std::lock_guard lock(state_->mutex);
  return state_->result.has_value();
}

bool PendingCall::WaitFor(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, timeout, [this] { return state_->result.has_value(); });
}

void PendingCall::Cancel() {
  if (!Ready() && state_->flight != nullptr) {
    static_cast<Flight*>(state_->flight.get())->context.TryCancel();
  }
}

absl::StatusOr<CallResult> PendingCall::Get() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->result.has_value(); });
  return std::move(*state_->result);
}

Client::Client(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

absl::StatusOr<Client> Client::Connect(const std::string& address, const ClientOptions& options) {
  RLK_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, MakeChannel(address, options));
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  RLK_ASSIGN_OR_RETURN(impl->methods, wire::CompileSignatures(wire::OperatorFiles()));
  for (const wire::MethodBinding& method : impl->methods) {
    impl->by_name[method.signature.method] = &method;
  }
  impl->channel = channel;
  RLK_RETURN_IF_ERROR(WaitForServer(*impl->channel, address, options));
  impl->stub = std::make_unique<grpc::GenericStub>(impl->channel);
  impl->server = rlk::v1::ServerService::NewStub(impl->channel);
  impl->tensors = rlk::v1::TensorService::NewStub(impl->channel);
  impl->sessions = rlk::v1::SessionService::NewStub(impl->channel);
  impl->parity = rlk::v1::ParityService::NewStub(impl->channel);
  impl->session = std::make_unique<SessionHolder>(
      impl->channel, SessionHolder::Options{address, NamesSeveral(address), options.session_token,
                                            options.session_lease, options.token});
  return Client(std::move(impl));
}

const std::vector<wire::MethodBinding>& Client::methods() const { return impl_->methods; }

absl::StatusOr<const wire::MethodBinding*> Client::FindMethod(const std::string& method) const {
  const auto it = impl_->by_name.find(method);
  if (it != impl_->by_name.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [name, binding] : impl_->by_name) names.push_back(name);
  return InvalidArgument(Reason::kUnknownOperator, "method", method, JoinNames(names),
                         "there is no method of this name");
}

absl::StatusOr<CallResult> Client::CallInline(const wire::MethodBinding& method,
                                              const CallRequest& request) const {
  RLK_ASSIGN_OR_RETURN(wire::OutputBytes message,
                       EncodeRequest(method, request, impl_->options.inline_bytes_max));
  const grpc::ByteBuffer buffer = ToByteBuffer(std::move(message));
  grpc::ClientContext context;
  impl_->Prepare(request.timeout, context);
  // A queue of its own lets the calling thread do the polling: no hand-over to another thread.
  grpc::CompletionQueue queue;
  grpc::ByteBuffer reply;
  grpc::Status status;
  auto call = impl_->stub->PrepareUnaryCall(&context, method.signature.rpc, buffer, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  const bool answered = queue.Next(&tag, &ok);
  queue.Shutdown();
  if (!answered || !ok) return absl::InternalError("the call's completion queue ended early");
  return Finish(method, status, &reply);
}

void Client::Start(const CallRequest& request, std::function<void(absl::StatusOr<CallResult>)> done,
                   std::shared_ptr<void>* in_flight) const {
  const auto method = FindMethod(request.method);
  if (!method.ok()) return done(method.status());
  auto message = EncodeRequest(**method, request, impl_->options.inline_bytes_max);
  if (!message.ok()) return done(message.status());
  const auto queue = AsyncQueue();
  if (!queue.ok()) return done(queue.status());
  auto flight = std::make_shared<Flight>();
  flight->client = impl_;
  flight->method = *method;
  flight->request = ToByteBuffer(std::move(*message));
  flight->done = std::move(done);
  flight->self = flight;
  impl_->Prepare(request.timeout, flight->context);
  flight->call = impl_->stub->PrepareUnaryCall(&flight->context, (*method)->signature.rpc,
                                               flight->request, *queue);
  if (in_flight != nullptr) *in_flight = flight;
  flight->call->StartCall();
  flight->call->Finish(&flight->reply, &flight->status, static_cast<AsyncEvent*>(flight.get()));
}

void Client::CallThen(const CallRequest& request,
                      std::function<void(absl::StatusOr<CallResult>)> done) const {
  Start(request, std::move(done), nullptr);
}

PendingCall Client::CallAsync(const CallRequest& request) const {
  auto state = std::make_shared<PendingCall::State>();
  Start(
      request, [state](absl::StatusOr<CallResult> result) { state->Set(std::move(result)); },
      &state->flight);
  return PendingCall(std::move(state));
}

absl::StatusOr<rlk::v1::GetInfoResponse> Client::GetInfo() const {
  grpc::ClientContext context;
  impl_->Prepare(std::nullopt, context);
  rlk::v1::GetInfoResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->server->GetInfo(&context, {}, &response)));
  return response;
}

absl::StatusOr<rlk::v1::ListOperatorsResponse> Client::ListOperators(
    const std::string& operator_name) const {
  grpc::ClientContext context;
  impl_->Prepare(std::nullopt, context);
  rlk::v1::ListOperatorsRequest request;
  request.set_operator_(operator_name);
  rlk::v1::ListOperatorsResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->server->ListOperators(&context, request, &response)));
  return response;
}

}  // namespace rlk::client
