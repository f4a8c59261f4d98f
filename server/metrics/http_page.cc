#include "server/metrics/http_page.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "server/engine/owned_fd.h"

namespace rlk::server {
namespace {

using Clock = std::chrono::steady_clock;

// Where the system has nothing left for a connection.
constexpr std::chrono::milliseconds kPause{100};

struct Connection {
  enum class State : uint8_t { kRequest, kAnswer, kClosing };

  OwnedFd fd;
  Clock::time_point deadline;
  State state = State::kRequest;
  // What came of the request; then what is left of the answer.
  std::string bytes = {};
  size_t sent = 0;
};

bool MustWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

absl::Status Unavailable(const std::string& why) { return absl::UnavailableError(why); }

absl::StatusOr<OwnedFd> Listen(const addrinfo& at) {
  OwnedFd fd(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  // A server that is started again need not wait for the last connections of its forerunner.
  if (fd.get() < 0 || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), at.ai_addr, at.ai_addrlen) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    return Unavailable(strerror(errno));
  }
  return fd;
}

absl::StatusOr<OwnedFd> ListenAt(const std::string& host, const std::string& port) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return Unavailable(gai_strerror(error));
  absl::StatusOr<OwnedFd> listener = Unavailable("the name has no address");
  for (const addrinfo* at = found; at != nullptr && !listener.ok(); at = at->ai_next) {
    listener = Listen(*at);
  }
  freeaddrinfo(found);
  return listener;
}

absl::StatusOr<int> PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Unavailable(strerror(errno));
  }
  const in_port_t port = address.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(address).sin_port;
  return ntohs(port);
}

std::string Answer(std::string_view status, std::string_view type, std::string_view body,
                   std::string_view more = "") {
  std::string text = "HTTP/1.1 ";
  text.append(status).append("\r\nContent-Type: ").append(type);
  text.append("\r\nContent-Length: ").append(std::to_string(body.size()));
  text.append("\r\nConnection: close\r\n").append(more).append("\r\n").append(body);
  return text;
}

std::string Refusal(std::string_view status, std::string_view more = "") {
  return Answer(status, "text/plain; charset=utf-8", std::string(status) + "\n", more);
}

// The end of the headers; npos where it has not come yet.
size_t EndOfHeaders(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  return end == std::string_view::npos ? end : end + 4;
}

}  // namespace

std::string AnswerHttp(std::string_view request, const HttpPage::Content& content) {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return Refusal("400 Bad Request");
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const bool token = !method.empty() && std::all_of(method.begin(), method.end(),
                                                    [](char c) { return c >= 'A' && c <= 'Z'; });
  if (!token || target.empty() || target.find(' ') != std::string_view::npos ||
      version.rfind("HTTP/", 0) != 0) {
    return Refusal("400 Bad Request");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return Refusal("505 HTTP Version Not Supported");
  }
  if (target.substr(0, target.find('?')) != content.path) return Refusal("404 Not Found");
  if (method != "GET" && method != "HEAD") {
    return Refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
  }
  std::string answer = Answer("200 OK", content.type, content.text());
  if (method == "HEAD") answer.resize(EndOfHeaders(answer));
  return answer;
}

struct HttpPage::Impl {
  Impl(OwnedFd listener_in, OwnedFd stop_in, Content content_in, const Times& times_in)
      : listener(std::move(listener_in)),
        stop(std::move(stop_in)),
        content(std::move(content_in)),
        times(times_in),
        thread([this] { Run(); }) {}

  ~Impl() {
    const uint64_t one = 1;
    while (write(stop.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread.join();
  }

  void Run();
  // Milliseconds until something ends by itself; -1 where nothing does.
  int Wait() const;
  void Accept();
  void MakeRoom();
  // False where the connection is over.
  bool Serve(Connection& connection) const;
  bool Read(Connection& connection) const;
  bool Write(Connection& connection) const;
  static bool AwaitClose(const Connection& connection);

  const OwnedFd listener, stop;
  const Content content;
  const Times times;
  // Of the thread. The first is the oldest one.
  std::list<Connection> connections;
  std::optional<Clock::time_point> accept_again;
  std::thread thread;
};

void HttpPage::Impl::Run() {
  std::vector<pollfd> polled;
  for (;;) {
    polled.assign({{stop.get(), POLLIN, 0}, {accept_again ? -1 : listener.get(), POLLIN, 0}});
    for (const Connection& connection : connections) {
      const bool answers = connection.state == Connection::State::kAnswer;
      polled.push_back({connection.fd.get(), static_cast<int16_t>(answers ? POLLOUT : POLLIN), 0});
    }
    if (poll(polled.data(), polled.size(), Wait()) < 0) {
      // The system has no memory for it, or was told to allow hardly any descriptors.
      const int pause = errno == EINTR ? 0 : static_cast<int>(kPause.count());
      if (poll(polled.data(), 1, pause) > 0) return;
      continue;
    }
    if (polled[0].revents != 0) return;
    const Clock::time_point now = Clock::now();
    if (accept_again && *accept_again <= now) accept_again.reset();
    size_t at = 2;
    for (auto it = connections.begin(); it != connections.end(); ++at) {
      const bool goes_on = (polled[at].revents == 0 || Serve(*it)) && it->deadline > now;
      it = goes_on ? std::next(it) : connections.erase(it);
    }
    if (polled[1].revents != 0) Accept();
  }
}

int HttpPage::Impl::Wait() const {
  std::optional<Clock::time_point> first = accept_again;
  for (const Connection& connection : connections) {
    first = std::min(first.value_or(connection.deadline), connection.deadline);
  }
  if (!first) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

// A few at a time, so that those who come do not hold up those who are there. Not accept4, which is
// bounded by the connections of calls.
void HttpPage::Impl::Accept() {
  for (size_t taken = 0; taken < kConnectionsMax; ++taken) {
    OwnedFd fd(accept(listener.get(), nullptr, nullptr));
    if (fd.get() < 0) {
      if (MustWait() || errno == ECONNABORTED) return;
      accept_again = Clock::now() + kPause;
      return;
    }
    if (fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) {
      continue;
    }
    MakeRoom();
    connections.push_back({std::move(fd), Clock::now() + times.request});
    // Most requests have come with their connection.
    if (!Serve(connections.back())) connections.pop_back();
  }
}

void HttpPage::Impl::MakeRoom() {
  if (connections.size() < kConnectionsMax) return;
  const auto useless = std::find_if(
      connections.begin(), connections.end(),
      [](const Connection& candidate) { return candidate.state != Connection::State::kAnswer; });
  connections.erase(useless != connections.end() ? useless : connections.begin());
}

bool HttpPage::Impl::Serve(Connection& connection) const {
  if (connection.state == Connection::State::kRequest && !Read(connection)) return false;
  if (connection.state == Connection::State::kAnswer && !Write(connection)) return false;
  return connection.state != Connection::State::kClosing || AwaitClose(connection);
}

bool HttpPage::Impl::Read(Connection& connection) const {
  std::array<char, 2048> buffer;
  while (connection.state == Connection::State::kRequest) {
    const ssize_t got = recv(connection.fd.get(), buffer.data(), buffer.size(), 0);
    if (got < 0) return MustWait();
    if (got == 0) return false;
    connection.bytes.append(buffer.data(), static_cast<size_t>(got));
    const size_t end = EndOfHeaders(connection.bytes);
    if (end == std::string::npos && connection.bytes.size() <= kRequestBytesMax) continue;
    connection.bytes = end != std::string::npos && end <= kRequestBytesMax
                           ? AnswerHttp(std::string_view(connection.bytes).substr(0, end), content)
                           : Refusal("431 Request Header Fields Too Large");
    connection.state = Connection::State::kAnswer;
    connection.deadline = Clock::now() + times.answer;
  }
  return true;
}

bool HttpPage::Impl::Write(Connection& connection) const {
  while (connection.sent < connection.bytes.size()) {
    const ssize_t sent = send(connection.fd.get(), connection.bytes.data() + connection.sent,
                              connection.bytes.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0) return MustWait();
    connection.sent += static_cast<size_t>(sent);
  }
  // What was not read when a socket is closed would take the answer with it.
  shutdown(connection.fd.get(), SHUT_WR);
  connection.state = Connection::State::kClosing;
  connection.deadline = Clock::now() + times.close;
  return true;
}

// Throws away what still comes, a little at a time.
bool HttpPage::Impl::AwaitClose(const Connection& connection) {
  std::array<char, 4096> buffer;
  const ssize_t got = recv(connection.fd.get(), buffer.data(), buffer.size(), 0);
  return got > 0 || (got < 0 && MustWait());
}

absl::StatusOr<std::unique_ptr<HttpPage>> HttpPage::Start(const std::string& address,
                                                          Content content, const Times& times) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return Unavailable("the address has no port");
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  absl::StatusOr<OwnedFd> listener = ListenAt(host, address.substr(colon + 1));
  if (!listener.ok()) return listener.status();
  const absl::StatusOr<int> port = PortOf(listener->get());
  if (!port.ok()) return port.status();
  OwnedFd stop(eventfd(0, EFD_CLOEXEC));
  if (stop.get() < 0) return Unavailable(strerror(errno));
  auto impl =
      std::make_unique<Impl>(*std::move(listener), std::move(stop), std::move(content), times);
  return std::unique_ptr<HttpPage>(
      new HttpPage(std::move(impl), address.substr(0, colon + 1) + std::to_string(*port)));
}

HttpPage::HttpPage(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

HttpPage::~HttpPage() = default;

}  // namespace rlk::server
