#include "server/engine/inline_check.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

int64_t RowCount(const Dims& shape) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

int64_t PlannedBytes(const PlannedOutput& output) { return ByteCount(output.shape, output.dtype); }

// Null where no output with bytes is inline.
PlannedOutput* LargestInline(std::vector<PlannedOutput>& outputs) {
  PlannedOutput* largest = nullptr;
  for (PlannedOutput& output : outputs) {
    if (!output.wanted() || output.resident || PlannedBytes(output) == 0) continue;
    if (largest == nullptr || PlannedBytes(output) > PlannedBytes(*largest)) largest = &output;
  }
  return largest;
}

}  // namespace

// Row digests are 16 bytes a row and count: many short rows make more digest than tensor.
absl::Status CheckInlineBytes(const Call& call, const ContractCheckOptions& options,
                              CheckedCall& checked) {
  if (!options.refuse_large_replies || call.in_process) return absl::OkStatus();
  const int64_t bound = options.limits.inline_bytes_max;
  const auto allowed = [bound] {
    return "at most " + std::to_string(bound) + " bytes (inline_bytes_max)";
  };
  int64_t request = 0;
  for (const TensorArg& input : call.inputs) {
    if (input.source == TensorSource::kInline) request += input.data.size;
  }
  if (request > bound) {
    return InvalidArgument(Reason::kMessageTooLarge, "request", std::to_string(request) + " bytes",
                           allowed(), "the request's inline tensors are too large");
  }
  int64_t reply = 0;
  for (const PlannedOutput& output : checked.outputs) {
    if (output.wanted() && !output.resident) reply += PlannedBytes(output);
  }
  if (call.options.digest_rows) {
    constexpr int64_t kRowBytes = 16;
    std::vector<const Dims*> shapes;
    for (const TensorView& view : checked.input_views) shapes.push_back(&view.shape);
    for (const PlannedOutput& output : checked.outputs) {
      if (output.wanted()) shapes.push_back(&output.shape);
    }
    for (const Dims* shape : shapes) {
      const std::optional<int64_t> bytes = CheckedMul(RowCount(*shape), kRowBytes);
      const std::optional<int64_t> total = bytes ? CheckedAdd(reply, *bytes) : std::nullopt;
      reply = total ? *total : INT64_MAX;
      if (!total) break;
    }
  }
  while (reply > bound && options.residents == ContractCheckOptions::Residents::kAvailable) {
    PlannedOutput* const largest = LargestInline(checked.outputs);
    if (largest == nullptr) break;
    largest->resident = largest->moved = true;
    reply -= PlannedBytes(*largest);
  }
  if (reply > bound) {
    return InvalidArgument(Reason::kMessageTooLarge, "reply", std::to_string(reply) + " bytes",
                           allowed(), "the reply would be too large; nothing was computed");
  }
  return absl::OkStatus();
}

}  // namespace rlk::server
