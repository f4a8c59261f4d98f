#include "client/cli/render.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "client/cli/elements.h"
#include "client/cli/printable.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

// Cells count characters of UTF-8, not bytes.
size_t Width(const std::string& cell) {
  return static_cast<size_t>(
      std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string AttributeText(const rlk::v1::AttributeValue& value) {
  switch (value.value_case()) {
    case rlk::v1::AttributeValue::kNumber: {
      const double number = value.number();
      return ElementText(DType::kF64, reinterpret_cast<const std::byte*>(&number));
    }
    case rlk::v1::AttributeValue::kInteger:
      return std::to_string(value.integer());
    case rlk::v1::AttributeValue::kBoolean:
      return value.boolean() ? "true" : "false";
    case rlk::v1::AttributeValue::kDtype:
      return DTypeText(value.dtype());
    case rlk::v1::AttributeValue::kEnumerator:
      return value.enumerator();
    case rlk::v1::AttributeValue::VALUE_NOT_SET:
      break;
  }
  return "?";
}

Json AttributeJson(const rlk::v1::AttributeValue& value) {
  switch (value.value_case()) {
    case rlk::v1::AttributeValue::kNumber:
      return NumberJson(value.number());
    case rlk::v1::AttributeValue::kInteger:
      return value.integer();
    case rlk::v1::AttributeValue::kBoolean:
      return value.boolean();
    default:
      return AttributeText(value);
  }
}

// Maps of protobuf have no order; text and JSON have one.
std::map<std::string, rlk::v1::AttributeValue> Sorted(const rlk::v1::CallReport& report) {
  return {report.attributes().begin(), report.attributes().end()};
}

template <typename Digests>
Json DigestsJson(const Digests& digests) {
  Json json = Json::object();
  for (const rlk::v1::TensorDigest& digest : digests) json[digest.name()] = digest.digest();
  return json;
}

Json VerificationJson(const rlk::v1::VerificationResult& result) {
  Json outputs = Json::array();
  for (const rlk::v1::OutputVerification& output : result.outputs()) {
    outputs.push_back({{"name", output.name()},
                       {"passed", output.passed()},
                       {"compared_elements", output.compared_elements()},
                       {"mismatched_elements", output.mismatched_elements()},
                       {"max_abs_error", NumberJson(output.max_abs_error())},
                       {"max_rel_error", NumberJson(output.max_rel_error())},
                       {"atol", output.atol()},
                       {"rtol", output.rtol()}});
  }
  return {{"verification", EnumText(rlk::v1::Verification_descriptor(), result.verification())},
          {"passed", result.passed()},
          {"outputs", std::move(outputs)},
          {"tolerance_contract_version", result.tolerance_contract_version()},
          {"tolerance_contract_sha256", result.tolerance_contract_sha256()}};
}

std::string VerificationText(const rlk::v1::VerificationResult& result) {
  std::string text = EnumText(rlk::v1::Verification_descriptor(), result.verification()) +
                     (result.passed() ? ": passed" : ": FAILED");
  for (const rlk::v1::OutputVerification& output : result.outputs()) {
    text += "; " + output.name() + ": " + std::to_string(output.compared_elements()) +
            " elements, " + std::to_string(output.mismatched_elements()) + " differ";
    if (result.verification() == rlk::v1::VERIFICATION_REFERENCE) {
      text += ", max error " + Short(output.max_abs_error()) + " absolute, " +
              Short(output.max_rel_error()) + " relative (atol " + Short(output.atol()) +
              ", rtol " + Short(output.rtol()) + ")";
    }
  }
  return text;
}

std::string JoinRepeated(const google::protobuf::RepeatedPtrField<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

}  // namespace

std::string Dump(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

void Table::Add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = Printable(cell);
  rows_.push_back(std::move(row));
}

std::string Table::Text(int indent) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - Width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string ShapeText(const Dims& shape) {
  std::string text;
  for (int64_t size : shape) {
    if (!text.empty()) text += "x";
    text += std::to_string(size);
  }
  return text.empty() ? "scalar" : text;
}

std::string FirstText(const client::Tensor& tensor, int64_t count) {
  const int64_t element = DTypeSize(tensor.dtype());
  std::string text;
  for (int64_t i = 0; i < std::min(count, tensor.elements()); ++i) {
    if (i != 0) text += " ";
    text += ElementText(tensor.dtype(), tensor.bytes().data() + i * element);
  }
  return text + (tensor.elements() > count ? " ..." : "");
}

Json FirstJson(const client::Tensor& tensor, int64_t count) {
  const int64_t element = DTypeSize(tensor.dtype());
  Json first = Json::array();
  for (int64_t i = 0; i < std::min(count, tensor.elements()); ++i) {
    const std::string text = ElementText(tensor.dtype(), tensor.bytes().data() + i * element);
    Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    first.push_back(value.is_discarded() ? Json(text) : value);
  }
  return first;
}

Json NumberJson(double value) {
  if (std::isfinite(value)) return value;
  return ElementText(DType::kF64, reinterpret_cast<const std::byte*>(&value));
}

std::string Short(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.3g", value);
  return buffer;
}

std::string EnumText(const google::protobuf::EnumDescriptor* descriptor, int number) {
  const auto* value = descriptor->FindValueByNumber(number);
  if (value == nullptr) return std::to_string(number);
  // The prefix is the enum's name in capitals with underscores: that of the value 0 before
  // "UNSPECIFIED".
  const std::string& zero = descriptor->FindValueByNumber(0)->name();
  const size_t prefix = zero.rfind("UNSPECIFIED");
  return LowerCase(prefix == std::string::npos ? value->name() : value->name().substr(prefix));
}

std::string ClaimText(rlk::v1::ClaimLevel claim) {
  if (claim == rlk::v1::CLAIM_LEVEL_UNSPECIFIED) return "none";
  std::string text = "L";
  return text += std::to_string(static_cast<int>(claim) - 1);
}

std::string DTypeText(rlk::v1::DataType dtype) {
  return std::string(DTypeName(static_cast<DType>(dtype)));
}

Json DeviceJson(const rlk::v1::DeviceRef& device) {
  return {{"kind", device.kind()},
          {"ordinal", device.ordinal()},
          {"name", device.name()},
          {"uuid", device.uuid()}};
}

std::string DeviceText(const rlk::v1::DeviceRef& device) {
  return device.kind() + ":" + std::to_string(device.ordinal()) + " " + device.name() +
         (device.uuid().empty() ? "" : " (" + device.uuid() + ")");
}

Json StatusJson(const absl::Status& status) {
  Json json = {{"code", absl::StatusCodeToString(status.code())},
               {"message", std::string(status.message())}};
  if (const auto detail = GetErrorDetail(status)) {
    json["reason"] = std::string(ReasonName(detail->reason));
    json["field"] = detail->field;
    json["value"] = detail->value;
    json["allowed"] = detail->allowed;
    if (detail->retry_after_ms != 0) json["retry_after_ms"] = detail->retry_after_ms;
  }
  return json;
}

Json ReportJson(const rlk::v1::CallReport& report) {
  Json rejected = Json::array();
  for (const rlk::v1::RejectedVariant& variant : report.rejected()) {
    rejected.push_back({{"backend", variant.backend()},
                        {"kernel", variant.kernel()},
                        {"reason", variant.reason()}});
  }
  Json fallback = nullptr;
  if (report.has_fallback()) {
    fallback = {{"from_backend", report.fallback().from_backend()},
                {"reason", report.fallback().reason()}};
  }
  Json attributes = Json::object();
  for (const auto& [name, value] : Sorted(report)) attributes[name] = AttributeJson(value);
  const rlk::v1::PhaseDurations& phases = report.phases();
  return {{"contract", report.contract()},
          {"backend", report.backend()},
          {"kernel", report.kernel()},
          {"device", DeviceJson(report.device())},
          {"claim", ClaimText(report.claim())},
          {"rejected", std::move(rejected)},
          {"fallback", std::move(fallback)},
          {"attributes", std::move(attributes)},
          {"input_digests", DigestsJson(report.input_digests())},
          {"output_digests", DigestsJson(report.output_digests())},
          {"verification",
           report.has_verification() ? VerificationJson(report.verification()) : Json(nullptr)},
          {"phases",
           {{"receive_ns", phases.receive_ns()},
            {"queue_ns", phases.queue_ns()},
            {"stage_in_ns", phases.stage_in_ns()},
            {"kernel_ns", phases.kernel_ns()},
            {"stage_out_ns", phases.stage_out_ns()}}},
          {"input_capture", EnumText(rlk::v1::InputCapture_descriptor(), report.input_capture())},
          {"transports",
           std::vector<std::string>(report.transports().begin(), report.transports().end())},
          {"moved_to_resident", std::vector<std::string>(report.moved_to_resident().begin(),
                                                         report.moved_to_resident().end())},
          {"synthetic_inputs", std::vector<std::string>(report.synthetic_inputs().begin(),
                                                        report.synthetic_inputs().end())},
          {"provenance_id", report.provenance_id()}};
}

std::string ReportText(const rlk::v1::CallReport& report) {
  Table table({"report", ""});
  table.Add({"  contract", report.contract()});
  table.Add({"  backend", report.backend()});
  table.Add({"  kernel", report.kernel()});
  table.Add({"  device", DeviceText(report.device())});
  table.Add({"  claim", ClaimText(report.claim())});
  for (const rlk::v1::RejectedVariant& variant : report.rejected()) {
    // A backend that is not there has no kernel to name.
    const std::string kernel = variant.kernel().empty() ? "" : " " + variant.kernel();
    table.Add({"  rejected", variant.backend() + kernel + ": " + variant.reason()});
  }
  table.Add({"  fallback", report.has_fallback() ? report.fallback().from_backend() + ": " +
                                                       report.fallback().reason()
                                                 : "none"});
  std::string attributes;
  for (const auto& [name, value] : Sorted(report)) {
    attributes += (attributes.empty() ? "" : " ") + name + "=" + AttributeText(value);
  }
  table.Add({"  attributes", attributes.empty() ? "none" : attributes});
  table.Add({"  verification",
             report.has_verification() ? VerificationText(report.verification()) : "none asked"});
  const rlk::v1::PhaseDurations& phases = report.phases();
  const auto microseconds = [](int64_t ns) {
    return Short(static_cast<double>(ns) / 1000) + " us";
  };
  table.Add({"  phases", "receive " + microseconds(phases.receive_ns()) + ", queue " +
                             microseconds(phases.queue_ns()) + ", stage in " +
                             microseconds(phases.stage_in_ns()) + ", kernel " +
                             microseconds(phases.kernel_ns()) + ", stage out " +
                             microseconds(phases.stage_out_ns())});
  table.Add(
      {"  input capture", EnumText(rlk::v1::InputCapture_descriptor(), report.input_capture())});
  table.Add({"  transports", JoinRepeated(report.transports())});
  if (report.synthetic_inputs_size() > 0) {
    table.Add({"  made-up inputs", JoinRepeated(report.synthetic_inputs())});
  }
  table.Add({"  provenance", report.provenance_id()});
  return table.Text();
}

}  // namespace rlk::cli
