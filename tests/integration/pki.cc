#include "tests/integration/pki.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdlib>

namespace rlk::test {
namespace {

void Check(bool good) {
  if (!good) abort();
}

std::string TextOf(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(memory);
  return text;
}

std::string PemOf(X509* certificate) {
  BIO* const memory = BIO_new(BIO_s_mem());
  Check(PEM_write_bio_X509(memory, certificate) == 1);
  return TextOf(memory);
}

std::string PemOf(EVP_PKEY* key) {
  BIO* const memory = BIO_new(BIO_s_mem());
  Check(PEM_write_bio_PrivateKey(memory, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return TextOf(memory);
}

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  Check(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// Without extensions and signature.
X509* NewCertificate(const std::string& name, EVP_PKEY* key, int64_t begins, int64_t ends) {
  X509* const certificate = X509_new();
  Check(X509_set_version(certificate, 2) == 1);
  unsigned char serial[8];
  Check(RAND_bytes(serial, sizeof(serial)) == 1);
  serial[0] &= 0x7f;
  BIGNUM* const number = BN_bin2bn(serial, sizeof(serial), nullptr);
  Check(BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr);
  BN_free(number);
  X509_gmtime_adj(X509_getm_notBefore(certificate), static_cast<long>(begins));
  X509_gmtime_adj(X509_getm_notAfter(certificate), static_cast<long>(ends));
  X509_set_pubkey(certificate, key);
  // Without a name it is an organisation's.
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(certificate), name.empty() ? "O" : "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(name.empty() ? "somebody" : name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

struct Authority::Impl {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = nullptr;

  Impl(const std::string& name, const Impl* above) {
    constexpr int64_t kDay = 86400;
    certificate = NewCertificate(name, key, -kDay, kDay);
    const Impl& signer = above == nullptr ? *this : *above;
    X509_set_issuer_name(certificate, X509_get_subject_name(signer.certificate));
    AddExtension(certificate, signer.certificate, NID_basic_constraints, "critical,CA:TRUE");
    AddExtension(certificate, signer.certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
    AddExtension(certificate, signer.certificate, NID_subject_key_identifier, "hash");
    Check(X509_sign(certificate, signer.key, EVP_sha256()) > 0);
  }
  ~Impl() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
};

Authority::Authority(const std::string& name)
    : impl_(std::make_unique<Impl>(name, nullptr)), pem_(PemOf(impl_->certificate)) {}
Authority::Authority(const std::string& name, const Authority& above)
    : impl_(std::make_unique<Impl>(name, above.impl_.get())), pem_(PemOf(impl_->certificate)) {}
Authority::~Authority() = default;

PemPair Authority::Issue(const CertificateRequest& request) const {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate =
      NewCertificate(request.name, key, request.begins_seconds, request.ends_seconds);
  X509_set_issuer_name(certificate, X509_get_subject_name(impl_->certificate));
  AddExtension(certificate, impl_->certificate, NID_basic_constraints, "critical,CA:FALSE");
  AddExtension(certificate, impl_->certificate, NID_ext_key_usage,
               request.use == CertificateRequest::Use::kServer ? "serverAuth" : "clientAuth");
  std::string names;
  for (const std::string& name : request.alternative_names) {
    names += (names.empty() ? "" : ",") + name;
  }
  if (!names.empty()) {
    AddExtension(certificate, impl_->certificate, NID_subject_alt_name, names);
  }
  Check(X509_sign(certificate, impl_->key, EVP_sha256()) > 0);
  PemPair pair{PemOf(certificate), PemOf(key)};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

PemPair IssueServer(const Authority& authority) {
  return authority.Issue({.name = "server",
                          .alternative_names = {"DNS:localhost", "IP:127.0.0.1"},
                          .use = CertificateRequest::Use::kServer});
}

}  // namespace rlk::test
