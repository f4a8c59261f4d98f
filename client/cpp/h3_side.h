// One side of a chain: where its stages run, and the tensors that they are given. Internal.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/h3_chain.h"

namespace rlk::client {

// Tensors on the server that are released when this goes, or before.
class KeptTensors {
 public:
  explicit KeptTensors(const Client& client) : client_(client) {}
  ~KeptTensors();
  KeptTensors(const KeptTensors&) = delete;
  KeptTensors& operator=(const KeptTensors&) = delete;

  void Add(const ResidentTensor& tensor) { tensors_.push_back(tensor); }
  void Add(const std::vector<ResidentTensor>& tensors) {
    tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
  }
  absl::Status Drop(const ResidentTensor& tensor);
  // They stay.
  void Forget() { tensors_.clear(); }

 private:
  const Client& client_;
  std::vector<ResidentTensor> tensors_;
};

// What a stage is given, or made.
struct H3Value {
  TensorRef ref;
  std::optional<ResidentTensor> resident = std::nullopt;
  // Of outputs; what both sides share from the start has none.
  std::string digest = {};
};
using H3Values = std::map<std::string, H3Value>;

// By the names of the chain.
struct H3StageRun {
  H3Call call;
  H3Values outputs;
};

// Runs one stage. Its outputs stay on the server, in `kept`; those that `inline_outputs` names come
// with the reply.
absl::StatusOr<H3StageRun> RunH3Stage(const Client& client, const H3StageSpec& stage,
                                      const H3Values& values, const H3Weights& weights,
                                      const H3RunOptions& options,
                                      const std::vector<std::string>& inline_outputs,
                                      KeptTensors& kept);

// The weights by role, the timesteps, and, with a backward stage, the gradients of the projection's
// outputs for `count` timesteps. What is large is put on the device of the weights.
absl::StatusOr<H3Values> StartH3Values(const Client& client, const H3Weights& weights,
                                       const TensorRef& timesteps, const H3RunOptions& options,
                                       bool gradients, KeptTensors& kept);

}  // namespace rlk::client
