// What the server says of a call.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "rlk/v1/call.pb.h"

namespace rlk::client {

// The report of a reply, kept as the bytes that came and parsed when it is first looked at: few
// callers look at every report, and a message object of thirty parts costs more than all the rest
// of a small reply. Copies share the parsed message. Any number of threads may look at once.
class Report {
 public:
  // That of a reply without a report: an empty message.
  Report() = default;
  explicit Report(std::string serialized);

  // The message; empty where status() is not OK.
  const rlk::v1::CallReport& operator*() const;
  const rlk::v1::CallReport* operator->() const { return &**this; }
  // INVALID_ARGUMENT (kMalformedMessage) where the bytes are no rlk.v1.CallReport.
  absl::Status status() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace rlk::client
