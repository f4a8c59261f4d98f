// The page of the metrics: what it answers, and that nobody can hold it up.
#include "server/metrics/http_page.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/counter_random.h"

namespace rlk::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kText[] = "a_metric 1\n";
constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
// Nothing here ends because its time is over: what has to wait for that never ends.
constexpr HttpPage::Times kForever = {std::chrono::hours(1), std::chrono::hours(1),
                                      std::chrono::hours(1)};

HttpPage::Content ContentOf(std::string text) {
  return {"/metrics", "text/plain; version=0.0.4", [text = std::move(text)] { return text; }};
}

std::unique_ptr<HttpPage> StartPage(HttpPage::Content content, const HttpPage::Times& times) {
  auto page = HttpPage::Start("127.0.0.1:0", std::move(content), times);
  EXPECT_TRUE(page.ok()) << page.status();
  return *std::move(page);
}

// A peer of the page.
class Peer {
 public:
  Peer() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  explicit Peer(const HttpPage& page) : Peer() { Connect(page); }
  Peer(Peer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Peer& operator=(Peer&&) = delete;
  ~Peer() {
    if (fd_ >= 0) close(fd_);
  }

  void Connect(const HttpPage& page) const {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string& address = page.address();
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  int fd() const { return fd_; }

  // False where the page has closed the connection.
  bool Send(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t now = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (now < 0) return false;
      sent += static_cast<size_t>(now);
    }
    return true;
  }
  // Until the page closes the connection.
  std::string ReadAll() const {
    std::string all;
    std::vector<char> buffer(1 << 16);
    for (ssize_t got; (got = recv(fd_, buffer.data(), buffer.size(), 0)) > 0;) {
      all.append(buffer.data(), static_cast<size_t>(got));
    }
    return all;
  }
  // Says that nothing more will be sent.
  void Finish() const { shutdown(fd_, SHUT_WR); }
  bool IsOpen() const {
    char byte = 0;
    return recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
  }

 private:
  int fd_;
};

std::string Scrape(const HttpPage& page) {
  const Peer peer(page);
  EXPECT_TRUE(peer.Send(kGet));
  return peer.ReadAll();
}

TEST(HttpPageTest, AnswersEachRequestWithItsStatus) {
  int texts = 0;
  const HttpPage::Content content = {"/metrics", "text/plain", [&texts] {
                                       ++texts;
                                       return std::string(kText);
                                     }};
  const struct {
    const char* line;
    const char* status;
  } cases[] = {
      {"GET /metrics HTTP/1.1", "200 OK"},
      {"GET /metrics HTTP/1.0", "200 OK"},
      {"GET /metrics?name=%00 HTTP/1.1", "200 OK"},
      {"HEAD /metrics HTTP/1.1", "200 OK"},
      {"GET / HTTP/1.1", "404 Not Found"},
      {"GET /metricsx HTTP/1.1", "404 Not Found"},
      {"GET /metrics/ HTTP/1.1", "404 Not Found"},
      {"GET /../../etc/passwd HTTP/1.1", "404 Not Found"},
      {"GET * HTTP/1.1", "404 Not Found"},
      {"POST /metrics HTTP/1.1", "405 Method Not Allowed"},
      {"DELETE /metrics HTTP/1.1", "405 Method Not Allowed"},
      {"GET /metrics HTTP/2.0", "505 HTTP Version Not Supported"},
      {"GET /metrics HTTP/9.9", "505 HTTP Version Not Supported"},
      {"GET /metrics", "400 Bad Request"},
      {"GET  HTTP/1.1", "400 Bad Request"},
      {"GET /me trics HTTP/1.1", "400 Bad Request"},
      {"get /metrics HTTP/1.1", "400 Bad Request"},
      {" /metrics HTTP/1.1", "400 Bad Request"},
      {"GET /metrics FTP/1.1", "400 Bad Request"},
      {"PRI * HTTP/2.0", "505 HTTP Version Not Supported"},
      {"\x16\x03\x01\x02", "400 Bad Request"},
      {"", "400 Bad Request"},
  };
  int expected = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.line);
    const std::string answer =
        AnswerHttp(std::string(c.line) + "\r\nHost: x\r\nX: \xff\r\n\r\n", content);
    EXPECT_THAT(answer, StartsWith(std::string("HTTP/1.1 ") + c.status + "\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
    const bool good = std::string(c.status) == "200 OK";
    expected += good;
    const bool head = std::string(c.line).rfind("HEAD", 0) == 0;
    if (good) {
      EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 11\r\n"));
      EXPECT_THAT(answer, EndsWith(head ? "\r\n\r\n" : std::string("\r\n\r\n") + kText));
    }
    EXPECT_EQ(answer.find("Allow: GET, HEAD\r\n") != std::string::npos,
              std::string(c.status).rfind("405", 0) == 0);
  }
  EXPECT_EQ(texts, expected) << "nothing is collected for who gets nothing of it";
}

TEST(HttpPageTest, AnswersWhateverItIsSentWithOneWholeAnswer) {
  const HttpPage::Content content = ContentOf(kText);
  constexpr std::string_view kPieces[] = {"GET", "HEAD", " ", "/metrics", "?", "HTTP/1.1", "\r\n",
                                          "\n",  "\r",   "*", "Host: x",  ":", "\xff"};
  for (uint64_t i = 0; i < 50'000; ++i) {
    std::string request;
    for (uint64_t word = 0; word < RandomBits(1, i) % 12; ++word) {
      const uint64_t bits = RandomBits(i + 2, word);
      if (bits % 16 == 0) {
        request += static_cast<char>(bits >> 32);
      } else {
        request += kPieces[(bits >> 8) % std::size(kPieces)];
      }
    }
    request += "\r\n\r\n";
    const std::string answer = AnswerHttp(request, content);
    const size_t end = answer.find("\r\n\r\n");
    ASSERT_EQ(answer.rfind("HTTP/1.1 ", 0), 0u) << request;
    ASSERT_NE(end, std::string::npos) << request;
    const size_t length = answer.find("Content-Length: ");
    ASSERT_LT(length, end) << request;
    const size_t body = answer.size() - end - 4;
    const bool head = request.rfind("HEAD ", 0) == 0 && answer.rfind("HTTP/1.1 200", 0) == 0;
    ASSERT_EQ(body, head ? 0 : std::stoul(answer.substr(length + 16))) << request;
  }
}

TEST(HttpPageTest, TakesARequestInPieces) {
  const auto page = StartPage(ContentOf(kText), kForever);
  const Peer peer(*page);
  for (const char byte : std::string(kGet)) ASSERT_TRUE(peer.Send(std::string(1, byte)));
  EXPECT_THAT(peer.ReadAll(), EndsWith(kText));
}

TEST(HttpPageTest, RefusesARequestThatDoesNotEnd) {
  const auto page = StartPage(ContentOf(kText), kForever);
  for (const bool ends : {false, true}) {
    const Peer peer(*page);
    // The page may have answered before all is sent.
    peer.Send("GET /metrics HTTP/1.1\r\nX: " + std::string(HttpPage::kRequestBytesMax, 'x') +
              (ends ? "\r\n\r\n" : ""));
    peer.Finish();
    EXPECT_THAT(peer.ReadAll(), StartsWith("HTTP/1.1 431 "));
  }
}

TEST(HttpPageTest, WhatFollowsARequestDoesNotCutItsAnswer) {
  const std::string text(8 << 20, 'x');
  const auto page = StartPage(ContentOf(text), kForever);
  const Peer peer(*page);
  ASSERT_TRUE(peer.Send(kGet + std::string(100'000, 'y')));
  peer.Finish();
  EXPECT_THAT(peer.ReadAll().size(), testing::Gt(text.size()));
}

TEST(HttpPageTest, SilentConnectionsHoldUpNoScrape) {
  const auto page = StartPage(ContentOf(kText), kForever);
  std::vector<Peer> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(*page);
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(Scrape(*page), EndsWith(kText));
    silent.emplace_back(*page);
    // One that has begun to say something.
    silent.back().Send("GET /met");
  }
}

TEST(HttpPageTest, ConnectionsThatDoNotReadHoldUpNoScrape) {
  // More than the sockets take.
  const std::string text(32 << 20, 'x');
  const auto page = StartPage(ContentOf(text), kForever);
  std::vector<Peer> deaf;
  for (size_t i = 0; i < 2 * HttpPage::kConnectionsMax; ++i) {
    deaf.emplace_back(*page);
    ASSERT_TRUE(deaf.back().Send(kGet));
  }
  EXPECT_THAT(Scrape(*page).size(), testing::Gt(text.size()));
}

TEST(HttpPageTest, TheOldestSilentConnectionMakesRoom) {
  const auto page = StartPage(ContentOf(kText), kForever);
  std::vector<Peer> silent;
  for (size_t i = 0; i < HttpPage::kConnectionsMax; ++i) silent.emplace_back(*page);
  // It is there when this one is answered.
  EXPECT_THAT(Scrape(*page), EndsWith(kText));
  EXPECT_EQ(silent.front().ReadAll(), "") << "closed";
  for (size_t i = 1; i < silent.size(); ++i) EXPECT_TRUE(silent[i].IsOpen()) << i;
}

TEST(HttpPageTest, ConnectionsEndWithTheirTime) {
  const std::string text(32 << 20, 'x');
  const auto page =
      StartPage(ContentOf(text), {std::chrono::milliseconds(20), std::chrono::milliseconds(20),
                                  std::chrono::milliseconds(20)});
  const Peer silent(*page), deaf(*page);
  EXPECT_EQ(silent.ReadAll(), "");
  // Closed before the whole answer was read, or it would wait for that.
  if (deaf.Send(kGet)) {
    while (deaf.Send("x")) {
    }
  }
}

// Where the process may open nothing more for a while, scrapes wait and are not lost.
TEST(HttpPageTest, AnswersAgainWhenThereAreDescriptors) {
  const auto page = StartPage(ContentOf(kText), kForever);
  const Peer peer;
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // Lower numbers are taken: the peer's was the lowest that was free.
  rlimit none = limit;
  none.rlim_cur = static_cast<rlim_t>(peer.fd()) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  peer.Connect(*page);
  EXPECT_TRUE(peer.Send(kGet));
  // The page tries meanwhile, or it does later; either way the answer comes.
  pollfd waiting = {peer.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 250), 0) << "answered without a descriptor";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(peer.ReadAll(), EndsWith(kText));
}

TEST(HttpPageTest, EndsWithOpenConnections) {
  auto page = StartPage(ContentOf(std::string(32 << 20, 'x')), kForever);
  const Peer silent(*page), deaf(*page);
  ASSERT_TRUE(deaf.Send(kGet));
  page.reset();
  EXPECT_EQ(silent.ReadAll(), "");
}

TEST(HttpPageTest, ListensWhereItCan) {
  const auto page = StartPage(ContentOf(kText), kForever);
  EXPECT_THAT(page->address(), StartsWith("127.0.0.1:"));
  const auto named = HttpPage::Start("localhost:0", ContentOf(kText));
  EXPECT_TRUE(named.ok()) << named.status();
  for (const std::string& address :
       {page->address(), std::string("192.0.2.1:0"), std::string("no-such-host.invalid:0"),
        std::string("127.0.0.1"), std::string("[127.0.0.1")}) {
    const auto refused = HttpPage::Start(address, ContentOf(kText));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << address;
    EXPECT_NE(refused.status().message(), "") << address;
  }
}

}  // namespace
}  // namespace rlk::server
