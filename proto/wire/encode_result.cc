#include <string>
#include <utility>

#include "proto/wire/call_codec.h"
#include "proto/wire/check.h"
#include "proto/wire/encode_report.h"
#include "proto/wire/field_writer.h"
#include "proto/wire/signatures.h"
#include "proto/wire/tensor_writer.h"

namespace rlk::wire {
namespace {

// Most reports fit.
constexpr size_t kTextBytes = 768;

}  // namespace

OutputBytes EncodeResult(const CallResult& result, const google::protobuf::Descriptor* descriptor,
                         const ReportContext& context) {
  OutputBytes out;
  out.reserve(2 * result.outputs.size() + 1);
  std::string text;
  for (const OutputTensor& output : result.outputs) {
    const TensorSpec& spec = result.method->signature.outputs[static_cast<size_t>(output.spec)];
    Check(IsTensorField(descriptor->FindFieldByNumber(spec.field_number)),
          "is bound to another response type", result.method->signature.method);
    if (output.resident.has_value()) {
      AppendResident(spec.field_number, {output.dtype, output.shape}, *output.resident, text);
    } else if (output.arena.has_value()) {
      AppendInArena(spec.field_number, {output.dtype, output.shape}, *output.arena, text);
    } else {
      AppendTensor(spec.field_number, {output.dtype, output.shape}, output.data, text, out);
    }
  }
  Check(descriptor->FindFieldByNumber(kReportFieldNumber) != nullptr, "has no report",
        descriptor->full_name());
  text.reserve(text.size() + kTextBytes);
  FieldWriter writer(text);
  const size_t begin = writer.Begin(kReportFieldNumber);
  AppendReport(result, context, text);
  writer.End(begin);
  out.push_back({std::move(text), {}, nullptr});
  return out;
}

OutputBytes EncodeResult(const CallResult& result, const google::protobuf::Descriptor* descriptor,
                         std::string_view provenance_id) {
  return EncodeResult(result, descriptor, ReportContext{provenance_id, {}, {}});
}

}  // namespace rlk::wire
