// What there is to count about credentials: closed sets, which are labels.
#pragma once

#include <array>
#include <cstdint>

namespace rlk::server {

// Why a credential was refused.
enum class CredentialRefusal : uint8_t {
  kTokenMissing,
  kTokenMalformed,
  kTokenUnknown,
  kTokenExpired,
  kSessionUnknown,
  kCertificateMissing,
  kCertificateMalformed,
  kCertificateUntrusted,
  kCertificateExpired,
  kCertificateNotYetValid,
  kCertificateOther,
  kHandshakeFailed,
};
inline constexpr std::array<const char*, 12> kCredentialRefusals = {
    "token_missing",         "token_malformed",
    "token_unknown",         "token_expired",
    "session_unknown",       "certificate_missing",
    "certificate_malformed", "certificate_untrusted",
    "certificate_expired",   "certificate_not_yet_valid",
    "certificate_other",     "handshake_failed"};

// Files of credentials that are read again when they change.
enum class CredentialFile : uint8_t { kTokens, kCertificates };
inline constexpr std::array<const char*, 2> kCredentialFiles = {"tokens", "certificates"};

}  // namespace rlk::server
