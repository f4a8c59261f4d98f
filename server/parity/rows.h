// The rows of a call: which of its tensors have one part for each row of the batch, and how a call
// is laid out anew from rows of another. By the signatures alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/registry.h"
#include "server/parity/host_tensor.h"

namespace rlk::server {

// What counts rows in the dims of an operator: the leading "...", or a letter that is the first
// dimension ("T", "3*T").
struct RowAxis {
  bool leading = false;
  char letter = 0;

  // "..." or "T".
  std::string Text() const { return leading ? "..." : std::string(1, letter); }
};

// The axis of an operator: what the first dimension of some input and of every output of a forward
// method is. nullopt where no forward has one.
std::optional<RowAxis> FindRowAxis(const Registry& registry, const std::string& operator_name);

// A row of a layout: a row of the call that is laid out anew, or a filler.
struct LayoutRow {
  int64_t row = 0;  // of the base call; of a filler: its number
  bool filler = false;
};
using Layout = std::vector<LayoutRow>;

// The rows of one call. Rows lie one behind the other in every tensor that has them.
class RowModel {
 public:
  // INVALID_ARGUMENT (kShapeMismatch) where the call's tensors have the axis elsewhere than in
  // front, or do not agree.
  static absl::StatusOr<RowModel> Make(const ValueCall& call, const RowAxis& axis);

  int64_t rows() const { return rows_; }
  bool InputHasRows(int32_t spec) const { return input_rows_[static_cast<size_t>(spec)]; }
  // False for what is summed over the rows.
  bool OutputHasRows(int32_t spec) const { return output_rows_[static_cast<size_t>(spec)]; }

  // The call of a layout: tensors without rows are kept, a leading "..." becomes one dimension.
  // A filler takes each element from a pseudo-random place of the same tensor: its values are such
  // that the operator takes.
  absl::StatusOr<ValueCall> LayOut(const ValueCall& base, std::span<const LayoutRow> layout,
                                   uint64_t seed) const;

  // Compares rows of a layout's output with those of the base's: the first row of the layout that
  // differs, or -1. Fillers are passed over. `elements` is raised by those compared.
  int64_t FirstDifference(const HostTensor& base, const HostTensor& output,
                          std::span<const LayoutRow> layout, int64_t& elements) const;

  // What the output of a layout should be: the base's rows; at fillers what `output` has.
  absl::StatusOr<HostTensor> Expected(const HostTensor& base, const HostTensor& output,
                                      std::span<const LayoutRow> layout) const;

 private:
  absl::StatusOr<HostTensor> LayOutTensor(const HostTensor& base, const DimsPattern& dims,
                                          std::span<const LayoutRow> layout, uint64_t seed) const;

  RowAxis axis_;
  int64_t rows_ = 0;
  std::vector<bool> input_rows_, output_rows_;
};

}  // namespace rlk::server
