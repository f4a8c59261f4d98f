// rlk weights prepare, rlk weights synthetic: folders of weights, without a server.
#include <unistd.h>

#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/file.h"
#include "client/cli/render.h"
#include "client/cli/value.h"
#include "client/cli/weights_prepare.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr int64_t kBlockMax = 9999;
// The structure of the model, small enough for every test.
constexpr client::H3Sizes kReduced = {.channels = 64, .hidden = 96, .embedding = 48, .width = 16};

absl::Status Bad(const char* field, const std::string& value, const char* allowed) {
  return InvalidArgument(Reason::kUnknownOption, field, value, allowed, "the value is not allowed");
}

// Numbers are numbers here, which the JSON of messages would make strings of.
Json ManifestJson(const rlk::v1::WeightsManifest& manifest) {
  Json tensors = Json::array();
  for (const auto& entry : manifest.tensors()) {
    const rlk::v1::ExpectedTensor& tensor = entry.tensor();
    tensors.push_back(
        {{"role", entry.role()},
         {"tensor",
          {{"key", tensor.key()},
           {"path", tensor.path()},
           {"dtype", rlk::v1::DataType_Name(tensor.dtype())},
           {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
           {"sha256", tensor.sha256()}}}});
  }
  return {{"format", manifest.format()},
          {"model", manifest.model()},
          {"synthetic", manifest.synthetic()},
          {"tensors", std::move(tensors)}};
}

std::string ManifestText(const rlk::v1::WeightsManifest& manifest) {
  Table table({"role", "dtype", "shape", "file", "tensor", "sha256"});
  for (const auto& entry : manifest.tensors()) {
    const rlk::v1::ExpectedTensor& tensor = entry.tensor();
    Dims shape;
    for (const int64_t size : tensor.shape()) shape.push_back(size);
    table.Add({entry.role(), DTypeText(tensor.dtype()), ShapeText(shape), tensor.path(),
               tensor.key(), tensor.sha256().substr(0, 16) + "..."});
  }
  return table.Text() + "values: " +
         (manifest.synthetic().empty() ? std::string("weights of a model")
                                       : "made up (" + manifest.synthetic() + ")") +
         "\n";
}

absl::StatusOr<PrepareOptions> PrepareOptionsOf(const Args& args) {
  PrepareOptions options;
  RLK_ASSIGN_OR_RETURN(options.block, args.GetInteger("--block", 0, 0, kBlockMax));
  for (const std::string& word : args.GetAll("--tensor")) {
    RLK_ASSIGN_OR_RETURN(const auto named, SplitNameValue(word));
    options.names.insert(named);
  }
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [](const std::string& tensor, int64_t done, int64_t total) {
      if (total < (int64_t{16} << 20)) return;
      std::fprintf(stderr, "\rhashing %s: %.0f%%%s", tensor.c_str(),
                   100.0 * static_cast<double>(done) / static_cast<double>(total),
                   done == total ? "\n" : "");
    };
  }
  return options;
}

Outcome Prepare(const Args& args, const std::string& folder) {
  const std::string out = args.Get("--out");
  if (out.empty()) return UsageError(Bad("--out", "", "the manifest to write"));
  const auto options = PrepareOptionsOf(args);
  if (!options.ok()) return UsageError(options.status());
  const auto manifest = PrepareH3Weights(folder, *options);
  if (!manifest.ok()) return UsageError(manifest.status());
  Outcome outcome;
  outcome.json = Dump(ManifestJson(*manifest));
  const std::string text = outcome.json + "\n";
  const absl::Status written = WriteFile(out, {std::as_bytes(std::span(text.data(), text.size()))});
  if (!written.ok()) return UsageError(written);
  outcome.text = ManifestText(*manifest) + "wrote " + out + "\n";
  return outcome;
}

absl::StatusOr<SyntheticOptions> SyntheticOptionsOf(const Args& args) {
  SyntheticOptions options;
  options.sizes = args.Has("--full") ? client::H3Sizes() : kReduced;
  if (args.Has("--sizes")) {
    if (args.Has("--full")) return Bad("--sizes", args.Get("--sizes"), "not beside --full");
    RLK_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, args.GetIntegers("--sizes"));
    if (sizes.size() != 4) {
      return Bad("--sizes", args.Get("--sizes"), "CHANNELS,HIDDEN,EMBEDDING,WIDTH");
    }
    options.sizes = {sizes[0], sizes[1], sizes[2], sizes[3]};
  }
  RLK_ASSIGN_OR_RETURN(const int64_t seed, args.GetInteger("--seed", 1, 0, INT64_MAX));
  options.seed = static_cast<uint64_t>(seed);
  RLK_ASSIGN_OR_RETURN(options.block, args.GetInteger("--block", 0, 0, kBlockMax));
  RLK_ASSIGN_OR_RETURN(options.shards, args.GetInteger("--shards", 3, 1, 6));
  return options;
}

Outcome Synthetic(const Args& args, const std::string& folder) {
  const auto options = SyntheticOptionsOf(args);
  if (!options.ok()) return UsageError(options.status());
  const absl::Status written = WriteSyntheticH3(folder, *options);
  if (!written.ok()) return UsageError(written);
  const auto [channels, hidden, embedding, width] = options->sizes;
  Outcome outcome;
  outcome.json = Dump({{"folder", folder},
                       {"synthetic", "seed " + std::to_string(options->seed)},
                       {"channels", channels},
                       {"hidden", hidden},
                       {"embedding", embedding},
                       {"width", width}});
  outcome.text = "wrote made-up weights to " + folder + "\n";
  return outcome;
}

}  // namespace

const VerbOptions& WeightsVerbs() {
  static const VerbOptions verbs = {
      {"prepare", {{"--out"}, {"--block"}, {"--tensor", true, true}}},
      {"synthetic", {{"--full", false}, {"--sizes"}, {"--seed"}, {"--block"}, {"--shards"}}}};
  return verbs;
}

Outcome RunWeights(const Args& args) {
  const auto& words = args.positional();
  const std::string verb = words.empty() ? "" : words[0];
  if (words.size() != 2 || (verb != "prepare" && verb != "synthetic")) {
    return UsageError(InvalidArgument(Reason::kUnknownOption, "VERB", verb, "prepare, synthetic",
                                      "rlk weights takes a verb and a DIR"));
  }
  const absl::Status own = CheckVerbOptions(args, WeightsVerbs(), "weights", verb);
  if (!own.ok()) return UsageError(own);
  return verb == "prepare" ? Prepare(args, words[1]) : Synthetic(args, words[1]);
}

}  // namespace rlk::cli
