// Callers without a good token get nothing but health, and nobody learns a token from the server.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "rlk/v1/session.pb.h"
#include "rlk/v1/tensor_service.pb.h"
#include "tests/integration/peer.h"
#include "tests/integration/security_fixture.h"

namespace rlk::test {
namespace {

constexpr char kTrainer[] = "trainer-token-0123456789abcdef0123456789";
constexpr char kRollout[] = "rollout-token-fedcba9876543210fedcba9876";
constexpr char kExpired[] = "expired-token-00112233445566778899aabbcc";
constexpr char kSmall[] = "small-token-ffeeddccbbaa99887766554433";

std::string TokenLines() {
  return "# callers\n\ntrainer " + HashOf(kTrainer) + "\n rollout\t" + HashOf(kRollout) +
         " expires=2999-01-01T00:00:00Z\nlate " + HashOf(kExpired) +
         " expires=2001-01-01T00:00:00Z\nsmall " + HashOf(kSmall) +
         " sessions_max=2 tensors_max=2 resident_bytes_max=8192\n";
}

// A server that asks for tokens, on loopback, with everything that it logs.
class TokenServer {
 public:
  explicit TokenServer(const std::string& lines = TokenLines()) {
    WriteFile(path(), lines);
    server::Options options = TestOptions();
    options.tokens = path();
    options.limits.session_lease_ms = options.limits.session_lease_ms_max;
    options.health_listen = "127.0.0.1:0";
    options.unix_path = dir_.File("socket");
    server_.emplace(options, server::ServerHooks(), server::LogLevel::kDebug, log_);
  }
  ~TokenServer() {
    server_.reset();
    close(log_);
  }

  std::string path() const { return dir_.File("tokens"); }
  TestServer& server() { return *server_; }
  std::shared_ptr<grpc::Channel> Channel() const { return DefaultChannel(server_->tcp()); }
  std::string health() { return server_->server().addresses().health; }
  double Value(const std::string& series) const {
    return SeriesValue(Scrape(server_->metrics()), series);
  }
  double Refused(const std::string& reason) const {
    return Value("rlk_credentials_refused_total{reason=\"" + reason + "\"}");
  }
  std::string Log() const {
    std::string text;
    char buffer[4096];
    off_t offset = 0;
    for (ssize_t got; (got = pread(log_, buffer, sizeof(buffer), offset)) > 0; offset += got) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  TempDir dir_;
  const int log_ = memfd_create("log", MFD_CLOEXEC);
  std::optional<TestServer> server_;
};

std::string Serialized(const rlk::v1::FinalLogitSoftcapForwardRequest& request) {
  return request.SerializeAsString();
}

TEST(TokenTest, EveryBadTokenIsRefusedEverywhereAndCounted) {
  TokenServer server;
  const std::string good = kTrainer;
  const std::string cut = good.substr(0, good.size() - 1);
  const struct {
    const char* name;
    Headers headers;
    const char* reason;
    const char* value;
  } cases[] = {
      {"no header", {}, "token_missing", "absent"},
      {"another header", {{"x-token", good}}, "token_missing", "absent"},
      {"a session alone", {{"rlk-session", good}}, "token_missing", "absent"},
      {"empty", {{"authorization", ""}}, "token_malformed", "malformed"},
      {"scheme alone", {{"authorization", "Bearer"}}, "token_malformed", "malformed"},
      {"empty token", {{"authorization", "Bearer "}}, "token_malformed", "malformed"},
      {"another scheme", {{"authorization", "Basic " + good}}, "token_malformed", "malformed"},
      {"no scheme", {{"authorization", good}}, "token_malformed", "malformed"},
      {"space inside", Bearer(good.substr(0, 9) + " " + good.substr(9)), "token_malformed",
       "malformed"},
      {"two spaces", {{"authorization", "Bearer  " + good}}, "token_malformed", "malformed"},
      {"another alphabet", Bearer(good + "!"), "token_malformed", "malformed"},
      {"a list", Bearer(good + "," + kRollout), "token_malformed", "malformed"},
      {"twice", {Bearer(good)[0], Bearer(good)[0]}, "token_malformed", "malformed"},
      {"longer than any", Bearer(std::string(4097, 'a')), "token_malformed", "malformed"},
      {"cut", Bearer(cut), "token_unknown", "unknown"},
      {"lengthened", Bearer(good + "0"), "token_unknown", "unknown"},
      {"first letter", Bearer("T" + good.substr(1)), "token_unknown", "unknown"},
      {"its hash", Bearer(HashOf(good).substr(7)), "token_unknown", "unknown"},
      {"its name", Bearer("trainer"), "token_unknown", "unknown"},
      {"expired", Bearer(kExpired), "token_expired", "expired"},
  };
  const std::vector<std::string> paths = AllPaths();
  ASSERT_GT(paths.size(), 30u);
  const auto channel = server.Channel();
  double calls = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const double before = server.Refused(c.reason);
    for (const std::string& path : paths) {
      const RawReply reply = CallWith(channel, path, "", c.headers);
      ASSERT_EQ(reply.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << path;
      ErrorFacts facts = FactsOf(reply.status);
      ASSERT_EQ(facts.reason, "UNAUTHENTICATED") << path;
      ASSERT_EQ(facts.domain, "rlk");
      ASSERT_EQ(facts.metadata["field"], "authorization");
      ASSERT_EQ(facts.metadata["value"], c.value);
      ASSERT_EQ(facts.metadata["allowed"], "Bearer and a token of this server");
    }
    calls += static_cast<double>(paths.size());
    EXPECT_EQ(server.Refused(c.reason), before + static_cast<double>(paths.size()));
    EXPECT_TRUE(Healthy(channel));
    EXPECT_TRUE(Healthy(DefaultChannel(server.health())));
  }
  EXPECT_EQ(server.Value("rlk_admission_rejections_total{reason=\"UNAUTHENTICATED\"}"), calls);
}

TEST(TokenTest, AGoodTokenOpensEveryMethod) {
  TokenServer server;
  for (const char* header : {"Bearer ", "bearer ", "BEARER "}) {
    for (const char* token : {kTrainer, kRollout}) {
      const Headers headers = {{"authorization", std::string(header) + token}};
      const RawReply reply =
          CallWith(server.Channel(), kForwardPath, Serialized(ForwardRequest()), headers);
      EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
    }
  }
  // What a method says of an empty request, it says itself.
  for (const std::string& path : AllPaths()) {
    const grpc::Status status = CallWith(server.Channel(), path, "", Bearer(kTrainer)).status;
    const bool session = FactsOf(status).metadata["field"] == "rlk-session";
    EXPECT_TRUE(status.error_code() != grpc::StatusCode::UNAUTHENTICATED || session) << path;
    EXPECT_EQ(status.error_code() == grpc::StatusCode::UNIMPLEMENTED,
              path == "/rlk.v1.NoService/NoMethod")
        << path;
  }
  EXPECT_EQ(server.Refused("token_missing"), 0);
  EXPECT_EQ(server.Refused("token_unknown"), 0);
}

TEST(TokenTest, TheUnixSocketIsTheServersOwnUser) {
  TokenServer server;
  const auto channel = DefaultChannel(server.server().unix_target());
  EXPECT_TRUE(CallWith(channel, kForwardPath, Serialized(ForwardRequest()), {}).status.ok());
}

TEST(TokenTest, TheHealthListenerServesNothingElse) {
  TokenServer server;
  const auto channel = DefaultChannel(server.health());
  EXPECT_TRUE(Healthy(channel));
  for (const std::string& path : AllPaths()) {
    EXPECT_EQ(CallWith(channel, path, "", Bearer(kTrainer)).status.error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << path;
  }
  const std::string large(64 << 10, 'x');
  EXPECT_EQ(CallWith(channel, "/grpc.health.v1.Health/Check", large, {}).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Healthy(channel));
}

// A session of the caller with this token.
std::string OpenSession(TokenServer& server, const char* token, grpc::Status* status = nullptr) {
  const RawReply reply =
      CallWith(server.Channel(), "/rlk.v1.SessionService/OpenSession", "", Bearer(token));
  rlk::v1::OpenSessionResponse session;
  EXPECT_TRUE(session.ParseFromString(reply.bytes));
  if (status != nullptr) *status = reply.status;
  return session.token();
}

Headers InSession(const char* token, const std::string& session) {
  Headers headers = Bearer(token);
  headers.emplace_back("rlk-session", session);
  return headers;
}

// Uploads `bytes` bytes: what the server says, and the handle.
grpc::Status Upload(TokenServer& server, const Headers& headers, int64_t bytes,
                    rlk::v1::TensorHandle* handle = nullptr) {
  grpc::ClientContext context;
  for (const auto& [key, value] : headers) context.AddMetadata(key, value);
  const auto stub = rlk::v1::TensorService::NewStub(server.Channel());
  rlk::v1::UploadResponse response;
  const auto writer = stub->Upload(&context, &response);
  rlk::v1::UploadRequest part;
  part.mutable_header()->set_dtype(rlk::v1::DATA_TYPE_U8);
  part.mutable_header()->add_shape(bytes);
  writer->Write(part);
  part.set_data(std::string(static_cast<size_t>(bytes), 'x'));
  writer->Write(part);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (handle != nullptr) *handle = response.tensor().handle();
  return status;
}

TEST(TokenTest, SessionsAndTensorsAreTheirAccountsAlone) {
  TokenServer server;
  const std::string trainers = OpenSession(server, kTrainer);
  const std::string rollouts = OpenSession(server, kRollout);
  rlk::v1::TensorHandle handle;
  ASSERT_TRUE(Upload(server, InSession(kTrainer, trainers), 100, &handle).ok());

  // The trainer's session in the hands of another caller, token and all.
  const double before = server.Refused("session_unknown");
  for (const char* path :
       {"/rlk.v1.TensorService/ListTensors", "/rlk.v1.SessionService/CloseSession",
        "/rlk.v1.SessionService/RenewSession", kForwardPath}) {
    const RawReply reply = CallWith(server.Channel(), path, "", InSession(kRollout, trainers));
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << path;
    EXPECT_EQ(FactsOf(reply.status).metadata["field"], "rlk-session") << path;
  }
  EXPECT_EQ(server.Refused("session_unknown"), before + 4);

  // The trainer's tensor, by its handle, in a session of another caller.
  rlk::v1::DescribeTensorRequest describe;
  *describe.mutable_handle() = handle;
  rlk::v1::ReleaseTensorsRequest release;
  *release.add_handles() = handle;
  for (const auto& [path, request] :
       {std::pair("/rlk.v1.TensorService/DescribeTensor", describe.SerializeAsString()),
        std::pair("/rlk.v1.TensorService/ReleaseTensors", release.SerializeAsString())}) {
    const grpc::Status status =
        CallWith(server.Channel(), path, request, InSession(kRollout, rollouts)).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << path;
    EXPECT_EQ(FactsOf(status).reason, "TENSOR_NOT_FOUND") << path;
  }
  EXPECT_TRUE(CallWith(server.Channel(), "/rlk.v1.TensorService/DescribeTensor",
                       describe.SerializeAsString(), InSession(kTrainer, trainers))
                  .status.ok());
}

TEST(TokenTest, AnAccountsBudgetHoldsForAllItsSessions) {
  TokenServer server;
  const std::string first = OpenSession(server, kSmall);
  const std::string second = OpenSession(server, kSmall);
  const grpc::Status third =
      CallWith(server.Channel(), "/rlk.v1.SessionService/OpenSession", "", Bearer(kSmall)).status;
  EXPECT_EQ(third.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(FactsOf(third).reason, "SESSIONS_EXHAUSTED");
  EXPECT_EQ(FactsOf(third).metadata["allowed"], "at most 2 (account_sessions_max)");
  EXPECT_FALSE(OpenSession(server, kTrainer).empty()) << "another account has its own";

  // Two pages in all.
  EXPECT_TRUE(Upload(server, InSession(kSmall, first), 4096).ok());
  const grpc::Status large = Upload(server, InSession(kSmall, second), 4097);
  EXPECT_EQ(large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(FactsOf(large).reason, "BYTES_EXHAUSTED");
  EXPECT_TRUE(Upload(server, InSession(kSmall, second), 0).ok());
  const grpc::Status many = Upload(server, InSession(kSmall, first), 0);
  EXPECT_EQ(FactsOf(many).reason, "TENSORS_EXHAUSTED");

  // What a session held is the account's again once it is closed.
  EXPECT_TRUE(CallWith(server.Channel(), "/rlk.v1.SessionService/CloseSession", "",
                       InSession(kSmall, first))
                  .status.ok());
  EXPECT_TRUE(Upload(server, InSession(kSmall, second), 4096).ok());
  EXPECT_FALSE(OpenSession(server, kSmall).empty());
}

TEST(TokenTest, AChangedFileIsTakenInAndABadOneIsNot) {
  constexpr char kOk[] = "rlk_credential_reloads_total{file=\"tokens\",result=\"ok\"}";
  constexpr char kError[] = "rlk_credential_reloads_total{file=\"tokens\",result=\"error\"}";
  TokenServer server;
  const std::string session = OpenSession(server, kTrainer);
  ASSERT_TRUE(Upload(server, InSession(kTrainer, session), 100).ok());
  OpenSession(server, kRollout);
  const auto admitted = [&server](const char* token) {
    return CallWith(server.Channel(), "/rlk.v1.ServerService/GetInfo", "", Bearer(token))
        .status.ok();
  };

  // The trainer is gone; the rollout has an old and a new token.
  const std::string fresh = "fresh-token-abcdefabcdefabcdefabcdefabcdef";
  WriteFile(server.path(),
            "rollout " + HashOf(kRollout) + "\nrollout " + HashOf(fresh) + " sessions_max=1\n");
  Await([&] { return server.Value(kOk) == 1; });
  EXPECT_FALSE(admitted(kTrainer));
  EXPECT_TRUE(admitted(kRollout));
  EXPECT_TRUE(admitted(fresh.c_str()));
  Await([&] { return server.Value("rlk_sessions") == 1; });
  // What the trainer held is gone too.
  Await([&] { return server.Value("rlk_resident_bytes") == 0; });
  grpc::Status status;
  OpenSession(server, fresh.c_str(), &status);
  EXPECT_EQ(FactsOf(status).reason, "SESSIONS_EXHAUSTED") << "both tokens are one account's";

  double errors = 0;
  const struct {
    const char* name;
    std::string text;
    unsigned mode;
  } bad[] = {{"empty", "", 0600},
             {"cut", ("trainer " + HashOf(kTrainer)).substr(0, 40), 0600},
             {"world-readable", TokenLines(), 0604},
             {"world-writable", TokenLines(), 0602}};
  for (const auto& c : bad) {
    WriteFile(server.path(), c.text, c.mode);
    Await([&] { return server.Value(kError) == errors + 1; });
    ++errors;
    EXPECT_TRUE(admitted(kRollout)) << c.name;
    EXPECT_FALSE(admitted(kTrainer)) << c.name;
  }
  WriteFile(server.path(), TokenLines(), 0644);
  Await([&] { return server.Value(kError) == errors + 1; });
  EXPECT_FALSE(admitted(kTrainer));
  // As an operator does whom the log has told so.
  ASSERT_EQ(chmod(server.path().c_str(), 0640), 0);
  Await([&] { return server.Value(kOk) == 2; });
  EXPECT_TRUE(admitted(kTrainer));
  EXPECT_FALSE(admitted(fresh.c_str()));
}

TEST(TokenTest, NoSecretIsInLogsMetricsOrErrors) {
  TokenServer server;
  const std::string session = OpenSession(server, kTrainer);
  const std::string wrong = "wrong-token-5f5f5f5f5f5f5f5f5f5f5f5f5f5f";
  std::string said;
  for (const Headers& headers :
       {Bearer(kTrainer), Bearer(wrong), Bearer(kExpired), InSession(kTrainer, session),
        InSession(kRollout, session), InSession(kTrainer, session + "0")}) {
    for (const std::string& path : AllPaths()) {
      const RawReply reply = CallWith(server.Channel(), path, "\xff", headers);
      said += reply.status.error_message() + "\n" + reply.status.error_details() + "\n";
    }
  }
  // A token where a hash should be: easily done, and in the log for good.
  WriteFile(server.path(), std::string("trainer ") + wrong + "\n");
  Await([&] { return server.Log().find("could not be read again") != std::string::npos; });
  WriteFile(server.path(), "trainer " + HashOf(kTrainer) + " " + wrong + "=1\n" + wrong + "\n");
  Await([&] {
    return server.Value("rlk_credential_reloads_total{file=\"tokens\",result=\"error\"}") == 2;
  });
  said += Scrape(server.server().metrics()) + server.Log();
  EXPECT_NE(said.find("a credential was refused"), std::string::npos);
  const std::string secret = session.substr(33);
  for (const std::string& text :
       {std::string(kTrainer), std::string(kRollout), wrong, std::string(kExpired), session, secret,
        HashOf(kTrainer).substr(7)}) {
    EXPECT_EQ(said.find(text), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace rlk::test
