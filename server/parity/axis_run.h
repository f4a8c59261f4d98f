// One axis of CheckInvariance on one method. Internal.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/parity/check_invariance.h"
#include "server/parity/rows.h"

namespace rlk::server {

// The bytes that outputs are filled with before the n-th run: an element that a kernel leaves out
// cannot look the same twice in a row.
std::byte FillOfRun(int64_t run);

class AxisRun {
 public:
  // Nothing is owned. `model` is null where the method has no rows.
  AxisRun(const RunOf& base, const RowModel* model, CallRunner& runner,
          const InvarianceOptions& options, CheckContext& context)
      : base_(base), model_(model), runner_(runner), options_(options), context_(context) {}

  absl::StatusOr<AxisResult> Run(InvarianceAxis axis);

 private:
  absl::Status Repeat();
  absl::Status Layouts(InvarianceAxis axis);
  absl::Status Chunk();
  absl::Status ChunkRows(int64_t size);
  absl::Status ChunkCarried();
  absl::Status Concurrency();

  // An accumulator that a backward hands from one block of rows to the next: output "dweight_acc",
  // input "dweight_acc_in", and the gradient that is its cast, "grad_weight".
  struct Carry {
    int32_t input = -1, output = -1, gradient = -1;
  };
  std::vector<Carry> Carries() const;
  absl::Status CarryThrough(int64_t size, const std::vector<Carry>& carries);

  // Whether there are rows to lay out; otherwise the axis is not applicable.
  bool NeedRows(int64_t least);
  void NotApplicable(std::string why);
  // What is summed over the rows, by name; empty where nothing is.
  std::string SummedOutputs() const;

  // Compares whole outputs, or those of `only`.
  absl::Status CompareWhole(const std::string& layout, const MethodRun& run,
                            const std::set<int32_t>* only = nullptr);
  absl::Status CompareRows(const std::string& layout, std::span<const LayoutRow> rows,
                           const MethodRun& run);
  absl::Status Differ(const std::string& layout, int32_t output, int64_t row,
                      const HostTensor& expected, const HostTensor& got);
  const HostTensor* BaseOutput(int32_t spec) const;

  const RunOf& base_;
  const RowModel* const model_;
  CallRunner& runner_;
  const InvarianceOptions& options_;
  CheckContext& context_;
  AxisResult result_;
  int64_t runs_ = 0;
};

}  // namespace rlk::server
