#include "client/cli/chain_render.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "client/cli/comparison_text.h"
#include "client/cli/parity_render.h"

namespace rlk::cli {
namespace {

using client::H3CountReport;
using client::H3Output;
using client::H3StageReport;

const char* VerdictText(client::H3Verdict verdict) {
  switch (verdict) {
    case client::H3Verdict::kPassed:
      return "passed";
    case client::H3Verdict::kInjected:
      return "injected";
    case client::H3Verdict::kInherited:
      return "inherited";
  }
  return "";
}

std::string DigestOf(const rlk::v1::CallReport& report, size_t at) {
  const auto& digests = report.output_digests();
  return static_cast<int>(at) < digests.size() ? digests[static_cast<int>(at)].digest() : "";
}

Json CallJson(const client::H3Call& call) {
  return {{"seconds", call.seconds}, {"report", ReportJson(call.report)}};
}

Json StageJson(const H3StageReport& stage) {
  Json outputs = Json::array();
  for (size_t i = 0; i < stage.outputs.size(); ++i) {
    const H3Output& output = stage.outputs[i];
    outputs.push_back({{"output", output.name},
                       {"digest", DigestOf(stage.checked.report, i)},
                       {"reference_digest", DigestOf(stage.reference.report, i)},
                       {"chain", MessageJson(output.chain)},
                       {"on_reference_inputs", MessageJson(output.alone)}});
  }
  return {{"stage", stage.stage},
          {"method", stage.method},
          {"verdict", VerdictText(stage.verdict)},
          {"same_inputs", stage.same_inputs},
          {"outputs", std::move(outputs)},
          {"chain", CallJson(stage.checked)},
          {"reference", CallJson(stage.reference)}};
}

Json TextsJson(const std::vector<std::string>& texts) {
  Json json = Json::array();
  for (const std::string& text : texts) json.push_back(text);
  return json;
}

Json WeightsJson(const client::H3Report& report, const ChainSource& source) {
  const auto& [channels, hidden, embedding, width] = report.sizes;
  return {{"manifest", source.manifest},
          {"manifest_sha256", source.sha256},
          {"synthetic", report.synthetic},
          {"channels", channels},
          {"hidden", hidden},
          {"embedding", embedding},
          {"width", width}};
}

std::string WeightsText(const client::H3Report& report) {
  const auto& [channels, hidden, embedding, width] = report.sizes;
  return "channels " + std::to_string(channels) + ", hidden " + std::to_string(hidden) +
         ", embedding " + std::to_string(embedding) + ", width " + std::to_string(width);
}

// Of several outputs the worst.
struct Worst {
  int64_t compared = 0, mismatched = 0;
  double max_abs = 0;
};

Worst WorstOf(const H3StageReport& stage, rlk::v1::Comparison H3Output::*part) {
  Worst worst;
  for (const H3Output& output : stage.outputs) {
    const rlk::v1::Comparison& comparison = output.*part;
    worst.compared += comparison.counts().compared();
    worst.mismatched += comparison.counts().mismatched();
    worst.max_abs = std::max(worst.max_abs, comparison.magnitude().max_abs());
  }
  return worst;
}

std::string WorstText(const Worst& worst) {
  return std::to_string(worst.mismatched) + " / " + std::to_string(worst.compared) + " | " +
         Short(worst.max_abs);
}

std::string StageRow(int64_t count, const H3StageReport& stage) {
  const std::string verdict = VerdictText(stage.verdict);
  return "| " + std::to_string(count) + " | " + stage.stage + " | " +
         (stage.verdict == client::H3Verdict::kPassed ? verdict : "**" + verdict + "**") + " | " +
         stage.checked.report.backend() + " | " + stage.checked.report.contract() + " | " +
         WorstText(WorstOf(stage, &H3Output::chain)) + " | " +
         WorstText(WorstOf(stage, &H3Output::alone)) + " | " + Short(stage.checked.seconds) +
         " | " + Short(stage.reference.seconds) + " |\n";
}

std::string FailuresText(const H3CountReport& count) {
  std::string text;
  for (const H3StageReport& stage : count.stages) {
    for (const H3Output& output : stage.outputs) {
      const std::string where =
          "* T = " + std::to_string(count.count) + ", " + stage.stage + " " + output.name;
      if (!output.chain.passed()) {
        text += where + ", in the chain: " + ComparisonLine(output.chain) + "\n";
      }
      if (!output.alone.passed() && !stage.same_inputs) {
        text += where + ", on the reference's inputs: " + ComparisonLine(output.alone) + "\n";
      }
    }
  }
  return text;
}

std::string ListText(const std::string& title, const std::vector<std::string>& lines) {
  std::string text = "\n" + title + "\n";
  if (!lines.empty()) text += "\n";
  for (const std::string& line : lines) text += "* " + line + "\n";
  return text;
}

std::string FirstText(const client::H3Report& report) {
  if (!report.first) return "No stage differs from " + report.reference + ".\n";
  const client::H3Finding& first = *report.first;
  const bool injected = first.verdict == client::H3Verdict::kInjected;
  return "First stage that differs: **" + first.stage + "**, output " + first.output +
         " (T = " + std::to_string(first.count) + "), " + VerdictText(first.verdict) + ": " +
         (injected ? "it differs on the inputs of " : "it passes on the inputs of ") +
         report.reference + (injected ? " too" : "") + ".\n";
}

}  // namespace

Json ChainJson(const client::H3Report& report, const ChainSource& source) {
  Json counts = Json::array();
  for (const H3CountReport& count : report.counts) {
    Json stages = Json::array();
    for (const H3StageReport& stage : count.stages) stages.push_back(StageJson(stage));
    counts.push_back({{"timesteps", count.count}, {"stages", std::move(stages)}});
  }
  Json first = nullptr;
  if (report.first) {
    first = {{"stage", report.first->stage},
             {"output", report.first->output},
             {"verdict", VerdictText(report.first->verdict)},
             {"timesteps", report.first->count}};
  }
  Json values = Json::array();
  for (const float value : report.timesteps) values.push_back(NumberJson(value));
  return {{"chain", "h3"},
          {"passed", report.passed()},
          {"weights", WeightsJson(report, source)},
          {"server", source.server},
          {"version", source.version},
          {"provenance_id", source.provenance_id},
          {"reference", report.reference},
          {"values", std::move(values)},
          {"first_difference", std::move(first)},
          {"rows_compared", report.rows_compared},
          {"rows_that_differ", TextsJson(report.rows_that_differ)},
          {"digests_compared", report.digests_compared},
          {"through_client_differs", TextsJson(report.through_client_differs)},
          {"runs", std::move(counts)}};
}

std::string ChainMarkdown(const client::H3Report& report, const ChainSource& source) {
  std::string text = "# MiniMax-H3 timestep conditioning: ";
  text += report.passed() ? "passed\n\n" : "FAILED\n\n";
  if (report.synthetic.empty()) {
    text += "Weights of the model";
  } else {
    text += "**Made-up weights** (" + report.synthetic + "): nothing here is about the model";
  }
  text += ". " + WeightsText(report) + ". Manifest " + source.manifest + ", SHA-256 " +
          source.sha256 + ". Server " + source.server + ", version " + source.version +
          ", provenance " + source.provenance_id + ".\n\nTimesteps:";
  for (const float value : report.timesteps) {
    char number[32];
    std::snprintf(number, sizeof(number), " %.9g", static_cast<double>(value));
    text += number;
  }
  text += ". Reference: " + report.reference + ".\n\n" + FirstText(report) +
          "\n| T | stage | verdict | backend | contract | differ in the chain | max error | "
          "differ on the reference's inputs | max error | chain, s | reference, s |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  std::string failures;
  for (const H3CountReport& count : report.counts) {
    for (const H3StageReport& stage : count.stages) text += StageRow(count.count, stage);
    failures += FailuresText(count);
  }
  text +=
      "\nElements with other bits than the reference's are counted; what is allowed, the "
      "judgment says.\n";
  if (!failures.empty()) text += "\nOutputs that failed:\n\n" + failures;
  text += ListText("Rows for every T: " + std::to_string(report.rows_compared) + " compared, " +
                       std::to_string(report.rows_that_differ.size()) + " outputs differ.",
                   report.rows_that_differ);
  text += ListText("Stage by stage through the client: " + std::to_string(report.digests_compared) +
                       " digests compared, " +
                       std::to_string(report.through_client_differs.size()) + " differ.",
                   report.through_client_differs);
  return text;
}

}  // namespace rlk::cli
