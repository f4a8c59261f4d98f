#include "server/rpc/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include <ctime>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

template <typename T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* object) const { Free(object); }
};
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;
using Context = std::unique_ptr<X509_STORE_CTX, Deleter<X509_STORE_CTX, X509_STORE_CTX_free>>;
using StorePointer = std::unique_ptr<X509_STORE, Deleter<X509_STORE, X509_STORE_free>>;

void FreeAll(BIO* bio) { BIO_free_all(bio); }
using Memory = std::unique_ptr<BIO, Deleter<BIO, FreeAll>>;

Memory Reading(std::string_view text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A server's key is not asked for at a terminal.
int NoPassword(char*, int, int, void*) { return 0; }

// All certificates of the text; nothing where one is malformed or cut off.
std::optional<std::vector<Certificate>> ParseAll(std::string_view pem) {
  const Memory memory = Reading(pem);
  std::vector<Certificate> all;
  ERR_clear_error();
  while (X509* const next = PEM_read_bio_X509(memory.get(), nullptr, NoPassword, nullptr)) {
    all.emplace_back(next);
  }
  const unsigned long error = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) return std::nullopt;
  return all;
}

absl::Status FileError(const char* flag, std::string_view allowed, std::string_view message) {
  return InvalidArgument(Reason::kUnknownOption, flag, {}, allowed, message);
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

CredentialRefusal RefusalOf(int error) {
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return CredentialRefusal::kCertificateExpired;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return CredentialRefusal::kCertificateNotYetValid;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED:
      return CredentialRefusal::kCertificateUntrusted;
    default:
      return CredentialRefusal::kCertificateOther;
  }
}

}  // namespace

absl::StatusOr<absl::Time> CheckOwnCertificate(const std::string& chain_pem,
                                               const std::string& key_pem) {
  const std::optional<std::vector<Certificate>> chain = ParseAll(chain_pem);
  if (!chain || chain->empty()) {
    return FileError("--tls-cert", "PEM certificates, the server's own first",
                     "the file has no certificate, or one that is malformed");
  }
  const Memory memory = Reading(key_pem);
  const Key key(PEM_read_bio_PrivateKey(memory.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return FileError("--tls-key", "a PEM private key without a password",
                     "the file has no key, or one that is malformed");
  }
  if (X509_check_private_key(chain->front().get(), key.get()) != 1) {
    ERR_clear_error();
    return FileError("--tls-key", "the key of --tls-cert",
                     "the key is that of another certificate");
  }
  absl::Time end = absl::InfiniteFuture();
  for (const Certificate& certificate : *chain) {
    if (TimeOf(X509_get0_notBefore(certificate.get())) > absl::Now()) {
      return FileError("--tls-cert", "certificates that are valid now",
                       "a certificate is not valid yet");
    }
    end = std::min(end, TimeOf(X509_get0_notAfter(certificate.get())));
  }
  if (end <= absl::Now()) {
    return FileError("--tls-cert", "certificates that are valid now", "a certificate has expired");
  }
  return end;
}

struct Authorities::Store {
  StorePointer certificates{X509_STORE_new()};
};

Authorities::Authorities() : store_(std::make_shared<Store>()) {}
Authorities::~Authorities() = default;

absl::Status Authorities::Set(const std::string& pem) {
  const std::optional<std::vector<Certificate>> all = ParseAll(pem);
  if (!all || all->empty()) {
    return FileError("--tls-client-ca", "PEM certificates",
                     "the file has no certificate, or one that is malformed");
  }
  auto store = std::make_shared<Store>();
  for (const Certificate& certificate : *all) {
    X509_STORE_add_cert(store->certificates.get(), certificate.get());
  }
  ERR_clear_error();
  const std::lock_guard lock(mutex_);
  store_ = std::move(store);
  return absl::OkStatus();
}

std::optional<CredentialRefusal> Authorities::Check(std::string_view leaf_pem,
                                                    std::string_view chain_pem) const {
  if (leaf_pem.empty()) return CredentialRefusal::kCertificateMissing;
  const std::optional<std::vector<Certificate>> leaf = ParseAll(leaf_pem);
  const std::optional<std::vector<Certificate>> chain = ParseAll(chain_pem);
  if (!leaf || leaf->size() != 1 || !chain) return CredentialRefusal::kCertificateMalformed;
  std::shared_ptr<const Store> store;
  {
    const std::lock_guard lock(mutex_);
    store = store_;
  }
  STACK_OF(X509)* const between = sk_X509_new_null();
  for (const Certificate& certificate : *chain) sk_X509_push(between, certificate.get());
  const Context context(X509_STORE_CTX_new());
  std::optional<CredentialRefusal> refusal = CredentialRefusal::kCertificateOther;
  if (X509_STORE_CTX_init(context.get(), store->certificates.get(), leaf->front().get(), between) ==
          1 &&
      X509_STORE_CTX_set_default(context.get(), "ssl_client") == 1) {
    if (X509_verify_cert(context.get()) == 1) {
      refusal.reset();
    } else {
      refusal = RefusalOf(X509_STORE_CTX_get_error(context.get()));
    }
  }
  ERR_clear_error();
  sk_X509_free(between);
  return refusal;
}

}  // namespace rlk::server
