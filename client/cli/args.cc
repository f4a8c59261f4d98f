#include "client/cli/args.h"

#include <algorithm>

#include "client/cli/numbers.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

bool Names(const std::vector<OptionSpec>& specs, const std::string& name) {
  return std::any_of(specs.begin(), specs.end(),
                     [&name](const OptionSpec& spec) { return name == spec.name; });
}

}  // namespace

absl::StatusOr<Args> Args::Parse(const std::vector<std::string>& words,
                                 const std::vector<OptionSpec>& specs) {
  Args args;
  bool options_ended = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (options_ended || word.rfind("--", 0) != 0) {
      args.positional_.push_back(word);
      continue;
    }
    if (word == "--") {
      options_ended = true;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const OptionSpec* spec = nullptr;
    std::string allowed;
    for (const OptionSpec& candidate : specs) {
      if (name == candidate.name) spec = &candidate;
      allowed += std::string(allowed.empty() ? "" : ", ") + candidate.name;
    }
    const auto bad = [&name](const std::string& allowed_text, const char* what) {
      return InvalidArgument(Reason::kUnknownOption, name, "", allowed_text, what);
    };
    if (spec == nullptr) return bad(allowed, "the command has no such option");
    std::string value;
    if (equals != std::string::npos) {
      if (!spec->takes_value) return bad("", "the option takes no value");
      value = word.substr(equals + 1);
    } else if (spec->takes_value) {
      if (++i >= words.size()) return bad("", "the option needs a value");
      value = words[i];
    }
    std::vector<std::string>& values = args.options_[name];
    if (!values.empty() && !spec->repeated) return bad("", "the option is given twice");
    values.push_back(value);
  }
  return args;
}

std::string Args::Get(const std::string& name, const std::string& fallback) const {
  const auto it = options_.find(name);
  return it == options_.end() ? fallback : it->second.front();
}

std::vector<std::string> Args::GetAll(const std::string& name) const {
  const auto it = options_.find(name);
  return it == options_.end() ? std::vector<std::string>() : it->second;
}

absl::StatusOr<int64_t> Args::GetInteger(const std::string& name, int64_t fallback, int64_t least,
                                         int64_t most) const {
  if (!Has(name)) return fallback;
  const auto value = ParseInteger<int64_t>(Get(name));
  if (!value || *value < least || *value > most) {
    return InvalidArgument(
        Reason::kUnknownOption, name, Get(name),
        "an integer in [" + std::to_string(least) + ", " + std::to_string(most) + "]",
        "the value is not allowed");
  }
  return *value;
}

std::vector<std::string> Args::GetList(const std::string& name) const {
  std::vector<std::string> parts;
  if (!Has(name)) return parts;
  const std::string text = Get(name);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

absl::StatusOr<std::vector<int64_t>> Args::GetIntegers(const std::string& name) const {
  std::vector<int64_t> values;
  for (const std::string& part : GetList(name)) {
    const auto value = ParseInteger<int64_t>(part);
    if (!value) {
      return InvalidArgument(Reason::kUnknownOption, name, Get(name),
                             "integers, with commas between them", "the value is not allowed");
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<OptionSpec> AllOptions(const VerbOptions& verbs) {
  std::vector<OptionSpec> all;
  for (const auto& [verb, specs] : verbs) {
    for (const OptionSpec& spec : specs) {
      if (!Names(all, spec.name)) all.push_back(spec);
    }
  }
  return all;
}

absl::Status CheckVerbOptions(const Args& args, const VerbOptions& verbs,
                              const std::string& command, const std::string& verb) {
  const std::vector<OptionSpec>& own = verbs.at(verb);
  std::string allowed;
  for (const OptionSpec& spec : own) {
    allowed += std::string(allowed.empty() ? "" : ", ") + spec.name;
  }
  for (const OptionSpec& spec : AllOptions(verbs)) {
    if (!args.Has(spec.name) || Names(own, spec.name)) continue;
    return InvalidArgument(Reason::kUnknownOption, spec.name, args.Get(spec.name), allowed,
                           "rlk " + command + " " + verb + " has no such option");
  }
  return absl::OkStatus();
}

}  // namespace rlk::cli
