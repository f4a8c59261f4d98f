#include "server/parity/axis_run.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"
#include "server/parity/compare_outputs.h"
#include "server/parity/concurrent_runs.h"

namespace rlk::server {
namespace {

constexpr int64_t kRepeatsDefault = 1024;
constexpr int64_t kConcurrencyDefault = 4;
// Calls of one caller of kConcurrency.
constexpr int64_t kConcurrentRounds = 8;

// Of the base run's inputs and outputs.
int64_t RunBytes(const RunOf& base) {
  int64_t bytes = 0;
  for (const ValueInput& input : base.call.inputs) bytes += input.tensor.bytes();
  for (const ValueOutput& output : base.run.outputs) bytes += output.tensor.bytes();
  return bytes;
}

bool SameBytes(const HostTensor& a, const HostTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape &&
         (a.bytes() == 0 ||
          std::memcmp(a.data.get(), b.data.get(), static_cast<size_t>(a.bytes())) == 0);
}

const HostTensor* FindSpec(const std::vector<ValueOutput>& outputs, int32_t spec) {
  for (const ValueOutput& output : outputs) {
    if (output.spec == spec) return &output.tensor;
  }
  return nullptr;
}

// What the axis changed says more than what the bits look like, unless nobody wrote them.
void Explain(InvarianceAxis axis, Triage& triage) {
  if (triage.triage == TriageClass::kUnwritten) return;
  const bool same_call = axis == InvarianceAxis::kRepeat || axis == InvarianceAxis::kConcurrency;
  triage.triage = same_call ? TriageClass::kNotRepeatable : TriageClass::kBatchDependent;
  triage.hint = absl::StrCat(
      same_call ? "two runs of one call differ; " : "a row depends on the layout of the batch; ",
      triage.hint);
}

}  // namespace

std::byte FillOfRun(int64_t run) {
  constexpr std::array<uint8_t, 4> kFills = {0xA5, 0x5A, 0xFF, 0x00};
  return std::byte{kFills[static_cast<size_t>(run % 4)]};
}

absl::StatusOr<AxisResult> AxisRun::Run(InvarianceAxis axis) {
  result_ = {};
  result_.method = base_.call.method;
  result_.axis = axis;
  absl::Status status;
  switch (axis) {
    case InvarianceAxis::kRepeat:
      status = Repeat();
      break;
    case InvarianceAxis::kChunk:
      status = Chunk();
      break;
    case InvarianceAxis::kConcurrency:
      status = Concurrency();
      break;
    default:
      status = Layouts(axis);
  }
  RLK_RETURN_IF_ERROR(status);
  return std::move(result_);
}

absl::Status AxisRun::Repeat() {
  int64_t repeats = options_.repeats;
  if (repeats == 0) {
    const int64_t share = context_.work_bytes_max() / 16;
    repeats =
        std::clamp<int64_t>(share / std::max<int64_t>(RunBytes(base_), 1), 2, kRepeatsDefault);
  }
  for (int64_t i = 1; i <= repeats && result_.passed(); ++i) {
    RLK_ASSIGN_OR_RETURN(const MethodRun run, runner_.Run(base_.call, FillOfRun(i), context_));
    RLK_RETURN_IF_ERROR(CompareWhole(absl::StrCat("run ", i, " of ", repeats), run));
    ++result_.layouts;
  }
  return absl::OkStatus();
}

absl::Status AxisRun::Layouts(InvarianceAxis axis) {
  if (!NeedRows(axis == InvarianceAxis::kPad ? 1 : 2)) return absl::OkStatus();
  const uint64_t seed = RandomBits(options_.seed, 100 + static_cast<uint64_t>(axis));
  for (const NamedLayout& named : LayoutsOf(axis, model_->rows(), options_.seed)) {
    const Layout layout = named.make();
    RLK_ASSIGN_OR_RETURN(const ValueCall call, model_->LayOut(base_.call, layout, seed));
    RLK_ASSIGN_OR_RETURN(const MethodRun run, runner_.Run(call, FillOfRun(++runs_), context_));
    RLK_RETURN_IF_ERROR(CompareRows(named.name, layout, run));
    ++result_.layouts;
    if (!result_.passed()) break;
  }
  return absl::OkStatus();
}

absl::Status AxisRun::Chunk() {
  if (model_ == nullptr || model_->rows() < 2) {
    (void)NeedRows(2);
    return absl::OkStatus();
  }
  const bool rows =
      std::any_of(base_.run.outputs.begin(), base_.run.outputs.end(),
                  [this](const ValueOutput& output) { return model_->OutputHasRows(output.spec); });
  if (rows) {
    for (const int64_t size : ChunkSizes(model_->rows())) {
      RLK_RETURN_IF_ERROR(ChunkRows(size));
      if (!result_.passed()) return absl::OkStatus();
    }
  }
  RLK_RETURN_IF_ERROR(ChunkCarried());
  result_.applicable = result_.layouts > 0;
  return absl::OkStatus();
}

absl::Status AxisRun::ChunkRows(int64_t size) {
  const int64_t rows = model_->rows();
  for (int64_t begin = 0; begin < rows && result_.passed(); begin += size) {
    const int64_t end = std::min(begin + size, rows);
    const Layout layout = RowRange(begin, end);
    RLK_ASSIGN_OR_RETURN(const ValueCall call, model_->LayOut(base_.call, layout, 0));
    RLK_ASSIGN_OR_RETURN(const MethodRun run, runner_.Run(call, FillOfRun(++runs_), context_));
    RLK_RETURN_IF_ERROR(CompareRows(
        absl::StrCat("chunks of ", size, " rows: rows [", begin, ", ", end, ")"), layout, run));
  }
  ++result_.layouts;
  return absl::OkStatus();
}

std::vector<AxisRun::Carry> AxisRun::Carries() const {
  std::vector<Carry> carries;
  const MethodSignature& signature = base_.call.signature();
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const std::string& name = signature.outputs[i].name;
    const int32_t input = FindInput(signature, name + "_in");
    if (input < 0 || !name.ends_with("_acc") || name.front() != 'd') continue;
    const int32_t gradient =
        FindOutput(signature, "grad_" + name.substr(1, name.size() - 1 - strlen("_acc")));
    if (BaseOutput(gradient) == nullptr) continue;
    carries.push_back({input, static_cast<int32_t>(i), gradient});
  }
  return carries;
}

absl::Status AxisRun::ChunkCarried() {
  std::vector<Carry> carries = Carries();
  std::string left_out;
  for (const ValueOutput& output : base_.run.outputs) {
    const bool carried = std::any_of(carries.begin(), carries.end(), [&](const Carry& carry) {
      return carry.gradient == output.spec || carry.output == output.spec;
    });
    if (model_->OutputHasRows(output.spec) || carried) continue;
    const std::string& name = base_.call.signature().outputs[static_cast<size_t>(output.spec)].name;
    absl::StrAppend(&left_out, left_out.empty() ? "" : ", ", name);
  }
  if (!left_out.empty()) {
    result_.note = absl::StrCat(left_out, ": no accumulator to hand from chunk to chunk");
  }
  if (carries.empty()) return absl::OkStatus();
  std::string refused;
  int64_t tried = 0;
  for (const int64_t size : ChunkSizes(model_->rows())) {
    const absl::Status status = CarryThrough(size, carries);
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    if (detail && detail->reason == Reason::kAttributeOutOfRange &&
        detail->field == "rows_before") {
      absl::StrAppend(&refused, refused.empty() ? "" : ", ", size);
      continue;
    }
    RLK_RETURN_IF_ERROR(status);
    ++tried;
    ++result_.layouts;
    if (!result_.passed()) return absl::OkStatus();
  }
  if (refused.empty()) return absl::OkStatus();
  absl::StrAppend(&result_.note, result_.note.empty() ? "" : "; ",
                  "the contract carries no accumulator over chunks of ", refused, " rows",
                  tried == 0 ? ", and there are too few rows for others" : "");
  return absl::OkStatus();
}

absl::Status AxisRun::CarryThrough(int64_t size, const std::vector<Carry>& carries) {
  const MethodSignature& signature = base_.call.signature();
  const int32_t rows_before = FindAttribute(signature, "rows_before");
  int64_t before = 0;
  for (const Call::GivenAttribute& given : base_.call.attributes) {
    if (given.spec == rows_before) before = given.integer;
  }
  ValueCall wanted = base_.call;
  wanted.wanted_outputs.clear();
  std::set<int32_t> gradients;
  for (const Carry& carry : carries) {
    gradients.insert(carry.gradient);
    for (const int32_t spec : {carry.gradient, carry.output}) {
      wanted.wanted_outputs.push_back(signature.outputs[static_cast<size_t>(spec)].name);
    }
  }
  std::vector<ValueOutput> carried;
  for (int64_t begin = 0; begin < model_->rows(); begin += size) {
    const int64_t end = std::min(begin + size, model_->rows());
    RLK_ASSIGN_OR_RETURN(ValueCall call, model_->LayOut(wanted, RowRange(begin, end), 0));
    for (const Carry& carry : carries) {
      const HostTensor* const tensor = FindSpec(carried, carry.output);
      if (tensor != nullptr) SetInput(call, carry.input, *tensor);
    }
    if (rows_before >= 0) {
      std::erase_if(call.attributes,
                    [&](const Call::GivenAttribute& given) { return given.spec == rows_before; });
      call.attributes.push_back({.spec = rows_before, .number = 0, .integer = before + begin});
    }
    RLK_ASSIGN_OR_RETURN(MethodRun run, runner_.Run(call, FillOfRun(++runs_), context_));
    if (end == model_->rows()) {
      return CompareWhole(absl::StrCat("chunks of ", size, " rows, the accumulator carried"), run,
                          &gradients);
    }
    carried = std::move(run.outputs);
  }
  return absl::OkStatus();
}

absl::Status AxisRun::Concurrency() {
  const int64_t callers = options_.concurrency > 0 ? options_.concurrency : kConcurrencyDefault;
  const int64_t rows = model_ == nullptr ? 0 : model_->rows();
  // Half of the callers run the call itself, the others parts of it, so that unlike calls meet.
  std::vector<ValueCall> calls;
  std::vector<int64_t> begins;  // of a part; -1 for the whole
  for (int64_t i = 0; i < callers; ++i) {
    const bool part = i % 2 == 1 && rows > 1;
    const auto begin = static_cast<int64_t>(RandomBits(options_.seed, static_cast<uint64_t>(i)) %
                                            static_cast<uint64_t>(std::max<int64_t>(rows, 1)));
    begins.push_back(part ? begin : -1);
    calls.push_back(base_.call);
    if (part) {
      RLK_ASSIGN_OR_RETURN(calls.back(), model_->LayOut(base_.call, RowRange(begin, rows), 0));
    }
  }
  RLK_ASSIGN_OR_RETURN(const std::vector<ConcurrentRun> runs,
                       RunConcurrently(runner_, calls, kConcurrentRounds, context_));
  for (const ConcurrentRun& run : runs) {
    const int64_t begin = begins[static_cast<size_t>(run.caller)];
    std::string name = absl::StrCat("call ", run.round, " of caller ", run.caller, " of ", callers);
    if (begin >= 0) absl::StrAppend(&name, ", rows [", begin, ", ", rows, ")");
    const int64_t before = result_.elements;
    RLK_RETURN_IF_ERROR(begin < 0 ? CompareWhole(name, run.run)
                                  : CompareRows(name, RowRange(begin, rows), run.run));
    result_.elements += run.repeated * (result_.elements - before);
    result_.layouts += 1 + run.repeated;
    if (!result_.passed()) break;
  }
  return absl::OkStatus();
}

bool AxisRun::NeedRows(int64_t least) {
  if (model_ == nullptr) {
    NotApplicable("the operator has no rows: its tensors share no leading dimension");
    return false;
  }
  if (model_->rows() < least) {
    NotApplicable(absl::StrCat("the call has ", model_->rows(), " rows, the axis needs ", least));
    return false;
  }
  const std::string summed = SummedOutputs();
  const bool rows =
      std::any_of(base_.run.outputs.begin(), base_.run.outputs.end(),
                  [this](const ValueOutput& output) { return model_->OutputHasRows(output.spec); });
  if (!rows) {
    NotApplicable(absl::StrCat(summed, ": sums over the rows, which the axis changes"));
    return false;
  }
  if (!summed.empty()) {
    result_.note = absl::StrCat(summed, ": sums over the rows, which the axis changes");
  }
  return true;
}

void AxisRun::NotApplicable(std::string why) {
  result_.applicable = false;
  result_.note = std::move(why);
}

std::string AxisRun::SummedOutputs() const {
  std::string names;
  for (const ValueOutput& output : base_.run.outputs) {
    if (model_->OutputHasRows(output.spec)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    base_.call.signature().outputs[static_cast<size_t>(output.spec)].name);
  }
  return names;
}

const HostTensor* AxisRun::BaseOutput(int32_t spec) const {
  return FindSpec(base_.run.outputs, spec);
}

absl::Status AxisRun::CompareWhole(const std::string& layout, const MethodRun& run,
                                   const std::set<int32_t>* only) {
  for (const ValueOutput& output : run.outputs) {
    if (only != nullptr && only->count(output.spec) == 0) continue;
    const HostTensor* const base = BaseOutput(output.spec);
    if (base == nullptr) continue;
    result_.elements += base->elements();
    if (SameBytes(*base, output.tensor)) continue;
    return Differ(layout, output.spec, -1, *base, output.tensor);
  }
  return absl::OkStatus();
}

absl::Status AxisRun::CompareRows(const std::string& layout, std::span<const LayoutRow> rows,
                                  const MethodRun& run) {
  for (const ValueOutput& output : run.outputs) {
    const HostTensor* const base = BaseOutput(output.spec);
    if (base == nullptr || !model_->OutputHasRows(output.spec)) continue;
    const int64_t first = model_->FirstDifference(*base, output.tensor, rows, result_.elements);
    if (first < 0) continue;
    RLK_ASSIGN_OR_RETURN(const HostTensor expected, model_->Expected(*base, output.tensor, rows));
    return Differ(layout, output.spec, rows[static_cast<size_t>(first)].row, expected,
                  output.tensor);
  }
  return absl::OkStatus();
}

absl::Status AxisRun::Differ(const std::string& layout, int32_t output, int64_t row,
                             const HostTensor& expected, const HostTensor& got) {
  LayoutDifference& difference = result_.difference.emplace();
  difference.layout = layout;
  difference.output = base_.call.signature().outputs[static_cast<size_t>(output)].name;
  difference.row = row;
  RLK_ASSIGN_OR_RETURN(difference.comparison,
                       CompareBitsOf(got, expected, Judgment::kInvariance, context_.interrupt()));
  Explain(result_.axis, difference.comparison.triage);
  return absl::OkStatus();
}

}  // namespace rlk::server
