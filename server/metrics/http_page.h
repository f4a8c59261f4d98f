// One page over HTTP/1.1, for whoever scrapes it. Knows nothing of metrics.
//
// One thread, which never waits for a peer: connections that say nothing, read nothing or send
// something else hold up neither each other nor a scrape. At most kConnectionsMax are open, few
// enough for the descriptors that the bound on calls' connections leaves; the next one takes the
// place of the one that has waited longest, of those without a request where there are any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace rlk::server {

class HttpPage {
 public:
  static constexpr size_t kConnectionsMax = 16;
  // Of a request: its line and its headers.
  static constexpr size_t kRequestBytesMax = 8 << 10;

  struct Content {
    std::string path;
    std::string type;
    // Called for each request, by the thread of this object alone.
    std::function<std::string()> text;
  };

  // From a connection's begin to the end of its request, from there to the end of the answer, and
  // from there until the peer has closed the connection too.
  struct Times {
    std::chrono::milliseconds request{5000}, answer{10'000}, close{1000};
  };

  // `address` is HOST:PORT, HOST a name, an IPv4 address or an IPv6 address in brackets; port 0
  // takes a free one. UNAVAILABLE, with the system's reason, where it cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpPage>> Start(const std::string& address,
                                                         Content content, const Times& times);
  static absl::StatusOr<std::unique_ptr<HttpPage>> Start(const std::string& address,
                                                         Content content) {
    return Start(address, std::move(content), Times());
  }
  // Closes what is open.
  ~HttpPage();

  // HOST:PORT with the port in use.
  const std::string& address() const { return address_; }

 private:
  struct Impl;
  HttpPage(std::unique_ptr<Impl> impl, std::string address);
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

// The whole answer to a request that ended with an empty line; `text` is called where it is for the
// page and wants its text.
std::string AnswerHttp(std::string_view request, const HttpPage::Content& content);

}  // namespace rlk::server
