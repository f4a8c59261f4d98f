#include "server/parity/evidence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/parity/digests.h"

namespace rlk::server {
namespace {

constexpr int64_t kRuns = 256, kRunElements = 32;
constexpr int64_t kRowsSampled = 32, kColumnsSampled = 4096;

// The same places on every machine, and not in step with any row length.
uint64_t Scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

class Pairs {
 public:
  static absl::StatusOr<Pairs> Make(const ParityTensor& left, const ParityTensor& right) {
    Pairs pairs;
    pairs.dtype_ = left.dtype;
    RLK_ASSIGN_OR_RETURN(pairs.left_, TensorReader::Make(left));
    RLK_ASSIGN_OR_RETURN(pairs.right_, TensorReader::Make(right));
    return pairs;
  }

  absl::Status Read(int64_t begin, int64_t count, std::vector<ValuePair>& out) {
    RLK_ASSIGN_OR_RETURN(const std::vector<double> a, Values(left_, begin, count));
    RLK_ASSIGN_OR_RETURN(const std::vector<double> b, Values(right_, begin, count));
    for (size_t i = 0; i < a.size(); ++i) out.push_back({a[i], b[i]});
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<double>> Values(TensorReader& reader, int64_t begin, int64_t count) {
    RLK_ASSIGN_OR_RETURN(const HostBytes bytes, reader.Read(begin, count));
    std::vector<std::byte> raw(static_cast<size_t>(bytes.size));
    Gather(bytes, raw.data());
    std::vector<double> values(static_cast<size_t>(count));
    compare::Widen(dtype_, raw.data(), count, values.data());
    return values;
  }

  DType dtype_ = DType::kUnspecified;
  TensorReader left_, right_;
};

absl::Status SampleElements(Pairs& pairs, int64_t elements, std::vector<ValuePair>& sample) {
  if (elements <= kRuns * kRunElements) {
    RLK_RETURN_IF_ERROR(pairs.Read(0, elements, sample));
  } else {
    const int64_t stride = elements / kRuns;
    for (int64_t run = 0; run < kRuns; ++run) {
      const auto shift = static_cast<int64_t>(Scramble(static_cast<uint64_t>(run)) %
                                              static_cast<uint64_t>(stride - kRunElements + 1));
      RLK_RETURN_IF_ERROR(pairs.Read(run * stride + shift, kRunElements, sample));
    }
  }
  std::erase_if(sample, [](const ValuePair& pair) {
    return !std::isfinite(pair.left) || !std::isfinite(pair.right);
  });
  return absl::OkStatus();
}

absl::Status SampleRows(Pairs& pairs, TriageEvidence& evidence) {
  if (evidence.rows < 2 || evidence.columns < 2) return absl::OkStatus();
  evidence.sampled_columns = std::min(evidence.columns, kColumnsSampled);
  const int64_t count = std::min(evidence.rows, kRowsSampled);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i * evidence.rows / count;
    RLK_RETURN_IF_ERROR(
        pairs.Read(row * evidence.columns, evidence.sampled_columns, evidence.sampled_rows));
  }
  for (ValuePair& pair : evidence.sampled_rows) {
    if (!std::isfinite(pair.left) || !std::isfinite(pair.right)) pair = {};
  }
  return absl::OkStatus();
}

// In the order of their bytes. Rows that follow each other are read at once.
absl::StatusOr<std::vector<std::array<uint8_t, 16>>> DigestsOfRows(const ParityTensor& tensor,
                                                                   const std::vector<int64_t>& rows,
                                                                   const Interrupt& interrupt) {
  std::vector<std::array<uint8_t, 16>> digests;
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    RLK_ASSIGN_OR_RETURN(const std::vector<Digest> run,
                         RowDigestsOf(tensor, rows[i], static_cast<int64_t>(end - i), interrupt));
    for (const Digest& digest : run) digests.push_back(digest.bytes);
    i = end;
  }
  std::sort(digests.begin(), digests.end());
  return digests;
}

}  // namespace

absl::StatusOr<TriageEvidence> GatherEvidence(const ParityTensor& left, const ParityTensor& right,
                                              const compare::Stats& stats,
                                              const compare::RowStats* rows,
                                              const Interrupt& interrupt) {
  TriageEvidence evidence;
  evidence.dtype = left.dtype;
  evidence.rows = left.rows();
  evidence.columns = left.columns();
  evidence.stats = stats;
  evidence.row_stats = rows;
  if (stats.counts[compare::kMismatched] == 0) return evidence;
  if (rows != nullptr && rows->mismatched >= 2 && rows->mismatched <= compare::kListedRows) {
    RLK_ASSIGN_OR_RETURN(const auto a, DigestsOfRows(left, rows->listed, interrupt));
    RLK_ASSIGN_OR_RETURN(const auto b, DigestsOfRows(right, rows->listed, interrupt));
    evidence.rows_permuted = a == b;
  }
  if (!IsFloat(left.dtype)) return evidence;
  RLK_ASSIGN_OR_RETURN(Pairs pairs, Pairs::Make(left, right));
  RLK_RETURN_IF_ERROR(SampleElements(pairs, left.elements(), evidence.sample));
  RLK_RETURN_IF_ERROR(SampleRows(pairs, evidence));
  return evidence;
}

}  // namespace rlk::server
