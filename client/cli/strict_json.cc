#include "client/cli/strict_json.h"

#include "client/cpp/strict_json.h"

namespace rlk::cli {

std::optional<nlohmann::json> ParseStrict(const std::string& text, std::string& what) {
  constexpr size_t kDepthMax = 4;
  what = client::StrictJsonProblem(text, kDepthMax);
  if (!what.empty()) return std::nullopt;
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    what = "it is not an object";
    return std::nullopt;
  }
  return json;
}

}  // namespace rlk::cli
