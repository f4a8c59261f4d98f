// The C++ client of an rlk server.
//
//   absl::StatusOr<Client> client = Client::Connect("127.0.0.1:50051");
//   CallRequest request{.method = "final_logit_softcap.forward"};
//   request.inputs.push_back({"x", {.dtype = DType::kF32, .shape = {2, 3}, .data = logits}});
//   request.attributes = {{"softcap", 20.0}};
//   absl::StatusOr<CallResult> result = client->Call(request);
//   std::span<const float> y = result->Output("y")->as<float>();
//
// Every method of every operator can be called this way: names, types and dims come from the
// descriptors compiled into the library. Typed functions stand beside it, one header an operator.
//
// Errors are absl::Status. GetErrorDetail (kernels/core/status.h) gives reason, field, value and
// allowed set of each error that the server or this library found. UNAVAILABLE: no server answers.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/arena.h"
#include "client/cpp/parity.h"
#include "client/cpp/report.h"
#include "client/cpp/resident.h"
#include "client/cpp/tensor.h"
#include "kernels/core/dtype.h"
#include "proto/wire/signatures.h"
#include "rlk/v1/call.pb.h"
#include "rlk/v1/parity_check.pb.h"
#include "rlk/v1/server.pb.h"

namespace rlk::client {

// Bytes of one request message, framing included; a larger call is refused before it is sent
// (MESSAGE_TOO_LARGE).
inline constexpr int64_t kInlineBytesMax = int64_t{2} << 20;

// Files are PEM.
struct TlsOptions {
  // Authorities of servers; empty takes the system's.
  std::string ca_file = {};
  // The client's own certificate and key, for servers with --tls-client-ca.
  std::string cert_file = {}, key_file = {};
  // The name that the server's certificate must have; empty: the host of the address.
  std::string server_name = {};
};

struct ClientOptions {
  // How long Connect waits for the server. A refused connection ends the wait at once, unless
  // wait_for_server is set.
  std::chrono::milliseconds connect_timeout{5000};
  // Keep trying until connect_timeout: for a server that is just starting.
  bool wait_for_server = false;
  // Deadline of calls that name none; absent waits for ever.
  std::optional<std::chrono::milliseconds> default_timeout = std::nullopt;
  int64_t inline_bytes_max = kInlineBytesMax;
  // A connection of its own; by default the clients of a process that name the same address share
  // one.
  bool own_connection = false;
  // A session that was opened elsewhere; by default the client opens one when it needs it.
  std::string session_token = {};
  // Lease of the client's own session, renewed while the client lives; 0 takes the server's
  // default.
  std::chrono::milliseconds session_lease{0};
  // Speaks TLS; absent for servers that do not.
  std::optional<TlsOptions> tls = std::nullopt;
  // The bearer token that every call carries, for servers with --tokens. Refused without TLS,
  // except to this host: others could read it.
  std::string token = {};
};

// An attribute by its type in the message: double, int64, bool, a dtype ("output_dtype"), or an
// enumerator by its lower-case name without the enum's prefix ("silu"). An integer is taken where
// a double is expected.
using Attribute = std::variant<double, int64_t, bool, DType, std::string>;

struct CallRequest {
  // "operator.method", e.g. "final_logit_softcap.forward".
  std::string method;
  // By input name. The values of an input that takes several tensors are given under one name, in
  // order.
  std::vector<std::pair<std::string, TensorRef>> inputs = {};
  // By attribute name; those not given take the server's defaults.
  std::map<std::string, Attribute> attributes = {};
  // Contract, backend, mode, digests, verification, ...: proto/rlk/v1/call.proto.
  rlk::v1::CallOptions options = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct CallResult {
  // In the order of the reply's fields. Outputs that were not wanted are not listed.
  std::vector<std::pair<std::string, Tensor>> outputs;
  // Outputs that stay on the server: those that the request placed there, and with CallAsync those
  // that became too large for a reply.
  std::vector<std::pair<std::string, ResidentTensor>> residents = {};
  // Outputs that the request placed in slots.
  std::vector<std::pair<std::string, PlacedTensor>> placed = {};
  // Why the call's tensors travelled in a slower way than the server's capabilities promise; empty
  // where they did not.
  std::string slower = {};
  Report report;

  // The output of that name; null when it is not there.
  const Tensor* Output(const std::string& name) const;
  const ResidentTensor* Resident(const std::string& name) const;
};

// A call in flight. Movable. Dropping it without Get cancels the call and does not block.
class PendingCall {
 public:
  struct State;
  explicit PendingCall(std::shared_ptr<State> state);
  PendingCall(PendingCall&&) noexcept;
  PendingCall& operator=(PendingCall&&) noexcept;
  ~PendingCall();

  bool Ready() const;
  // False when `timeout` passed first.
  bool WaitFor(std::chrono::milliseconds timeout) const;
  // The call ends with CANCELLED unless it was done already.
  void Cancel();
  // Waits; call it once.
  absl::StatusOr<CallResult> Get();

 private:
  std::shared_ptr<State> state_;
};

// A connection to one server. Movable; all const member functions may be called from any number of
// threads at once. The channel is gRPC's default channel: no limits are raised, and retries of
// UNAVAILABLE are those of gRPC's default service config.
class Client {
 public:
  // `address`: "host:port" (IPv6: "[::1]:port") or "unix:/path"; or several servers:
  // "ipv4:HOST:PORT,HOST:PORT", "ipv6:[HOST]:PORT,...", "dns:///host:port" (all that the name
  // stands for). Calls are then spread over those that are healthy, and repeated elsewhere where a
  // server is lost; sessions, and with them tensors that stay or that travel in streams, are of one
  // server, and refused (WRONG_SERVER). INVALID_ARGUMENT for another address, UNAVAILABLE (naming
  // the address) when no server answers.
  static absl::StatusOr<Client> Connect(const std::string& address,
                                        const ClientOptions& options = {});
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Calls and waits. Errors of the request that need no server (unknown method, input or
  // attribute) are found before anything is sent. What is too large for a message travels in
  // another way: such inputs are copied into memory that the server shares with this client, where
  // it offers that, and else uploaded for the call; such outputs are downloaded after it.
  absl::StatusOr<CallResult> Call(const CallRequest& request) const;

  // Starts the call. Streams are not used: a message above the inline limit is refused
  // (MESSAGE_TOO_LARGE). The tensors' memory follows the rule of TensorRef::owner; nothing else of
  // `request` is used after this returns. Errors found before sending come from Get too.
  PendingCall CallAsync(const CallRequest& request) const;

  // As CallAsync; `done` runs once, on a thread of this library or, for errors found before
  // sending, on this one. It must neither block nor throw. The client may go before `done` runs,
  // or in it.
  void CallThen(const CallRequest& request,
                std::function<void(absl::StatusOr<CallResult>)> done) const;

  // The token of the client's session, which is opened if there is none.
  absl::StatusOr<std::string> Session() const;
  // Opens a session that is not this client's and outlives it: hand its token to others
  // (ClientOptions::session_token). 0 takes the server's lease.
  absl::StatusOr<LeasedSession> OpenSession(std::chrono::milliseconds lease) const;
  // Of the session of ClientOptions::session_token; 0 leaves its lease as it is.
  absl::StatusOr<LeasedSession> RenewSession(std::chrono::milliseconds lease) const;
  absl::Status CloseSession() const;

  // Uploads a tensor. Sent once, whatever happens: a failed upload leaves nothing and is not
  // repeated.
  absl::StatusOr<ResidentTensor> Put(const TensorRef& tensor, const PutOptions& options = {}) const;
  absl::StatusOr<Tensor> Get(const ResidentTensor& tensor, const GetOptions& options = {}) const;
  // Bytes of the tensor from `offset` on, as many as `to` has.
  absl::Status GetInto(const ResidentTensor& tensor, int64_t offset, std::span<std::byte> to,
                       const GetOptions& options = {}) const;
  absl::Status Release(const std::vector<ResidentTensor>& tensors) const;
  absl::StatusOr<ResidentTensor> Describe(const rlk::v1::TensorHandle& handle) const;
  absl::StatusOr<std::vector<ResidentTensor>> ListTensors() const;
  // Gives the tensor a lease of its own; 0 lets it live as long as the session.
  absl::StatusOr<ResidentTensor> Renew(const ResidentTensor& tensor,
                                       std::chrono::milliseconds lease) const;
  // Loads tensors of files under the server's --weights-root: all of the manifest or none.
  absl::StatusOr<std::vector<ResidentTensor>> Load(const std::string& path,
                                                   const std::vector<ExpectedTensor>& manifest,
                                                   const LoadOptions& options = {}) const;

  // Opens an arena of the client's session (client/cpp/arena.h): on a Unix socket with a side
  // socket beside it. FAILED_PRECONDITION (PLACEMENT_UNAVAILABLE) elsewhere, INVALID_ARGUMENT,
  // RESOURCE_EXHAUSTED, PERMISSION_DENIED.
  absl::StatusOr<Arena> OpenArena(ArenaKind kind, int64_t bytes,
                                  const std::string& device_uuid = "") const;

  // Two tensors, or a tensor and the digest that it should have.
  absl::StatusOr<rlk::v1::Comparison> Compare(const CompareArgs& args) const;
  // Log-probabilities of rollout and trainer.
  absl::StatusOr<rlk::v1::PolicyComparison> ComparePolicy(const ComparePolicyArgs& args) const;
  // As the server computes them.
  absl::StatusOr<TensorDigests> Digest(const DigestArgs& args) const;

  // As messages; client/cpp/checks.h makes them from calls.
  absl::StatusOr<rlk::v1::CheckParityResponse> CheckParity(
      const rlk::v1::CheckParityRequest& request,
      std::optional<std::chrono::milliseconds> timeout = std::nullopt) const;
  absl::StatusOr<rlk::v1::CheckInvarianceResponse> CheckInvariance(
      const rlk::v1::CheckInvarianceRequest& request,
      std::optional<std::chrono::milliseconds> timeout = std::nullopt) const;

  absl::StatusOr<rlk::v1::GetInfoResponse> GetInfo() const;
  // All operators, or one.
  absl::StatusOr<rlk::v1::ListOperatorsResponse> ListOperators(
      const std::string& operator_name = "") const;

  // The methods that this library knows, from its compiled-in descriptors.
  const std::vector<wire::MethodBinding>& methods() const;
  // INVALID_ARGUMENT (kUnknownOperator, with the allowed set) for a name that is not among them.
  absl::StatusOr<const wire::MethodBinding*> FindMethod(const std::string& method) const;

 private:
  friend class Staging;
  struct Impl;
  // Whether the client's session is held by the server's side socket; opens it if there is none.
  // Whether the session is held on the server's side socket, and why not.
  absl::Status SideStatus() const;
  absl::StatusOr<CallResult> CallLarge(const wire::MethodBinding& method,
                                       const CallRequest& request) const;
  absl::StatusOr<CallResult> CallInline(const wire::MethodBinding& method,
                                        const CallRequest& request) const;
  absl::Status FetchMoved(const MethodSignature& signature, CallResult& result) const;
  void Start(const CallRequest& request, std::function<void(absl::StatusOr<CallResult>)> done,
             std::shared_ptr<void>* in_flight) const;
  explicit Client(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// Text for allowed sets: "a, b, c".
std::string JoinNames(const std::vector<std::string>& names);

}  // namespace rlk::client
