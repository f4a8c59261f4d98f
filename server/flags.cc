#include "server/flags.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

constexpr int kFlagFileDepthMax = 4;
constexpr uintmax_t kFlagFileBytesMax = uintmax_t{1} << 20;

absl::CommandLineFlag* FindOwnFlag(std::string_view name) {
  for (absl::CommandLineFlag* flag : OwnFlags()) {
    if (name == std::string_view(flag->Name().data(), flag->Name().size())) return flag;
  }
  return nullptr;
}

// The command line, or a file at this depth of files that name files.
struct FlagSource {
  std::string path;
  int depth = 0;
};

absl::Status ReadArguments(const std::vector<std::string>& arguments, const FlagSource& source,
                           RawFlags& raw);

absl::Status ReadFlagFile(const std::string& path, int depth, RawFlags& raw) {
  if (depth >= kFlagFileDepthMax) {
    return FlagError("flagfile", path, absl::StrCat("a depth of at most ", kFlagFileDepthMax),
                     "flag files are nested too deeply");
  }
  // Opening a pipe would wait for its writer, a directory reads as empty, a device may never end.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return FlagError("flagfile", path, "a regular file",
                     error ? error.message() : "this is not a regular file");
  }
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > kFlagFileBytesMax) {
    return FlagError("flagfile", path, absl::StrCat("at most ", kFlagFileBytesMax, " bytes"),
                     "the file is too large");
  }
  std::ifstream file(path);
  std::vector<std::string> arguments;
  for (std::string line; std::getline(file, line);) {
    const std::string text(absl::StripAsciiWhitespace(line));
    if (!text.empty() && text[0] != '#') arguments.push_back(text);
  }
  if (!file.eof()) return FlagError("flagfile", path, "a readable file", "it cannot be read");
  return ReadArguments(arguments, {path, depth + 1}, raw);
}

// What it says is not repeated: it may be a token, or a line of a file that has one.
absl::Status NotAFlag(const FlagSource& source, size_t index) {
  constexpr char kAllowed[] = "flags: --NAME=VALUE";
  if (source.depth == 0) {
    return InvalidArgument(Reason::kUnknownOption, "arguments", {}, kAllowed,
                           absl::StrCat("argument ", index + 1, " is not a flag"));
  }
  return FlagError("flagfile", source.path, kAllowed,
                   absl::StrCat("line ", index + 1, ", comments left out, is not a flag"));
}

absl::Status ReadArguments(const std::vector<std::string>& arguments, const FlagSource& source,
                           RawFlags& raw) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.size() < 3 || argument.compare(0, 2, "--") != 0) {
      return NotAFlag(source, i);
    }
    const size_t equals = argument.find('=');
    std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "help" || name == "version") {
      raw.action = name == "help" ? Options::Action::kHelp : Options::Action::kVersion;
      continue;
    }
    if (name != "flagfile" && FindOwnFlag(name) == nullptr) {
      if (source.depth > 0) return NotAFlag(source, i);
      std::string allowed = "flagfile, help, version";
      for (const auto* flag : OwnFlags()) absl::StrAppend(&allowed, ", ", flag->Name());
      return FlagError(name, "", allowed, "unknown flag");
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return FlagError(name, "", "a value", "the flag has no value");
    }
    if (name == "flagfile") {
      RLK_RETURN_IF_ERROR(ReadFlagFile(value, source.depth, raw));
    } else {
      raw.values.emplace_back(name, value);
    }
  }
  return absl::OkStatus();
}

void Split(const std::string& text, std::vector<std::string>& out) {
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    out.emplace_back(absl::StripAsciiWhitespace(part));
  }
}

}  // namespace

absl::Status FlagError(std::string_view flag, std::string_view value, std::string_view allowed,
                       std::string_view message) {
  std::string name = "--" + std::string(flag);
  std::replace(name.begin(), name.end(), '_', '-');
  return InvalidArgument(Reason::kUnknownOption, name, value, allowed, message);
}

std::vector<absl::CommandLineFlag*> OwnFlags() {
  std::vector<absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (flag->Filename().find("server/options.cc") != std::string::npos) flags.push_back(flag);
  }
  std::sort(flags.begin(), flags.end(),
            [](const auto* a, const auto* b) { return a->Name() < b->Name(); });
  return flags;
}

absl::StatusOr<RawFlags> ReadFlags(const std::vector<std::string>& arguments) {
  RawFlags raw;
  RLK_RETURN_IF_ERROR(ReadArguments(arguments, {}, raw));
  return raw;
}

std::string FlagReader::Text(std::string_view name) const {
  const std::string* given = Given(name);
  return given != nullptr ? *given : FindOwnFlag(name)->DefaultValue();
}

absl::Status FlagReader::Integer(std::string_view name, int64_t low, int64_t high,
                                 int64_t& out) const {
  const std::string text = Text(name);
  if (!absl::SimpleAtoi(text, &out) || out < low || out > high) {
    return FlagError(name, text, absl::StrCat("an integer in [", low, ", ", high, "]"),
                     "the value is not allowed");
  }
  return absl::OkStatus();
}

absl::Status FlagReader::Seconds(std::string_view name, double& out) const {
  constexpr double kSecondsMax = 86400;
  const std::string text = Text(name);
  if (!absl::SimpleAtod(text, &out) || !(out >= 0 && out <= kSecondsMax)) {
    return FlagError(name, text, absl::StrCat("seconds in [0, ", kSecondsMax, "]"),
                     "the value is not allowed");
  }
  return absl::OkStatus();
}

absl::Status FlagReader::Boolean(std::string_view name, bool& out) const {
  const std::string text = Text(name);
  out = text == "true";
  if (out || text == "false") return absl::OkStatus();
  return FlagError(name, text, "true, false", "the value is not allowed");
}

std::vector<std::string> FlagReader::List(std::string_view name) const {
  std::vector<std::string> values;
  bool given = false;
  for (const auto& [key, value] : raw_.values) {
    if (key != name) continue;
    given = true;
    Split(value, values);
  }
  if (!given) Split(FindOwnFlag(name)->DefaultValue(), values);
  return values;
}

const std::string* FlagReader::Given(std::string_view name) const {
  const std::string* found = nullptr;
  for (const auto& [key, value] : raw_.values) {
    if (key == name) found = &value;
  }
  return found;
}

}  // namespace rlk::server
