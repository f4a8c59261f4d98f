// The stages of MiniMax-H3's timestep conditioning, as data.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace rlk::client {

struct H3StageSpec {
  const char* name;
  const char* method;
  // (input of the method, what it is given): "timestep", a role of the weights, "grad_X" of an
  // output X of the projection, or an output of an earlier stage.
  std::vector<std::pair<const char*, const char*>> inputs;
  // (output of the method, its name in the chain).
  std::vector<std::pair<const char*, const char*>> outputs;
};

// sinusoid, mlp, projection, projection_backward, mlp_backward, sinusoid_backward: each takes what
// those before it made.
const std::vector<H3StageSpec>& H3Stages();
inline constexpr size_t kH3ForwardStages = 3;
// Of the projection, in its order.
inline constexpr const char* kH3Views[] = {"shift_msa", "scale_msa", "gate_msa",
                                           "shift_mlp", "scale_mlp", "gate_mlp"};

// The stages of these names, or the forward's, or all. INVALID_ARGUMENT (kUnknownOption) for a name
// that is none, and for a stage without all those before it.
absl::StatusOr<std::vector<const H3StageSpec*>> SelectH3Stages(
    const std::vector<std::string>& names, bool backward);

// INVALID_ARGUMENT (kUnknownContract) for one that is of no operator of the chain.
absl::Status CheckH3Contracts(const std::vector<std::string>& contracts);

// Whether a stage behind the first `count` ones of `stages` takes it.
bool TakenLater(const std::vector<const H3StageSpec*>& stages, size_t count,
                const std::string& name);

}  // namespace rlk::client
