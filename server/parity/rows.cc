#include "server/parity/rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"
#include "server/engine/contract_check.h"

namespace rlk::server {
namespace {

bool StartsWith(const DimsPattern& dims, const RowAxis& axis) {
  if (axis.leading) return dims.leading;
  return !dims.leading && !dims.dims.empty() && dims.dims.front().letter == axis.letter;
}

// Whether the axis is a dimension that is not the first.
bool HasElsewhere(const DimsPattern& dims, const RowAxis& axis) {
  if (axis.leading) return false;
  for (size_t i = dims.leading ? 0 : 1; i < dims.dims.size(); ++i) {
    if (dims.dims[i].letter == axis.letter) return true;
  }
  return false;
}

bool IsAxisOf(const MethodSignature& signature, const RowAxis& axis) {
  const auto starts = [&](const TensorSpec& spec) { return StartsWith(spec.dims, axis); };
  return std::any_of(signature.inputs.begin(), signature.inputs.end(), starts) &&
         std::all_of(signature.outputs.begin(), signature.outputs.end(), starts);
}

std::optional<RowAxis> AxisOf(const MethodSignature& signature) {
  for (const TensorSpec& spec : signature.inputs) {
    RowAxis axis{spec.dims.leading, 0};
    if (!axis.leading) {
      if (spec.dims.dims.empty() || spec.dims.dims.front().letter == 0) continue;
      axis.letter = spec.dims.dims.front().letter;
    }
    if (IsAxisOf(signature, axis)) return axis;
  }
  return std::nullopt;
}

// Of a tensor that starts with the axis.
int64_t RowsOf(const DimsPattern& dims, const Dims& shape) {
  if (!dims.leading) return shape[0] / dims.dims.front().factor;
  int64_t rows = 1;
  for (int i = 0; i < shape.rank() - static_cast<int>(dims.dims.size()); ++i) rows *= shape[i];
  return rows;
}

Dims ShapeWithRows(const DimsPattern& dims, const Dims& shape, int64_t rows) {
  Dims out;
  int kept = 1;  // the first dimension that stays
  if (dims.leading) {
    out.push_back(rows);
    kept = shape.rank() - static_cast<int>(dims.dims.size());
  } else {
    out.push_back(rows * dims.dims.front().factor);
  }
  for (int i = kept; i < shape.rank(); ++i) out.push_back(shape[i]);
  return out;
}

int64_t RowBytes(const HostTensor& tensor, int64_t rows) {
  return rows > 0 ? tensor.bytes() / rows : 0;
}

// Elements from pseudo-random places of the tensor itself.
void WriteFiller(const HostTensor& base, int64_t filler, int64_t row_bytes, uint64_t seed,
                 std::byte* to) {
  const int64_t size = DTypeSize(base.dtype);
  const auto elements = static_cast<uint64_t>(base.elements());
  const int64_t row_elements = row_bytes / size;
  for (int64_t j = 0; j < row_elements; ++j) {
    const uint64_t place =
        RandomBits(seed, static_cast<uint64_t>(filler * row_elements + j)) % elements;
    std::memcpy(to + j * size, base.data.get() + static_cast<int64_t>(place) * size,
                static_cast<size_t>(size));
  }
}

}  // namespace

std::optional<RowAxis> FindRowAxis(const Registry& registry, const std::string& operator_name) {
  for (const auto& method : registry.methods()) {
    const MethodSignature& signature = method->signature;
    if (signature.operator_name != operator_name || signature.direction != Direction::kForward) {
      continue;
    }
    if (const std::optional<RowAxis> axis = AxisOf(signature)) return axis;
  }
  return std::nullopt;
}

absl::StatusOr<RowModel> RowModel::Make(const ValueCall& call, const RowAxis& axis) {
  RowModel model;
  model.axis_ = axis;
  const MethodSignature& signature = call.signature();
  const auto mark = [&](const std::vector<TensorSpec>& specs, std::vector<bool>& rows) {
    for (const TensorSpec& spec : specs) {
      rows.push_back(StartsWith(spec.dims, axis));
      if (HasElsewhere(spec.dims, axis)) {
        return InvalidArgument(Reason::kShapeMismatch, spec.name, spec.dims_text,
                               axis.Text() + " as the first dimension, or none",
                               "the rows of the tensor do not lie one behind the other");
      }
    }
    return absl::OkStatus();
  };
  RLK_RETURN_IF_ERROR(mark(signature.inputs, model.input_rows_));
  RLK_RETURN_IF_ERROR(mark(signature.outputs, model.output_rows_));
  bool found = false;
  for (const ValueInput& input : call.inputs) {
    if (!model.InputHasRows(input.spec)) continue;
    const TensorSpec& spec = signature.inputs[static_cast<size_t>(input.spec)];
    const int64_t rows = RowsOf(spec.dims, input.tensor.shape);
    if (found && rows != model.rows_) {
      return InvalidArgument(Reason::kShapeMismatch, spec.name, ShapeText(input.tensor.shape),
                             std::to_string(model.rows_) + " rows", "the tensors do not agree");
    }
    model.rows_ = rows;
    found = true;
  }
  return model;
}

absl::StatusOr<HostTensor> RowModel::LayOutTensor(const HostTensor& base, const DimsPattern& dims,
                                                  std::span<const LayoutRow> layout,
                                                  uint64_t seed) const {
  const auto rows = static_cast<int64_t>(layout.size());
  HostTensor out{base.dtype, ShapeWithRows(dims, base.shape, rows), nullptr};
  RLK_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> data, AllocateElements(out.dtype, out.shape));
  const int64_t row_bytes = RowBytes(base, rows_);
  for (int64_t at = 0; at < rows && row_bytes > 0; ++at) {
    const LayoutRow& row = layout[static_cast<size_t>(at)];
    std::byte* const to = data.get() + at * row_bytes;
    if (row.filler) {
      WriteFiller(base, row.row, row_bytes, seed, to);
    } else {
      std::memcpy(to, base.data.get() + row.row * row_bytes, static_cast<size_t>(row_bytes));
    }
  }
  out.data = std::move(data);
  return out;
}

absl::StatusOr<ValueCall> RowModel::LayOut(const ValueCall& base, std::span<const LayoutRow> layout,
                                           uint64_t seed) const {
  ValueCall call = base;
  for (ValueInput& input : call.inputs) {
    if (!InputHasRows(input.spec)) continue;
    const auto spec = static_cast<size_t>(input.spec);
    // Each input has a stream of its own.
    const uint64_t stream = RandomBits(seed, static_cast<uint64_t>(spec));
    RLK_ASSIGN_OR_RETURN(
        input.tensor,
        LayOutTensor(input.tensor, base.signature().inputs[spec].dims, layout, stream));
  }
  return call;
}

int64_t RowModel::FirstDifference(const HostTensor& base, const HostTensor& output,
                                  std::span<const LayoutRow> layout, int64_t& elements) const {
  const int64_t row_bytes = RowBytes(base, rows_);
  const auto rows = static_cast<int64_t>(layout.size());
  // Another size is a difference of the first row.
  if (output.dtype != base.dtype || output.bytes() != rows * row_bytes) return 0;
  if (row_bytes == 0) return -1;
  for (int64_t at = 0; at < rows; ++at) {
    const LayoutRow& row = layout[static_cast<size_t>(at)];
    if (row.filler) continue;
    elements += row_bytes / DTypeSize(base.dtype);
    if (std::memcmp(output.data.get() + at * row_bytes, base.data.get() + row.row * row_bytes,
                    static_cast<size_t>(row_bytes)) != 0) {
      return at;
    }
  }
  return -1;
}

absl::StatusOr<HostTensor> RowModel::Expected(const HostTensor& base, const HostTensor& output,
                                              std::span<const LayoutRow> layout) const {
  const int64_t row_bytes = RowBytes(base, rows_);
  const auto rows = static_cast<int64_t>(layout.size());
  if (output.dtype != base.dtype || output.bytes() != rows * row_bytes) return base;
  HostTensor out{output.dtype, output.shape, nullptr};
  RLK_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> data, AllocateElements(out.dtype, out.shape));
  for (int64_t at = 0; at < rows; ++at) {
    const LayoutRow& row = layout[static_cast<size_t>(at)];
    const std::byte* const from =
        row.filler ? output.data.get() + at * row_bytes : base.data.get() + row.row * row_bytes;
    std::memcpy(data.get() + at * row_bytes, from, static_cast<size_t>(row_bytes));
  }
  out.data = std::move(data);
  return out;
}

}  // namespace rlk::server
