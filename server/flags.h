// The server's flags as text, from the command line and from files, and their typed values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/options.h"

namespace rlk::server {

// INVALID_ARGUMENT for the flag of that name, with '-' for '_'.
absl::Status FlagError(std::string_view flag, std::string_view value, std::string_view allowed,
                       std::string_view message);

// The flags of options.cc, by name: libraries that link abseil may bring their own.
std::vector<absl::CommandLineFlag*> OwnFlags();

struct RawFlags {
  // The last value of each flag; lists collect all of their values.
  std::vector<std::pair<std::string, std::string>> values;
  Options::Action action = Options::Action::kServe;
};

// Reads --NAME=VALUE, --NAME VALUE and --flagfile=FILE. What is no flag is refused and not
// repeated: it may be a token.
absl::StatusOr<RawFlags> ReadFlags(const std::vector<std::string>& arguments);

// The typed value of a flag: what was given, or the default. Errors name the flag, the value and
// what is allowed.
class FlagReader {
 public:
  explicit FlagReader(const RawFlags& raw) : raw_(raw) {}

  std::string Text(std::string_view name) const;
  absl::Status Integer(std::string_view name, int64_t low, int64_t high, int64_t& out) const;
  absl::Status Seconds(std::string_view name, double& out) const;
  absl::Status Boolean(std::string_view name, bool& out) const;
  std::vector<std::string> List(std::string_view name) const;

 private:
  const std::string* Given(std::string_view name) const;

  const RawFlags& raw_;
};

}  // namespace rlk::server
