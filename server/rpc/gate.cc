#include "server/rpc/gate.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

constexpr char kTokenKey[] = "authorization";
constexpr absl::string_view kScheme = "bearer ";
// Refusals come as fast as somebody calls: the log gets a line now and then.
constexpr std::chrono::seconds kLogInterval{10};

// The token of "Bearer TOKEN".
std::optional<std::string_view> TokenOf(std::string_view header) {
  const absl::string_view text(header.data(), header.size());
  if (!absl::StartsWithIgnoreCase(text, kScheme)) return std::nullopt;
  const std::string_view token = header.substr(kScheme.size());
  if (!IsTokenText(token)) return std::nullopt;
  return token;
}

// The most precise name of a certificate, with its kind, so that no kind can pass for another.
// Empty where it has none.
std::string CertificateName(const grpc::AuthContext& peer) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kNames = {
      {{"uri:", GRPC_PEER_URI_PROPERTY_NAME},
       {"dns:", GRPC_PEER_DNS_PROPERTY_NAME},
       {"cn:", GRPC_X509_CN_PROPERTY_NAME}}};
  for (const auto& [kind, property] : kNames) {
    const std::vector<grpc::string_ref> values = peer.FindPropertyValues(property);
    if (values.empty() || values[0].empty()) continue;
    return kind + std::string(values[0].data(), values[0].size());
  }
  return "";
}

}  // namespace

absl::StatusOr<std::shared_ptr<Account>> Gate::Admit(const grpc::ServerContextBase& context) const {
  if (context.peer().rfind("unix:", 0) == 0) return std::shared_ptr<Account>();
  if (rules_.tokens != nullptr) return ByToken(context);
  return ByCertificate(context);
}

absl::StatusOr<std::shared_ptr<Account>> Gate::ByToken(
    const grpc::ServerContextBase& context) const {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTokenKey);
  if (found == metadata.end()) {
    return Refuse(context, CredentialRefusal::kTokenMissing, kTokenKey, "absent");
  }
  const std::optional<std::string_view> token =
      TokenOf(std::string_view(found->second.data(), found->second.size()));
  if (!token || metadata.count(kTokenKey) > 1) {
    return Refuse(context, CredentialRefusal::kTokenMalformed, kTokenKey, "malformed");
  }
  TokenFile::Found match = rules_.tokens->Find(*token);
  switch (match.match) {
    case TokenFile::Match::kFound:
      return std::move(match.account);
    case TokenFile::Match::kExpired:
      return Refuse(context, CredentialRefusal::kTokenExpired, kTokenKey, "expired");
    case TokenFile::Match::kUnknown:
      break;
  }
  return Refuse(context, CredentialRefusal::kTokenUnknown, kTokenKey, "unknown");
}

absl::StatusOr<std::shared_ptr<Account>> Gate::ByCertificate(
    const grpc::ServerContextBase& context) const {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  // The listener has refused whoever has none; this is the second lock.
  if (peer == nullptr || peer->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME).empty()) {
    return Refuse(context, CredentialRefusal::kCertificateMissing, "certificate", "absent");
  }
  // All that have none would be one account.
  const std::string name = CertificateName(*peer);
  if (name.empty()) {
    return Refuse(context, CredentialRefusal::kCertificateOther, "certificate",
                  "one without a URI, a DNS name and a common name");
  }
  return rules_.accounts->Get(name);
}

absl::Status Gate::Refuse(const grpc::ServerContextBase& context, CredentialRefusal why,
                          const char* field, const char* value) const {
  if (rules_.on_refused) rules_.on_refused(why);
  const auto now = std::chrono::steady_clock::now();
  int64_t refused = 0;
  {
    const std::lock_guard lock(mutex_);
    ++refused_;
    if (logged_ == std::chrono::steady_clock::time_point() || now - logged_ >= kLogInterval) {
      logged_ = now;
      refused = refused_;
    }
  }
  if (refused > 0 && rules_.logger != nullptr) {
    rules_.logger->Warning("a credential was refused",
                           {{"reason", kCredentialRefusals[static_cast<size_t>(why)]},
                            {"peer", context.peer()},
                            {"refused_so_far", refused}});
  }
  return MakeError(
      absl::StatusCode::kUnauthenticated,
      {Reason::kUnauthenticated, field, value,
       std::string_view(field) == kTokenKey ? "Bearer and a token of this server"
                                            : "a certificate of this server's callers"},
      "the call needs a credential");
}

}  // namespace rlk::server
