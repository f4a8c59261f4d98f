// The bearer tokens that a server takes, from a file. It holds no token, only what tokens hash to:
// who reads it cannot call the server.
//
//   # one credential a line: NAME sha256:HEX [KEY=VALUE...]
//   trainer  sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//   rollout  sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752 sessions_max=4
//
// A name may have several lines, so that a token can be replaced without a gap. Keys are
// sessions_max, tensors_max and resident_bytes_max, of the account, and expires, of the token, an
// RFC 3339 time such as 2027-01-31T00:00:00Z.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/sessions/account.h"

namespace rlk::server {

// Of the file, and of one token in a call.
inline constexpr size_t kTokensMax = 256;
inline constexpr size_t kTokenBytesMax = 4096;

// What a token is made of: the alphabet of RFC 6750, at least one byte and at most kTokenBytesMax.
bool IsTokenText(std::string_view text);

struct TokenEntry {
  std::string name;
  std::array<uint64_t, 4> sha256 = {};
  absl::Time expires = absl::InfiniteFuture();
  std::shared_ptr<Account> account;
};

// INVALID_ARGUMENT naming the line, and never repeating what stands where a hash should: somebody
// may have put a token there.
absl::StatusOr<std::vector<TokenEntry>> ParseTokens(std::string_view text, AccountTable& accounts);

// Thread-safe.
class TokenFile {
 public:
  // Reads the file. Errors name the flag: a file that cannot be read, that others than its owner
  // and group may read, that has a mistake, or no token.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path,
                                                         AccountTable* accounts);

  enum class Match { kFound, kUnknown, kExpired };
  struct Found {
    Match match = Match::kUnknown;
    std::shared_ptr<Account> account;
  };
  // Takes the same time for every token of one length.
  Found Find(std::string_view token) const;

  enum class Reload { kUnchanged, kDone, kFailed };
  // Looks whether the file has changed, and takes it in, or leaves everything as it is where that
  // fails: `error` says why, once for each change.
  Reload Refresh(absl::Status* error);

 private:
  struct Stamp {
    uint64_t device = 0, inode = 0;
    int64_t size = 0, seconds = 0, nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  TokenFile(std::string path, AccountTable* accounts)
      : path_(std::move(path)), accounts_(accounts) {}
  absl::StatusOr<Stamp> Look() const;
  absl::Status Load();

  const std::string path_;
  AccountTable* const accounts_;
  Stamp stamp_;  // of the last Load; Refresh and Open have one thread
  mutable std::mutex mutex_;
  std::shared_ptr<const std::vector<TokenEntry>> tokens_;  // guarded by mutex_
};

// The content of a file; INVALID_ARGUMENT naming `flag`.
absl::StatusOr<std::string> ReadPublicFile(const char* flag, const std::string& path);
// The same of a file that holds secrets. Errors as those of TokenFile::Open; `flag` is named.
absl::StatusOr<std::string> ReadSecretFile(const char* flag, const std::string& path);

}  // namespace rlk::server
