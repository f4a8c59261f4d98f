#include "server/parity/compare_outputs.h"

#include <utility>

#include "kernels/compare/compare.h"

namespace rlk::server {
namespace {

ParityTensor ToParityTensor(const HostTensor& tensor) {
  ParityTensor out;
  out.dtype = tensor.dtype;
  out.shape = tensor.shape;
  out.data = tensor.data.get();
  out.owner = tensor.data;
  return out;
}

}  // namespace

absl::StatusOr<Comparison> CompareBitsOf(const HostTensor& left, const HostTensor& right,
                                         Judgment judgment, const Interrupt& interrupt) {
  ComparisonOptions options;
  options.judgment = judgment;
  // No tolerance is looked at.
  const ComparisonContext context = {&ToleranceContract::Builtin(), nullptr};
  return CompareTensors(ToParityTensor(left), ToParityTensor(right), options, context, interrupt);
}

absl::StatusOr<Comparison> CompareWithGolden(const Method& method, const HostTensor& candidate,
                                             const HostTensor& golden,
                                             const ToleranceContract& tolerance,
                                             const Interrupt& interrupt) {
  ComparisonOptions options;
  options.judgment = Judgment::kAccuracy;
  options.tolerance =
      ToleranceRow{method.signature.op_class, method.signature.direction == Direction::kBackward};
  return CompareTensors(ToParityTensor(candidate), ToParityTensor(golden), options,
                        {&tolerance, nullptr}, interrupt);
}

bool HasCanaries(const Comparison& comparison) {
  const auto& counts = comparison.stats.counts;
  return counts[compare::kUnwrittenLeft] + counts[compare::kUnwrittenRight] +
             counts[compare::kUnwrittenEqual] >
         0;
}

}  // namespace rlk::server
