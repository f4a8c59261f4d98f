#include "server/engine/tolerance.h"

#include <openssl/sha.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "nlohmann/json.hpp"

namespace rlk::server {

// Generated from tolerance_contract.json.
extern const std::string_view kBuiltinToleranceJson;

namespace {

using Json = nlohmann::json;

constexpr std::pair<OpClass, std::string_view> kClasses[] = {{OpClass::kElementwise, "elementwise"},
                                                             {OpClass::kReduction, "reduction"},
                                                             {OpClass::kLogprob, "logprob"},
                                                             {OpClass::kAttention, "attention"}};
constexpr std::pair<DType, std::string_view> kDTypes[] = {
    {DType::kF32, "float32"}, {DType::kBF16, "bfloat16"}, {DType::kF16, "float16"}};

absl::Status Wrong(std::string_view path, std::string_view value, std::string_view allowed) {
  return InvalidArgument(Reason::kMalformedMessage, path, value, allowed,
                         "the tolerance contract is not valid");
}

// An object with exactly the given keys.
absl::Status CheckKeys(const Json& object, const std::string& path,
                       const std::set<std::string>& keys) {
  if (!object.is_object()) return Wrong(path, "absent or no object", "an object");
  for (const std::string& key : keys) {
    if (!object.contains(key)) return Wrong(path + "." + key, "absent", "a value");
  }
  for (const auto& item : object.items()) {
    if (!keys.contains(item.key())) return Wrong(path + "." + item.key(), "unknown", "no such key");
  }
  return absl::OkStatus();
}

template <size_t N, typename T>
std::set<std::string> Names(const std::pair<T, std::string_view> (&table)[N]) {
  std::set<std::string> names;
  for (const auto& entry : table) names.emplace(entry.second);
  return names;
}

absl::StatusOr<double> Bound(const Json& cell, const std::string& path, const char* key) {
  const Json& value = cell[key];
  if (!value.is_number()) return Wrong(path + "." + key, "no number", "a finite number >= 0");
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0) {
    return Wrong(path + "." + key, value.dump(), "a finite number >= 0");
  }
  return number;
}

using Table = std::array<std::array<Tolerance, kDTypeCount>, 5>;

absl::Status ParseJudgment(const Json& judgment, const std::string& path, Table& table) {
  RLK_RETURN_IF_ERROR(CheckKeys(judgment, path, Names(kClasses)));
  for (const auto& [op_class, class_name] : kClasses) {
    const std::string class_path = path + "." + std::string(class_name);
    const Json& row = judgment[std::string(class_name)];
    RLK_RETURN_IF_ERROR(CheckKeys(row, class_path, Names(kDTypes)));
    for (const auto& [dtype, dtype_name] : kDTypes) {
      const std::string cell_path = class_path + "." + std::string(dtype_name);
      const Json& cell = row[std::string(dtype_name)];
      RLK_RETURN_IF_ERROR(CheckKeys(cell, cell_path, {"atol", "rtol"}));
      Tolerance& tolerance = table[static_cast<size_t>(op_class)][static_cast<size_t>(dtype)];
      RLK_ASSIGN_OR_RETURN(tolerance.atol, Bound(cell, cell_path, "atol"));
      RLK_ASSIGN_OR_RETURN(tolerance.rtol, Bound(cell, cell_path, "rtol"));
    }
  }
  return absl::OkStatus();
}

// The reader takes the last of two equal keys; a contract that says two things is refused.
absl::StatusOr<Json> ParseStrict(std::string_view text) {
  std::vector<std::set<std::string>> open;
  std::string duplicate;
  const auto callback = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!open.back().insert(key).second) duplicate = key;
    }
    return true;
  };
  Json document = Json::parse(text, callback, /*allow_exceptions=*/false);
  if (document.is_discarded()) return Wrong("(document)", "no JSON", "one JSON object");
  if (!duplicate.empty()) return Wrong(duplicate, "given twice", "one value for each key");
  return document;
}

std::string Sha256Hex(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string hex;
  for (unsigned char byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace

const ToleranceContract& ToleranceContract::Builtin() {
  static const ToleranceContract* const contract = [] {
    absl::StatusOr<ToleranceContract> parsed = Parse(kBuiltinToleranceJson);
    if (!parsed.ok()) {
      std::fprintf(stderr, "rlk: the built-in tolerance contract: %s\n",
                   parsed.status().ToString().c_str());
      std::abort();
    }
    return new ToleranceContract(*std::move(parsed));
  }();
  return *contract;
}

absl::StatusOr<ToleranceContract> ToleranceContract::Parse(std::string_view json) {
  RLK_ASSIGN_OR_RETURN(const Json document, ParseStrict(json));
  RLK_RETURN_IF_ERROR(CheckKeys(document, "(document)", {"version", "policy", "judgments"}));
  if (!document["version"].is_string() || document["version"].get<std::string>().empty()) {
    return Wrong("version", document["version"].dump(), "a text that is not empty");
  }
  if (!document["policy"].is_object()) return Wrong("policy", "no object", "an object");

  ToleranceContract contract;
  for (auto& classes : contract.cells_) {
    for (auto& cells : classes) {
      for (Tolerance& cell : cells) cell = {.atol = 0, .rtol = -1};
    }
  }
  const Json& judgments = document["judgments"];
  const std::string_view accuracy[] = {"forward_accuracy", "gradient_accuracy"};
  const std::string_view invariance[] = {"forward_invariance", "gradient_invariance"};
  RLK_RETURN_IF_ERROR(CheckKeys(
      judgments, "judgments",
      {"forward_accuracy", "gradient_accuracy", "forward_invariance", "gradient_invariance"}));
  for (int gradient = 0; gradient < 2; ++gradient) {
    const std::string name(accuracy[gradient]);
    Table table = {};
    RLK_RETURN_IF_ERROR(ParseJudgment(judgments[name], "judgments." + name, table));
    for (const auto& [op_class, unused] : kClasses) {
      for (const auto& [dtype, unused_name] : kDTypes) {
        contract.cells_[gradient][static_cast<size_t>(op_class)][static_cast<size_t>(dtype)] =
            table[static_cast<size_t>(op_class)][static_cast<size_t>(dtype)];
      }
    }
  }
  for (std::string_view judgment : invariance) {
    const std::string name(judgment);
    Table table = {};
    RLK_RETURN_IF_ERROR(ParseJudgment(judgments[name], "judgments." + name, table));
    for (const auto& cells : table) {
      for (const Tolerance& cell : cells) {
        // Invariance is bitwise: a tolerance there would hide what it looks for.
        if (cell.atol != 0 || cell.rtol != 0) {
          return Wrong("judgments." + name, "a tolerance above 0", "0 in every cell");
        }
      }
    }
  }
  contract.version_ = document["version"].get<std::string>();
  contract.sha256_ = Sha256Hex(document.dump(-1, ' ', /*ensure_ascii=*/true));
  return contract;
}

absl::StatusOr<Tolerance> ToleranceContract::Accuracy(OpClass op_class, DType compared,
                                                      bool gradient) const {
  const auto row = static_cast<size_t>(op_class);
  const auto column = static_cast<size_t>(compared);
  if (row < std::size(cells_[0]) && column < kDTypeCount) {
    const Tolerance& cell = cells_[gradient ? 1 : 0][row][column];
    if (row != 0 && cell.rtol >= 0) return cell;
  }
  return absl::NotFoundError(std::string("the tolerance contract has no cell for ") +
                             std::string(DTypeName(compared)));
}

}  // namespace rlk::server
