#include "client/cli/parity_options.h"

#include <algorithm>
#include <map>
#include <string>

#include "client/cli/render.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

// The enumerator with that lower-case name; the value 0 is none.
absl::StatusOr<int> EnumNumber(const google::protobuf::EnumDescriptor& descriptor,
                               const char* option, const std::string& text) {
  std::vector<std::string> names;
  for (int i = 0; i < descriptor.value_count(); ++i) {
    const int number = descriptor.value(i)->number();
    if (number == 0) continue;
    names.push_back(EnumText(&descriptor, number));
    if (names.back() == text) return number;
  }
  return InvalidArgument(Reason::kUnknownOption, option, text, client::JoinNames(names),
                         "the value is not allowed");
}

}  // namespace

const VerbOptions& ParityVerbs() {
  static const VerbOptions verbs = {{"check",
                                     {{"--left"},
                                      {"--left-server"},
                                      {"--left-tensor", true, true},
                                      {"--right"},
                                      {"--right-server"},
                                      {"--right-tensor", true, true},
                                      {"--judgment"},
                                      {"--grad", true, true},
                                      {"--check-grad", false},
                                      {"--grad-mode"},
                                      {"--grad-seed"}}},
                                    {"digests", {{"--session-left"}, {"--session-right"}}},
                                    {"invariance",
                                     {{"--axes"},
                                      {"--repeats"},
                                      {"--concurrency"},
                                      {"--seed"},
                                      {"--backend"},
                                      {"--contract"},
                                      {"--check-grad", false},
                                      {"--grad-mode"},
                                      {"--grad-seed"}}},
                                    {"policy",
                                     {{"--mask"},
                                      {"--cu-seqlens"},
                                      {"--execution-dtype"},
                                      {"--rollout-logits"},
                                      {"--trainer-logits"}}}};
  return verbs;
}

absl::StatusOr<std::optional<client::CheckGradients>> GradientsOf(const Args& args) {
  if (!args.Has("--check-grad") && !args.Has("--grad-mode") && !args.Has("--grad-seed")) {
    return std::nullopt;
  }
  client::CheckGradients gradients;
  RLK_ASSIGN_OR_RETURN(const int mode,
                       EnumNumber(*rlk::v1::GradientMode_descriptor(), "--grad-mode",
                                  args.Get("--grad-mode", "random")));
  gradients.mode = static_cast<rlk::v1::GradientMode>(mode);
  RLK_ASSIGN_OR_RETURN(const int64_t seed, args.GetInteger("--grad-seed", 123, 0, INT64_MAX));
  gradients.seed = static_cast<uint64_t>(seed);
  return gradients;
}

absl::StatusOr<rlk::v1::Judgment> JudgmentOf(const Args& args) {
  RLK_ASSIGN_OR_RETURN(const int judgment, EnumNumber(*rlk::v1::Judgment_descriptor(), "--judgment",
                                                      args.Get("--judgment", "parity")));
  return static_cast<rlk::v1::Judgment>(judgment);
}

absl::StatusOr<std::vector<rlk::v1::InvarianceAxis>> AxesOf(const Args& args) {
  std::vector<rlk::v1::InvarianceAxis> axes;
  const std::string text = args.Get("--axes");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    RLK_ASSIGN_OR_RETURN(const int axis, EnumNumber(*rlk::v1::InvarianceAxis_descriptor(), "--axes",
                                                    text.substr(begin, end - begin)));
    axes.push_back(static_cast<rlk::v1::InvarianceAxis>(axis));
    begin = end + 1;
  }
  return axes;
}

}  // namespace rlk::cli
