#include "server/parity/check_parity.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "server/parity/compare_outputs.h"

namespace rlk::server {
namespace {

// What Comparison takes for unwritten, and another value that tells whether it was.
constexpr std::byte kCanary{0xA5}, kOtherFill{0x5A};

// One output of a side, and what is known of the run.
struct SideOutput {
  const HostTensor* tensor = nullptr;
  bool inputs_finite = false;
};

// Elements that are `before` in one run and `after` in the other, in every byte.
int64_t CountFollowers(const HostTensor& first, const HostTensor& second, std::byte before,
                       std::byte after) {
  const int64_t size = DTypeSize(first.dtype);
  if (second.bytes() != first.bytes()) return 0;
  const auto is = [size](const std::byte* at, std::byte value) {
    return std::all_of(at, at + size, [value](std::byte byte) { return byte == value; });
  };
  int64_t count = 0;
  for (int64_t at = 0; at < first.bytes(); at += size) {
    if (is(first.data.get() + at, before) && is(second.data.get() + at, after)) ++count;
  }
  return count;
}

class ParityRun {
 public:
  ParityRun(const Registry& registry, const ToleranceContract& tolerance, const ParityQuery& query,
            CheckContext& context)
      : registry_(registry), tolerance_(tolerance), query_(query), context_(context) {}

  absl::StatusOr<ParityResult> Run() {
    RLK_RETURN_IF_ERROR(CheckQuery());
    RLK_RETURN_IF_ERROR(RunSide("left", query_.left, kCanary, result_.left));
    RLK_RETURN_IF_ERROR(RunSide("right", query_.right, kCanary, result_.right));
    for (const Method* method : methods_) RLK_RETURN_IF_ERROR(CompareMethod(*method));
    if (result_.outputs.empty()) {
      return InvalidArgument(Reason::kMissingTensor, "provided", "no output of the call", Outputs(),
                             "the sides have no output in common");
    }
    for (OutputVerdict& verdict : result_.outputs) RLK_RETURN_IF_ERROR(ProveUnwritten(verdict));
    for (const OutputVerdict& verdict : result_.outputs) {
      result_.passed = result_.passed && verdict.passed();
    }
    return std::move(result_);
  }

 private:
  absl::Status CheckQuery() {
    const ParitySide& left = query_.left;
    const ParitySide& right = query_.right;
    if (left.runner == nullptr && right.runner == nullptr) {
      return InvalidArgument(Reason::kUnknownOption, "right.provided", "both sides provided",
                             "one side that computes; Compare takes two tensors",
                             "nothing would be computed");
    }
    if (query_.judgment == Judgment::kAccuracy && left.golden == right.golden) {
      return InvalidArgument(Reason::kUnknownOption, "judgment", "ACCURACY",
                             "one side with backend golden",
                             "ACCURACY compares a candidate with the FP64 reference");
    }
    methods_ = {query_.call.method};
    if (query_.gradients) {
      RLK_ASSIGN_OR_RETURN(const auto backwards, BackwardMethods(registry_, *query_.call.method));
      methods_.insert(methods_.end(), backwards.begin(), backwards.end());
    }
    for (const auto* side : {&left, &right}) {
      for (const auto& [name, tensor] : side->provided) {
        const bool known = std::any_of(methods_.begin(), methods_.end(), [&](const Method* method) {
          return FindOutput(method->signature, name) >= 0;
        });
        if (known) continue;
        return InvalidArgument(Reason::kUnknownOutput,
                               side == &left ? "left.provided" : "right.provided", name, Outputs(),
                               "no method of the check has this output");
      }
    }
    return absl::OkStatus();
  }

  std::string Outputs() const {
    std::string names;
    for (const Method* method : methods_) {
      for (const TensorSpec& spec : method->signature.outputs) {
        absl::StrAppend(&names, names.empty() ? "" : ", ", spec.name);
      }
    }
    return names;
  }

  absl::Status RunSide(const char* name, const ParitySide& side, std::byte fill,
                       std::vector<RunOf>& runs) {
    if (side.runner == nullptr) return absl::OkStatus();
    auto ran = RunWithGradients(registry_, *side.runner, query_.call, query_.gradients,
                                query_.gradient, fill, context_);
    if (!ran.ok()) return OfSide(name, ran.status());
    runs = *std::move(ran);
    return absl::OkStatus();
  }

  static SideOutput Find(const ParitySide& side, const std::vector<RunOf>& runs,
                         const Method& method, const std::string& name) {
    if (side.runner == nullptr) {
      const auto found = side.provided.find(name);
      return {found == side.provided.end() ? nullptr : &found->second, false};
    }
    for (const RunOf& run : runs) {
      if (run.call.method != &method) continue;
      return {OutputOf(method.signature, run.run.outputs, name), InputsFinite(run.call)};
    }
    return {};
  }

  absl::Status CompareMethod(const Method& method) {
    for (const TensorSpec& spec : method.signature.outputs) {
      const SideOutput left = Find(query_.left, result_.left, method, spec.name);
      const SideOutput right = Find(query_.right, result_.right, method, spec.name);
      if (left.tensor == nullptr && right.tensor == nullptr) continue;
      if (left.tensor == nullptr || right.tensor == nullptr) {
        result_.not_compared.push_back(
            {&method, spec.name,
             absl::StrCat("the ", left.tensor == nullptr ? "left" : "right",
                          " side has no such "
                          "output")});
        continue;
      }
      RLK_RETURN_IF_ERROR(context_.CheckCaller());
      OutputVerdict& verdict = result_.outputs.emplace_back();
      verdict.method = &method;
      verdict.output = spec.name;
      RLK_ASSIGN_OR_RETURN(verdict.comparison, Judge(method, *left.tensor, *right.tensor));
      if (left.inputs_finite) verdict.nan_created_left = CountNan(*left.tensor);
      if (right.inputs_finite) verdict.nan_created_right = CountNan(*right.tensor);
      result_.elements += verdict.comparison.stats.compared;
    }
    return absl::OkStatus();
  }

  // The candidate is on the left of the comparison, whichever side it is.
  absl::StatusOr<Comparison> Judge(const Method& method, const HostTensor& left,
                                   const HostTensor& right) const {
    if (query_.judgment != Judgment::kAccuracy) {
      return CompareBitsOf(left, right, query_.judgment, context_.interrupt());
    }
    return query_.left.golden
               ? CompareWithGolden(method, right, left, tolerance_, context_.interrupt())
               : CompareWithGolden(method, left, right, tolerance_, context_.interrupt());
  }

  // An element that has the canary's bits was not written if it follows another filling.
  absl::Status ProveUnwritten(OutputVerdict& verdict) {
    if (!HasCanaries(verdict.comparison)) return absl::OkStatus();
    RLK_RETURN_IF_ERROR(Prove("left", query_.left, result_.left, verdict, verdict.unwritten_left));
    RLK_RETURN_IF_ERROR(
        Prove("right", query_.right, result_.right, verdict, verdict.unwritten_right));
    if (verdict.unwritten_left == 0 && verdict.unwritten_right == 0) return absl::OkStatus();
    // A proof, where bits are a hint: the sides may agree in what nobody wrote, or differ
    // elsewhere.
    verdict.comparison.triage = {
        TriageClass::kUnwritten,
        absl::StrCat("no kernel wrote ", verdict.unwritten_left, " elements of the left side and ",
                     verdict.unwritten_right, " of the right one")};
    return absl::OkStatus();
  }

  absl::Status Prove(const char* name, const ParitySide& side, const std::vector<RunOf>& runs,
                     const OutputVerdict& verdict, int64_t& unwritten) {
    if (side.runner == nullptr || !side.local) return absl::OkStatus();
    for (const RunOf& run : runs) {
      if (run.call.method != verdict.method) continue;
      auto again = side.runner->Run(run.call, kOtherFill, context_);
      if (!again.ok()) return OfSide(name, again.status());
      const MethodSignature& signature = verdict.method->signature;
      const HostTensor* const first = OutputOf(signature, run.run.outputs, verdict.output);
      const HostTensor* const second = OutputOf(signature, again->outputs, verdict.output);
      unwritten = CountFollowers(*first, *second, kCanary, kOtherFill);
    }
    return absl::OkStatus();
  }

  const Registry& registry_;
  const ToleranceContract& tolerance_;
  const ParityQuery& query_;
  CheckContext& context_;
  std::vector<const Method*> methods_;
  ParityResult result_;
};

}  // namespace

const OutputVerdict* ParityResult::first_difference() const {
  for (const OutputVerdict& verdict : outputs) {
    if (!verdict.passed()) return &verdict;
  }
  return nullptr;
}

absl::Status OfSide(const char* side, const absl::Status& status) {
  ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail{Reason::kInternal, {}, {}, {}});
  std::string message(status.message());
  // The message was made of the detail, which is put around it again.
  if (!detail.field.empty() && message.rfind(detail.field + ": ", 0) == 0) {
    message = message.substr(detail.field.size() + 2);
  }
  if (const std::string end = "; allowed: " + detail.allowed;
      !detail.allowed.empty() && message.ends_with(end)) {
    message.resize(message.size() - end.size());
  }
  detail.field = detail.field.empty() ? side : absl::StrCat(side, ".", detail.field);
  return MakeError(status.code(), std::move(detail), message);
}

absl::StatusOr<ParityResult> CheckParity(const Registry& registry,
                                         const ToleranceContract& tolerance,
                                         const ParityQuery& query, CheckContext& context) {
  return ParityRun(registry, tolerance, query, context).Run();
}

}  // namespace rlk::server
