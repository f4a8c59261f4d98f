#include "client/cli/comparison_text.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/value.h"
#include "google/protobuf/descriptor.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// One value of a field, the index-th of a repeated one.
Json ValueJson(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberJson(repeated ? reflection.GetRepeatedDouble(message, field, index)
                                 : reflection.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? reflection.GetRepeatedInt64(message, field, index)
                      : reflection.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? reflection.GetRepeatedInt32(message, field, index)
                      : reflection.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(field->enum_type(), reflection.GetEnumValue(message, field));
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? reflection.GetRepeatedString(message, field, index)
                      : reflection.GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const Message& inner = repeated ? reflection.GetRepeatedMessage(message, field, index)
                                      : reflection.GetMessage(message, field);
      const auto* report = dynamic_cast<const rlk::v1::CallReport*>(&inner);
      return report != nullptr ? ReportJson(*report) : MessageJson(inner);
    }
    default:
      return nullptr;
  }
}

Json MapJson(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<std::pair<std::string, Json>> entries;
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, field, i);
    const auto* type = entry.GetDescriptor();
    entries.emplace_back(entry.GetReflection()->GetString(entry, type->map_key()),
                         ValueJson(entry, type->map_value(), 0));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Json json = Json::object();
  for (auto& [key, value] : entries) json[key] = std::move(value);
  return json;
}

std::string SideText(const rlk::v1::ComparedTensor& side) {
  if (side.dtype() == rlk::v1::DATA_TYPE_UNSPECIFIED) return side.digest();
  std::string text = DTypeText(side.dtype()) + " [";
  for (int i = 0; i < side.shape_size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(side.shape(i));
  }
  return text + "] " + side.digest();
}

std::string Count(int64_t part, int64_t whole) {
  std::string text = std::to_string(part) + " of " + std::to_string(whole);
  if (whole > 0) {
    text += " (" + Short(100.0 * static_cast<double>(part) / static_cast<double>(whole)) + " %)";
  }
  return text;
}

// As many digits as FP32 needs.
std::string Exact(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string MismatchText(const rlk::v1::Mismatch& first) {
  std::string text = "index " + std::to_string(first.flat_index());
  for (const auto& coordinate : first.coordinates()) {
    text += &coordinate == &first.coordinates(0) ? " (" : ", ";
    if (!coordinate.axis().empty()) text += coordinate.axis() + " ";
    text += std::to_string(coordinate.index());
  }
  if (first.coordinates_size() > 0) text += ")";
  return text + ": " + first.left_bits() + " and " + first.right_bits() + ", " +
         Exact(first.left_value()) + " and " + Exact(first.right_value());
}

std::string HistogramText(const rlk::v1::UlpHistogram& ulp) {
  std::string text = "at most " + std::to_string(ulp.max());
  for (int i = 0; i < ulp.buckets_size(); ++i) {
    const rlk::v1::UlpBucket& bucket = ulp.buckets(i);
    if (bucket.elements() == 0) continue;
    text += "; " + std::to_string(bucket.at_least());
    if (i + 1 == ulp.buckets_size()) {
      text += " and more";
    } else if (bucket.at_most() != bucket.at_least()) {
      text += "-" + std::to_string(bucket.at_most());
    }
    text += ": " + std::to_string(bucket.elements());
  }
  if (ulp.sign_differs() > 0) text += "; sign differs: " + std::to_string(ulp.sign_differs());
  if (ulp.not_finite() > 0) text += "; not finite: " + std::to_string(ulp.not_finite());
  return text;
}

std::string ClassesText(const rlk::v1::ComparisonCounts& counts) {
  std::string text;
  const auto* descriptor = counts.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->name() == "compared" || field->name() == "mismatched") continue;
    const int64_t value = counts.GetReflection()->GetInt64(counts, field);
    if (value == 0) continue;
    text += (text.empty() ? "" : ", ") + field->name() + " " + std::to_string(value);
  }
  return text;
}

std::string RowsText(const rlk::v1::ComparisonRows& rows) {
  std::string text = Count(rows.mismatched(), rows.rows()) + ", " + std::to_string(rows.first()) +
                     " to " + std::to_string(rows.last()) + "; columns " +
                     std::to_string(rows.first_column()) + " to " +
                     std::to_string(rows.last_column()) + "; worst:";
  for (const rlk::v1::RowCount& row : rows.worst()) {
    absl::StrAppend(&text, " ", row.row(), " (", row.mismatched(), ")");
  }
  return text;
}

std::string SummaryText(const rlk::v1::Summary& summary) {
  return "min " + Short(summary.min()) + ", mean " + Short(summary.mean()) + ", max " +
         Short(summary.max());
}

std::string Verdict(bool passed) { return passed ? "passed" : "FAILED"; }

}  // namespace

Json MessageJson(const Message& message) {
  Json json = Json::object();
  const auto* descriptor = message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_map()) {
      json[field->name()] = MapJson(message, field);
    } else if (field->is_repeated()) {
      json[field->name()] = Json::array();
      for (int j = 0; j < reflection.FieldSize(message, field); ++j) {
        json[field->name()].push_back(ValueJson(message, field, j));
      }
    } else if (field->has_presence() && !reflection.HasField(message, field)) {
      json[field->name()] = nullptr;
    } else {
      json[field->name()] = ValueJson(message, field, 0);
    }
  }
  return json;
}

std::string ComparisonText(const rlk::v1::Comparison& c) {
  Table table({EnumText(rlk::v1::Judgment_descriptor(), c.judgment()), Verdict(c.passed())});
  table.Add({c.left().role(), SideText(c.left())});
  table.Add({c.right().role(), SideText(c.right())});
  table.Add({"difference", EnumText(rlk::v1::Difference_descriptor(), c.difference())});
  const bool compared = c.counts().compared() > 0 || c.difference() == rlk::v1::DIFFERENCE_NOTHING;
  table.Add({"elements that differ",
             compared ? Count(c.counts().mismatched(), c.counts().compared()) : "not known"});
  if (c.has_first_mismatch()) table.Add({"first", MismatchText(c.first_mismatch())});
  const std::string classes = ClassesText(c.counts());
  if (!classes.empty()) table.Add({"classes", classes});
  if (c.rows().mismatched() > 0) table.Add({"rows", RowsText(c.rows())});
  if (c.counts().mismatched() > 0 && c.ulp().buckets_size() > 0) {
    const rlk::v1::ErrorMagnitude& m = c.magnitude();
    table.Add({"ULP", HistogramText(c.ulp())});
    table.Add({"error", "max " + Short(m.max_abs()) + ", max relative " + Short(m.max_rel()) +
                            ", RMS " + Short(m.root_mean_square()) + ", signed mean " +
                            Short(m.signed_mean()) + ", of magnitudes " +
                            Short(m.magnitude_mean())});
    table.Add({"cosine, Pearson", Short(m.cosine()) + ", " + Short(m.pearson())});
  }
  if (!c.rule().bitwise()) {
    table.Add({"rule", c.rule().row() + ": " + Short(c.rule().atol()) + " + " +
                           Short(c.rule().rtol()) + " |right|; outside " +
                           std::to_string(c.rule().outside()) + ", worst excess " +
                           Short(c.rule().worst_excess())});
  }
  table.Add({"triage", EnumText(rlk::v1::TriageClass_descriptor(), c.triage().triage_class()) +
                           ": " + c.triage().hint()});
  return table.Text();
}

std::string PolicyText(const rlk::v1::PolicyComparison& c) {
  Table table({"policies", Verdict(c.chain().passed())});
  table.Add({"tokens", std::to_string(c.tokens()) + " in " + std::to_string(c.sequences()) +
                           " sequences, " + std::to_string(c.masked()) + " masked, " +
                           std::to_string(c.not_finite()) + " not finite"});
  for (const rlk::v1::ChainValue& value : c.chain().values()) {
    table.Add({value.name(), Short(value.value()) + " (at most " + Short(value.threshold()) + ") " +
                                 Verdict(value.passed())});
  }
  if (!c.chain().failure().empty()) table.Add({"failure", c.chain().failure()});
  const rlk::v1::LogprobDifference& d = c.difference();
  table.Add({"|dlogp|", "mean " + Short(d.mean_abs()) + ", p50 " + Short(d.p50_abs()) + ", p99 " +
                            Short(d.p99_abs()) + ", max " + Short(d.max_abs()) + "; " +
                            Count(d.mismatched(), c.tokens()) + " differ"});
  table.Add(
      {"k1, k2, k3", Short(c.kl().k1()) + ", " + Short(c.kl().k2()) + ", " + Short(c.kl().k3())});
  table.Add({"perplexity", "rollout " + Short(c.perplexity().rollout()) + ", trainer " +
                               Short(c.perplexity().trainer()) + ", ratio " +
                               Short(c.perplexity().ratio())});
  table.Add({"ratio, token", SummaryText(c.ratios().token())});
  table.Add({"ratio, sequence sum", SummaryText(c.ratios().sequence_sum())});
  table.Add({"ratio, sequence mean", SummaryText(c.ratios().sequence_mean())});
  table.Add({"outside [0.8, 1.2]", Short(c.ratios().outside()) + ", above " +
                                       Short(c.ratios().cap()) + ": " +
                                       Short(c.ratios().above_cap())});
  if (c.has_distribution()) {
    const int64_t invalid = c.distribution().not_finite();
    table.Add({"KL, whole", SummaryText(c.distribution().kl()) +
                                (invalid > 0 ? "; " + std::to_string(invalid) +
                                                   " tokens whose logits are no distribution"
                                             : "")});
    table.Add({"greedy flips", Count(c.distribution().greedy_flips(), c.distribution().tokens())});
  }
  if (!c.support_note().empty()) table.Add({"support", c.support_note()});
  for (const rlk::v1::PolicyToken& token : c.worst()) {
    table.Add({"token " + std::to_string(token.flat_index()),
               "sequence " + std::to_string(token.sequence()) + ", position " +
                   std::to_string(token.position()) + ": " + Short(token.rollout()) + ", " +
                   Short(token.trainer()) + ", d " + Short(token.difference())});
  }
  return table.Text();
}

Outcome ComparisonOutcome(const rlk::v1::Comparison& comparison) {
  Outcome outcome;
  outcome.json = Dump(MessageJson(comparison));
  outcome.text = ComparisonText(comparison);
  if (comparison.passed()) return outcome;
  outcome.exit_code = kExitRefused;
  outcome.failures.push_back("the tensors do not pass: " + comparison.triage().hint());
  return outcome;
}

absl::Status LoadSide(const std::string& text, client::Tensor& kept, client::TensorRef& ref) {
  if (IsHandle(text)) {
    RLK_ASSIGN_OR_RETURN(ref.resident, ParseHandle(text));
    return absl::OkStatus();
  }
  RLK_ASSIGN_OR_RETURN(kept, LoadTensor(text));
  ref = kept.ref();
  return absl::OkStatus();
}

}  // namespace rlk::cli
