// Inputs of a call that are on the server for that call alone. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/client.h"

namespace rlk::client {

// Inputs below this stay in the message of a call whose other inputs are uploaded.
inline constexpr int64_t kUploadFrom = int64_t{64} << 10;

// Puts the large inputs of requests on the server, until it goes.
class UploadedInputs {
 public:
  explicit UploadedInputs(const Client& client) : client_(client) {}
  ~UploadedInputs();
  UploadedInputs(const UploadedInputs&) = delete;
  UploadedInputs& operator=(const UploadedInputs&) = delete;

  // Those of at least kUploadFrom bytes are named by their handle afterwards.
  absl::Status Upload(std::vector<std::pair<std::string, TensorRef>>& inputs,
                      const std::optional<std::chrono::milliseconds>& timeout);

 private:
  const Client& client_;
  std::vector<ResidentTensor> tensors_;
};

}  // namespace rlk::client
