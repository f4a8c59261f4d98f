// Tensors of a call that are on the server for that call alone. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/client.h"

namespace rlk::client {

// Tensors below this stay in the message of a call whose others are uploaded.
inline constexpr int64_t kUploadFrom = int64_t{64} << 10;

// Puts the large tensors of requests on the server, until it goes. `label` outlives it.
class UploadedInputs {
 public:
  explicit UploadedInputs(const Client& client, const char* label = "input of a call")
      : client_(client), label_(label) {}
  ~UploadedInputs();
  UploadedInputs(const UploadedInputs&) = delete;
  UploadedInputs& operator=(const UploadedInputs&) = delete;

  // Those of at least kUploadFrom bytes are named by their handle afterwards.
  absl::Status Upload(std::vector<std::pair<std::string, TensorRef>>& inputs,
                      const std::optional<std::chrono::milliseconds>& timeout);

  // One of at least that size; `name` names it in errors. A resident or small one stays as it is.
  absl::Status UploadOne(const std::string& name, TensorRef& input,
                         const std::optional<std::chrono::milliseconds>& timeout);

 private:
  const Client& client_;
  const char* const label_;
  std::vector<ResidentTensor> tensors_;
};

}  // namespace rlk::client
