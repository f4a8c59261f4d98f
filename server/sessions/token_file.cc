#include "server/sessions/token_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

constexpr char kFlag[] = "--tokens";
constexpr size_t kNameBytesMax = 64;
constexpr int64_t kFileBytesMax = int64_t{1} << 20;
constexpr std::string_view kHashPrefix = "sha256:";

using Hash = std::array<uint64_t, 4>;
static_assert(sizeof(Hash) == SHA256_DIGEST_LENGTH);

absl::Status FileError(const char* flag, const std::string& path, std::string_view allowed,
                       std::string_view message) {
  return InvalidArgument(Reason::kUnknownOption, flag, path, allowed, message);
}

absl::Status LineError(size_t line, std::string_view allowed, std::string_view message) {
  return FileError(kFlag, absl::StrCat("line ", line), allowed, message);
}

bool IsName(absl::string_view text) {
  if (text.empty() || text.size() > kNameBytesMax) return false;
  for (const char c : text) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!allowed) return false;
  }
  return true;
}

std::optional<Hash> ParseHash(absl::string_view text) {
  const absl::string_view prefix(kHashPrefix.data(), kHashPrefix.size());
  if (text.size() != prefix.size() + 2 * sizeof(Hash) || text.substr(0, prefix.size()) != prefix) {
    return std::nullopt;
  }
  std::array<unsigned char, sizeof(Hash)> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint32_t value = 0;
    const std::string digits(text.substr(prefix.size() + 2 * i, 2));
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos ||
        !absl::SimpleHexAtoi(digits, &value)) {
      return std::nullopt;
    }
    bytes[i] = static_cast<unsigned char>(value);
  }
  Hash hash;
  std::memcpy(hash.data(), bytes.data(), sizeof(hash));
  return hash;
}

// One KEY=VALUE of a line. False where it is none.
bool ParseSetting(absl::string_view word, TokenEntry& entry, AccountBudget& budget) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  const auto& [key, value] = parts;
  if (key == "expires") {
    std::string error;
    return entry.expires == absl::InfiniteFuture() &&
           absl::ParseTime(absl::RFC3339_full, value, &entry.expires, &error);
  }
  const std::pair<absl::string_view, std::optional<int64_t>*> settings[] = {
      {"sessions_max", &budget.sessions_max},
      {"tensors_max", &budget.tensors_max},
      {"resident_bytes_max", &budget.resident_bytes_max}};
  for (const auto& [name, target] : settings) {
    int64_t number = 0;
    if (key != name || target->has_value() || !absl::SimpleAtoi(value, &number) || number < 0) {
      continue;
    }
    *target = number;
    return true;
  }
  return false;
}

struct ParsedLine {
  TokenEntry entry;
  AccountBudget budget;
};

absl::StatusOr<ParsedLine> ParseLine(size_t number, absl::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  ParsedLine parsed;
  if (words.size() < 2 || !IsName(words[0])) {
    return LineError(number, "NAME sha256:HEX, a name of at most 64 letters, digits, . _ -",
                     "the line has no name and hash");
  }
  parsed.entry.name = words[0];
  const std::optional<Hash> hash = ParseHash(words[1]);
  if (!hash) {
    return LineError(number, "sha256: and the 64 hex digits of the token's SHA-256",
                     "what stands behind the name is no hash");
  }
  parsed.entry.sha256 = *hash;
  for (size_t i = 2; i < words.size(); ++i) {
    if (!ParseSetting(words[i], parsed.entry, parsed.budget)) {
      return LineError(number,
                       "sessions_max, tensors_max, resident_bytes_max with a number of at least 0, "
                       "expires with an RFC 3339 time; each once",
                       "a setting of the line is none");
    }
  }
  return parsed;
}

// SHA-256 of nothing: the token that somebody gets who hashes an empty file.
bool IsEmptyHash(const Hash& hash) {
  Hash empty;
  SHA256(nullptr, 0, reinterpret_cast<unsigned char*>(empty.data()));
  return hash == empty;
}

}  // namespace

absl::StatusOr<std::vector<TokenEntry>> ParseTokens(std::string_view text, AccountTable& accounts) {
  std::vector<TokenEntry> entries;
  std::map<std::string, AccountBudget> budgets;
  std::set<Hash> hashes;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    RLK_ASSIGN_OR_RETURN(ParsedLine parsed, ParseLine(number, line));
    if (entries.size() == kTokensMax) {
      return LineError(number, absl::StrCat("at most ", kTokensMax, " tokens"),
                       "the file has too many tokens");
    }
    if (!hashes.insert(parsed.entry.sha256).second) {
      return LineError(number, "each token once", "the token stands there twice");
    }
    if (IsEmptyHash(parsed.entry.sha256)) {
      return LineError(number, "the SHA-256 of a token", "this is the hash of an empty token");
    }
    AccountBudget& budget = budgets[parsed.entry.name];
    if (parsed.budget != AccountBudget()) {
      if (budget != AccountBudget()) {
        return LineError(number, "the budget of a name on one of its lines",
                         "another line has a budget for this name");
      }
      budget = parsed.budget;
    }
    entries.push_back(std::move(parsed.entry));
  }
  if (entries.empty()) {
    return FileError(kFlag, "", "at least one line NAME sha256:HEX", "the file has no token");
  }
  // Nothing is changed before all is known to be well.
  for (TokenEntry& entry : entries) {
    entry.account = accounts.Get(entry.name);
    entry.account->SetBudget(budgets[entry.name]);
    entry.account->SetRevoked(false);
  }
  return entries;
}

bool IsTokenText(std::string_view text) {
  return !text.empty() && text.size() <= kTokenBytesMax &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") ==
             std::string_view::npos;
}

namespace {

// The text may be the secret itself, given in place of its file: it is not repeated.
absl::Status Unreadable(const char* flag, const std::string& path, bool secret) {
  const bool nothing = secret && errno != EACCES;
  return FileError(flag, nothing ? "" : path, "a file that can be read", std::strerror(errno));
}

// A pipe is no file: nobody may ever write to it, and the thread that looks would wait.
absl::StatusOr<std::string> ReadRegularFile(const char* flag, const std::string& path,
                                            bool secret) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Unreadable(flag, path, secret);
  struct stat info = {};
  absl::Status status;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    status = FileError(flag, path, "a regular file", "this is no regular file");
  } else if (secret && (info.st_mode & S_IRWXO) != 0) {
    status = FileError(flag, path, "a file of mode 0640 or stricter",
                       "everybody on this host may read or write the file");
  } else if (info.st_size > kFileBytesMax) {
    status = FileError(flag, path, absl::StrCat("at most ", kFileBytesMax, " bytes"),
                       "the file is too large");
  }
  std::string text;
  char buffer[4096];
  while (status.ok()) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = FileError(flag, path, "a file that can be read", std::strerror(errno));
    if (got <= 0 || static_cast<int64_t>(text.size()) > kFileBytesMax) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  if (!status.ok()) return status;
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadPublicFile(const char* flag, const std::string& path) {
  RLK_ASSIGN_OR_RETURN(std::string text, ReadRegularFile(flag, path, /*secret=*/false));
  if (!text.empty()) return text;
  return FileError(flag, path, "a file that can be read", "the file is empty");
}

absl::StatusOr<std::string> ReadSecretFile(const char* flag, const std::string& path) {
  return ReadRegularFile(flag, path, /*secret=*/true);
}

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path,
                                                           AccountTable* accounts) {
  std::unique_ptr<TokenFile> file(new TokenFile(path, accounts));
  RLK_ASSIGN_OR_RETURN(file->stamp_, file->Look());
  RLK_RETURN_IF_ERROR(file->Load());
  return file;
}

absl::StatusOr<TokenFile::Stamp> TokenFile::Look() const {
  struct stat info = {};
  if (stat(path_.c_str(), &info) != 0) {
    return Unreadable(kFlag, path_, /*secret=*/true);
  }
  // The change time: a file is looked at again when only its mode was put right, or wrong.
  return Stamp{info.st_dev, info.st_ino, info.st_size, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

absl::Status TokenFile::Load() {
  RLK_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(kFlag, path_));
  RLK_ASSIGN_OR_RETURN(std::vector<TokenEntry> entries, ParseTokens(text, *accounts_));
  std::set<const Account*> present;
  for (const TokenEntry& entry : entries) present.insert(entry.account.get());
  auto tokens = std::make_shared<const std::vector<TokenEntry>>(std::move(entries));
  {
    const std::lock_guard lock(mutex_);
    tokens_.swap(tokens);
  }
  if (tokens == nullptr) return absl::OkStatus();
  for (const TokenEntry& entry : *tokens) {
    if (present.count(entry.account.get()) == 0) entry.account->SetRevoked(true);
  }
  return absl::OkStatus();
}

TokenFile::Found TokenFile::Find(std::string_view token) const {
  std::shared_ptr<const std::vector<TokenEntry>> tokens;
  {
    const std::lock_guard lock(mutex_);
    tokens = tokens_;
  }
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  // All are compared, whichever it is.
  const TokenEntry* found = nullptr;
  for (const TokenEntry& entry : *tokens) {
    if (CRYPTO_memcmp(entry.sha256.data(), hash.data(), sizeof(hash)) == 0) found = &entry;
  }
  if (found == nullptr) return {};
  if (found->expires != absl::InfiniteFuture() && absl::Now() >= found->expires) {
    return {Match::kExpired, nullptr};
  }
  return {Match::kFound, found->account};
}

TokenFile::Reload TokenFile::Refresh(absl::Status* error) {
  const absl::StatusOr<Stamp> now = Look();
  const Stamp stamp = now.value_or(Stamp{});
  if (stamp == stamp_) return Reload::kUnchanged;
  stamp_ = stamp;
  *error = now.ok() ? Load() : now.status();
  return error->ok() ? Reload::kDone : Reload::kFailed;
}

}  // namespace rlk::server
