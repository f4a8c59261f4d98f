#include "client/cpp/report.h"

#include <mutex>
#include <optional>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::client {

struct Report::State {
  std::once_flag once;
  std::string serialized;
  // Written once, under `once`.
  std::optional<rlk::v1::CallReport> message;
  bool malformed = false;

  const rlk::v1::CallReport& Message() {
    std::call_once(once, [this] {
      malformed = !message.emplace().ParsePartialFromString(serialized);
      if (malformed) message->Clear();
      serialized = std::string();
    });
    return *message;
  }
};

Report::Report(std::string serialized) : state_(std::make_shared<State>()) {
  state_->serialized = std::move(serialized);
}

const rlk::v1::CallReport& Report::operator*() const {
  return state_ == nullptr ? rlk::v1::CallReport::default_instance() : state_->Message();
}

absl::Status Report::status() const {
  if (state_ == nullptr) return absl::OkStatus();
  state_->Message();
  if (!state_->malformed) return absl::OkStatus();
  return InvalidArgument(Reason::kMalformedMessage, "report", "", "rlk.v1.CallReport",
                         "the reply's report is malformed");
}

}  // namespace rlk::client
