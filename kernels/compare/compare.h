// What two tensors of one shape have that is not the same: numbers that are equal on every device
// and for every number of threads.
//
// Elements are taken in C order, in blocks of kBlockElements; kSegmentBlocks of them are a segment.
// In a block, lane l of 32 adds the elements of its 16 bytes of every 512-byte step, in order; the
// lanes are added in the tree (l, l + 1), (l, l + 2), ... (l, l + 16); blocks are added to their
// segment in order, and segments to the total. Sums are FP64; a product and its sum are rounded
// apart.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/core/parallel.h"

namespace rlk::compare {

inline constexpr int kLanes = 32;
inline constexpr int kVectorBytes = 16;
inline constexpr int64_t kBlockElements = 4096;
inline constexpr int kSegmentBlocks = 16;
inline constexpr int64_t kSegmentElements = kBlockElements * kSegmentBlocks;

// Distances 0, 1, 2, 3-4, 5-8, ..., 2^15+1 - 2^16, above.
inline constexpr int kUlpBuckets = 19;
// The byte that unwritten memory is poisoned with, where that is asked for.
inline constexpr uint8_t kPoisonByte = 0xA5;

// Counters of elements. All but the *Equal ones count elements whose bits differ.
enum Counter : int {
  kMismatched,
  kZeroSign,
  kNanLeft,  // on this side alone
  kNanRight,
  kNanPayload,
  kInfiniteLeft,
  kInfiniteRight,
  kInfiniteSign,
  kUnwrittenLeft,
  kUnwrittenRight,
  kSingleBit,
  kSignDiffers,  // both finite, neither 0
  kOutside,
  kNanEqual,
  kInfiniteEqual,
  kUnwrittenEqual,
  // kUlp + i: finite on both sides, signs not different, a distance in bucket i. Elements of equal
  // bits are not counted here.
  kUlp,
  kCounterCount = kUlp + kUlpBuckets,
};

// Over the elements that are finite on both sides; error is left minus right.
struct Sums {
  double left = 0, right = 0;
  double left_squared = 0, right_squared = 0, product = 0;
  double error = 0, error_absolute = 0, error_squared = 0;
  // Of |left| - |right|.
  double magnitude = 0;
};

// Whether a sum of squares of values that are at most `largest` has lost none of them: FP64 values
// may have squares beyond both ends of FP64's range, those of narrower dtypes have not.
inline bool SquaresKept(double largest, double squared) {
  return largest == 0 || (squared >= 0x1p-960 && squared <= 0x1p1023);
}

// Below every excess.
inline constexpr double kNoExcess = -0x1.fffffffffffffp1023;

struct Extremes {
  double left = 0, right = 0;  // the largest finite magnitudes
  double absolute = 0, relative = 0;
  // The largest |error| - (atol + rtol |right|) where values differ, and the first such element.
  double excess = kNoExcess;
  int64_t excess_index = -1;
  // Distance of two values in representable numbers, also where the signs differ.
  uint64_t ulp = 0;
};

struct Stats {
  int64_t compared = 0;
  std::array<int64_t, kCounterCount> counts = {};
  Sums sums;
  Extremes extremes;
  // The first element whose bits differ.
  int64_t first = -1;
};

struct Spec {
  DType dtype = DType::kUnspecified;
  // Outside is |error| above atol + rtol |right|.
  double atol = 0, rtol = 0;
  double relative_floor = 1e-12;
};

// Adds elements [first, first + count) to `total`, which has seen all before them; `first` is a
// multiple of kSegmentElements. `left` and `right` are the first elements of the contiguous
// tensors. `wide` may be null; else it holds the right side's values, which `right` has rounded to
// the dtype: bits and distances are those of `right`, errors those of `wide`. `pool` may be null.
void Accumulate(const Spec& spec, const void* left, const void* right, const double* wide,
                int64_t first, int64_t count, ThreadPool* pool, Stats& total);

// Rows along the last dimension.
struct RowMismatch {
  int64_t row = 0;
  int64_t mismatched = 0;
};
struct RowStats {
  int64_t mismatched = 0;  // rows with a mismatch
  int64_t first = -1, last = -1;
  int64_t first_column = -1, last_column = -1;
  // or ^ and: the bits that are not the same in all indices of rows (columns) with a mismatch.
  uint64_t row_or = 0, row_and = ~uint64_t{0};
  uint64_t column_or = 0, column_and = ~uint64_t{0};
  // Most mismatches first, of equals the lowest index.
  std::vector<RowMismatch> worst;
  // The rows with a mismatch, in order; the first kListedRows of them.
  std::vector<int64_t> listed;
};
inline constexpr int64_t kListedRows = 4096;
inline constexpr int64_t kCountedRowsMax = int64_t{1} << 24;

// Takes the next row that has a mismatch.
void AddRow(const RowMismatch& row, int rows_max, RowStats& stats);

// At most kCountedRowsMax rows.
RowStats CompareRows(DType dtype, const void* left, const void* right, int64_t rows,
                     int64_t columns, int rows_max, ThreadPool* pool);

uint64_t BucketFirst(int bucket);
uint64_t BucketLast(int bucket);

// `values`, each rounded to nearest even to a narrower or equal floating-point dtype.
void RoundTo(DType dtype, const double* values, int64_t count, void* out);
// Exact, for floating-point dtypes.
void Widen(DType dtype, const void* from, int64_t count, double* out);
// NaN becomes the dtype's canonical one: quiet, positive, all fraction bits set.
void CanonicalizeNan(DType dtype, void* data, int64_t count);

}  // namespace rlk::compare
