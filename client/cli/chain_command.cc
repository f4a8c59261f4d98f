// rlk chain h3: MiniMax-H3's timestep conditioning, stage by stage beside a reference.
#include <unistd.h>

#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include "client/cli/chain_render.h"
#include "client/cli/command.h"
#include "client/cli/file.h"
#include "client/cli/numbers.h"
#include "client/cli/render.h"
#include "client/cli/weights_prepare.h"
#include "client/cpp/h3_chain.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr int64_t kManifestBytesMax = int64_t{1} << 20;

absl::Status Bad(const std::string& field, const std::string& value, const std::string& allowed) {
  return InvalidArgument(Reason::kUnknownOption, field, value, allowed, "the value is not allowed");
}

absl::StatusOr<double> Number(const Args& args, const std::string& option, double fallback) {
  if (!args.Has(option)) return fallback;
  const auto value = ParseNumber(args.Get(option));
  if (!value) return Bad(option, args.Get(option), "a number");
  return *value;
}

absl::StatusOr<std::vector<float>> Values(const Args& args) {
  std::vector<float> values;
  for (const std::string& part : args.GetList("--values")) {
    const auto value = ParseNumber(part);
    if (!value) return Bad("--values", part, "numbers in [0, 1], with commas between them");
    values.push_back(static_cast<float>(*value));
  }
  return values;
}

absl::StatusOr<client::H3CheckOptions> OptionsOf(const Args& args) {
  client::H3CheckOptions options;
  client::H3RunOptions& run = options.run;
  run.backward = args.Has("--backward");
  run.stages = args.GetList("--stages");
  if (run.backward && !run.stages.empty()) {
    return Bad("--stages", args.Get("--stages"), "not beside --backward");
  }
  run.backend = args.Get("--backend");
  run.contracts = args.GetAll("--contract");
  RLK_ASSIGN_OR_RETURN(run.max_period, Number(args, "--max-period", run.max_period));
  RLK_ASSIGN_OR_RETURN(const int64_t gradient_seed,
                       args.GetInteger("--grad-seed", 123, 0, INT64_MAX - 8));
  run.gradient_seed = static_cast<uint64_t>(gradient_seed);
  RLK_ASSIGN_OR_RETURN(const int64_t seed, args.GetInteger("--seed", 1, 0, INT64_MAX));
  options.seed = static_cast<uint64_t>(seed);
  options.reference = args.Get("--reference", options.reference);
  options.load.folder = args.Get("--folder");
  RLK_ASSIGN_OR_RETURN(options.timesteps, Values(args));
  RLK_ASSIGN_OR_RETURN(options.counts, args.GetIntegers("--timesteps"));
  options.real_weights = args.Has("--real-weights");
  for (const std::string& file : args.GetAll("--out")) {
    if (!file.ends_with(".md") && !file.ends_with(".json")) {
      return Bad("--out", file, "FILE.md or FILE.json");
    }
  }
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [](const std::string& step) {
      std::fprintf(stderr, "rlk chain: %s\n", step.c_str());
    };
  }
  return options;
}

absl::StatusOr<std::string> ReadManifest(const std::string& path) {
  RLK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size() > kManifestBytesMax) {
    return Bad("--weights", path, "at most " + std::to_string(kManifestBytesMax) + " bytes");
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  RLK_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

absl::Status WriteReports(const Args& args, const Outcome& outcome) {
  for (const std::string& file : args.GetAll("--out")) {
    const std::string text = file.ends_with(".md") ? outcome.text : outcome.json + "\n";
    RLK_RETURN_IF_ERROR(WriteFile(file, {std::as_bytes(std::span(text.data(), text.size()))}));
  }
  return absl::OkStatus();
}

}  // namespace

Outcome RunChain(const Args& args) {
  if (args.positional() != std::vector<std::string>{"h3"}) {
    return UsageError(Bad("CHAIN", client::JoinNames(args.positional()), "h3"));
  }
  const auto options = OptionsOf(args);
  if (!options.ok()) return UsageError(options.status());
  const auto stages = client::SelectH3Stages(options->run.stages, options->run.backward);
  if (!stages.ok()) return UsageError(stages.status());
  const absl::Status contracts = client::CheckH3Contracts(options->run.contracts);
  if (!contracts.ok()) return UsageError(contracts);
  const auto text = ReadManifest(args.Get("--weights"));
  if (!text.ok()) return UsageError(text.status());
  const auto manifest = client::ParseH3Manifest(*text);
  if (!manifest.ok()) return UsageError(manifest.status());
  if (options->real_weights) {
    const absl::Status real = client::RequireRealWeights(*manifest);
    if (!real.ok()) return UsageError(real);
  }
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto info = client->GetInfo();
  if (!info.ok()) return CallError(info.status());
  const auto report = client::CheckH3Chain(*client, *manifest, *options);
  if (!report.ok()) return CallError(report.status());
  const ChainSource source{.manifest = args.Get("--weights"),
                           .sha256 = Sha256Hex(*text),
                           .server = ServerAddress(args),
                           .provenance_id = info->provenance().id(),
                           .version = info->provenance().version()};
  Outcome outcome;
  outcome.json = Dump(ChainJson(*report, source));
  outcome.text = ChainMarkdown(*report, source);
  if (!report->passed()) {
    outcome.exit_code = kExitRefused;
    outcome.failures.push_back("the chain does not pass");
  }
  const absl::Status written = WriteReports(args, outcome);
  if (!written.ok()) {
    // The report itself is on stdout all the same.
    outcome.exit_code = kExitRefused;
    outcome.failures.emplace_back(written.message());
  }
  return outcome;
}

}  // namespace rlk::cli
