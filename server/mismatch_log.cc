#include "server/mismatch_log.h"

#include <cmath>
#include <cstdio>
#include <string_view>

#include "server/log/json.h"

namespace rlk::server {
namespace {

std::string Quoted(const std::optional<Digest>& digest) {
  return digest ? JsonString(digest->Text()) : "null";
}

// In front of every element but the first, behind the bracket.
void Separate(std::string& json) {
  if (json.size() > 1) json.push_back(',');
}

std::string Integers(const Dims& dims) {
  std::string text = "[";
  for (const int64_t dim : dims) {
    Separate(text);
    text += std::to_string(dim);
  }
  return text + "]";
}

std::string Number(double value) {
  if (!std::isfinite(value)) return JsonString(std::to_string(value));
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

std::string AttributeText(const AttributeSpec& spec, const AttributeValue& value) {
  switch (spec.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      return Number(value.number);
    case AttributeKind::kI64:
      break;
    case AttributeKind::kBool:
      return value.integer != 0 ? "true" : "false";
    case AttributeKind::kDType:
      return JsonString(DTypeName(static_cast<DType>(value.integer)));
    case AttributeKind::kEnum:
      for (const auto& [number, name] : spec.enumerators) {
        if (number == value.integer) return JsonString(name);
      }
      break;
  }
  return std::to_string(value.integer);
}

std::string AttributesJson(const RepeatMismatch& mismatch) {
  const std::vector<AttributeSpec>& specs = mismatch.method->signature.attributes;
  std::string json = "{";
  for (size_t i = 0; i < specs.size() && i < mismatch.attributes.size(); ++i) {
    Separate(json);
    json += JsonString(specs[i].name) + ":" + AttributeText(specs[i], mismatch.attributes[i]);
  }
  return json + "}";
}

std::string TensorJson(const std::string& name, DType dtype, const Dims& shape) {
  return "{\"name\":" + JsonString(name) + ",\"dtype\":" + JsonString(DTypeName(dtype)) +
         ",\"shape\":" + Integers(shape);
}

std::string InputsJson(const RepeatMismatch& mismatch) {
  constexpr std::string_view kSources[] = {"inline", "resident", "arena"};
  std::string json = "[";
  for (const RepeatMismatch::Input& input : mismatch.inputs) {
    Separate(json);
    json += TensorJson(input.name, input.dtype, input.shape) +
            ",\"strides\":" + Integers(input.strides) +
            ",\"source\":" + JsonString(kSources[static_cast<size_t>(input.source)]) +
            ",\"digest\":" + Quoted(input.digest) + "}";
  }
  return json + "]";
}

std::string OutputsJson(const RepeatMismatch& mismatch) {
  std::string json = "[";
  for (const RepeatMismatch::Output& output : mismatch.outputs) {
    Separate(json);
    json += TensorJson(output.name, output.dtype, output.shape) +
            ",\"digest\":" + Quoted(output.first) + ",\"digest_again\":" + Quoted(output.second) +
            ",\"mismatched\":" + std::to_string(output.comparison.mismatched) +
            ",\"first_index\":" + std::to_string(output.comparison.first) + "}";
  }
  return json + "]";
}

LogField JsonField(std::string_view key, std::string json) {
  LogField field(key, std::string_view());
  field.json = std::move(json);
  return field;
}

}  // namespace

void LogRepeatMismatch(const Logger& logger, const std::string& provenance_id,
                       const RepeatMismatch& mismatch) {
  logger.Log(LogLevel::kError, "two runs of a call gave different bits",
             {{"method", mismatch.method->decl.method},
              {"sampled", mismatch.sampled},
              {"contract", mismatch.contract},
              {"backend", BackendName(mismatch.backend)},
              {"kernel", mismatch.kernel},
              {"device", mismatch.device.name},
              {"device_uuid", mismatch.device.uuid},
              JsonField("attributes", AttributesJson(mismatch)),
              JsonField("inputs", InputsJson(mismatch)),
              JsonField("outputs", OutputsJson(mismatch)),
              {"provenance_id", provenance_id}},
             mismatch.trace_id);
}

}  // namespace rlk::server
