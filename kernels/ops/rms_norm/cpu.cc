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

// Runs of one row of a tensor as FP32. An absent tensor is not read.
class RowReader {
 public:
  RowReader(const NormCpuKernels& kernels, const TensorView& tensor, int64_t length)
      : kernels_(kernels),
        tensor_(tensor),
        length_(length),
        size_(DTypeSize(tensor.dtype)),
        direct_(tensor.present() && tensor.contiguous() &&
                reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(size_) == 0) {}

  // Columns [begin, begin + count) of `row`.
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

// The FP32 weight as the convention uses it.
std::vector<float> LoadWeight(const NormCpuKernels& kernels, const KernelArgs& args,
                              const Problem& problem) {
  const FpEnvironment environment;
  std::vector<float> weight(static_cast<size_t>(problem.length));
  RowReader(kernels, args.Input("weight"), problem.length)
      .Read(0, 0, problem.length, weight.data());
  kernels.offset_weight(weight.data(), problem.weight_offset, problem.length);
  return weight;
}

bool HasGate(const Problem& problem) {
  return problem.convention == rms_norm::Convention::kGated ||
         problem.convention == rms_norm::Convention::kGatedHf;
}

NormRow MakeRow(const Problem& problem, const float* weight) {
  NormRow row;
  row.w = weight;
  row.sigmoid = problem.activation == rms_norm::Activation::kSigmoid;
  row.round_weighted = problem.round_weighted;
  row.count = problem.length;
  return row;
}

void StoreRow(const NormCpuKernels& kernels, const MutableTensorView& out, int64_t row,
              int64_t length, const float* values) {
  kernels.store[Index(out.dtype)](values, out.as<std::byte>() + row * length * DTypeSize(out.dtype),
                                  length);
}

float Statistic(const NormCpuKernels& kernels, const Problem& problem, const float* x,
                float* accumulators) {
  return kernels.statistic(kernels.row_sum(x, x, problem.length, accumulators),
                           static_cast<float>(problem.length), problem.eps);
}

// Everything of the backward that stays in its row. Fills rstd, [rows].
void BackwardRows(const NormCpuKernels& kernels, const KernelArgs& args, const Problem& problem,
                  const std::vector<float>& weight, float* rstd) {
  const int64_t length = problem.length;
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
    std::vector<float> buffer(static_cast<size_t>(6 * length + arith::kRowSumWidthMax));
    float* x = buffer.data();
    float* dy = x + length;
    float* gate = dy + length;
    float* xh = gate + length;
    float* g = xh + length;
    float* out = g + length;
    float* accumulators = out + length;
    NormRow row = MakeRow(problem, weight.data());
    row.x = x;
    row.dy = dy;
    row.gate = gate;
    for (int64_t i = begin; i < end; ++i) {
      x_reader.Read(i, 0, length, x);
      if (given.present()) {
        rstd_reader.Read(i, 0, 1, &rstd[i]);
      } else {
        rstd[i] = Statistic(kernels, problem, x, accumulators);
      }
      if (!want_row) continue;
      row.r = rstd[i];
      dy_reader.Read(i, 0, length, dy);
      if (gated) gate_reader.Read(i, 0, length, gate);
      backward(row, xh, g, out);
      if (want_gate) StoreRow(kernels, args.Output("grad_gate"), i, length, out);
      if (!grad_x.present()) continue;
      const float dot = kernels.row_sum(g, xh, length, accumulators);
      const float k = kernels.mean(dot, static_cast<float>(length));
      kernels.grad_x(xh, g, row.r, k, out, length);
      StoreRow(kernels, grad_x, i, length, out);
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
  const int64_t count = end - begin;
  std::vector<float> buffer(static_cast<size_t>(5 * count));
  float* x = buffer.data();
  float* dy = x + count;
  float* gate = dy + count;
  float* c = gate + count;
  float* partial = c + count;
  NormRow row = MakeRow(problem, weight.data() + begin);
  row.x = x;
  row.dy = dy;
  row.gate = gate;
  row.count = count;
  const auto terms =
      kernels.terms[static_cast<int>(problem.convention)][Index(args.Input("x").dtype)];
  const bool chunked = problem.fold == Fold::kChunk128;
  for (int64_t i = 0; i < problem.rows; ++i) {
    if (chunked && i % rms_norm::kChunkRows == 0) std::fill_n(partial, count, 0.0f);
    x_reader.Read(i, begin, count, x);
    dy_reader.Read(i, begin, count, dy);
    if (gated) gate_reader.Read(i, begin, count, gate);
    row.r = rstd[i];
    terms(row, c);
    kernels.add(c, chunked ? partial : accumulator, count);
    const bool last = i + 1 == problem.rows || (i + 1) % rms_norm::kChunkRows == 0;
    if (chunked && last) kernels.add(partial, accumulator, count);
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
  const int64_t length = problem.length;
  const bool gated = HasGate(problem);
  const MutableTensorView& y = args.Output("y");
  const MutableTensorView& rstd = args.Output("rstd");
  const std::vector<float> weight = LoadWeight(kernels, args, problem);
  const auto forward =
      kernels.forward[static_cast<int>(problem.convention)][Index(args.Input("x").dtype)];
  ForEachRange(args.pool, problem.rows, RowGrain(length), [&](int64_t begin, int64_t end) {
    RowReader x_reader(kernels, args.Input("x"), length);
    RowReader gate_reader(kernels, gated ? args.Input("gate") : args.Input("x"), length);
    std::vector<float> buffer(static_cast<size_t>(3 * length + arith::kRowSumWidthMax));
    float* x = buffer.data();
    float* gate = x + length;
    float* out = gate + length;
    NormRow row = MakeRow(problem, weight.data());
    row.x = x;
    row.gate = gate;
    for (int64_t i = begin; i < end; ++i) {
      x_reader.Read(i, 0, length, x);
      if (gated) gate_reader.Read(i, 0, length, gate);
      row.r = Statistic(kernels, problem, x, out + length);
      if (rstd.present()) kernels.store[kNormF32](&row.r, rstd.as<float>() + i, 1);
      if (!y.present()) continue;
      forward(row, out);
      StoreRow(kernels, y, i, length, out);
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
