// Handshakes that go wrong byte by byte, and sessions that would be resumed.
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/http2_bytes.h"
#include "tests/integration/tls_server.h"

namespace rlk::test {
namespace {

// Of a handshake message.
enum HandshakeType : uint8_t { kClientHello = 1, kCertificate = 11, kCertificateVerify = 15 };

std::string Length24(size_t size) {
  return {static_cast<char>(size >> 16), static_cast<char>(size >> 8), static_cast<char>(size)};
}

using Change = std::function<std::string(const std::string& body)>;

// The records with the body of that handshake message changed, and its lengths right again.
std::string Changed(const std::string& records, HandshakeType type, const Change& change) {
  constexpr char kHandshakeRecord = 22;
  std::string out;
  for (size_t at = 0; at + 5 <= records.size();) {
    const size_t size = static_cast<size_t>(static_cast<uint8_t>(records[at + 3])) << 8 |
                        static_cast<uint8_t>(records[at + 4]);
    std::string record = records.substr(at, 5 + size);
    at += record.size();
    if (record[0] == kHandshakeRecord && record[5] == static_cast<char>(type)) {
      const std::string body = change(record.substr(9));
      const std::string message = record[5] + Length24(body.size()) + body;
      record = record.substr(0, 3) + Length24(message.size()).substr(1) + message;
    }
    out += record;
  }
  return out;
}

// A client of TLS 1.2, whose handshake can be read and changed on its way.
class WireClient {
 public:
  explicit WireClient(const PemPair& own) : context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_max_proto_version(context_, TLS1_2_VERSION);
    SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>("\x02h2"), 3);
    BIO* const certificate = BIO_new_mem_buf(own.certificate.data(), -1);
    BIO* const key = BIO_new_mem_buf(own.key.data(), -1);
    X509* const x509 = PEM_read_bio_X509(certificate, nullptr, nullptr, nullptr);
    EVP_PKEY* const pkey = PEM_read_bio_PrivateKey(key, nullptr, nullptr, nullptr);
    EXPECT_EQ(SSL_CTX_use_certificate(context_, x509), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_, pkey), 1);
    EVP_PKEY_free(pkey);
    X509_free(x509);
    BIO_free(key);
    BIO_free(certificate);
  }
  ~WireClient() { SSL_CTX_free(context_); }
  WireClient(const WireClient&) = delete;
  WireClient& operator=(const WireClient&) = delete;

  // Whether both sides end the handshake well.
  bool Connect(const std::string& address, const std::function<std::string(std::string)>& on_way) {
    const int fd = ConnectTcp(address);
    SSL* const ssl = SSL_new(context_);
    BIO* const in = BIO_new(BIO_s_mem());
    BIO* const out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    int done = 0;
    for (;;) {
      done = SSL_do_handshake(ssl);
      char bytes[16384];
      std::string flight;
      for (int got; (got = BIO_read(out, bytes, sizeof(bytes))) > 0;) flight.append(bytes, got);
      flight = on_way(flight);
      if (!flight.empty()) (void)send(fd, flight.data(), flight.size(), MSG_NOSIGNAL);
      if (done == 1 || SSL_get_error(ssl, done) != SSL_ERROR_WANT_READ) break;
      const ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
      if (got <= 0) break;
      BIO_write(in, bytes, static_cast<int>(got));
    }
    SSL_free(ssl);
    close(fd);
    return done == 1;
  }

 private:
  SSL_CTX* const context_;
};

// The certificate's own bytes of a Certificate message, changed, with its lengths right again.
Change OfCertificate(const Change& change) {
  return [change](const std::string& body) {
    const std::string bytes = change(body.substr(6));
    return Length24(bytes.size() + 3) + Length24(bytes.size()) + bytes;
  };
}

std::string Half(const std::string& bytes) { return bytes.substr(0, bytes.size() / 2); }

TEST(HandshakeTest, ADamagedHandshakeIsRefusedAndCounted) {
  TlsServer server(Callers().pem());
  WireClient client(Callers().Issue({}));
  const auto as_is = [](std::string flight) { return flight; };
  ASSERT_TRUE(client.Connect(server.target(), as_is));
  // Who only hangs up has shown nothing.
  close(ConnectTcp(server.target()));
  const auto flipped = [](std::string body) {
    body.back() = static_cast<char>(body.back() ^ 1);
    return body;
  };
  const struct {
    const char* name;
    HandshakeType message;
    Change change;
    const char* refusal;
  } cases[] = {
      {"a cut certificate", kCertificate, OfCertificate(Half), "certificate_malformed"},
      {"cut by one byte", kCertificate,
       OfCertificate([](const std::string& bytes) { return bytes.substr(0, bytes.size() - 1); }),
       "certificate_malformed"},
      {"cut inside its message", kCertificate, Half, "certificate_malformed"},
      {"more than a certificate", kCertificate,
       OfCertificate([](const std::string& bytes) { return bytes + "x"; }),
       "certificate_malformed"},
      {"no certificate", kCertificate,
       OfCertificate([](const std::string& bytes) { return std::string(bytes.size(), 'x'); }),
       "certificate_malformed"},
      {"without its key", kCertificateVerify, flipped, "certificate_other"},
      {"a cut signature", kCertificateVerify, Half, "certificate_other"},
      {"a cut greeting", kClientHello, Half, "handshake_failed"},
  };
  const std::vector<std::string> reasons = {"certificate_malformed", "certificate_other",
                                            "handshake_failed"};
  std::map<std::string, double> expected;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    bool found = false;
    EXPECT_FALSE(client.Connect(server.target(), [&](const std::string& flight) {
      return Changed(flight, c.message, [&](const std::string& body) {
        found = true;
        return c.change(body);
      });
    }));
    EXPECT_TRUE(found);
    ++expected[c.refusal];
    Await([&] { return server.Refused(c.refusal) >= expected[c.refusal]; });
    EXPECT_TRUE(client.Connect(server.target(), as_is));
  }
  for (const std::string& bytes : {Preface(), std::string("GET / HTTP/1.1\r\n\r\n")}) {
    const int fd = ConnectTcp(server.target());
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    ++expected["handshake_failed"];
    Await([&] { return server.Refused("handshake_failed") >= expected["handshake_failed"]; });
    close(fd);
  }
  for (const std::string& reason : reasons) {
    EXPECT_EQ(server.Refused(reason), expected[reason]) << reason;
  }
  EXPECT_TRUE(Forward(TlsChannel(server.target(),
                                 {.authority = Servers().pem(), .own = Callers().Issue({})}))
                  .ok());
}

// Without a resumed session a caller shows its whole chain at each connection.
TEST(HandshakeTest, SessionsAreResumedWhereNoCertificateIsAskedFor) {
  const Authority between("between", Callers());
  PemPair chained = between.Issue({});
  chained.certificate += between.pem();
  const struct {
    const char* name;
    std::string authorities;
    PemPair own;
    const char* resumed;
  } cases[] = {
      {"TLS alone", "", {}, "true"},
      {"a certificate", Callers().pem(), Callers().Issue({}), "false"},
      {"a certificate from below another", Callers().pem(), chained, "false"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    TlsServer server(c.authorities);
    grpc_ssl_session_cache* const sessions = grpc_ssl_session_cache_create_lru(8);
    const ClientTls tls{.authority = Servers().pem(),
                        .own = c.own,
                        .server_name = "localhost",
                        .sessions = sessions};
    for (const char* resumed : {"false", c.resumed, c.resumed}) {
      const auto stub = rlk::v1::ActivationService::NewStub(TlsChannel(server.target(), tls));
      grpc::ClientContext context;
      rlk::v1::FinalLogitSoftcapForwardResponse response;
      const grpc::Status status =
          stub->FinalLogitSoftcapForward(&context, ForwardRequest(), &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      const auto reused =
          context.auth_context()->FindPropertyValues(GRPC_SSL_SESSION_REUSED_PROPERTY);
      ASSERT_EQ(reused.size(), 1u);
      EXPECT_EQ(std::string(reused[0].data(), reused[0].size()), resumed);
    }
    grpc_ssl_session_cache_destroy(sessions);
  }
}

}  // namespace
}  // namespace rlk::test
