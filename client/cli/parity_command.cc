// rlk parity policy, rlk parity digests; check_commands.cc has its other verbs.
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/comparison_text.h"
#include "client/cli/credentials.h"
#include "client/cli/numbers.h"
#include "client/cli/parity_options.h"
#include "client/cli/value.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr size_t kDigestBytes = 16;

absl::Status DTypeOption(const Args& args, rlk::v1::PolicyOptions& options) {
  if (!args.Has("--execution-dtype")) return absl::OkStatus();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::string name(DTypeName(dtype));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (args.Get("--execution-dtype") != name) continue;
    options.set_execution_dtype(static_cast<rlk::v1::DataType>(dtype));
    return absl::OkStatus();
  }
  return InvalidArgument(Reason::kUnknownOption, "--execution-dtype", args.Get("--execution-dtype"),
                         "f32, bf16, f16", "the value is not allowed");
}

Outcome RunPolicy(const Args& args) {
  if (args.positional().size() != 3) {
    return UsageError(absl::InvalidArgumentError("rlk parity policy takes ROLLOUT TRAINER"));
  }
  client::ComparePolicyArgs policy;
  std::vector<client::Tensor> kept(6);
  absl::Status status = DTypeOption(args, policy.options);
  if (status.ok()) status = LoadSide(args.positional()[1], kept[0], policy.rollout);
  if (status.ok()) status = LoadSide(args.positional()[2], kept[1], policy.trainer);
  const auto load = [&](const char* option, size_t place,
                        std::optional<client::TensorRef>& tensor) {
    if (!status.ok() || !args.Has(option)) return;
    status = LoadSide(args.Get(option), kept[place], tensor.emplace());
  };
  load("--mask", 2, policy.mask);
  load("--cu-seqlens", 3, policy.cu_seqlens);
  load("--rollout-logits", 4, policy.rollout_logits);
  load("--trainer-logits", 5, policy.trainer_logits);
  if (!status.ok()) return UsageError(status);
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto comparison = client->ComparePolicy(policy);
  if (!comparison.ok()) return CallError(comparison.status());
  Outcome outcome;
  outcome.json = Dump(MessageJson(*comparison));
  outcome.text = PolicyText(*comparison);
  if (!comparison->chain().passed()) {
    outcome.exit_code = kExitRefused;
    outcome.failures.emplace_back("the policies do not pass the chain's thresholds");
  }
  return outcome;
}

// ADDR#HANDLE: a tensor of a session of that server.
struct Side {
  std::string address, handle_text;
  rlk::v1::TensorHandle handle;
  std::optional<client::Client> client;
  client::TensorDigests digests;

  client::TensorRef Whole() const { return {.resident = handle}; }
  int64_t row_bytes() const { return row_elements() * DTypeSize(digests.dtype); }
  int64_t row_elements() const {
    const int rank = digests.shape.rank();
    return rank == 0 ? 1 : digests.shape[rank - 1];
  }
  std::string RowDigest(int64_t row) const {
    return digests.row_digests.substr(static_cast<size_t>(row) * kDigestBytes, kDigestBytes);
  }
};

absl::StatusOr<Side> ParseSide(const std::string& text) {
  const size_t hash = text.rfind('#');
  if (hash == std::string::npos || hash == 0 || hash + 1 == text.size()) {
    return InvalidArgument(Reason::kUnknownOption, "SIDE", text, "ADDR#HANDLE",
                           "the side names no server and tensor");
  }
  Side side;
  side.address = text.substr(0, hash);
  side.handle_text = text.substr(hash + 1);
  RLK_ASSIGN_OR_RETURN(side.handle, ParseHandle(side.handle_text));
  return side;
}

absl::Status ConnectSide(const Args& args, const char* session_option, Side& side) {
  client::ClientOptions options;
  RLK_ASSIGN_OR_RETURN(const int64_t timeout_ms,
                       args.GetInteger("--timeout-ms", 0, 1, int64_t{1} << 31));
  if (timeout_ms > 0) options.default_timeout = std::chrono::milliseconds(timeout_ms);
  options.session_token = args.Get(session_option, SessionToken(args));
  RLK_RETURN_IF_ERROR(ReadCredentials(args, side.address, options));
  RLK_ASSIGN_OR_RETURN(side.client, client::Client::Connect(side.address, options));
  return absl::OkStatus();
}

// The rows that differ, in order.
std::vector<int64_t> DifferentRows(const Side& left, const Side& right) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < left.digests.rows; ++row) {
    if (left.RowDigest(row) != right.RowDigest(row)) rows.push_back(row);
  }
  return rows;
}

// Fetches one row of the right side and compares it with the left one where that lies.
absl::StatusOr<rlk::v1::Comparison> CompareRow(const Side& left, const Side& right, int64_t row) {
  const int64_t offset = row * left.row_bytes();
  const int64_t columns = left.row_elements();
  RLK_ASSIGN_OR_RETURN(client::Tensor fetched,
                       client::Tensor::Allocate(right.digests.dtype, {&columns, 1}));
  client::ResidentTensor resident;
  resident.handle = right.handle;
  RLK_RETURN_IF_ERROR(right.client->GetInto(resident, offset, fetched.mutable_bytes()));
  client::CompareArgs compare;
  compare.left = {.dtype = left.digests.dtype, .shape = Dims{columns}, .resident = left.handle};
  compare.left.resident->set_offset(static_cast<uint64_t>(offset));
  compare.right = fetched.ref();
  return left.client->Compare(compare);
}

Json SideJson(const Side& side) {
  return {{"address", side.address},
          {"handle", HandleText(side.handle)},
          {"dtype", std::string(DTypeName(side.digests.dtype))},
          {"shape", std::vector<int64_t>(side.digests.shape.begin(), side.digests.shape.end())},
          {"digest", side.digests.digest}};
}

Outcome DigestOutcome(const Side& left, const Side& right) {
  Outcome outcome;
  const bool equal = left.digests.digest == right.digests.digest;
  Json json = {{"equal", equal}, {"left", SideJson(left)}, {"right", SideJson(right)}};
  Table table({"digests", equal ? "equal" : "DIFFERENT"});
  for (const Side* side : {&left, &right}) {
    table.Add({side->address, std::string(DTypeName(side->digests.dtype)) + " " +
                                  ShapeText(side->digests.shape) + " " + side->digests.digest});
  }
  const bool comparable =
      left.digests.dtype == right.digests.dtype && left.digests.shape == right.digests.shape;
  if (!equal && comparable) {
    const std::vector<int64_t> rows = DifferentRows(left, right);
    json["rows"] = left.digests.rows;
    json["different_rows"] = rows.size();
    table.Add({"rows that differ",
               std::to_string(rows.size()) + " of " + std::to_string(left.digests.rows)});
    if (!rows.empty()) {
      json["first_different_row"] = rows[0];
      table.Add({"first", "row " + std::to_string(rows[0])});
      const auto comparison = CompareRow(left, right, rows[0]);
      if (!comparison.ok()) return CallError(comparison.status());
      json["comparison"] = MessageJson(*comparison);
      outcome.text = "\n";
      outcome.text += ComparisonText(*comparison);
    }
  }
  outcome.json = Dump(json);
  outcome.text = table.Text() + outcome.text;
  if (equal) return outcome;
  outcome.exit_code = kExitRefused;
  outcome.failures.emplace_back(comparable ? "the tensors differ"
                                           : "the tensors differ in dtype or shape");
  return outcome;
}

Outcome RunDigests(const Args& args) {
  if (args.positional().size() != 3) {
    return UsageError(
        absl::InvalidArgumentError("rlk parity digests takes ADDR#HANDLE ADDR#HANDLE"));
  }
  auto left = ParseSide(args.positional()[1]);
  if (!left.ok()) return UsageError(left.status());
  auto right = ParseSide(args.positional()[2]);
  if (!right.ok()) return UsageError(right.status());
  if (absl::Status status = ConnectSide(args, "--session-left", *left); !status.ok()) {
    return ConnectError(status);
  }
  if (absl::Status status = ConnectSide(args, "--session-right", *right); !status.ok()) {
    return ConnectError(status);
  }
  for (Side* side : {&*left, &*right}) {
    auto digests = side->client->Digest({.tensor = side->Whole()});
    if (!digests.ok()) return CallError(digests.status());
    side->digests = *std::move(digests);
  }
  // Rows travel only where they are needed.
  if (left->digests.digest != right->digests.digest &&
      left->digests.dtype == right->digests.dtype && left->digests.shape == right->digests.shape) {
    for (Side* side : {&*left, &*right}) {
      auto digests = side->client->Digest({.tensor = side->Whole(), .rows = true});
      if (!digests.ok()) return CallError(digests.status());
      side->digests = *std::move(digests);
    }
  }
  return DigestOutcome(*left, *right);
}

}  // namespace

Outcome RunParity(const Args& args) {
  const std::string verb = args.positional().empty() ? "" : args.positional()[0];
  if (verb != "policy" && verb != "digests" && verb != "check" && verb != "invariance") {
    return UsageError(InvalidArgument(Reason::kUnknownOption, "VERB", verb,
                                      "policy, digests, check, invariance",
                                      "rlk parity takes a verb"));
  }
  const absl::Status own = CheckVerbOptions(args, ParityVerbs(), "parity", verb);
  if (!own.ok()) return UsageError(own);
  if (verb == "policy") return RunPolicy(args);
  if (verb == "digests") return RunDigests(args);
  const std::vector<std::string> words(args.positional().begin() + 1, args.positional().end());
  return verb == "check" ? RunParityCheck(args, words) : RunParityInvariance(args, words);
}

}  // namespace rlk::cli
