// Several servers behind one address: real processes, and the C++ client that spreads its calls.
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/final_logit_softcap.h"
#include "gmock/gmock.h"
#include "kernels/core/status.h"
#include "tests/integration/security_fixture.h"
#include "tests/integration/server_process.h"

namespace rlk::test {
namespace {

using client::Client;

constexpr char kServed[] =
    "rlk_requests_total{code=\"OK\",direction=\"forward\",operator=\"final_logit_softcap\"}";

// Servers of one service, and the address that stands for all of them.
class Servers {
 public:
  explicit Servers(size_t count, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
                                          "--selftest-interval-seconds=0", "--threads=1",
                                          "--drain-seconds=60"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (size_t i = 0; i < count; ++i) {
      processes_.push_back(std::make_unique<ServerProcess>(arguments));
    }
  }

  ServerProcess& operator[](size_t i) { return *processes_[i]; }
  size_t size() const { return processes_.size(); }
  std::string address() const {
    std::string all = "ipv4:";
    for (const auto& process : processes_) {
      if (all.back() != ':') all += ",";
      all += process->listen();
    }
    return all;
  }
  std::string id(size_t i) const {
    return processes_[i]->line().fields().at("server_id").string_value();
  }
  double served(size_t i) const { return SeriesValue(Scrape(processes_[i]->metrics()), kServed); }

 private:
  std::vector<std::unique_ptr<ServerProcess>> processes_;
};

absl::Status CallOnce(const Client& client) {
  static const std::vector<float> x = {-40, -1.5, 0.25, 1000};
  client::FinalLogitSoftcapForwardArgs args;
  args.x = {.dtype = DType::kF32, .shape = {4}, .data = x.data()};
  return client::FinalLogitSoftcapForward(client, args).status();
}

// A client that has reached every server: each has answered a call of it.
Client ConnectToAll(Servers& servers, const client::ClientOptions& options = {}) {
  client::ClientOptions own = options;
  own.own_connection = true;
  auto client = Client::Connect(servers.address(), own);
  if (!client.ok()) {
    ADD_FAILURE() << client.status();
    abort();
  }
  for (size_t i = 0; i < servers.size(); ++i) {
    const double before = servers.served(i);
    Await([&] {
      EXPECT_TRUE(CallOnce(*client).ok());
      return servers.served(i) > before;
    });
  }
  return *std::move(client);
}

TEST(ScaleOutTest, CallsAreSpreadEvenly) {
  Servers servers(3);
  const Client client = ConnectToAll(servers);
  std::vector<double> before;
  for (size_t i = 0; i < 3; ++i) before.push_back(servers.served(i));
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(CallOnce(client).ok()) << i;
  for (size_t i = 0; i < 3; ++i) {
    const double share = servers.served(i) - before[i];
    EXPECT_GE(share, 90) << i;
    EXPECT_LE(share, 110) << i;
  }
}

TEST(ScaleOutTest, AServerThatDoesNotServeGetsNoCalls) {
  // It goes on serving for long after it said that it would not.
  Servers servers(2, {"--drain-delay-seconds=86400"});
  const Client client = ConnectToAll(servers);
  servers[0].Signal(SIGTERM);
  Await([&] { return !Healthy(DefaultChannel(servers[0].listen())); });
  // Its health stream tells the client soon.
  Await([&] {
    const double before = servers.served(0);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(CallOnce(client).ok());
    return servers.served(0) == before;
  });
  const auto direct = Client::Connect(servers[0].listen(), {.own_connection = true});
  ASSERT_TRUE(direct.ok());
  EXPECT_TRUE(CallOnce(*direct).ok()) << "who calls it by name is still served";
}

// Four callers while `lose` takes a server away: the calls that failed, with what they said.
std::vector<std::string> FailuresDuring(const Client& client, const std::function<void()>& lose) {
  constexpr int kCallers = 4;
  constexpr int64_t kCallsAfter = 200;
  std::atomic<int64_t> calls{0}, enough{INT64_MAX};
  std::mutex mutex;
  std::vector<std::string> failures;
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      while (calls.fetch_add(1) < enough.load()) {
        const absl::Status status = CallOnce(client);
        if (status.ok()) continue;
        const std::lock_guard lock(mutex);
        failures.push_back(status.ToString());
      }
    });
  }
  Await([&] { return calls.load() > kCallsAfter; });
  lose();
  enough.store(calls.load() + kCallsAfter);
  for (std::thread& caller : callers) caller.join();
  return failures;
}

TEST(ScaleOutTest, ADrainFailsNoCall) {
  Servers servers(3);
  const Client client = ConnectToAll(servers);
  EXPECT_THAT(FailuresDuring(client,
                             [&] {
                               servers[1].Signal(SIGTERM);
                               EXPECT_EQ(servers[1].Wait(), 0);
                             }),
              testing::IsEmpty());
}

TEST(ScaleOutTest, AKillFailsNoCall) {
  Servers servers(3);
  const Client client = ConnectToAll(servers);
  for (const size_t lost : {0, 2}) {
    EXPECT_THAT(FailuresDuring(client,
                               [&] {
                                 servers[lost].Signal(SIGKILL);
                                 EXPECT_EQ(servers[lost].Wait(), 128 + SIGKILL);
                               }),
                testing::IsEmpty())
        << lost;
  }
}

TEST(ScaleOutTest, WhatStaysBelongsToItsServer) {
  Servers servers(2);
  const std::vector<float> x(16, 1.5f);
  const auto here = Client::Connect(servers[0].listen(), {.own_connection = true});
  const auto there = Client::Connect(servers[1].listen(), {.own_connection = true});
  ASSERT_TRUE(here.ok() && there.ok());
  const auto tensor = here->Put({.dtype = DType::kF32, .shape = {16}, .data = x.data()});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  ASSERT_TRUE(there->Session().ok());

  // The handle elsewhere: the error names both servers.
  const auto elsewhere = there->Describe(tensor->handle);
  EXPECT_EQ(elsewhere.status().code(), absl::StatusCode::kFailedPrecondition);
  const auto detail = GetErrorDetail(elsewhere.status());
  ASSERT_TRUE(detail.has_value()) << elsewhere.status();
  EXPECT_EQ(detail->reason, Reason::kWrongServer);
  EXPECT_THAT(detail->value, testing::HasSubstr(servers.id(0)));
  EXPECT_THAT(detail->allowed, testing::HasSubstr(servers.id(1)));

  // So does that of a session elsewhere, which every second call of this client is.
  const Client all = ConnectToAll(servers);  // without a session: calls that need none go anywhere
  const auto lost = Client::Connect(servers.address(),
                                    {.own_connection = true, .session_token = *here->Session()});
  ASSERT_TRUE(lost.ok()) << lost.status();
  bool found = false, refused = false;
  Await([&] {
    const auto described = lost->Describe(tensor->handle);
    found = found || described.ok();
    if (!described.ok()) {
      const auto said = GetErrorDetail(described.status());
      EXPECT_TRUE(said && said->reason == Reason::kWrongServer) << described.status();
      EXPECT_THAT(said->value, testing::HasSubstr(servers.id(0)));
      EXPECT_THAT(said->allowed, testing::HasSubstr(servers.id(1)));
      refused = true;
    }
    return found && refused;
  });

  // A client of several servers has no session, and says so before it sends anything.
  const auto put = all.Put({.dtype = DType::kF32, .shape = {16}, .data = x.data()});
  EXPECT_EQ(GetErrorDetail(put.status())->reason, Reason::kWrongServer);
  EXPECT_EQ(GetErrorDetail(put.status())->field, "address");
  EXPECT_TRUE(CallOnce(all).ok());
  // One address in this form is one server.
  const auto one = Client::Connect("ipv4:" + servers[0].listen(), {.own_connection = true});
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one->Session().ok());
}

TEST(ScaleOutTest, TlsAndATokenGoWithEveryServer) {
  TempDir dir;
  const Authority authority("authority");
  const PemPair own = IssueServer(authority);
  const std::string token = "token-0123456789abcdef0123456789abcdef";
  WriteFile(dir.File("cert"), own.certificate);
  WriteFile(dir.File("key"), own.key);
  WriteFile(dir.File("ca"), authority.pem());
  WriteFile(dir.File("tokens"), "caller " + HashOf(token) + "\n");
  Servers servers(2, {"--tls-cert=" + dir.File("cert"), "--tls-key=" + dir.File("key"),
                      "--tokens=" + dir.File("tokens")});
  client::ClientOptions options;
  options.tls = client::TlsOptions{.ca_file = dir.File("ca"), .server_name = "localhost"};
  options.token = token;
  const Client client = ConnectToAll(servers, options);
  EXPECT_THAT(FailuresDuring(client, [&] { servers[0].Signal(SIGKILL); }), testing::IsEmpty());
}

TEST(ScaleOutTest, AddressesOfSeveralServersAreChecked) {
  for (const char* wrong :
       {"ipv4:", "ipv4:127.0.0.1", "ipv4:127.0.0.1:1,", "ipv4:127.0.0.1:1,x", "dns:///",
        "dns:///a:1,b:2", "127.0.0.1:1,127.0.0.1:2", "ipv4:127.0.0.1:0"}) {
    const auto client = Client::Connect(wrong);
    ASSERT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_EQ(GetErrorDetail(client.status())->field, "address") << wrong;
  }
  client::ClientOptions options;
  options.token = "token-of-a-caller";
  for (const char* far :
       {"10.0.0.1:1", "ipv4:127.0.0.1:1,10.0.0.1:1", "dns:///host:1", "127.0.0.1.example:1"}) {
    const auto client = Client::Connect(far, options);
    ASSERT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument) << far;
    EXPECT_EQ(GetErrorDetail(client.status())->field, "token") << far;
    EXPECT_EQ(client.status().message().find("token-"), absl::string_view::npos);
  }
  for (const char* end : {"\n", " ", "\xc3\xa9"}) {
    options.token = std::string("token-of-a-caller") + end;
    const auto client = Client::Connect("127.0.0.1:1", options);
    ASSERT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetErrorDetail(client.status())->field, "token");
    EXPECT_EQ(client.status().message().find("token-"), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace rlk::test
