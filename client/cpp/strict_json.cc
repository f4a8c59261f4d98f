#include "client/cpp/strict_json.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace rlk::client {
namespace {

using Json = nlohmann::json;

// Finds keys given twice and deep nesting, which the DOM would hide. A callback of the DOM's parser
// could, but then that parser looks at every entry again for each new one.
class StrictCheck final : public nlohmann::json_sax<Json> {
 public:
  explicit StrictCheck(size_t depth_max) : depth_max_(depth_max) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& value) override {
    return open_.back().insert(value).second || Fail("the key " + value + " is given twice");
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return Fail("it is not JSON");
  }

 private:
  bool Open() {
    open_.emplace_back();
    return open_.size() <= depth_max_ || Fail("it is nested too deep");
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  bool Fail(const std::string& problem) {
    problem_ = problem;
    return false;
  }

  const size_t depth_max_;
  std::vector<std::set<std::string>> open_;
  std::string problem_;
};

}  // namespace

std::string StrictJsonProblem(const std::string& text, size_t depth_max) {
  StrictCheck check(depth_max);
  return nlohmann::json::sax_parse(text, &check) ? std::string() : check.problem();
}

}  // namespace rlk::client
