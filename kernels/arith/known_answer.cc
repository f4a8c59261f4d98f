#include "kernels/arith/known_answer.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/arith/function_loops.h"
#include "kernels/core/cpu_features.h"
#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"

namespace rlk::arith {
namespace {

constexpr std::array<const char*, 18> kOpNames = {
    "add",   "sub",     "mul",          "div",         "fma",           "mul then add",
    "rsqrt", "rcp",     "cast to BF16", "cast to F16", "cast from F16", "exp",
    "tanh",  "sigmoid", "silu",         "log1p",       "sin",           "cos"};

}  // namespace

absl::StatusOr<int> CompareKnownAnswers(std::span<const uint32_t> results) {
  if (results.size() != kKnownAnswerCount) {
    return MakeError(
        absl::StatusCode::kInternal,
        {Reason::kInternal, "", std::to_string(results.size()), std::to_string(kKnownAnswerCount)},
        "the number of known-answer results is wrong");
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const KnownAnswer& vector = kKnownAnswers[i];
    if (results[i] == vector.expected) continue;
    return MakeError(
        absl::StatusCode::kInternal,
        {Reason::kInternal, "", absl::StrFormat("%08x", results[i]),
         absl::StrFormat("%08x", vector.expected)},
        absl::StrFormat("known answer %d (%s of %08x, %08x, %08x) is wrong", i,
                        kOpNames[static_cast<size_t>(vector.op)], vector.a, vector.b, vector.c));
  }
  return kKnownAnswerCount;
}

absl::StatusOr<int> CpuKnownAnswers() {
  const FpEnvironment environment;
  for (Isa isa : AvailableIsas()) {
    std::array<uint32_t, kKnownAnswerCount> results = {};
    GetFunctionLoops(isa).known_answers(kKnownAnswers, kKnownAnswerCount, results.data());
    const absl::StatusOr<int> passed = CompareKnownAnswers(results);
    if (passed.ok()) continue;
    return MakeError(
        absl::StatusCode::kInternal, *GetErrorDetail(passed.status()),
        absl::StrCat(std::string(IsaName(isa)), ": ", std::string(passed.status().message())));
  }
  return kKnownAnswerCount;
}

}  // namespace rlk::arith
