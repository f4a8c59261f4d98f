#include "client/cli/command.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "client/cli/case_options.h"
#include "client/cli/credentials.h"
#include "client/cli/floor_server.h"
#include "client/cli/numbers.h"
#include "client/cli/parity_options.h"
#include "client/cli/printable.h"
#include "client/cli/render.h"
#include "client/cli/transport_floor.h"
#include "client/cpp/version.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr char kUsage[] = R"(rlk: calls an rlk server.

  rlk health [SERVICE]          exit code 0 where the server, or that service, says SERVING
  rlk --version                 of this command
  rlk info                      server, devices, backends, provenance, limits, capabilities
  rlk ops [OPERATOR]            methods, contracts, claims, backends and why one is unavailable
  rlk call OPERATOR.METHOD NAME=VALUE...
      --contract ID             the arithmetic; default: the method's
      --backend NAME            default: the server selects
      --mode strict|auto        auto allows a fallback that happened while a backend loaded
      --verify repeat|reference run twice and compare bits; compare with the FP64 reference
      --want OUTPUT             compute only this output, or these: may be repeated
      --repeat N                call N times; all digests must be equal
      --out FILE                .safetensors: all outputs under their names; .npy: one output
      --keep OUTPUT             leave this output on the server: may be repeated
    VALUE: a number, file.npy, file.safetensors#key, handle:HEX,
           random:SHAPE:DTYPE:SEED[:SCALE], e.g. random:2x3x257:bf16:7:30
  rlk session open [--ttl S]    prints a token: a session that lives so long after its last use
  rlk session renew [--ttl S] | close
  rlk put VALUE                 leaves a tensor on the server and prints its handle
      --label TEXT --lease S --device UUID
      --reuse                   do not send what the session has already
  rlk get HANDLE --out FILE     .npy or .safetensors
  rlk ls                        the session's tensors
  rlk rm HANDLE...              frees them
  rlk parity check OPERATOR.METHOD NAME=VALUE...   the same call on two sides, compared
      --left BACKEND[:CONTRACT] --right ...        on the server that is asked, or
      --left-server, --right-server ADDR           on another one, which its --parity-peer lists, or
      --left-tensor, --right-tensor OUTPUT=VALUE   what somebody else computed
      --judgment parity|accuracy|invariance        accuracy: one side is golden
      --check-grad --grad-mode random|ones --grad-seed N --grad INPUT=VALUE   gradients too
  rlk parity invariance OPERATOR.METHOD NAME=VALUE...   its rows in other layouts
      --axes repeat,slice,pad,permute,chunk,neighbours,concurrency   default: all
      --backend NAME --contract ID --seed N --repeats N --concurrency N --check-grad ...
  rlk check-operator OPERATOR   an operator against its FP64 reference, on made inputs
      --op OPERATOR             in place of the word
      --candidate BACKEND --contract ID            may be repeated
      --device auto|cpu|cuda[:N]|UUID              of the candidates
      --dtype fp32|bf16|fp16 --batch N --seq N --vocab N --normalized-dim N --k-dim N --n-dim N
      --size LETTER=N --eps X --theta X --n-heads N --head-dim N --token-value N
                                refused, as the sizes are, where the operator has no such thing
      --seed N --input-mode random|constant --constant-value X
      --check-grad --grad-mode random|ones --grad-seed N
      --arch-key none           the tolerance contract has no other rows for an architecture
  rlk weights prepare DIR --out MANIFEST   names, dtypes, shapes and SHA-256 of a checkpoint's weights
      --block N                 whose AdaLN projection (default 0)
      --tensor ROLE=NAME        w1, b1, w2, b2, weight, bias: where the names are others
  rlk weights synthetic DIR     made-up weights of the same structure, which say so
      --full | --sizes CHANNELS,HIDDEN,EMBEDDING,WIDTH   default: small ones
      --seed N --block N --shards N
  rlk chain h3 --weights MANIFEST   MiniMax-H3's timestep conditioning, stage by stage beside golden
      --folder DIR              of the weights, relative to the server's --weights-root
      --backward                sinusoid, mlp, projection and their gradients
      --stages A,B,...          the first stages alone
      --timesteps 1,2,3,4       so many of the values, one run each
      --values X,Y,...          in [0, 1]; default: random ones
      --seed N --grad-seed N    of values and gradients (default 1, 123)
      --backend NAME --contract ID   of the chain; --contract may be repeated
      --reference BACKEND       golden (default; by the tolerance contract), or another: every bit
      --max-period X            of the sinusoid (default 10000)
      --real-weights            refuse made-up ones
      --out FILE                .md or .json; may be repeated
  rlk record FILE               what is in a recording, which rlk-server --record FILE wrote
      --incomplete              also of one that was cut off
  rlk replay FILE               its calls again: exit code 0 where every call gives the same bits
      --backend NAME            default: the server selects
      --stop                    at the first call with other bits
      --incomplete              also of one that was cut off
  rlk digest FILE[#KEY]|random:...  the digest the server reports for that tensor
  rlk compare LEFT RIGHT        two VALUEs, or a VALUE and a digest: equal, or what differs and how
      --judgment J              parity (default), invariance, accuracy
      --op-class C              the row of the tolerance contract: elementwise, reduction, logprob,
                                attention; needed for accuracy
      --gradient                its gradient row
      --axes A,B,...            names of the axes
      --rows N                  rows to list (default 8)
      --without-digests         do not read both once more for their digests
  rlk parity policy ROLLOUT TRAINER   log-probabilities of sampled tokens
      --mask VALUE --cu-seqlens VALUE
      --execution-dtype T       f32, bf16, f16: the thresholds; default: the narrower tensor's
      --rollout-logits VALUE --trainer-logits VALUE
  rlk parity digests ADDR#HANDLE ADDR#HANDLE   two servers: only digests travel, and one row
      --session-left TOKEN --session-right TOKEN   where the servers' sessions are not the same
  rlk bench rpc                 small calls beside an empty gRPC call in the same run
      --calls N --blocks N      latency: calls a block, blocks (default 200, 50)
      --callers A,B,...         throughput: concurrent callers (default 1,4,16,64)
      --seconds S               throughput: length of a block (default 1)
  rlk bench transport           uploads, downloads, calls, beside memcpy, a bare socket, unary bytes
      --bytes-max N --seconds S up to this size (default 1 GiB), so long for each (default 1)
      --arenas-only             calls in shared memory alone
  rlk bench load                many clients, a mix of calls, a fixed number of them
      --calls N --clients N     calls (default 10000), clients with a connection each (default 8)
      --mix NAME[=WEIGHT],...   small, softcap, softcap_backward, rms_norm, rms_norm_backward,
                                det_linear, resident, resident_norm, upload, download, host_arena,
                                device_arena
      --rate R                  open loop: so many calls a second, latency from the time due
      --arrivals uniform|poisson  open loop: equal or random gaps
      --blocks N                two runs alternate, N blocks each; spread and difference
      --turns N                 parts of a block between which they alternate (default: up to 200)
      --against ADDR            the second run's server
      --warm-up N --seed N      calls before (default 1000), of the random choices (default 1)

Everywhere, also before the command: --server ADDR (host:port, unix:/path, or several servers:
ipv4:HOST:PORT,HOST:PORT or dns:///host:port; default 127.0.0.1:50051), --session TOKEN (default:
RLK_SESSION of the environment), --timeout-ms N, --json (one JSON document on stdout).
TLS: --tls, --tls-ca FILE, --tls-cert FILE, --tls-key FILE, --tls-server-name NAME; a bearer token:
--token-file FILE. Defaults: RLK_TLS_CA, RLK_TLS_CERT, RLK_TLS_KEY, RLK_TOKEN_FILE.
Exit codes: 0 ok; 1 refused by the server, or a check of its answer failed; 2 wrong command line or
file; 3 no server answers.
)";

struct Command {
  const char* name;
  Outcome (*run)(const Args&);
  std::vector<OptionSpec> options;
};

std::vector<OptionSpec> CheckOperatorOptions() {
  std::vector<OptionSpec> specs = {
      {"--op"},       {"--candidate", true, true}, {"--contract", true, true},
      {"--device"},   {"--check-grad", false},     {"--grad-mode"},
      {"--grad-seed"}};
  const std::vector<OptionSpec> cases = CaseOptionSpecs();
  specs.insert(specs.end(), cases.begin(), cases.end());
  return specs;
}

std::vector<OptionSpec> ChainOptions() {
  return {{"--weights"},
          {"--folder"},
          {"--backward", false},
          {"--stages"},
          {"--timesteps"},
          {"--values"},
          {"--seed"},
          {"--grad-seed"},
          {"--backend"},
          {"--contract", true, true},
          {"--reference"},
          {"--max-period"},
          {"--real-weights", false},
          {"--out", true, true}};
}

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"health", RunHealth, {}},
      {"info", RunInfo, {}},
      {"ops", RunOps, {}},
      {"call",
       RunCall,
       {{"--contract"},
        {"--backend"},
        {"--mode"},
        {"--verify"},
        {"--want", true, true},
        {"--keep", true, true},
        {"--repeat"},
        {"--out"}}},
      {"digest", RunDigest, {}},
      {"bench", RunBench, AllOptions(BenchVerbs())},
      {"session", RunSession, {{"--ttl"}}},
      {"put", RunPut, {{"--label"}, {"--lease"}, {"--device"}, {"--reuse", false}}},
      {"get", RunGet, {{"--out"}}},
      {"ls", RunLs, {}},
      {"rm", RunRm, {}},
      {"compare",
       RunCompare,
       {{"--judgment"},
        {"--op-class"},
        {"--gradient", false},
        {"--axes"},
        {"--rows"},
        {"--without-digests", false}}},
      {"parity", RunParity, AllOptions(ParityVerbs())},
      {"check-operator", RunCheckOperator, CheckOperatorOptions()},
      {"weights", RunWeights, AllOptions(WeightsVerbs())},
      {"chain", RunChain, ChainOptions()},
      {"record", RunRecord, {{"--incomplete", false}}},
      {"replay", RunReplay, {{"--backend"}, {"--stop", false}, {"--incomplete", false}}},
  };
  return commands;
}

// What every command takes, before its name as well as behind it.
const std::vector<OptionSpec>& CommonOptions() {
  static const std::vector<OptionSpec> options = [] {
    std::vector<OptionSpec> common = {
        {"--server"}, {"--session"}, {"--timeout-ms"}, {"--json", false}};
    const std::vector<OptionSpec> credentials = CredentialOptions();
    common.insert(common.end(), credentials.begin(), credentials.end());
    return common;
  }();
  return options;
}

// The index of the command's name: behind the common options. words.size() where there is none,
// or where an option that is not common stands first.
size_t FindCommand(const std::vector<std::string>& words) {
  size_t at = 0;
  while (at < words.size() && words[at].rfind("--", 0) == 0) {
    const size_t equals = words[at].find('=');
    const auto& options = CommonOptions();
    const auto option = std::find_if(options.begin(), options.end(), [&](const OptionSpec& spec) {
      return words[at].substr(0, equals) == spec.name;
    });
    if (option == options.end()) return words.size();
    at += option->takes_value && equals == std::string::npos ? 2 : 1;
  }
  return std::min(at, words.size());
}

Outcome ErrorOutcome(const absl::Status& status, int exit_code) {
  Outcome outcome;
  outcome.exit_code = exit_code;
  outcome.json = Dump({{"error", StatusJson(status)}});
  outcome.failures.push_back(absl::StatusCodeToString(status.code()) + ": " +
                             std::string(status.message()));
  return outcome;
}

// What may be a command with a letter too many, or an option's name; nothing of what may be a
// secret that was given in its place.
std::string Mistyped(const std::string& word) {
  constexpr size_t kLettersMax = 20;
  const std::string name = word.substr(0, word.find('='));
  const bool letters = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string::npos;
  return letters && name.size() <= kLettersMax ? name : "";
}

Outcome Dispatch(const std::vector<std::string>& words) {
  const size_t at = FindCommand(words);
  const std::string name = at < words.size() ? words[at] : words[0];
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    names.push_back(command.name);
    if (name != command.name) continue;
    std::vector<OptionSpec> options = command.options;
    options.insert(options.end(), CommonOptions().begin(), CommonOptions().end());
    std::vector<std::string> arguments = words;
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
    const absl::StatusOr<Args> args = Args::Parse(arguments, options);
    if (!args.ok()) return UsageError(args.status());
    return command.run(*args);
  }
  return UsageError(InvalidArgument(Reason::kUnknownOption, "COMMAND", Mistyped(name),
                                    client::JoinNames(names), "there is no such command"));
}

bool Contains(const std::vector<std::string>& words, const std::string& word) {
  for (const std::string& candidate : words) {
    if (candidate == "--") return false;
    if (candidate == word) return true;
  }
  return false;
}

}  // namespace

Outcome UsageError(const absl::Status& status) { return ErrorOutcome(status, kExitUsage); }

Outcome ConnectError(const absl::Status& status) {
  return ErrorOutcome(
      status, status.code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitUnreachable);
}

Outcome CallError(const absl::Status& status) {
  // A server that drains says why; silence has no detail.
  const bool silent =
      status.code() == absl::StatusCode::kUnavailable && !GetErrorDetail(status).has_value();
  return ErrorOutcome(status, silent ? kExitUnreachable : kExitRefused);
}

std::string ServerAddress(const Args& args) { return args.Get("--server", "127.0.0.1:50051"); }

std::string SessionToken(const Args& args) {
  const char* environment = std::getenv("RLK_SESSION");
  return args.Get("--session", environment == nullptr ? "" : environment);
}

absl::StatusOr<client::ClientOptions> ClientOptionsOf(const Args& args) {
  client::ClientOptions options;
  RLK_ASSIGN_OR_RETURN(const int64_t timeout_ms,
                       args.GetInteger("--timeout-ms", 0, 1, int64_t{1} << 31));
  if (timeout_ms > 0) {
    options.default_timeout = std::chrono::milliseconds(timeout_ms);
    options.connect_timeout = std::min(options.connect_timeout, *options.default_timeout);
  }
  options.session_token = SessionToken(args);
  RLK_RETURN_IF_ERROR(ReadCredentials(args, ServerAddress(args), options));
  return options;
}

absl::StatusOr<client::Client> Connect(const Args& args) {
  RLK_ASSIGN_OR_RETURN(const client::ClientOptions options, ClientOptionsOf(args));
  return client::Client::Connect(ServerAddress(args), options);
}

namespace {

bool AsksForVersion(const std::vector<std::string>& words) {
  const auto first = std::find_if(words.begin(), words.end(),
                                  [](const std::string& word) { return word != "--json"; });
  return first != words.end() && (*first == "--version" || *first == "version");
}

Outcome VersionOutcome() {
  const std::string version(client::Version());
  return {.json = "{\n  \"version\": \"" + version + "\"\n}", .text = "rlk " + version + "\n"};
}

}  // namespace

int RunCommand(const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  if (words.empty()) {
    err << kUsage;
    return kExitUsage;
  }
  if (words[0] == "help" || Contains(words, "--help") || words[0] == "-h") {
    out << kUsage;
    return kExitOk;
  }
  if (words[0] == kFloorServerCommand) return RunFloorServer(words);
  if (words[0] == kSocketSinkCommand && words.size() == 2) {
    return RunSocketSink(ParseInteger<int64_t>(words[1]).value_or(1));
  }
  const Outcome outcome = AsksForVersion(words) ? VersionOutcome() : Dispatch(words);
  if (Contains(words, "--json")) {
    out << outcome.json << "\n";
  } else {
    out << PrintableLines(outcome.text);
  }
  for (const std::string& failure : outcome.failures) {
    err << "rlk: " << Printable(failure) << "\n";
  }
  return out.flush() ? outcome.exit_code : kExitRefused;
}

}  // namespace rlk::cli
