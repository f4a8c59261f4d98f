// rlk compare: two tensors, or a tensor and the digest that it should have.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/cli/command.h"
#include "client/cli/comparison_text.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"

namespace rlk::cli {
namespace {

constexpr int64_t kRowsMax = 64;

// The enumerator with the prefix and this name in capitals.
absl::Status PickEnum(const Args& args, const char* option,
                      const google::protobuf::EnumDescriptor* type, const std::string& prefix,
                      int& number) {
  if (!args.Has(option)) return absl::OkStatus();
  std::string name = args.Get(option);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto* value = type->FindValueByName(prefix + name);
  if (value != nullptr && value->number() != 0) {
    number = value->number();
    return absl::OkStatus();
  }
  std::vector<std::string> allowed;
  for (int i = 1; i < type->value_count(); ++i) {
    allowed.push_back(EnumText(type, type->value(i)->number()));
  }
  return InvalidArgument(Reason::kUnknownOption, option, args.Get(option),
                         client::JoinNames(allowed), "the value is not allowed");
}

absl::Status FillOptions(const Args& args, rlk::v1::ComparisonOptions& options) {
  int judgment = 0, op_class = 0;
  RLK_RETURN_IF_ERROR(
      PickEnum(args, "--judgment", rlk::v1::Judgment_descriptor(), "JUDGMENT_", judgment));
  RLK_RETURN_IF_ERROR(
      PickEnum(args, "--op-class", rlk::v1::OpClass_descriptor(), "OP_CLASS_", op_class));
  options.set_judgment(static_cast<rlk::v1::Judgment>(judgment));
  if (op_class != 0) {
    options.mutable_tolerance()->set_op_class(static_cast<rlk::v1::OpClass>(op_class));
    options.mutable_tolerance()->set_gradient(args.Has("--gradient"));
  } else if (args.Has("--gradient")) {
    return absl::InvalidArgumentError("--gradient needs --op-class");
  }
  if (args.Has("--axes")) {
    for (const absl::string_view axis : absl::StrSplit(args.Get("--axes"), ',')) {
      options.add_axes(std::string(axis));
    }
  }
  RLK_ASSIGN_OR_RETURN(const int64_t rows, args.GetInteger("--rows", 0, 1, kRowsMax));
  options.set_rows_max(static_cast<int32_t>(rows));
  options.set_without_digests(args.Has("--without-digests"));
  return absl::OkStatus();
}

}  // namespace

Outcome RunCompare(const Args& args) {
  if (args.positional().size() != 2) {
    return UsageError(absl::InvalidArgumentError("rlk compare takes two VALUEs: LEFT RIGHT"));
  }
  client::CompareArgs compare;
  client::Tensor left, right;
  absl::Status status = FillOptions(args, compare.options);
  if (status.ok()) status = LoadSide(args.positional()[0], left, compare.left);
  const std::string& other = args.positional()[1];
  if (status.ok() && other.starts_with(std::string(kDigestId) + ":")) {
    compare.right_digest = other;
  } else if (status.ok()) {
    status = LoadSide(other, right, compare.right.emplace());
  }
  if (!status.ok()) return UsageError(status);
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto comparison = client->Compare(compare);
  if (!comparison.ok()) return CallError(comparison.status());
  return ComparisonOutcome(*comparison);
}

}  // namespace rlk::cli
