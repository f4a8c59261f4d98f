// The commands of `rlk`. Each computes an Outcome; RunCommand prints it as text or as one JSON
// document. README.md describes both.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "client/cpp/client.h"

namespace rlk::cli {

inline constexpr int kExitOk = 0;
// The server refused or did not finish the call, or a check of its answer failed.
inline constexpr int kExitRefused = 1;
// The command line, or a file that it names, is wrong. Nothing was sent.
inline constexpr int kExitUsage = 2;
// No server answers.
inline constexpr int kExitUnreachable = 3;

struct Outcome {
  int exit_code = kExitOk;
  // For stdout: one of the two.
  std::string json;
  std::string text;
  // For stderr, one line each; empty when all is well.
  std::vector<std::string> failures = {};
};

// Runs `rlk WORDS...`, with words not counting the program's name.
int RunCommand(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

// An error found before anything was sent: exit code 2.
Outcome UsageError(const absl::Status& status);
// An error of Connect: 2 for a malformed address, otherwise 3.
Outcome ConnectError(const absl::Status& status);
// An error of a call: 3 when no server answers, otherwise 1.
Outcome CallError(const absl::Status& status);

// --timeout-ms, --session, and the credentials.
absl::StatusOr<client::ClientOptions> ClientOptionsOf(const Args& args);
// Connects to --server.
absl::StatusOr<client::Client> Connect(const Args& args);
std::string ServerAddress(const Args& args);
// --session, or RLK_SESSION of the environment; empty for none.
std::string SessionToken(const Args& args);

// Asks grpc.health.v1, as a probe does: no session, no token.
Outcome RunHealth(const Args& args);
Outcome RunInfo(const Args& args);
Outcome RunOps(const Args& args);
Outcome RunCall(const Args& args);
Outcome RunDigest(const Args& args);
Outcome RunBench(const Args& args);
const VerbOptions& BenchVerbs();
// `rlk bench transport`, about `seconds` for each size.
Outcome RunBenchTransport(const Args& args, double seconds);
Outcome RunBenchLoad(const Args& args);
Outcome RunPut(const Args& args);
Outcome RunGet(const Args& args);
Outcome RunLs(const Args& args);
Outcome RunRm(const Args& args);
Outcome RunSession(const Args& args);
Outcome RunCompare(const Args& args);
Outcome RunParity(const Args& args);
// `rlk parity check` and `rlk parity invariance`: `words` are those behind the verb.
Outcome RunParityCheck(const Args& args, const std::vector<std::string>& words);
Outcome RunParityInvariance(const Args& args, const std::vector<std::string>& words);
Outcome RunCheckOperator(const Args& args);
Outcome RunWeights(const Args& args);
const VerbOptions& WeightsVerbs();
Outcome RunChain(const Args& args);
// What is in a recording; its calls, made again.
Outcome RunRecord(const Args& args);
Outcome RunReplay(const Args& args);

}  // namespace rlk::cli
