// The words of a command line.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rlk::cli {

struct OptionSpec {
  const char* name;  // with its dashes
  bool takes_value = true;
  bool repeated = false;
};

class Args {
 public:
  // `words` without the program's name. "--name VALUE" and "--name=VALUE"; "--" ends the options.
  // INVALID_ARGUMENT for an unknown option (with the allowed set), a value that is missing or not
  // wanted, or an option given twice.
  static absl::StatusOr<Args> Parse(const std::vector<std::string>& words,
                                    const std::vector<OptionSpec>& specs);

  const std::vector<std::string>& positional() const { return positional_; }
  bool Has(const std::string& name) const { return options_.count(name) != 0; }
  // The value, or `fallback`.
  std::string Get(const std::string& name, const std::string& fallback = "") const;
  std::vector<std::string> GetAll(const std::string& name) const;
  // An integer in [least, most], or `fallback` where the option is not given.
  absl::StatusOr<int64_t> GetInteger(const std::string& name, int64_t fallback, int64_t least,
                                     int64_t most) const;
  // "1,2,4"; none where the option is not given.
  absl::StatusOr<std::vector<int64_t>> GetIntegers(const std::string& name) const;
  // The parts between commas; none where the option is not given.
  std::vector<std::string> GetList(const std::string& name) const;

 private:
  std::vector<std::string> positional_;
  std::map<std::string, std::vector<std::string>> options_;
};

// The options of each verb of a command.
using VerbOptions = std::map<std::string, std::vector<OptionSpec>>;

// Those of all verbs, each once, for Args::Parse.
std::vector<OptionSpec> AllOptions(const VerbOptions& verbs);

// INVALID_ARGUMENT for an option of another verb, which would be passed over. `verb` is one of
// `verbs`; `command` stands before it.
absl::Status CheckVerbOptions(const Args& args, const VerbOptions& verbs,
                              const std::string& command, const std::string& verb);

}  // namespace rlk::cli
