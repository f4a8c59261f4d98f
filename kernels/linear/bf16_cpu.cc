#include "kernels/linear/bf16_cpu.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/core/cpu_features.h"
#include "kernels/core/for_each_range.h"
#include "kernels/linear/cpu.h"

namespace rlk::linear {

extern const Bf16LinearLoops kBf16LinearLoopsBase, kBf16LinearLoopsV3, kBf16LinearLoopsV4;

const Bf16LinearLoops& GetBf16LinearLoops(Isa isa) {
  return PickByIsa(isa, kBf16LinearLoopsBase, kBf16LinearLoopsV3, kBf16LinearLoopsV4);
}

namespace {

// Outputs of one step of the pool: a multiple of every vector.
constexpr int64_t kOutputGrain = 64;
constexpr int64_t kElementGrain = 16384;
// Outputs whose gradient stands in memory at once.
constexpr int64_t kGradientOutputs = 4096;

// Where channel `channel` of row `row` stands, and how many channels follow in one piece.
struct Place {
  int view;
  int64_t offset, left;
};

Place PlaceOf(int64_t view_width, int64_t outputs, int64_t row, int64_t channel) {
  if (view_width == 0) return {0, row * outputs + channel, outputs - channel};
  const int64_t chunk = channel / view_width, column = channel % view_width;
  const int64_t modality = chunk / kViews;
  return {static_cast<int>(chunk % kViews), (row * 3 + modality) * view_width + column,
          view_width - column};
}

// Rows of x as the loops read them.
class PreparedRows {
 public:
  PreparedRows(const Bf16LinearLoops& loops, const Bf16Linear& problem, int64_t first, int64_t rows)
      : padded_((problem.shape.inputs + kBf16Block - 1) / kBf16Block * kBf16Block),
        bits_(static_cast<size_t>(rows * padded_), 0),
        values_(bits_.size()),
        powers_(bits_.size()),
        fast_(bits_.size() / kBf16Block) {
    for (int64_t t = 0; t < rows; ++t) {
      std::copy_n(problem.x + (first + t) * problem.shape.inputs, problem.shape.inputs,
                  bits_.data() + t * padded_);
    }
    loops.prepare(rows, padded_, bits_.data(), values_.data(), powers_.data(), fast_.data());
    rows_ = {rows, padded_, bits_.data(), values_.data(), powers_.data(), fast_.data()};
  }
  const Bf16Rows& rows() const { return rows_; }

 private:
  int64_t padded_;
  std::vector<uint16_t> bits_;
  std::vector<float> values_, powers_;
  std::vector<uint8_t> fast_;
  Bf16Rows rows_;
};

void* At(void* data, DType dtype, int64_t index) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + index * DTypeSize(dtype);
}

}  // namespace

void FinishBf16Row(const Bf16Linear& problem, int64_t row, int64_t begin, int64_t count,
                   const HostRun& run, const float* total) {
  const Bf16LinearLoops& loops = GetBf16LinearLoops(run.isa);
  const Bf16Output& out = problem.out;
  const int64_t outputs = problem.shape.outputs;
  for (int64_t done = 0; done < count;) {
    const int64_t n = begin + done;
    const Place place = PlaceOf(out.view_width, outputs, row, n);
    const int64_t piece = std::min(place.left, count - done);
    auto* y = static_cast<std::byte*>(out.views[place.view]);
    if (y != nullptr) y += place.offset * (out.f32 ? 4 : 2);
    loops.finish(total + done, problem.bias != nullptr ? problem.bias + n : nullptr, piece,
                 out.activation, out.pre != nullptr ? out.pre + row * outputs + n : nullptr,
                 out.f32, y);
    done += piece;
  }
}

void ForwardBf16Cpu(const Bf16Linear& problem, const HostRun& run) {
  const Bf16LinearLoops& loops = GetBf16LinearLoops(run.isa);
  for (int64_t first = 0; first < problem.shape.rows; first += kBf16RowsMax) {
    const int64_t rows = std::min(problem.shape.rows - first, kBf16RowsMax);
    const PreparedRows prepared(loops, problem, first, rows);
    ForEachRange(run.pool, problem.shape.outputs, kOutputGrain, [&](int64_t begin, int64_t end) {
      std::vector<float> total(static_cast<size_t>(rows * kOutputGrain));
      for (int64_t n = begin; n < end; n += kOutputGrain) {
        Bf16Forward call;
        call.x = prepared.rows();
        call.length = problem.shape.inputs;
        call.weight = problem.weight + n * call.length;
        call.columns = std::min(end - n, kOutputGrain);
        call.total = total.data();
        call.total_stride = kOutputGrain;
        loops.forward(call);
        for (int64_t t = 0; t < rows; ++t) {
          FinishBf16Row(problem, first + t, n, call.columns, run, total.data() + t * kOutputGrain);
        }
      }
    });
  }
}

void GatherGradientCpu(const GradientSource& grad, int64_t first, int64_t rows, int64_t begin,
                       int64_t count, const HostRun& run, float* g) {
  const Bf16LinearLoops& loops = GetBf16LinearLoops(run.isa);
  ForEachRange(run.pool, rows, 1, [&](int64_t row_begin, int64_t row_end) {
    for (int64_t t = row_begin; t < row_end; ++t) {
      for (int64_t done = 0; done < count;) {
        const Place place = PlaceOf(grad.view_width, grad.outputs, first + t, begin + done);
        const int64_t piece = std::min(place.left, count - done);
        const auto* from = static_cast<const std::byte*>(grad.views[place.view]);
        float* to = g + t * count + done;
        if (from == nullptr) {
          std::fill_n(to, piece, 0.0f);
        } else {
          loops.convert(from + place.offset * (grad.f32 ? 4 : 2), grad.f32, piece, to);
        }
        done += piece;
      }
    }
  });
}

void BackwardInputBf16Cpu(const Bf16BackwardInput& problem, const HostRun& run) {
  if (problem.grad_x.data == nullptr) return;
  const int64_t outputs = problem.shape.outputs, inputs = problem.shape.inputs;
  std::vector<float> g(static_cast<size_t>(std::min(problem.shape.rows, kBf16RowsMax) * outputs));
  for (int64_t first = 0; first < problem.shape.rows; first += kBf16RowsMax) {
    const int64_t rows = std::min(problem.shape.rows - first, kBf16RowsMax);
    GatherGradientCpu(problem.grad, first, rows, 0, outputs, run, g.data());
    const DType dtype = problem.grad_x.dtype;
    BackwardInput part;
    part.shape = {rows, outputs, inputs};
    part.g = g.data();
    part.weight = {DType::kBF16, problem.weight};
    part.grad_x = {dtype, At(problem.grad_x.data, dtype, first * inputs)};
    BackwardInputCpu(part, run);
    if (problem.temb == nullptr) continue;
    SiluVjpCpu(problem.temb + first * inputs, rows * inputs, run,
               static_cast<float*>(problem.grad_x.data) + first * inputs);
  }
}

void BackwardWeightBf16Cpu(const Bf16BackwardWeight& problem, const HostRun& run) {
  const int64_t rows = problem.shape.rows, inputs = problem.shape.inputs;
  std::vector<float> g;
  for (int64_t n = 0; n < problem.shape.outputs; n += kGradientOutputs) {
    const int64_t count = std::min(problem.shape.outputs - n, kGradientOutputs);
    g.resize(static_cast<size_t>(rows * count));
    GatherGradientCpu(problem.grad, 0, rows, n, count, run, g.data());
    const auto offset = [](auto* data, int64_t by) { return data == nullptr ? data : data + by; };
    BackwardWeight part;
    part.shape = {rows, count, inputs};
    part.g = g.data();
    part.x = {DType::kBF16, problem.x};
    part.weight_carry = offset(problem.weight_carry, n * inputs);
    part.bias_carry = offset(problem.bias_carry, n);
    part.weight_acc = offset(problem.weight_acc, n * inputs);
    part.bias_acc = offset(problem.bias_acc, n);
    const DType dtype = problem.grad_weight.dtype;
    part.grad_weight = {dtype, At(problem.grad_weight.data, dtype, n * inputs)};
    part.grad_bias = {problem.grad_bias.dtype,
                      At(problem.grad_bias.data, problem.grad_bias.dtype, n)};
    BackwardWeightCpu(part, run);
  }
}

void SiluBf16Cpu(const float* temb, int64_t elements, const HostRun& run, uint16_t* out) {
  const Bf16LinearLoops& loops = GetBf16LinearLoops(run.isa);
  ForEachRange(run.pool, elements, kElementGrain, [&](int64_t begin, int64_t end) {
    loops.silu(temb + begin, end - begin, out + begin);
  });
}

void SiluF32Cpu(const float* temb, int64_t elements, const HostRun& run, float* out) {
  const Bf16LinearLoops& loops = GetBf16LinearLoops(run.isa);
  ForEachRange(run.pool, elements, kElementGrain, [&](int64_t begin, int64_t end) {
    loops.silu_f32(temb + begin, end - begin, out + begin);
  });
}

void SiluVjpCpu(const float* temb, int64_t elements, const HostRun& run, float* grad) {
  const Bf16LinearLoops& loops = GetBf16LinearLoops(run.isa);
  ForEachRange(run.pool, elements, kElementGrain, [&](int64_t begin, int64_t end) {
    loops.silu_vjp(grad + begin, temb + begin, end - begin, grad + begin);
  });
}

}  // namespace rlk::linear
