// The command line. Every flag is documented by `rlk-server --help`; `--flagfile FILE` reads more
// flags from a file, one a line. Dashes and underscores in flag names are the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/contract.h"
#include "server/log/log.h"

namespace rlk::server {

struct Options {
  // HOST:PORT; port 0 takes a free port.
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // Path of the Unix socket; empty for none.
  std::string unix_path;
  // Path of the side socket; "auto" takes that of the Unix socket with ".side" at its end, if there
  // is one; empty for none.
  std::string side_path = "auto";
  // Further users whose processes may use it.
  std::vector<uint32_t> side_uids;
  // PEM files; a certificate without a key, or the other way round, is an error.
  struct Tls {
    std::string certificate, key, client_authorities;
  } tls;
  // File of bearer tokens; empty for none.
  std::string tokens;
  // HOST:PORT of the plaintext listener for probes; empty for none.
  std::string health_listen;
  bool reflection = true;
  // Folder whose safetensors files clients may load; empty for none.
  std::string weights_root;
  // HOST:PORT of the servers that may be a side of a parity check.
  std::vector<std::string> parity_peers;
  // Files with their authorities and with the token that they take; empty for none.
  std::string parity_peer_ca, parity_peer_token_file;
  // HOST:PORT of the metrics; empty for none.
  std::string metrics = "127.0.0.1:9464";
  // Empty offers all.
  std::vector<Backend> backends;
  // Of the host's kernels; 0 takes the number of cores.
  int threads = 0;
  Limits limits;
  double drain_seconds = 5;
  double drain_delay_seconds = 0;
  int64_t watchdog_ms = 30000;
  // A connection that was silent so long is asked whether its peer is there, and closed where there
  // is no answer within the second time.
  int64_t keepalive_ms = 60000;
  int64_t keepalive_timeout_ms = 20000;
  // Of the recording; empty for none.
  std::string record;
  bool record_tensors = false;
  int64_t record_bytes_max = int64_t{1} << 30;
  int64_t record_queue_bytes_max = int64_t{64} << 20;
  // One of so many calls is run twice; 0 for none.
  int64_t replay_every = 0;
  // 0 turns the self-test off.
  double selftest_interval_seconds = 60;
  LogLevel log_level = LogLevel::kInfo;

  enum class Action { kServe, kHelp, kVersion } action = Action::kServe;
};

// INVALID_ARGUMENT naming the flag, the value and what is allowed.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments);

// What --help prints.
std::string OptionsHelp();

}  // namespace rlk::server
