// The cpu backend: rows in parallel for y, rstd, grad_x and grad_gate; columns in parallel for the
// weight gradient, which walks the rows of its columns in order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/arith/row_sum.h"
#include "kernels/core/cpu_features.h"
#include "kernels/core/for_each_range.h"
#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "kernels/core/strided.h"
#include "kernels/ops/rms_norm/cpu_kernels.h"
#include "kernels/ops/rms_norm/rms_norm.h"

namespace rlk {
namespace {

using rms_norm::Fold;
using rms_norm::Problem;

// Elements of one step of the pool, and columns of one step of the weight gradient.
constexpr int64_t kGrainElements = 16384;
constexpr int64_t kColumns = 512;
// Rows up to this length go several at once, about kBatchElements elements.
constexpr int64_t kNarrowLength = 48;
constexpr int64_t kBatchElements = 1024;

const NormCpuKernels& Kernels(Isa isa) {
  return PickByIsa(isa, kNormCpuKernelsBase, kNormCpuKernelsV3, kNormCpuKernelsV4);
}

int Index(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kNormF16;
    case DType::kBF16:
      return kNormBf16;
    default:
      return kNormF32;
  }
}

// Runs of a tensor as FP32. An absent tensor is not read.
class RowReader {
 public:
  RowReader(const NormCpuKernels& kernels, const TensorView& tensor, int64_t length)
      : kernels_(kernels),
        tensor_(tensor),
        length_(length),
        size_(DTypeSize(tensor.dtype)),
        direct_(tensor.present() && tensor.contiguous() &&
                reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(size_) == 0) {}

  // `count` elements in C order, the first in column `begin` of `row`.
  void Read(int64_t row, int64_t begin, int64_t count, float* out) {
    const int64_t first = row * length_ + begin;
    const void* at = tensor_.as<std::byte>() + first * size_;
    if (!direct_) {
      gathered_.resize(static_cast<size_t>(count * size_));
      GatherElements(tensor_, first, count, gathered_.data());
      at = gathered_.data();
    }
    kernels_.load[Index(tensor_.dtype)](at, out, count);
  }

 private:
  const NormCpuKernels& kernels_;
  const TensorView& tensor_;
  int64_t length_, size_;
  bool direct_;
  std::vector<std::byte> gathered_;
};

int64_t RowGrain(int64_t length) { return std::max<int64_t>(1, kGrainElements / length); }

// Rows that one call of a loop takes.
int64_t BatchRows(int64_t length) { return length <= kNarrowLength ? kBatchElements / length : 1; }

// The FP32 weight as the convention uses it, once for each row of a batch.
std::vector<float> LoadWeight(const NormCpuKernels& kernels, const KernelArgs& args,
                              const Problem& problem) {
  const FpEnvironment environment;
  const int64_t batch = BatchRows(problem.length);
  std::vector<float> weight(static_cast<size_t>(batch * problem.length));
  RowReader(kernels, args.Input("weight"), problem.length)
      .Read(0, 0, problem.length, weight.data());
  kernels.offset_weight(weight.data(), problem.weight_offset, problem.length);
  for (int64_t i = 1; i < batch; ++i) {
    std::copy_n(weight.data(), problem.length, weight.data() + i * problem.length);
  }
  return weight;
}

bool HasGate(const Problem& problem) {
  return problem.convention == rms_norm::Convention::kGated ||
         problem.convention == rms_norm::Convention::kGatedHf;
}

NormRows MakeRows(const Problem& problem, const float* weight) {
  NormRows rows;
  rows.w = weight;
  rows.sigmoid = problem.activation == rms_norm::Activation::kSigmoid;
  rows.round_weighted = problem.round_weighted;
  return rows;
}

void StoreRows(const NormCpuKernels& kernels, const MutableTensorView& out, int64_t row,
               int64_t length, int64_t rows, const float* values) {
  kernels.store[Index(out.dtype)](values, out.as<std::byte>() + row * length * DTypeSize(out.dtype),
                                  rows * length);
}

// What a batch of rows needs beside its elements.
class RowTools {
 public:
  RowTools(const NormCpuKernels& kernels, const Problem& problem)
      : kernels_(kernels),
        problem_(problem),
        batch_(BatchRows(problem.length)),
        buffer_(static_cast<size_t>(arith::kRowSumWidthMax +
                                    (batch_ > 1 ? 2 * batch_ * problem.length : 0))) {}

  // The statistic of each of `rows` rows of x.
  void Statistics(const float* x, int64_t rows, float* r) {
    kernels_.row_sums(x, x, problem_.length, rows, buffer_.data(), r);
    kernels_.statistics(r, rows, static_cast<float>(problem_.length), problem_.eps);
  }
  // k of grad_x.
  void Means(const float* g, const float* xh, int64_t rows, float* k) {
    kernels_.row_sums(g, xh, problem_.length, rows, buffer_.data(), k);
    kernels_.means(k, rows, static_cast<float>(problem_.length));
  }
  // Hands them, [count], to the loops over elements.
  void SetStatistics(const float* r, int64_t count, NormRows* rows) {
    rows->r = r[0];
    if (batch_ > 1) rows->rs = Spread(r, count, spread());
  }
  void SetMeans(const float* k, int64_t count, NormRows* rows) {
    rows->k = k[0];
    if (batch_ > 1) rows->ks = Spread(k, count, spread() + batch_ * problem_.length);
  }

 private:
  float* spread() { return buffer_.data() + arith::kRowSumWidthMax; }
  const float* Spread(const float* values, int64_t count, float* out) const {
    kernels_.spread(values, problem_.length, count, out);
    return out;
  }

  const NormCpuKernels& kernels_;
  const Problem& problem_;
  const int64_t batch_;
  std::vector<float> buffer_;
};

// Everything of the backward that stays in its row. Fills rstd, [rows].
void BackwardRows(const NormCpuKernels& kernels, const KernelArgs& args, const Problem& problem,
                  const std::vector<float>& weight, float* rstd) {
  const int64_t length = problem.length, batch = BatchRows(length);
  const bool gated = HasGate(problem);
  const MutableTensorView& grad_x = args.Output("grad_x");
  const bool want_gate = gated && args.Output("grad_gate").present();
  const bool want_row = grad_x.present() || want_gate;
  const TensorView& given = args.Input("rstd");
  const auto backward =
      kernels.backward[static_cast<int>(problem.convention)][Index(args.Input("x").dtype)];
  ForEachRange(args.pool, problem.rows, RowGrain(length), [&](int64_t begin, int64_t end) {
    RowReader x_reader(kernels, args.Input("x"), length);
    RowReader dy_reader(kernels, args.Input("grad_y"), length);
    RowReader gate_reader(kernels, gated ? args.Input("gate") : args.Input("x"), length);
    RowReader rstd_reader(kernels, given, 1);
    const int64_t size = batch * length;
    std::vector<float> buffer(static_cast<size_t>(6 * size + batch));
    float* x = buffer.data();
    float* dy = x + size;
    float* gate = dy + size;
    float* xh = gate + size;
    float* g = xh + size;
    float* out = g + size;
    float* k = out + size;
    RowTools tools(kernels, problem);
    NormRows rows = MakeRows(problem, weight.data());
    rows.x = x;
    rows.dy = dy;
    rows.gate = gate;
    for (int64_t i = begin; i < end; i += batch) {
      const int64_t count = std::min(batch, end - i);
      rows.count = count * length;
      x_reader.Read(i, 0, rows.count, x);
      if (given.present()) {
        rstd_reader.Read(i, 0, count, &rstd[i]);
      } else {
        tools.Statistics(x, count, &rstd[i]);
      }
      if (!want_row) continue;
      tools.SetStatistics(&rstd[i], count, &rows);
      dy_reader.Read(i, 0, rows.count, dy);
      if (gated) gate_reader.Read(i, 0, rows.count, gate);
      backward(rows, xh, g, out);
      if (want_gate) StoreRows(kernels, args.Output("grad_gate"), i, length, count, out);
      if (!grad_x.present()) continue;
      tools.Means(g, xh, count, k);
      tools.SetMeans(k, count, &rows);
      kernels.grad_x(rows, xh, g, out);
      StoreRows(kernels, grad_x, i, length, count, out);
    }
  });
}

// Columns [begin, end) of the weight gradient, rows ascending.
void FoldColumns(const NormCpuKernels& kernels, const KernelArgs& args, const Problem& problem,
                 const std::vector<float>& weight, const float* rstd, int64_t begin, int64_t end,
                 float* accumulator) {
  const bool gated = HasGate(problem);
  RowReader x_reader(kernels, args.Input("x"), problem.length);
  RowReader dy_reader(kernels, args.Input("grad_y"), problem.length);
  RowReader gate_reader(kernels, gated ? args.Input("gate") : args.Input("x"), problem.length);
  // Whole narrow rows in batches, or a row's columns.
  const int64_t columns = end - begin;
  const int64_t batch = columns == problem.length ? BatchRows(columns) : 1;
  const int64_t size = batch * columns;
  std::vector<float> buffer(static_cast<size_t>(4 * size + columns));
  float* x = buffer.data();
  float* dy = x + size;
  float* gate = dy + size;
  float* c = gate + size;
  float* partial = c + size;
  RowTools tools(kernels, problem);
  NormRows rows = MakeRows(problem, weight.data() + begin);
  rows.x = x;
  rows.dy = dy;
  rows.gate = gate;
  const auto terms =
      kernels.terms[static_cast<int>(problem.convention)][Index(args.Input("x").dtype)];
  const bool chunked = problem.fold == Fold::kChunk128;
  for (int64_t i = 0, count; i < problem.rows; i += count) {
    const int64_t place = i % rms_norm::kChunkRows;  // in its block of chunk128
    count = std::min(batch, problem.rows - i);
    if (chunked) count = std::min(count, rms_norm::kChunkRows - place);
    if (chunked && place == 0) std::fill_n(partial, columns, 0.0f);
    rows.count = count * columns;
    x_reader.Read(i, begin, rows.count, x);
    dy_reader.Read(i, begin, rows.count, dy);
    if (gated) gate_reader.Read(i, begin, rows.count, gate);
    tools.SetStatistics(rstd + i, count, &rows);
    terms(rows, c);
    kernels.add(c, columns, count, chunked ? partial : accumulator);
    const bool last = i + count == problem.rows || place + count == rms_norm::kChunkRows;
    if (chunked && last) kernels.add(partial, columns, 1, accumulator);
  }
}

void WeightGradient(const NormCpuKernels& kernels, const KernelArgs& args, const Problem& problem,
                    const std::vector<float>& weight, const float* rstd) {
  const MutableTensorView& grad_weight = args.Output("grad_weight");
  const MutableTensorView& carry_out = args.Output("dweight_acc");
  if (!grad_weight.present() && !carry_out.present()) return;
  const TensorView& carry_in = args.Input("dweight_acc_in");
  ForEachRange(args.pool, problem.length, kColumns, [&](int64_t begin, int64_t end) {
    std::vector<float> accumulator(static_cast<size_t>(end - begin), 0.0f);
    if (carry_in.present()) {
      RowReader(kernels, carry_in, problem.length).Read(0, begin, end - begin, accumulator.data());
    }
    FoldColumns(kernels, args, problem, weight, rstd, begin, end, accumulator.data());
    const auto store = [&](const MutableTensorView& out) {
      kernels.store[Index(out.dtype)](
          accumulator.data(), out.as<std::byte>() + begin * DTypeSize(out.dtype), end - begin);
    };
    if (grad_weight.present()) store(grad_weight);
    if (carry_out.present()) store(carry_out);
  });
}

}  // namespace

absl::Status RunRmsNormForwardCpu(const KernelArgs& args, Isa isa) {
  const NormCpuKernels& kernels = Kernels(isa);
  const Problem problem = rms_norm::ReadProblem(args);
  const int64_t length = problem.length, batch = BatchRows(length);
  const bool gated = HasGate(problem);
  const MutableTensorView& y = args.Output("y");
  const MutableTensorView& rstd = args.Output("rstd");
  const std::vector<float> weight = LoadWeight(kernels, args, problem);
  const auto forward =
      kernels.forward[static_cast<int>(problem.convention)][Index(args.Input("x").dtype)];
  ForEachRange(args.pool, problem.rows, RowGrain(length), [&](int64_t begin, int64_t end) {
    RowReader x_reader(kernels, args.Input("x"), length);
    RowReader gate_reader(kernels, gated ? args.Input("gate") : args.Input("x"), length);
    const int64_t size = batch * length;
    std::vector<float> buffer(static_cast<size_t>(3 * size + batch));
    float* x = buffer.data();
    float* gate = x + size;
    float* out = gate + size;
    float* r = out + size;
    RowTools tools(kernels, problem);
    NormRows rows = MakeRows(problem, weight.data());
    rows.x = x;
    rows.gate = gate;
    for (int64_t i = begin; i < end; i += batch) {
      const int64_t count = std::min(batch, end - i);
      rows.count = count * length;
      x_reader.Read(i, 0, rows.count, x);
      if (gated) gate_reader.Read(i, 0, rows.count, gate);
      tools.Statistics(x, count, r);
      if (rstd.present()) kernels.store[kNormF32](r, rstd.as<float>() + i, count);
      if (!y.present()) continue;
      tools.SetStatistics(r, count, &rows);
      forward(rows, out);
      StoreRows(kernels, y, i, length, count, out);
    }
  });
  return absl::OkStatus();
}

absl::Status RunRmsNormBackwardCpu(const KernelArgs& args, Isa isa) {
  const NormCpuKernels& kernels = Kernels(isa);
  const Problem problem = rms_norm::ReadProblem(args);
  const std::vector<float> weight = LoadWeight(kernels, args, problem);
  std::vector<float> rstd(static_cast<size_t>(problem.rows));
  BackwardRows(kernels, args, problem, weight, rstd.data());
  WeightGradient(kernels, args, problem, weight, rstd.data());
  return absl::OkStatus();
}

absl::Status LaunchRmsNormForwardCpu(const KernelArgs& args) {
  return RunRmsNormForwardCpu(args, BestIsa());
}

absl::Status LaunchRmsNormBackwardCpu(const KernelArgs& args) {
  return RunRmsNormBackwardCpu(args, BestIsa());
}

}  // namespace rlk
