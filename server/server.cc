#include "server/server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/core/status.h"
#include "proto/wire/signatures.h"
#include "server/bind_problem.h"
#include "server/devices.h"
#include "server/engine/engine.h"
#include "server/lease_loop.h"
#include "server/listen_address.h"
#include "server/log/json.h"
#include "server/metrics/http_page.h"
#include "server/metrics/metrics.h"
#include "server/mismatch_log.h"
#include "server/pools.h"
#include "server/provenance.h"
#include "server/recorder.h"
#include "server/rpc/connection_bound.h"
#include "server/rpc/health.h"
#include "server/rpc/operator_service.h"
#include "server/rpc/parity_service.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/reflection_service.h"
#include "server/rpc/security.h"
#include "server/rpc/server_service.h"
#include "server/rpc/session_service.h"
#include "server/rpc/side_socket.h"
#include "server/rpc/tensor_service.h"
#include "server/rpc/transport.h"
#include "server/selftest.h"
#include "server/sessions/random_id.h"
#include "server/start_clock.h"
#include "server/tenants.h"
#include "server/unix_socket.h"

namespace rlk::server {
namespace {

using std::chrono::steady_clock;

// Calls that were on their way when the drain began are still served.
constexpr double kSettleSeconds = 0.1;
// At the end of a drain calls that have not begun are refused, and checks are ended, this much
// before the transport is: so that they get an answer. A quarter of a shorter drain.
constexpr double kLastAnswersSeconds = 1;
// Once all calls have finished, new ones on open connections still get an answer that says to go
// elsewhere; a call that meets the end of the transport is only cancelled.
constexpr double kRefuseSeconds = 0.1;
// Health watches and reflection streams do not hold up a drain.
constexpr auto kStreamGrace = std::chrono::milliseconds(100);
constexpr std::string_view kServerServiceName = "rlk.v1.ServerService";
constexpr std::string_view kHealthServiceName = "grpc.health.v1.Health";
constexpr std::string_view kParityServiceName = "rlk.v1.ParityService";
constexpr std::string_view kSessionServiceName = "rlk.v1.SessionService";
constexpr std::string_view kTensorServiceName = "rlk.v1.TensorService";

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

std::vector<DeviceInfo> Infos(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<DeviceInfo> infos;
  for (const auto& device : devices) infos.push_back(device->info());
  return infos;
}

BuildLabels Labels(const Provenance& provenance) {
  BuildLabels labels;
  labels.version = provenance.version;
  labels.commit = provenance.git_commit.value_or("unknown");
  labels.cuda = provenance.cuda_runtime.value_or("none");
  for (const std::string& name : provenance.cuda_architectures) {
    labels.architectures += (labels.architectures.empty() ? "" : ",") + name;
  }
  if (labels.architectures.empty()) labels.architectures = "none";
  return labels;
}

Transport TransportOf(const Options& options) {
  return {options.limits, options.keepalive_ms, options.keepalive_timeout_ms};
}

}  // namespace

std::string Addresses::Json() const {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? std::string("null") : JsonString(text);
  };
  return "{\"listen\":" + JsonArray(listen) + ",\"unix\":" + text_or_null(unix_path) +
         ",\"side\":" + text_or_null(side_path) + ",\"metrics\":" + text_or_null(metrics) +
         ",\"health\":" + text_or_null(health) + ",\"server_id\":" + JsonString(server_id) +
         ",\"pid\":" + std::to_string(getpid()) + "}";
}

// Members are destroyed from the last to the first: listeners before what they use.
struct Server::Impl {
  const Logger* logger = nullptr;
  ServerHooks hooks;
  Addresses addresses;
  Registry registry;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<Tenants> tenants;
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<HttpPage> metrics_page;
  std::unique_ptr<Security> security;
  CallCounter counter;
  std::atomic<bool> ending = false, has_side = false;
  OperatorServiceContext context;
  SessionServiceContext session_context;
  TensorServiceContext tensor_context;
  std::unique_ptr<PeerList> peers;
  ParityServiceContext parity_context;
  Pools pools;
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::vector<std::string> service_names;
  std::unique_ptr<grpc::CallbackGenericService> unknown_methods;
  std::optional<UnixSocketPath> unix_socket;
  std::unique_ptr<HealthListener> health_listener;
  std::unique_ptr<grpc::Server> server;
  std::optional<UnixSocketPath> side_path;
  std::unique_ptr<SideSocket> side;
  std::unique_ptr<LeaseLoop> leases;
  std::unique_ptr<SelftestLoop> selftest;

  std::mutex health_mutex;
  std::condition_variable lost;
  bool device_lost = false;
  std::unique_ptr<Health> health;
  bool drained = false;

  absl::Status Bind();
  absl::Status MakeEngine(const Options& options, DeviceSet set, const Provenance& provenance);
  void MakeStore(const Options& options, const std::vector<std::unique_ptr<Device>>& devices);
  absl::Status MakeSecurity(const Options& options);
  absl::Status MakeServices(const Options& options, ServerFacts facts);
  absl::Status SetParity(const Options& options, const ServerFacts& facts);
  SharingFacts Sharing() const;
  absl::Status Listen(const Options& options);
  absl::Status ListenBeside(const Options& options);
  absl::Status ListenForProbes(const Options& options);
  absl::Status StartMetrics(const Options& options);
  void OnDeviceLost(const DeviceInfo& info);
  bool Idle(steady_clock::time_point deadline) {
    return engine->Drain(deadline) && counter.WaitIdle(deadline);
  }
  bool EndCalls(steady_clock::time_point deadline);
};

absl::Status Server::Impl::Bind() {
  RLK_ASSIGN_OR_RETURN(auto bindings, wire::CompileSignatures(wire::OperatorFiles()));
  std::vector<MethodSignature> signatures;
  for (wire::MethodBinding& binding : bindings) {
    signatures.push_back(std::move(binding.signature));
  }
  return registry.Bind(std::move(signatures));
}

absl::Status Server::Impl::MakeEngine(const Options& options, DeviceSet set,
                                      const Provenance& provenance) {
  metrics = std::make_unique<Metrics>(registry, Infos(set.devices), Labels(provenance));
  MakeStore(options, set.devices);
  RLK_ASSIGN_OR_RETURN(
      recorder, MakeRecorder(options, {addresses.server_id, provenance}, logger, metrics.get()));
  EngineOptions engine_options;
  engine_options.limits = options.limits;
  engine_options.watchdog_ms = options.watchdog_ms;
  engine_options.replay_every = options.replay_every;
  engine_options.recorder = recorder.get();
  engine_options.on_repeat_mismatch = [log = logger, id = provenance.id](const auto& mismatch) {
    LogRepeatMismatch(*log, id, mismatch);
  };
  engine = std::make_unique<Engine>(registry, engine_options, ToleranceContract::Builtin(),
                                    std::move(set.devices), metrics.get(), &tenants->holdings);
  metrics->SetDevices(engine->devices());
  metrics->SetConnectionsRefused(ConnectionsRefused);
  metrics->SetMemoryLimits({.device = options.limits.device_bytes_max,
                            .resident = options.limits.resident_bytes_max,
                            .arena = options.limits.arena_bytes_max,
                            .queue = options.limits.queue_bytes_max});
  engine->set_on_device_lost([this](const DeviceInfo& info) { OnDeviceLost(info); });
  return absl::OkStatus();
}

void Server::Impl::MakeStore(const Options& options,
                             const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<Device*> places;
  for (const auto& device : devices) places.push_back(device.get());
  parity_context.devices = places;
  tenants = std::make_unique<Tenants>(options.limits, addresses.server_id, places);
  tenants->sessions.SetOnUnknown(
      [sink = metrics.get()] { sink->OnCredentialRefused(CredentialRefusal::kSessionUnknown); });
  metrics->SetHoldings([this] {
    const Usage tensors = tenants->tensors.usage(), shared = tenants->arenas.usage();
    return Metrics::Holdings{.sessions = tenants->sessions.count(),
                             .leases = tensors.tensors + shared.tensors,
                             .resident_bytes = tensors.bytes,
                             .arena_bytes = shared.bytes,
                             .host_arena_bytes = tenants->arenas.host_bytes()};
  });
}

absl::Status Server::Impl::MakeSecurity(const Options& options) {
  SecurityHooks security_hooks;
  security_hooks.on_refused = [sink = metrics.get()](CredentialRefusal why) {
    sink->OnCredentialRefused(why);
  };
  security_hooks.on_call_refused = [sink = metrics.get()] {
    sink->OnRejected(Reason::kUnauthenticated);
  };
  security_hooks.on_reload = [sink = metrics.get()](CredentialFile file, bool ok) {
    sink->OnCredentialReload(file, ok);
  };
  security_hooks.on_certificate_end = [sink = metrics.get()](double seconds) {
    sink->SetCertificateEnd(seconds);
  };
  RLK_ASSIGN_OR_RETURN(
      security,
      Security::Make({{options.tls.certificate, options.tls.key, options.tls.client_authorities},
                      options.tokens},
                     options.limits, logger, std::move(security_hooks)));
  return absl::OkStatus();
}

absl::Status Server::Impl::MakeServices(const Options& options, ServerFacts facts) {
  context.engine = engine.get();
  context.observer = metrics.get();
  context.logger = logger;
  context.provenance_id = facts.provenance.id;
  context.on_sent = [sink = metrics.get()](int64_t ns) { sink->OnSent(ns); };
  context.counter = &counter;
  context.sessions = &tenants->sessions;
  session_context = {&tenants->sessions, &tenants->tensors, &tenants->arenas, options.limits,
                     facts.server_id};
  tensor_context.engine = engine.get();
  tensor_context.sessions = &tenants->sessions;
  tensor_context.store = &tenants->tensors;
  tensor_context.logger = logger;
  tensor_context.counter = &counter;
  tensor_context.on_stream_bytes = [sink = metrics.get()](bool in, int64_t bytes) {
    sink->OnStream(in, bytes);
  };
  tensor_context.on_rejected = [sink = metrics.get()](Reason reason) { sink->OnRejected(reason); };
  tensor_context.weights_root = options.weights_root;
  tensor_context.loads = &pools.loads;
  tensor_context.ending = &ending;
  RLK_RETURN_IF_ERROR(SetParity(options, facts));
  const Gate* const gate = security->gate();
  for (const google::protobuf::FileDescriptor* file : wire::OperatorFiles()) {
    for (int i = 0; i < file->service_count(); ++i) {
      RLK_ASSIGN_OR_RETURN(auto service, MakeOperatorService(file->service(i), context, gate));
      services.push_back(std::move(service));
      service_names.push_back(file->service(i)->full_name());
    }
  }
  services.push_back(MakeServerService(
      engine.get(), std::move(facts), [this] { return Sharing(); }, gate));
  service_names.emplace_back(kServerServiceName);
  services.push_back(MakeSessionService(session_context, gate));
  service_names.emplace_back(kSessionServiceName);
  services.push_back(MakeTensorService(tensor_context, gate));
  service_names.emplace_back(kTensorServiceName);
  services.push_back(MakeParityService(parity_context, gate));
  service_names.emplace_back(kParityServiceName);
  if (options.reflection) {
    std::vector<std::string> listed = service_names;
    listed.emplace_back(kHealthServiceName);
    services.push_back(MakeReflectionService(std::move(listed), gate));
  }
  return absl::OkStatus();
}

SharingFacts Server::Impl::Sharing() const {
  if (has_side) return {tenants->arenas.host_problem(), tenants->arenas.device_problem()};
  const std::string none = "this server has no side socket (--unix, --side)";
  return {none, none};
}

absl::Status Server::Impl::SetParity(const Options& options, const ServerFacts& facts) {
  parity_context.engine = engine.get();
  parity_context.sessions = &tenants->sessions;
  parity_context.store = &tenants->tensors;
  parity_context.pool = &pools.checks;
  parity_context.logger = logger;
  parity_context.counter = &counter;
  parity_context.ending = &ending;
  parity_context.on_comparison = [sink = metrics.get()](const Comparison& comparison) {
    sink->OnComparison(comparison);
  };
  parity_context.on_rejected = [sink = metrics.get()](Reason reason) { sink->OnRejected(reason); };
  RLK_ASSIGN_OR_RETURN(peers,
                       PeerList::Make(options.parity_peers,
                                      {options.parity_peer_ca, options.parity_peer_token_file}));
  parity_context.checks = {engine.get(), &tenants->tensors, peers.get(), facts,
                           parity_context.on_comparison};
  return absl::OkStatus();
}

absl::Status Server::Impl::Listen(const Options& options) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  ConfigureTransport(TransportOf(options), builder);
  std::vector<int> ports(options.listen.size(), 0);
  for (size_t i = 0; i < options.listen.size(); ++i) {
    builder.AddListeningPort(options.listen[i], security->credentials(), &ports[i]);
  }
  if (!options.unix_path.empty()) {
    RLK_ASSIGN_OR_RETURN(UnixSocketPath owner, UnixSocketPath::Acquire(options.unix_path));
    unix_socket.emplace(std::move(owner));
    builder.AddListeningPort(UnixTarget(options.unix_path), grpc::InsecureServerCredentials());
  }
  for (const auto& service : services) builder.RegisterService(service.get());
  if (security->gate() != nullptr) {
    unknown_methods = MakeUnknownMethods(security->gate());
    builder.RegisterCallbackGenericService(unknown_methods.get());
  }
  // The socket is never open to others, not even between bind and chmod.
  const mode_t old_mask = umask(0177);
  server = builder.BuildAndStart();
  umask(old_mask);
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = options.listen[i];
    if (ports[i] <= 0)
      return ListenError("--listen", address, BindProblem(address, "gRPC could not listen"));
    addresses.listen.push_back(address.substr(0, address.rfind(':') + 1) +
                               std::to_string(ports[i]));
  }
  if (server == nullptr) return ListenError("--unix", options.unix_path, "gRPC could not listen");
  const int64_t connections = BoundConnections(options.limits.connections_max, logger);
  if (connections < options.limits.connections_max) {
    logger->Warning("too few descriptors for connections_max", {{"connections", connections}});
  }
  addresses.unix_path = options.unix_path;
  return absl::OkStatus();
}

absl::Status Server::Impl::ListenBeside(const Options& options) {
  leases = std::make_unique<LeaseLoop>(&tenants->sessions, &tenants->tensors, &tenants->arenas);
  std::string path = options.side_path;
  if (path == "auto") path = options.unix_path.empty() ? "" : options.unix_path + ".side";
  if (path.empty()) return absl::OkStatus();
  if (options.side_path == "auto" && path.size() > UnixSocketPath::kPathBytesMax) {
    logger->Warning("the side socket's path would be too long; there is none", {{"path", path}});
    return absl::OkStatus();
  }
  RLK_ASSIGN_OR_RETURN(UnixSocketPath owner, UnixSocketPath::Acquire(path, "--side"));
  side_path.emplace(std::move(owner));
  RLK_ASSIGN_OR_RETURN(side, SideSocket::Listen(path, options.side_uids, session_context, logger));
  addresses.side_path = path;
  has_side = true;
  return absl::OkStatus();
}

absl::Status Server::Impl::ListenForProbes(const Options& options) {
  const std::string& address = options.health_listen;
  if (address.empty()) return absl::OkStatus();
  health_listener = HealthListener::Start(address, TransportOf(options));
  if (health_listener == nullptr) {
    return ListenError("--health-listen", address, BindProblem(address, "gRPC could not listen"));
  }
  addresses.health =
      address.substr(0, address.rfind(':') + 1) + std::to_string(health_listener->port());
  return absl::OkStatus();
}

absl::Status Server::Impl::StartMetrics(const Options& options) {
  if (options.metrics.empty()) return absl::OkStatus();
  auto page = HttpPage::Start(options.metrics, {.path = "/metrics",
                                                .type = "text/plain; version=0.0.4; charset=utf-8",
                                                .text = [this] { return metrics->Text(); }});
  if (!page.ok()) {
    return ListenError("--metrics", options.metrics, std::string(page.status().message()));
  }
  metrics_page = *std::move(page);
  addresses.metrics = metrics_page->address();
  return absl::OkStatus();
}

void Server::Impl::OnDeviceLost(const DeviceInfo& info) {
  {
    const std::lock_guard lock(health_mutex);
    device_lost = true;
    if (health != nullptr) health->Set(false, /*final=*/true);
  }
  lost.notify_all();
  logger->Error("no healthy device is left", {{"device", info.name}, {"ordinal", info.ordinal}});
  if (hooks.on_device_lost) hooks.on_device_lost();
}

bool Server::Impl::EndCalls(steady_clock::time_point deadline) {
  ending = true;
  engine->RefuseWaiting();
  return Idle(deadline);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options, const Logger* logger,
                                                      ServerHooks hooks) {
  StartClock clock(logger);
  auto owner = std::make_unique<Impl>();
  Impl& impl = *owner;
  impl.logger = logger;
  DeviceSet set;
  if (hooks.devices.empty()) {
    set = MakeDevices(options, *logger);
  } else {
    set.devices = std::move(hooks.devices);
  }
  impl.hooks = std::move(hooks);
  clock.Phase("devices");
  if (impl.hooks.fill_registry) {
    impl.hooks.fill_registry(impl.registry);
  } else {
    FillRegistry(options, set, impl.registry);
  }
  clock.Phase("known_answers");
  RLK_RETURN_IF_ERROR(impl.Bind());
  const Provenance provenance =
      MakeProvenance(set.probe, Infos(set.devices), ToleranceContract::Builtin());
  impl.addresses.server_id = HexText(RandomId());
  RLK_RETURN_IF_ERROR(impl.MakeEngine(options, std::move(set), provenance));
  RLK_RETURN_IF_ERROR(impl.engine->Start());
  clock.Phase("engine");
  RLK_RETURN_IF_ERROR(impl.MakeSecurity(options));
  RLK_RETURN_IF_ERROR(impl.MakeServices(options, {impl.addresses.server_id, provenance}));
  RLK_RETURN_IF_ERROR(impl.StartMetrics(options));
  clock.Phase("metrics");
  WarnOfOpenListeners(options, *logger);
  RLK_RETURN_IF_ERROR(impl.ListenForProbes(options));
  RLK_RETURN_IF_ERROR(impl.Listen(options));
  RLK_RETURN_IF_ERROR(impl.ListenBeside(options));
  clock.Phase("listeners");
  {
    const std::lock_guard lock(impl.health_mutex);
    grpc::Server* const probed =
        impl.health_listener == nullptr ? nullptr : impl.health_listener->server();
    impl.health = std::make_unique<Health>(std::vector<grpc::Server*>{impl.server.get(), probed},
                                           impl.service_names);
    if (!impl.device_lost) impl.health->Set(true);
  }
  if (options.selftest_interval_seconds > 0) {
    impl.selftest = std::make_unique<SelftestLoop>(impl.engine.get(), impl.metrics.get(), logger,
                                                   Seconds(options.selftest_interval_seconds));
  }
  logger->Info("serving", {{"milliseconds", clock.TotalMilliseconds()},
                           {"server_id", impl.addresses.server_id},
                           {"provenance_id", provenance.id}});
  return std::unique_ptr<Server>(new Server(std::move(owner)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { Drain(0, 0); }

const Addresses& Server::addresses() const { return impl_->addresses; }

bool Server::Drain(double delay_seconds, double drain_seconds) {
  Impl& impl = *impl_;
  if (std::exchange(impl.drained, true)) return true;
  const auto settle = Seconds(std::max(delay_seconds, drain_seconds > 0 ? kSettleSeconds : 0));
  {
    std::unique_lock lock(impl.health_mutex);
    impl.health->Set(false, /*final=*/true);
    impl.metrics->OnDrain(std::chrono::system_clock::now() + settle + Seconds(drain_seconds));
    // Nobody is served by a server whose devices are lost.
    impl.lost.wait_for(lock, settle, [&impl] { return impl.device_lost; });
  }
  const auto deadline = steady_clock::now() + Seconds(drain_seconds);
  const auto last = deadline - Seconds(std::min(drain_seconds / 4, kLastAnswersSeconds));
  const bool finished = impl.Idle(last) || impl.EndCalls(deadline);
  const bool recorded = CloseRecorder(impl.recorder.get(), deadline);
  if (drain_seconds > 0) std::this_thread::sleep_for(Seconds(kRefuseSeconds));
  impl.side.reset();
  impl.side_path.reset();
  impl.server->Shutdown(std::chrono::system_clock::now() + kStreamGrace);
  impl.health_listener.reset();
  ForgetConnectionLog(impl.logger);
  impl.unix_socket.reset();
  impl.selftest.reset();
  impl.logger->Info("drained", {{"all_calls_finished", finished}});
  return finished && recorded;
}

}  // namespace rlk::server
