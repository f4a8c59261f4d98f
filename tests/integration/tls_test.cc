// TLS of the TCP listeners: who gets past the handshake, and what a server says of its own files.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/status.h"
#include "rlk/v1/parity_check.pb.h"
#include "server/listen_address.h"
#include "server/options.h"
#include "server/rpc/certificate.h"
#include "server/rpc/peer.h"
#include "server/rpc/security.h"
#include "tests/integration/tls_server.h"

namespace rlk::test {
namespace {

using server::Security;

TEST(TlsTest, ServesCallersThatKnowTheAuthority) {
  TlsServer server;
  EXPECT_TRUE(Forward(TlsChannel(server.target(), {.authority = Servers().pem()})).ok());
  EXPECT_GT(server.Value("rlk_certificate_end_timestamp_seconds"), 1.7e9);
  const struct {
    const char* name;
    std::shared_ptr<grpc::Channel> channel;
  } refused[] = {
      {"wrong authority", TlsChannel(server.target(), {.authority = Callers().pem()})},
      {"wrong host", TlsChannel(server.target(), {.authority = Servers().pem(),
                                                  .server_name = "elsewhere.example"})},
      {"no TLS", DefaultChannel(server.target())},
  };
  for (const auto& c : refused) {
    EXPECT_EQ(Forward(c.channel).error_code(), grpc::StatusCode::UNAVAILABLE) << c.name;
    EXPECT_TRUE(server.ProbesSucceed()) << c.name;
  }
  EXPECT_TRUE(Forward(TlsChannel(server.target(), {.authority = Servers().pem()})).ok());
}

TEST(TlsTest, EveryBadCertificateIsRefusedAndCounted) {
  const Authority between("between", Callers());
  const Authority impostor("authority of callers");
  TlsServer server(Callers().pem());
  PemPair chained = between.Issue({});
  chained.certificate += between.pem();
  const PemPair unchained = between.Issue({});
  using Use = CertificateRequest::Use;
  const struct {
    const char* name;
    PemPair own;
    const char* refusal;  // null: it is good
  } cases[] = {
      {"good", Callers().Issue({}), nullptr},
      {"good, with one between", chained, nullptr},
      {"none", {}, "certificate_missing"},
      {"expired", Callers().Issue({.begins_seconds = -7200, .ends_seconds = -60}),
       "certificate_expired"},
      {"not yet valid", Callers().Issue({.begins_seconds = 600, .ends_seconds = 7200}),
       "certificate_not_yet_valid"},
      {"of the servers' authority", Servers().Issue({}), "certificate_untrusted"},
      {"of one with the same name", impostor.Issue({}), "certificate_untrusted"},
      {"without the one between", unchained, "certificate_untrusted"},
      {"for a server", Callers().Issue({.use = Use::kServer}), "certificate_other"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const auto channel = TlsChannel(server.target(), {.authority = Servers().pem(), .own = c.own});
    const double before = c.refusal == nullptr ? 0 : server.Refused(c.refusal);
    const grpc::Status status = Forward(channel);
    EXPECT_EQ(status.ok(), c.refusal == nullptr) << status.error_message();
    EXPECT_TRUE(server.ProbesSucceed());
    if (c.refusal == nullptr) continue;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    Await([&] { return server.Refused(c.refusal) > before; });
    for (const std::string& path : AllPaths()) {
      EXPECT_FALSE(CallWith(channel, path, "", {}).status.ok()) << path;
    }
    EXPECT_FALSE(Healthy(channel)) << "nothing is behind a handshake that failed";
  }
  EXPECT_EQ(server.Refused("certificate_malformed"), 0);
}

TEST(TlsTest, ACutCertificateIsMalformed) {
  server::Authorities authorities;
  ASSERT_TRUE(authorities.Set(Callers().pem()).ok());
  const PemPair own = Callers().Issue({});
  using server::CredentialRefusal;
  EXPECT_EQ(authorities.Check(own.certificate, ""), std::nullopt);
  const std::string cut = own.certificate.substr(0, own.certificate.size() / 2);
  const struct {
    const char* name;
    std::string leaf, chain;
    CredentialRefusal refusal;
  } cases[] = {
      {"nothing", "", "", CredentialRefusal::kCertificateMissing},
      {"no PEM", "certificate", "", CredentialRefusal::kCertificateMalformed},
      {"cut", cut, "", CredentialRefusal::kCertificateMalformed},
      {"two", own.certificate + own.certificate, "", CredentialRefusal::kCertificateMalformed},
      {"cut chain", own.certificate, cut, CredentialRefusal::kCertificateMalformed},
      {"a key", own.key, "", CredentialRefusal::kCertificateMalformed},
  };
  for (const auto& c : cases) EXPECT_EQ(authorities.Check(c.leaf, c.chain), c.refusal) << c.name;
  EXPECT_FALSE(authorities.Set(cut).ok());
  EXPECT_EQ(authorities.Check(own.certificate, ""), std::nullopt) << "the former ones stay";
}

TEST(TlsTest, ACertificateIsAnAccount) {
  TlsServer server(Callers().pem(), "", 1);
  const auto open = [&server](const std::vector<std::string>& names, const std::string& common) {
    const PemPair own = Callers().Issue({.name = common, .alternative_names = names});
    return CallWith(TlsChannel(server.target(), {.authority = Servers().pem(), .own = own}),
                    "/rlk.v1.SessionService/OpenSession", "", {})
        .status;
  };
  // One session each: who has one already is the same account.
  EXPECT_TRUE(open({"URI:spiffe://example/a"}, "x").ok());
  EXPECT_TRUE(open({"URI:spiffe://example/b"}, "x").ok());
  EXPECT_EQ(FactsOf(open({"URI:spiffe://example/a", "DNS:b"}, "y")).reason, "SESSIONS_EXHAUSTED");
  EXPECT_TRUE(open({"DNS:host"}, "x").ok());
  EXPECT_EQ(FactsOf(open({"DNS:host"}, "z")).reason, "SESSIONS_EXHAUSTED");
  EXPECT_TRUE(open({}, "x").ok());
  EXPECT_EQ(FactsOf(open({}, "x")).reason, "SESSIONS_EXHAUSTED");
  EXPECT_TRUE(open({}, "host").ok()) << "a common name is no host name";

  // Without a name there is no account, and strangers do not share one.
  double refused = 0;
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{}, {"email:a@example.org"}, {"IP:10.0.0.1"}}) {
    SCOPED_TRACE(names.empty() ? "no name at all" : names[0]);
    const grpc::Status status = open(names, "");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(FactsOf(status).reason, "UNAUTHENTICATED");
    EXPECT_EQ(server.Refused("certificate_other"), ++refused);
  }
}

TEST(TlsTest, WithTokensTooBothAreNeeded) {
  const std::string token = "token-0123456789abcdef0123456789abcdef";
  TlsServer server(Callers().pem(), "caller " + HashOf(token) + "\n");
  const PemPair own = Callers().Issue({});
  const auto with = TlsChannel(server.target(), {.authority = Servers().pem(), .own = own});
  const auto without = TlsChannel(server.target(), {.authority = Servers().pem()});
  EXPECT_TRUE(Forward(with, Bearer(token)).ok());
  EXPECT_EQ(Forward(with).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Forward(without, Bearer(token)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Healthy(with)) << "health asks for no token";
}

TEST(TlsTest, ChangedFilesAreForNewConnections) {
  constexpr char kOk[] = "rlk_credential_reloads_total{file=\"certificates\",result=\"ok\"}";
  constexpr char kError[] = "rlk_credential_reloads_total{file=\"certificates\",result=\"error\"}";
  TlsServer server;
  const auto before = TlsChannel(server.target(), {.authority = Servers().pem()});
  ASSERT_TRUE(Forward(before).ok());

  // What cannot be used is not used.
  const PemPair good = IssueServer(Servers());
  double errors = 0;
  for (const std::string& bad :
       {std::string("nonsense"), good.certificate.substr(0, 300), good.certificate}) {
    WriteFile(server.File("cert"), bad, 0644);
    Await([&] { return server.Value(kError) == errors + 1; });
    ++errors;
    EXPECT_TRUE(Forward(TlsChannel(server.target(), {.authority = Servers().pem()})).ok());
  }

  const Authority next("next authority");
  const PemPair fresh = IssueServer(next);
  WriteFile(server.File("key"), fresh.key);
  WriteFile(server.File("cert"), fresh.certificate, 0644);
  Await([&] { return server.Value(kOk) == 1; });
  Await([&] { return Forward(TlsChannel(server.target(), {.authority = next.pem()})).ok(); });
  EXPECT_FALSE(Forward(TlsChannel(server.target(), {.authority = Servers().pem()})).ok());
  EXPECT_TRUE(Forward(before).ok()) << "connections that are open stay";
}

TEST(TlsTest, ACertificateIsTakenWhenItBecomesValid) {
  constexpr char kOk[] = "rlk_credential_reloads_total{file=\"certificates\",result=\"ok\"}";
  constexpr char kError[] = "rlk_credential_reloads_total{file=\"certificates\",result=\"error\"}";
  TlsServer server;
  // Of an authority whose clock is ahead. On a machine that stands still until it is valid, no
  // error is counted: another one then takes its place.
  const Authority next("next authority");
  for (int64_t ahead = 5; server.Value(kError) == 0; ahead *= 2) {
    const PemPair later = next.Issue({.name = "server",
                                      .alternative_names = {"DNS:localhost", "IP:127.0.0.1"},
                                      .begins_seconds = ahead,
                                      .use = CertificateRequest::Use::kServer});
    const double taken = server.Value(kOk);
    WriteFile(server.File("key"), later.key);
    WriteFile(server.File("cert"), later.certificate, 0644);
    Await([&] { return server.Value(kOk) > taken; });
  }
  Await([&] { return Forward(TlsChannel(server.target(), {.authority = next.pem()})).ok(); });
}

TEST(TlsTest, ChangedAuthoritiesAreForNewConnections) {
  constexpr char kOk[] = "rlk_credential_reloads_total{file=\"certificates\",result=\"ok\"}";
  TlsServer server(Callers().pem());
  const Authority next("next authority of callers");
  const auto serves = [&server](const Authority& authority) {
    return Forward(TlsChannel(server.target(),
                              {.authority = Servers().pem(), .own = authority.Issue({})}))
        .ok();
  };
  EXPECT_TRUE(serves(Callers()));
  EXPECT_FALSE(serves(next));
  WriteFile(server.File("ca"), next.pem(), 0644);
  Await([&] { return server.Value(kOk) == 1; });
  EXPECT_FALSE(serves(Callers()));
  EXPECT_TRUE(serves(next));
}

TEST(TlsTest, AServerDoesNotStartWithBadFiles) {
  TempDir dir;
  const PemPair good = IssueServer(Servers());
  const auto issue = [](int64_t begins, int64_t ends) {
    return Servers().Issue({.begins_seconds = begins, .ends_seconds = ends});
  };
  const PemPair expired = issue(-7200, -60), early = issue(600, 7200);
  const std::string cut = good.certificate.substr(0, good.certificate.size() - 60);
  const struct {
    const char* name;
    std::string certificate, key;
    unsigned key_mode;
    const char* flag;
  } cases[] = {
      {"no certificate", "", good.key, 0600, "--tls-cert"},
      {"no PEM", "certificate", good.key, 0600, "--tls-cert"},
      {"cut certificate", cut, good.key, 0600, "--tls-cert"},
      {"cut chain", good.certificate + cut, good.key, 0600, "--tls-cert"},
      {"expired", expired.certificate, expired.key, 0600, "--tls-cert"},
      {"not yet valid", early.certificate, early.key, 0600, "--tls-cert"},
      {"cut key", good.certificate, good.key.substr(0, 100), 0600, "--tls-key"},
      {"another's key", good.certificate, expired.key, 0600, "--tls-key"},
      {"a key that everybody reads", good.certificate, good.key, 0644, "--tls-key"},
      {"cut authorities", good.certificate, good.key, 0600, "--tls-client-ca"},
  };
  server::Logger logger(server::LogLevel::kError);
  for (const auto& c : cases) {
    const bool authorities = std::string(c.flag) == "--tls-client-ca";
    WriteFile(dir.File("cert"), c.certificate, 0644);
    WriteFile(dir.File("key"), c.key, c.key_mode);
    WriteFile(dir.File("ca"), authorities ? cut : Callers().pem(), 0644);
    const auto made = Security::Make({{dir.File("cert"), dir.File("key"), dir.File("ca")}, ""},
                                     Limits(), &logger, {});
    ASSERT_FALSE(made.ok()) << c.name;
    const auto detail = GetErrorDetail(made.status());
    ASSERT_TRUE(detail.has_value()) << c.name;
    EXPECT_EQ(detail->field, c.flag) << c.name << ": " << made.status();
    EXPECT_EQ(made.status().message().find("BEGIN"), absl::string_view::npos);
  }
}

TEST(TlsTest, ASecretInPlaceOfItsFileIsNotRepeated) {
  TempDir dir;
  const PemPair good = IssueServer(Servers());
  WriteFile(dir.File("cert"), good.certificate, 0644);
  server::Logger logger(server::LogLevel::kError);
  const struct {
    Security::Files files;
    const char* flag;
  } cases[] = {{{{dir.File("cert"), good.key, ""}, ""}, "--tls-key"},
               {{{dir.File("cert"), "SECRET-0123", ""}, ""}, "--tls-key"},
               {{{}, "SECRET-0123"}, "--tokens"}};
  for (const auto& c : cases) {
    const auto made = Security::Make(c.files, Limits(), &logger, {});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(GetErrorDetail(made.status())->field, c.flag);
    EXPECT_EQ(GetErrorDetail(made.status())->value, "") << made.status();
  }
  const auto peers = server::PeerList::Make({}, {.authorities = "", .token = "SECRET-0123"});
  EXPECT_EQ(peers.status().message().find("SECRET"), absl::string_view::npos) << peers.status();
}

TEST(TlsTest, FlagsThatLeaveAHoleAreRefused) {
  const struct {
    std::vector<std::string> arguments;
    const char* field;  // null: they are good
  } cases[] = {
      {{"--tls-cert=c"}, "--tls-key"},
      {{"--tls-key=k"}, "--tls-cert"},
      {{"--tls-client-ca=a"}, "--tls-client-ca"},
      {{"--tokens=t", "--listen=0.0.0.0:1"}, "--tokens"},
      {{"--tokens=t", "--listen=127.0.0.1:1,[::]:2"}, "--tokens"},
      {{"--tokens=t", "--listen=127.0.0.1.example:1"}, "--tokens"},
      {{"--tokens=t", "--listen=127.0.0.1:1,[::1]:2,localhost:3"}, nullptr},
      {{"--tokens=t", "--listen=0.0.0.0:1", "--tls-cert=c", "--tls-key=k"}, nullptr},
      {{"--parity-peer-token-file=t"}, "--parity-peer-token-file"},
      {{"--parity-peer-token-file=t", "--parity-peer-ca=a"}, nullptr},
      {{"--health-listen=x"}, "--health-listen"},
      {{"--reflection=no"}, "--reflection"},
      {{"--reflection=false"}, nullptr},
      {{"--account-sessions-max=0"}, "--account-sessions-max"},
  };
  for (const auto& c : cases) {
    const auto options = server::ParseOptions(c.arguments);
    EXPECT_EQ(options.ok(), c.field == nullptr) << c.arguments[0] << options.status();
    if (c.field == nullptr || options.ok()) continue;
    EXPECT_EQ(GetErrorDetail(options.status())->field, c.field) << c.arguments[0];
  }
}

// The server that a check finds on its right side, or the status of the check.
absl::StatusOr<std::string> ServerOfCheck(const std::string& by, const std::string& peer) {
  rlk::v1::CheckParityRequest request;
  rlk::v1::Invocation& invocation = *request.mutable_invocation();
  invocation.set_method("final_logit_softcap.forward");
  invocation.mutable_request()->PackFrom(ForwardRequest());
  request.mutable_right()->set_server(peer);
  const RawReply reply = CallWith(DefaultChannel(by), "/rlk.v1.ParityService/CheckParity",
                                  request.SerializeAsString(), {});
  rlk::v1::CheckParityResponse response;
  if (!reply.status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(reply.status.error_code()),
                        reply.status.error_message());
  }
  if (!response.ParseFromString(reply.bytes) || !response.passed()) {
    return absl::InternalError(response.ShortDebugString());
  }
  return response.right().server_id();
}

TEST(TlsTest, AParityPeerMayAskForATokenOverTls) {
  const std::string token = "token-0123456789abcdef0123456789abcdef";
  TlsServer peer("", "checker " + HashOf(token) + "\n");
  TempDir dir;
  WriteFile(dir.File("ca"), Servers().pem());
  WriteFile(dir.File("other"), Callers().pem());
  WriteFile(dir.File("token"), token + "\n");
  WriteFile(dir.File("wrong"), token + "0");
  const struct {
    const char* ca;
    const char* token;
    absl::StatusCode code;
  } cases[] = {{"ca", "token", absl::StatusCode::kOk},
               {"ca", "wrong", absl::StatusCode::kUnauthenticated},
               {"ca", "", absl::StatusCode::kUnauthenticated},
               {"other", "token", absl::StatusCode::kUnavailable},
               {"", "", absl::StatusCode::kUnavailable}};
  for (const auto& c : cases) {
    server::Options options = TestOptions();
    options.parity_peers = {peer.target()};
    if (*c.ca != 0) options.parity_peer_ca = dir.File(c.ca);
    if (*c.token != 0) options.parity_peer_token_file = dir.File(c.token);
    TestServer server(options);
    const auto checked = ServerOfCheck(server.tcp(), peer.target());
    EXPECT_EQ(checked.status().code(), c.code) << c.ca << " " << c.token << checked.status();
    EXPECT_EQ(checked.value_or(peer.id()), peer.id());
  }
}

TEST(TlsTest, ListenersThatOthersReachAreToldInTheLog) {
  constexpr char kNobodyAsks[] = "there are no credentials";
  constexpr char kReadable[] = "can be read and changed";
  const struct {
    std::vector<std::string> listen;
    bool tls, tokens;
    int nobody_asks, readable;
  } cases[] = {
      {{"127.0.0.1:1", "[::1]:2", "localhost:3", "127.9.9.9:4"}, false, false, 0, 0},
      {{"0.0.0.0:1"}, false, false, 1, 1},
      {{"[::]:1", "127.0.0.1:2", "10.0.0.1:3"}, false, false, 2, 2},
      {{"127.0.0.1.example:1"}, false, false, 1, 1},
      {{"0.0.0.0:1"}, true, false, 1, 0},
      {{"0.0.0.0:1"}, true, true, 0, 0},
  };
  for (const auto& c : cases) {
    const int log = memfd_create("log", MFD_CLOEXEC);
    const server::Logger logger(server::LogLevel::kInfo, log);
    server::Options options;
    options.listen = c.listen;
    if (c.tls) options.tls.certificate = "c";
    if (c.tokens) options.tokens = "t";
    server::WarnOfOpenListeners(options, logger);
    std::string text(1 << 16, ' ');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(log, text.data(), text.size(), 0))));
    close(log);
    const auto count = [&text](const std::string& what) {
      int found = 0;
      for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
      return found;
    };
    EXPECT_EQ(count(kNobodyAsks), c.nobody_asks) << c.listen[0] << text;
    EXPECT_EQ(count(kReadable), c.readable) << c.listen[0] << text;
  }
}

TEST(TlsTest, ReflectionCanBeTurnedOff) {
  server::Options options = TestOptions();
  options.reflection = false;
  TestServer server(options);
  for (const char* version : {"v1", "v1alpha"}) {
    const std::string path =
        std::string("/grpc.reflection.") + version + ".ServerReflection/ServerReflectionInfo";
    EXPECT_EQ(CallWith(DefaultChannel(server.tcp()), path, std::string("\x3a\x00", 2), {})
                  .status.error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

}  // namespace
}  // namespace rlk::test
