#include "server/options.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "server/flags.h"
#include "server/listen_address.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:50051",
          "Addresses HOST:PORT for gRPC, a comma list, repeatable; port 0 takes a free port; empty "
          "for none");
ABSL_FLAG(std::string, unix, "", "Path of the Unix socket for gRPC; empty for none");
ABSL_FLAG(
    std::string, side, "auto",
    "Path of the side socket, whose connections hold sessions; auto: that of --unix with .side "
    "at its end; empty for none");
ABSL_FLAG(std::string, side_uids, "",
          "Further uids whose processes may use the side socket, a comma list; it is then open to "
          "connect for everybody, and the kernel says who does. Empty: the server's own alone");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file with the server's certificate and those up to its authority: TCP listeners of "
          "gRPC then speak TLS; empty for none. It is read again when it changes, as are the next "
          "three");
ABSL_FLAG(std::string, tls_key, "",
          "PEM file with the key of --tls-cert; nobody but its owner and group may read it");
ABSL_FLAG(std::string, tls_client_ca, "",
          "PEM file with the authorities of callers: callers over TCP then need a certificate");
ABSL_FLAG(std::string, tokens, "",
          "File with a line NAME sha256:HEX for each bearer token: callers over TCP then need one; "
          "empty for none. Nobody but its owner and group may read it");
ABSL_FLAG(std::string, health_listen, "",
          "Address HOST:PORT of a plaintext listener for probes, with grpc.health.v1 and nothing "
          "else; empty for none");
ABSL_FLAG(std::string, reflection, "true", "Serve gRPC reflection: true or false");
ABSL_FLAG(std::string, weights_root, "",
          "Folder whose safetensors files clients may load; empty for none");
ABSL_FLAG(
    std::string, parity_peer, "",
    "Addresses HOST:PORT of servers that may be a side of CheckParity, a comma list, repeatable; "
    "empty for none");
ABSL_FLAG(
    std::string, parity_peer_ca, "",
    "PEM file with the authorities of the servers of --parity-peer, which then are called with "
    "TLS; empty for plaintext");
ABSL_FLAG(std::string, parity_peer_token_file, "",
          "File with the bearer token that those servers take; needs --parity-peer-ca");
ABSL_FLAG(std::string, metrics, "127.0.0.1:9464",
          "Address HOST:PORT of the Prometheus endpoint /metrics; empty for none");
ABSL_FLAG(
    std::string, backends, "",
    "Backends to offer, a comma list of cuda_sm90, cuda, cpu, golden, cublaslt; empty offers all");
ABSL_FLAG(int64_t, threads, 0, "Threads of the host's kernels; 0 takes the number of cores");
ABSL_FLAG(double, drain_seconds, 5,
          "At SIGTERM: how long calls in flight may take before the server exits");
ABSL_FLAG(double, drain_delay_seconds, 0,
          "At SIGTERM: how long to go on serving as NOT_SERVING, so that balancers notice");
ABSL_FLAG(int64_t, watchdog_ms, 30000,
          "A kernel that runs longer takes its device out of rotation");
ABSL_FLAG(int64_t, keepalive_ms, 60000,
          "A connection that was silent so long is asked whether its peer is still there");
ABSL_FLAG(
    int64_t, keepalive_timeout_ms, 20000,
    "How long a peer has to answer, and to end its handshake, before its connection is closed");
ABSL_FLAG(std::string, record, "",
          "New file that takes down the calls and the digests of their tensors; empty for none");
ABSL_FLAG(std::string, record_tensors, "false",
          "Whether --record takes down the bytes of inputs too: true or false");
ABSL_FLAG(int64_t, record_bytes_max, rlk::server::Options().record_bytes_max,
          "Limit: bytes of that file; calls that no longer fit are dropped");
ABSL_FLAG(int64_t, record_queue_bytes_max, rlk::server::Options().record_queue_bytes_max,
          "Limit: bytes that wait to be written to it; calls above are dropped");
ABSL_FLAG(int64_t, replay_every, 0,
          "One of so many calls is run twice and its bits are compared; 0 for none");
ABSL_FLAG(double, selftest_interval_seconds, 60, "Interval of the self-test; 0 turns it off");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error");
ABSL_FLAG(int64_t, rank_max, rlk::Limits().rank_max, "Limit: dimensions of a tensor");
ABSL_FLAG(int64_t, tensors_per_call_max, rlk::Limits().tensors_per_call_max,
          "Limit: tensors of one call");
ABSL_FLAG(int64_t, call_bytes_max, rlk::Limits().call_bytes_max,
          "Limit: payload of one call, inputs and outputs");
ABSL_FLAG(int64_t, inline_bytes_max, rlk::Limits().inline_bytes_max,
          "Limit: a request message, framing included; tensors and row digests of a reply");
ABSL_FLAG(int64_t, header_bytes_max, rlk::Limits().header_bytes_max,
          "Limit: a request message without its tensors' elements");
ABSL_FLAG(int64_t, message_bytes_max, rlk::Limits().message_bytes_max,
          "Limit: a received message; gRPC refuses what is above");
ABSL_FLAG(int64_t, queue_calls_max, rlk::Limits().queue_calls_max,
          "Limit: calls waiting for a device");
ABSL_FLAG(int64_t, queue_bytes_max, rlk::Limits().queue_bytes_max,
          "Limit: payload of the calls waiting for a device; and of replies that were not read "
          "yet, a quarter of it for one connection");
ABSL_FLAG(int64_t, attribute_text_bytes_max, rlk::Limits().attribute_text_bytes_max,
          "Limit: a text in a request");
ABSL_FLAG(int64_t, reference_elements_max, rlk::Limits().reference_elements_max,
          "Limit: elements of a call with REFERENCE verification");
ABSL_FLAG(int64_t, connections_max, rlk::Limits().connections_max,
          "Limit: open connections; less where the process may hold fewer descriptors");
ABSL_FLAG(int64_t, streams_per_connection_max, rlk::Limits().streams_per_connection_max,
          "Limit: calls in flight on one connection");
ABSL_FLAG(int64_t, device_bytes_max, rlk::Limits().device_bytes_max,
          "Limit: memory of one GPU that the server takes, resident tensors included");
ABSL_FLAG(int64_t, sessions_max, rlk::Limits().sessions_max, "Limit: open sessions");
ABSL_FLAG(int64_t, session_lease_ms, rlk::Limits().session_lease_ms,
          "Limit: how long a session that asks for no lease lives after its last use");
ABSL_FLAG(int64_t, session_lease_ms_max, rlk::Limits().session_lease_ms_max,
          "Limit: lease that a session or a tensor may ask for");
ABSL_FLAG(int64_t, session_calls_max, rlk::Limits().session_calls_max,
          "Limit: calls in flight of one session");
ABSL_FLAG(int64_t, session_tensors_max, rlk::Limits().session_tensors_max,
          "Limit: resident tensors of one session");
ABSL_FLAG(int64_t, session_resident_bytes_max, rlk::Limits().session_resident_bytes_max,
          "Limit: bytes of the resident tensors of one session, in pages of 4 KiB");
ABSL_FLAG(int64_t, resident_bytes_max, rlk::Limits().resident_bytes_max,
          "Limit: bytes of the resident tensors of all sessions, in pages of 4 KiB");
ABSL_FLAG(int64_t, account_sessions_max, rlk::Limits().account_sessions_max,
          "Limit: open sessions of one account, where --tokens says nothing else");
ABSL_FLAG(int64_t, account_tensors_max, rlk::Limits().account_tensors_max,
          "Limit: resident tensors of one account, where --tokens says nothing else");
ABSL_FLAG(int64_t, account_resident_bytes_max, rlk::Limits().account_resident_bytes_max,
          "Limit: bytes of one account's resident tensors, where --tokens says nothing else");
ABSL_FLAG(int64_t, session_arenas_max, rlk::Limits().session_arenas_max,
          "Limit: arenas of one session");
ABSL_FLAG(int64_t, session_arena_bytes_max, rlk::Limits().session_arena_bytes_max,
          "Limit: bytes of the arenas of one session");
ABSL_FLAG(int64_t, arena_bytes_max, rlk::Limits().arena_bytes_max,
          "Limit: bytes of the arenas of all sessions");
ABSL_FLAG(int64_t, arena_slots_max, rlk::Limits().arena_slots_max, "Limit: slots of one arena");
ABSL_FLAG(int64_t, chunk_bytes_max, rlk::Limits().chunk_bytes_max,
          "Limit: data of one message of a stream");
ABSL_FLAG(int64_t, parity_work_bytes_max, rlk::Limits().parity_work_bytes_max,
          "Limit: bytes that all calls of one parity check read and write");
ABSL_FLAG(int64_t, parity_peer_ms_max, rlk::Limits().parity_peer_ms_max,
          "Limit: milliseconds that a parity check waits for one call of another server");

namespace rlk::server {
namespace {

absl::Status CheckAddress(std::string_view flag, const std::string& address) {
  if (IsListenAddress(address)) return absl::OkStatus();
  return FlagError(flag, address, "HOST:PORT with a port in [0, 65535]",
                   "the value is not an address");
}

absl::Status ReadCredentials(const FlagReader& reader, Options& options) {
  options.tls.certificate = reader.Text("tls_cert");
  options.tls.key = reader.Text("tls_key");
  options.tls.client_authorities = reader.Text("tls_client_ca");
  options.tokens = reader.Text("tokens");
  options.health_listen = reader.Text("health_listen");
  if (!options.health_listen.empty()) {
    RLK_RETURN_IF_ERROR(CheckAddress("health_listen", options.health_listen));
  }
  const bool tls = !options.tls.certificate.empty();
  if (tls == options.tls.key.empty()) {
    return FlagError(tls ? "tls_key" : "tls_cert", "", "both --tls-cert and --tls-key, or neither",
                     "a certificate and its key belong together");
  }
  if (!tls && !options.tls.client_authorities.empty()) {
    return FlagError("tls_client_ca", options.tls.client_authorities, "--tls-cert and --tls-key",
                     "callers show certificates only where there is TLS");
  }
  for (const std::string& address : options.listen) {
    if (tls || options.tokens.empty() || IsLoopback(address)) continue;
    return FlagError("tokens", options.tokens,
                     "--tls-cert and --tls-key, or loopback addresses in --listen",
                     "tokens would travel readable to " + address);
  }
  return reader.Boolean("reflection", options.reflection);
}

absl::Status ReadUids(const FlagReader& reader, Options& options) {
  for (const std::string& text : reader.List("side_uids")) {
    uint32_t uid = 0;
    if (!absl::SimpleAtoi(text, &uid)) {
      return FlagError("side_uids", text, "0 to 4294967295", "the value is no uid");
    }
    options.side_uids.push_back(uid);
  }
  return absl::OkStatus();
}

absl::Status ReadBackends(const FlagReader& reader, Options& options) {
  for (const std::string& name : reader.List("backends")) {
    std::optional<Backend> found;
    std::string allowed;
    for (int i = 0; i < kBackendCount; ++i) {
      const auto backend = static_cast<Backend>(i);
      allowed += (i > 0 ? ", " : "") + std::string(BackendName(backend));
      if (name == BackendName(backend)) found = backend;
    }
    if (!found) return FlagError("backends", name, allowed, "no backend has this name");
    options.backends.push_back(*found);
  }
  return absl::OkStatus();
}

absl::Status ReadRecording(const FlagReader& reader, Options& options) {
  constexpr int64_t kBytesMax = int64_t{1} << 50;
  options.record = reader.Text("record");
  RLK_RETURN_IF_ERROR(reader.Boolean("record_tensors", options.record_tensors));
  if (options.record_tensors && options.record.empty()) {
    return FlagError("record_tensors", "true", "--record FILE", "nothing is recorded");
  }
  RLK_RETURN_IF_ERROR(reader.Integer("record_bytes_max", 1, kBytesMax, options.record_bytes_max));
  return reader.Integer("record_queue_bytes_max", 1, kBytesMax, options.record_queue_bytes_max);
}

// A chunk's message has a few bytes more than its data.
constexpr int64_t kAroundChunkBytes = 1024;

absl::Status ReadSessionLimits(const FlagReader& reader, Limits& limits) {
  constexpr int64_t kBytesMax = int64_t{1} << 42;
  constexpr int64_t kLeaseMax = int64_t{1000} * 86'400'000;
  const auto read = [&](std::string_view name, int64_t high, int64_t& out) {
    return reader.Integer(name, 1, high, out);
  };
  RLK_RETURN_IF_ERROR(read("sessions_max", 1 << 20, limits.sessions_max));
  RLK_RETURN_IF_ERROR(read("session_lease_ms_max", kLeaseMax, limits.session_lease_ms_max));
  RLK_RETURN_IF_ERROR(read("session_lease_ms", kLeaseMax, limits.session_lease_ms));
  RLK_RETURN_IF_ERROR(read("session_calls_max", 1 << 20, limits.session_calls_max));
  RLK_RETURN_IF_ERROR(read("session_tensors_max", 1 << 20, limits.session_tensors_max));
  RLK_RETURN_IF_ERROR(
      read("session_resident_bytes_max", kBytesMax, limits.session_resident_bytes_max));
  RLK_RETURN_IF_ERROR(read("resident_bytes_max", kBytesMax, limits.resident_bytes_max));
  RLK_RETURN_IF_ERROR(read("account_sessions_max", 1 << 20, limits.account_sessions_max));
  RLK_RETURN_IF_ERROR(read("account_tensors_max", int64_t{1} << 30, limits.account_tensors_max));
  RLK_RETURN_IF_ERROR(
      read("account_resident_bytes_max", kBytesMax, limits.account_resident_bytes_max));
  RLK_RETURN_IF_ERROR(read("session_arenas_max", 1 << 20, limits.session_arenas_max));
  RLK_RETURN_IF_ERROR(read("session_arena_bytes_max", kBytesMax, limits.session_arena_bytes_max));
  RLK_RETURN_IF_ERROR(read("arena_bytes_max", kBytesMax, limits.arena_bytes_max));
  RLK_RETURN_IF_ERROR(read("arena_slots_max", 1 << 20, limits.arena_slots_max));
  RLK_RETURN_IF_ERROR(read("chunk_bytes_max", int64_t{1} << 30, limits.chunk_bytes_max));
  RLK_RETURN_IF_ERROR(
      read("parity_work_bytes_max", int64_t{1} << 50, limits.parity_work_bytes_max));
  RLK_RETURN_IF_ERROR(read("parity_peer_ms_max", 86'400'000, limits.parity_peer_ms_max));
  if (limits.session_lease_ms > limits.session_lease_ms_max) {
    return FlagError(
        "session_lease_ms", absl::StrCat(limits.session_lease_ms),
        absl::StrCat("at most ", limits.session_lease_ms_max, " (session_lease_ms_max)"),
        "the usual lease cannot be longer than the longest");
  }
  const int64_t chunk_max = limits.message_bytes_max - kAroundChunkBytes;
  if (limits.chunk_bytes_max > chunk_max) {
    return FlagError(
        "chunk_bytes_max", absl::StrCat(limits.chunk_bytes_max),
        absl::StrCat("at most ", chunk_max, " (message_bytes_max, less ", kAroundChunkBytes, ")"),
        "a chunk cannot be larger than its message");
  }
  return absl::OkStatus();
}

absl::Status ReadLimits(const FlagReader& reader, Limits& limits) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  // gRPC's own lengths are 32-bit.
  constexpr int64_t kMessageMax = (int64_t{1} << 31) - 1;
  const auto read = [&](std::string_view name, int64_t high, int64_t& out) {
    return reader.Integer(name, 1, high, out);
  };
  RLK_RETURN_IF_ERROR(read("rank_max", kMaxRank, limits.rank_max));
  RLK_RETURN_IF_ERROR(read("tensors_per_call_max", 4096, limits.tensors_per_call_max));
  RLK_RETURN_IF_ERROR(read("call_bytes_max", 4096 * kGiB, limits.call_bytes_max));
  RLK_RETURN_IF_ERROR(reader.Integer("message_bytes_max", kAroundChunkBytes + 1, kMessageMax,
                                     limits.message_bytes_max));
  RLK_RETURN_IF_ERROR(read("inline_bytes_max", kMessageMax, limits.inline_bytes_max));
  RLK_RETURN_IF_ERROR(read("header_bytes_max", kMessageMax, limits.header_bytes_max));
  RLK_RETURN_IF_ERROR(read("queue_calls_max", 1 << 20, limits.queue_calls_max));
  RLK_RETURN_IF_ERROR(read("queue_bytes_max", 4096 * kGiB, limits.queue_bytes_max));
  RLK_RETURN_IF_ERROR(read("attribute_text_bytes_max", 1 << 20, limits.attribute_text_bytes_max));
  RLK_RETURN_IF_ERROR(
      read("reference_elements_max", int64_t{1} << 40, limits.reference_elements_max));
  RLK_RETURN_IF_ERROR(read("connections_max", 1 << 20, limits.connections_max));
  RLK_RETURN_IF_ERROR(
      read("streams_per_connection_max", 1 << 20, limits.streams_per_connection_max));
  RLK_RETURN_IF_ERROR(read("device_bytes_max", 4096 * kGiB, limits.device_bytes_max));
  RLK_RETURN_IF_ERROR(ReadSessionLimits(reader, limits));
  if (limits.inline_bytes_max > limits.message_bytes_max) {
    return FlagError("inline_bytes_max", absl::StrCat(limits.inline_bytes_max),
                     absl::StrCat("at most ", limits.message_bytes_max, " (message_bytes_max)"),
                     "a payload cannot be larger than its message");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  RLK_ASSIGN_OR_RETURN(const RawFlags raw, ReadFlags(arguments));
  Options options;
  options.action = raw.action;
  if (raw.action != Options::Action::kServe) return options;

  const FlagReader reader(raw);
  options.listen = reader.List("listen");
  for (const std::string& address : options.listen) {
    RLK_RETURN_IF_ERROR(CheckAddress("listen", address));
  }
  options.unix_path = reader.Text("unix");
  if (options.listen.empty() && options.unix_path.empty()) {
    return FlagError("listen", "", "an address, or a path in --unix", "nothing to listen on");
  }
  options.side_path = reader.Text("side");
  RLK_RETURN_IF_ERROR(ReadUids(reader, options));
  RLK_RETURN_IF_ERROR(ReadCredentials(reader, options));
  options.parity_peers = reader.List("parity_peer");
  for (const std::string& address : options.parity_peers) {
    RLK_RETURN_IF_ERROR(CheckAddress("parity_peer", address));
  }
  options.parity_peer_ca = reader.Text("parity_peer_ca");
  options.parity_peer_token_file = reader.Text("parity_peer_token_file");
  if (options.parity_peer_ca.empty() && !options.parity_peer_token_file.empty()) {
    return FlagError("parity_peer_token_file", options.parity_peer_token_file, "--parity-peer-ca",
                     "without TLS the token would travel readable");
  }
  options.weights_root = reader.Text("weights_root");
  options.metrics = reader.Text("metrics");
  if (!options.metrics.empty()) RLK_RETURN_IF_ERROR(CheckAddress("metrics", options.metrics));
  RLK_RETURN_IF_ERROR(ReadBackends(reader, options));
  int64_t threads = 0;
  RLK_RETURN_IF_ERROR(reader.Integer("threads", 0, 1024, threads));
  options.threads = static_cast<int>(threads);
  RLK_RETURN_IF_ERROR(ReadLimits(reader, options.limits));
  RLK_RETURN_IF_ERROR(reader.Seconds("drain_seconds", options.drain_seconds));
  RLK_RETURN_IF_ERROR(reader.Seconds("drain_delay_seconds", options.drain_delay_seconds));
  RLK_RETURN_IF_ERROR(reader.Integer("watchdog_ms", 1, 86400000, options.watchdog_ms));
  RLK_RETURN_IF_ERROR(reader.Integer("keepalive_ms", 1, 86400000, options.keepalive_ms));
  RLK_RETURN_IF_ERROR(
      reader.Integer("keepalive_timeout_ms", 1, 86400000, options.keepalive_timeout_ms));
  RLK_RETURN_IF_ERROR(ReadRecording(reader, options));
  RLK_RETURN_IF_ERROR(reader.Integer("replay_every", 0, int64_t{1} << 40, options.replay_every));
  RLK_RETURN_IF_ERROR(
      reader.Seconds("selftest_interval_seconds", options.selftest_interval_seconds));
  const std::string level = reader.Text("log_level");
  const std::optional<LogLevel> parsed = ParseLogLevel(level);
  if (!parsed) {
    return FlagError("log_level", level, "debug, info, warning, error", "no such level");
  }
  options.log_level = *parsed;
  return options;
}

std::string OptionsHelp() {
  std::string help =
      "rlk-server: deterministic kernels over gRPC.\n\n"
      "The first line of standard output is JSON with the addresses in use. SIGTERM and SIGINT\n"
      "drain, another one later exits at once. Exit codes: 0 drained, 1 could not start, 2 wrong "
      "flags,\n"
      "3 no healthy device left.\n\nFlags:\n";
  for (const absl::CommandLineFlag* flag : OwnFlags()) {
    std::string name(flag->Name());
    std::replace(name.begin(), name.end(), '_', '-');
    absl::StrAppend(&help, "  --", name, "=", flag->DefaultValue(), "\n      ", flag->Help(), "\n");
  }
  help += "  --flagfile=FILE\n      More flags, one a line; # starts a comment line\n";
  help += "  --help, --version\n";
  return help;
}

}  // namespace rlk::server
