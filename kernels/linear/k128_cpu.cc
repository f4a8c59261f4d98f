#include "kernels/linear/k128_cpu.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/arith/scalar.h"
#include "kernels/core/cpu_features.h"
#include "kernels/core/for_each_range.h"
#include "kernels/linear/bf16_cpu.h"
#include "kernels/linear/cpu.h"

namespace rlk::linear {

extern const K128Loops kK128LoopsBase, kK128LoopsV3, kK128LoopsV4;

const K128Loops& GetK128Loops(Isa isa) {
  return PickByIsa(isa, kK128LoopsBase, kK128LoopsV3, kK128LoopsV4);
}

namespace {

// Elements of the reduction that are prepared at once: whole chunks.
constexpr int64_t kBand = 32 * kK128Chunk;
// Columns of one step of the pool: a multiple of every vector.
constexpr int64_t kColumnGrain = 64;

// Room for the prepared elements of a band of rows.
class PreparedBand {
 public:
  // Of at most `length` elements.
  PreparedBand(int64_t rows, int64_t length, int64_t terms)
      : chunks_max_((std::min(length, kBand) + kK128Chunk - 1) / kK128Chunk),
        bits_(static_cast<size_t>(rows * chunks_max_ * terms * kK128Chunk)),
        values_(bits_.size()),
        powers_(bits_.size()),
        ranges_(static_cast<size_t>(rows * chunks_max_)),
        rows_{rows, 0, terms, bits_.data(), values_.data(), powers_.data(), ranges_.data()} {}

  // Fills it with `count` elements of each row, source_of(row).
  template <typename SourceOf>
  const K128Rows& Fill(int64_t count, const HostRun& run, const SourceOf& source_of) {
    rows_.chunks = (count + kK128Chunk - 1) / kK128Chunk;
    const K128Loops& loops = GetK128Loops(run.isa);
    ForEachRange(run.pool, rows_.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) loops.prepare(source_of(t), count, t, rows_);
    });
    return rows_;
  }

 private:
  int64_t chunks_max_;
  std::vector<uint16_t> bits_;
  std::vector<float> values_, powers_;
  std::vector<K128Range> ranges_;
  K128Rows rows_;
};

// A matrix of which the columns are reduced, as K128Product has it.
struct Matrix {
  const uint16_t* data = nullptr;
  int64_t stride = 0;
  bool along = false;
  int64_t columns = 0;

  const uint16_t* At(int64_t k, int64_t column) const {
    return data + (along ? column * stride + k : k * stride + column);
  }
};

// Continues sum [rows, columns] over elements [begin, end) of the reduction, in bands:
// fill(first, count) gives the prepared rows.
template <typename Fill>
void Run(const Matrix& matrix, int64_t begin, int64_t end, const HostRun& run, const Fill& fill,
         float* sum) {
  const K128Loops& loops = GetK128Loops(run.isa);
  for (int64_t first = begin; first < end; first += kBand) {
    K128Product product;
    product.length = std::min(end - first, kBand);
    product.rows = fill(first, product.length);
    product.stride = matrix.stride;
    product.along = matrix.along;
    product.sum_stride = matrix.columns;
    ForEachRange(run.pool, matrix.columns, kColumnGrain, [&](int64_t from, int64_t to) {
      K128Product part = product;
      part.matrix = matrix.At(first, from);
      part.columns = to - from;
      part.sum = sum + from;
      loops.accumulate(part);
    });
  }
}

// The parts of a reduction of `length`, each from zero, and their sum: 1, (0 + 1) or
// (0 + 1) + (2 + 3). The result stands in the first `elements` of the storage.
template <typename Fill>
void RunParts(const Matrix& matrix, int64_t length, int64_t parts, int64_t rows, const HostRun& run,
              const Fill& fill, std::vector<float>& storage) {
  const int64_t elements = rows * matrix.columns, part_length = length / parts;
  storage.assign(static_cast<size_t>(parts * elements), 0.0f);
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t end = p + 1 == parts ? length : (p + 1) * part_length;
    Run(matrix, p * part_length, end, run, fill, storage.data() + p * elements);
  }
  for (int64_t step = 1; step < parts; step *= 2) {
    ForEachRange(run.pool, elements, kColumnGrain * rows, [&](int64_t begin, int64_t end) {
      for (int64_t p = 0; p + step < parts; p += 2 * step) {
        float* to = storage.data() + p * elements;
        const float* from = to + step * elements;
        for (int64_t i = begin; i < end; ++i) to[i] = arith::Add(to[i], from[i]);
      }
    });
  }
}

// Stores sums as they are (`acc`) and in one cast (`out`), each where it is wanted. A sum is never
// -0, so that adding the +0 of an absent bias does not change it.
void Store(const float* sum, int64_t count, const HostRun& run, float* acc, const Result& out,
           int64_t offset) {
  const Bf16LinearLoops& loops = GetBf16LinearLoops(run.isa);
  auto* y = static_cast<std::byte*>(out.data);
  if (y != nullptr) y += offset * DTypeSize(out.dtype);
  float* const pre = acc == nullptr ? nullptr : acc + offset;
  ForEachRange(run.pool, count, kBand, [&](int64_t begin, int64_t end) {
    loops.finish(sum + begin, nullptr, end - begin, Activation::kNone,
                 pre == nullptr ? nullptr : pre + begin, out.dtype == DType::kF32,
                 y == nullptr ? nullptr : y + begin * DTypeSize(out.dtype));
  });
}

// chunk128 over rows: db = add(db, P) for each 128 rows of g [rows, outputs], P their sum from +0.
void FoldBias(const float* g, int64_t rows, int64_t outputs, float* db) {
  const FpEnvironment environment;
  std::vector<float> block(static_cast<size_t>(outputs));
  for (int64_t first = 0; first < rows; first += kK128Chunk) {
    std::fill(block.begin(), block.end(), 0.0f);
    const int64_t end = std::min(first + kK128Chunk, rows);
    for (int64_t t = first; t < end; ++t) {
      for (int64_t n = 0; n < outputs; ++n) block[n] = arith::Add(block[n], g[t * outputs + n]);
    }
    for (int64_t n = 0; n < outputs; ++n) db[n] = arith::Add(db[n], block[n]);
  }
}

// `count` sums from their carry, or from zero.
void Start(const float* carry, int64_t offset, int64_t count, std::vector<float>& sum) {
  if (carry == nullptr) {
    sum.assign(static_cast<size_t>(count), 0.0f);
  } else {
    sum.assign(carry + offset, carry + offset + count);
  }
}

int64_t Terms(const GradientSource& grad) { return grad.f32 ? 3 : 1; }

}  // namespace

void ForwardK128Cpu(const Bf16Linear& problem, int64_t parts, const HostRun& run) {
  const auto [total, outputs, inputs] = problem.shape;
  const Matrix weight = {problem.weight, inputs, true, outputs};
  std::vector<float> sums;
  for (int64_t first = 0; first < total; first += kBf16RowsMax) {
    const int64_t rows = std::min(total - first, kBf16RowsMax);
    PreparedBand band(rows, inputs, 1);
    const auto fill = [&, k = inputs](int64_t begin, int64_t count) {
      return band.Fill(count, run, [&](int64_t t) {
        return K128Source{.bf16 = problem.x + (first + t) * k + begin};
      });
    };
    RunParts(weight, inputs, parts, rows, run, fill, sums);
    ForEachRange(run.pool, outputs, kColumnGrain, [&, n = outputs](int64_t begin, int64_t end) {
      for (int64_t t = 0; t < rows; ++t) {
        FinishBf16Row(problem, first + t, begin, end - begin, run, sums.data() + t * n + begin);
      }
    });
  }
}

void BackwardInputK128Cpu(const Bf16BackwardInput& problem, int64_t parts, const HostRun& run) {
  if (problem.grad_x.data == nullptr) return;
  const auto [total, outputs, inputs] = problem.shape;
  const Matrix weight = {problem.weight, inputs, false, inputs};
  std::vector<float> sums, g;
  for (int64_t first = 0; first < total; first += kBf16RowsMax) {
    const int64_t rows = std::min(total - first, kBf16RowsMax);
    PreparedBand band(rows, outputs, Terms(problem.grad));
    const auto fill = [&](int64_t begin, int64_t count) {
      g.resize(static_cast<size_t>(rows * count));
      GatherGradientCpu(problem.grad, first, rows, begin, count, run, g.data());
      return band.Fill(count, run,
                       [&](int64_t t) { return K128Source{.f32 = g.data() + t * count}; });
    };
    RunParts(weight, outputs, parts, rows, run, fill, sums);
    Store(sums.data(), rows * inputs, run, nullptr, problem.grad_x, first * inputs);
    if (problem.temb == nullptr) continue;
    SiluVjpCpu(problem.temb + first * inputs, rows * inputs, run,
               static_cast<float*>(problem.grad_x.data) + first * inputs);
  }
}

void BackwardWeightK128Cpu(const Bf16BackwardWeight& problem, const HostRun& run) {
  const auto [rows, outputs, inputs] = problem.shape;
  const Matrix x = {problem.x, inputs, false, inputs};
  const bool weight = problem.grad_weight.data != nullptr || problem.weight_acc != nullptr;
  const bool bias = problem.grad_bias.data != nullptr || problem.bias_acc != nullptr;
  std::vector<float> g, sums, db;
  for (int64_t n = 0; n < outputs; n += kBf16RowsMax) {
    const int64_t here = std::min(outputs - n, kBf16RowsMax);
    PreparedBand band(here, rows, Terms(problem.grad));
    Start(problem.bias_carry, n, here, db);
    const auto gather = [&](int64_t begin, int64_t count) {
      g.resize(static_cast<size_t>(here * count));
      GatherGradientCpu(problem.grad, begin, count, n, here, run, g.data());
      if (bias) FoldBias(g.data(), count, here, db.data());
    };
    const auto fill = [&](int64_t begin, int64_t count) {
      gather(begin, count);
      return band.Fill(count, run, [&](int64_t output) {
        return K128Source{.f32 = g.data() + output, .stride = here};
      });
    };
    if (weight) {
      Start(problem.weight_carry, n * inputs, here * inputs, sums);
      Run(x, 0, rows, run, fill, sums.data());
      Store(sums.data(), here * inputs, run, problem.weight_acc, problem.grad_weight, n * inputs);
    } else {
      for (int64_t t = 0; t < rows; t += kBand) gather(t, std::min(rows - t, kBand));
    }
    if (bias) Store(db.data(), here, run, problem.bias_acc, problem.grad_bias, n);
  }
}

}  // namespace rlk::linear
