#include "server/rpc/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/core/status.h"
#include "server/sessions/token_file.h"

namespace rlk::server {
namespace {

constexpr unsigned kWatchSeconds = 1;

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// Verification is ours, not gRPC's own, so that a refusal has a reason that can be counted.
class CallerCheck final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  CallerCheck(std::shared_ptr<const Authorities> authorities,
              std::function<void(CredentialRefusal)> on_refused)
      : authorities_(std::move(authorities)), on_refused_(std::move(on_refused)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const std::optional<CredentialRefusal> refusal =
        authorities_->Check(View(request->peer_cert()), View(request->peer_cert_full_chain()));
    if (refusal) {
      if (on_refused_) on_refused_(*refusal);
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                             kCredentialRefusals[static_cast<size_t>(*refusal)]);
    }
    return true;
  }

  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::shared_ptr<const Authorities> authorities_;
  const std::function<void(CredentialRefusal)> on_refused_;
};

}  // namespace

// A file of anonymous memory that gRPC watches. gRPC drops what it has when it meets a file that it
// cannot use, and then refuses everybody; so it sees only what has been checked.
class Tls::Published {
 public:
  static absl::StatusOr<std::unique_ptr<Published>> Make() {
    const int fd = memfd_create("rlk-tls", MFD_CLOEXEC);
    if (fd >= 0) return std::unique_ptr<Published>(new Published(fd));
    return absl::ResourceExhaustedError(std::string("no memory for certificates: ") +
                                        std::strerror(errno));
  }
  ~Published() { close(fd_); }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

  absl::Status Write(const std::string& text) const {
    const auto size = static_cast<ssize_t>(text.size());
    if (ftruncate(fd_, 0) == 0 && pwrite(fd_, text.data(), text.size(), 0) == size) {
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError("no memory for certificates");
  }

 private:
  explicit Published(int fd) : fd_(fd) {}
  const int fd_;
};

Tls::Tls(const TlsFiles& files) : files_(files) {}
Tls::~Tls() = default;

absl::StatusOr<std::unique_ptr<Tls>> Tls::Make(const TlsFiles& files,
                                               std::function<void(CredentialRefusal)> on_refused) {
  std::unique_ptr<Tls> tls(new Tls(files));
  RLK_ASSIGN_OR_RETURN(tls->certificate_, Published::Make());
  RLK_ASSIGN_OR_RETURN(tls->key_, Published::Make());
  RLK_ASSIGN_OR_RETURN(tls->client_authorities_, Published::Make());
  tls->seen_ = tls->Read();
  RLK_RETURN_IF_ERROR(tls->seen_.status());
  RLK_RETURN_IF_ERROR(tls->Use(*tls->seen_));

  if (on_refused) tls->handshakes_ = std::make_unique<HandshakeWatch>(on_refused);
  using Watcher = grpc::experimental::FileWatcherCertificateProvider;
  const bool asks = !files.client_authorities.empty();
  const auto provider =
      asks ? std::make_shared<Watcher>(tls->key_->path(), tls->certificate_->path(),
                                       tls->client_authorities_->path(), kWatchSeconds)
           : std::make_shared<Watcher>(tls->key_->path(), tls->certificate_->path(), kWatchSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  if (asks) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
    options.set_certificate_verifier(
        grpc::experimental::ExternalCertificateVerifier::Create<CallerCheck>(
            tls->authorities_, std::move(on_refused)));
  }
  tls->credentials_ = grpc::experimental::TlsServerCredentials(options);
  return tls;
}

absl::StatusOr<Tls::Contents> Tls::Read() const {
  Contents contents;
  RLK_ASSIGN_OR_RETURN(contents.certificate, ReadPublicFile("--tls-cert", files_.certificate));
  RLK_ASSIGN_OR_RETURN(contents.key, ReadSecretFile("--tls-key", files_.key));
  if (!files_.client_authorities.empty()) {
    RLK_ASSIGN_OR_RETURN(contents.client_authorities,
                         ReadPublicFile("--tls-client-ca", files_.client_authorities));
  }
  return contents;
}

absl::Status Tls::Use(const Contents& contents) {
  RLK_ASSIGN_OR_RETURN(const absl::Time expires,
                       CheckOwnCertificate(contents.certificate, contents.key));
  if (!files_.client_authorities.empty()) {
    RLK_RETURN_IF_ERROR(authorities_->Set(contents.client_authorities));
    RLK_RETURN_IF_ERROR(client_authorities_->Write(contents.client_authorities));
  }
  RLK_RETURN_IF_ERROR(key_->Write(contents.key));
  RLK_RETURN_IF_ERROR(certificate_->Write(contents.certificate));
  expires_ = expires;
  return absl::OkStatus();
}

absl::StatusOr<bool> Tls::Refresh() {
  absl::StatusOr<Contents> now = Read();
  const bool same =
      now.ok() == seen_.ok() && (now.ok() ? *now == *seen_ : now.status() == seen_.status());
  // What could not be used is tried again: a certificate becomes valid while its file stays as it
  // is.
  if (same && (refused_.ok() || !now.ok())) return false;
  seen_ = std::move(now);
  RLK_RETURN_IF_ERROR(seen_.status());
  const absl::Status used = Use(*seen_);
  if (same && used == refused_) return false;
  refused_ = used;
  RLK_RETURN_IF_ERROR(used);
  return true;
}

}  // namespace rlk::server
