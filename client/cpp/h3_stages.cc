#include "client/cpp/h3_stages.h"

#include <algorithm>

#include "client/cpp/client.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

std::vector<H3StageSpec> MakeStages() {
  std::vector<std::pair<const char*, const char*>> views;
  for (const char* view : kH3Views) views.emplace_back(view, view);
  return {
      {"sinusoid",
       "timestep_sinusoid_h3.forward",
       {{"timestep", "timestep"}},
       {{"embedding", "embedding"}}},
      {"mlp",
       "timestep_mlp_fp32.forward",
       {{"x", "embedding"}, {"w1", "w1"}, {"b1", "b1"}, {"w2", "w2"}, {"b2", "b2"}},
       {{"y", "temb"}, {"pre", "pre"}}},
      {"projection",
       "adaln_projection_3mod.forward",
       {{"temb", "temb"}, {"weight", "weight"}, {"bias", "bias"}},
       views},
      {"projection_backward",
       "adaln_projection_3mod.backward",
       {{"temb", "temb"},
        {"weight", "weight"},
        {"grad_shift_msa", "grad_shift_msa"},
        {"grad_scale_msa", "grad_scale_msa"},
        {"grad_gate_msa", "grad_gate_msa"},
        {"grad_shift_mlp", "grad_shift_mlp"},
        {"grad_scale_mlp", "grad_scale_mlp"},
        {"grad_gate_mlp", "grad_gate_mlp"}},
       {{"grad_temb", "grad_temb"}, {"grad_weight", "grad_weight"}, {"grad_bias", "grad_bias"}}},
      {"mlp_backward",
       "timestep_mlp_fp32.backward",
       {{"x", "embedding"},
        {"w1", "w1"},
        {"b1", "b1"},
        {"w2", "w2"},
        {"grad_y", "grad_temb"},
        {"pre", "pre"}},
       {{"grad_x", "grad_embedding"},
        {"grad_w1", "grad_w1"},
        {"grad_b1", "grad_b1"},
        {"grad_w2", "grad_w2"},
        {"grad_b2", "grad_b2"}}},
      {"sinusoid_backward",
       "timestep_sinusoid_h3.backward",
       {{"grad_embedding", "grad_embedding"}, {"embedding", "embedding"}},
       {{"grad_timestep", "grad_timestep"}}},
  };
}

}  // namespace

const std::vector<H3StageSpec>& H3Stages() {
  static const std::vector<H3StageSpec> stages = MakeStages();
  return stages;
}

absl::StatusOr<std::vector<const H3StageSpec*>> SelectH3Stages(
    const std::vector<std::string>& names, bool backward) {
  const std::vector<H3StageSpec>& all = H3Stages();
  std::vector<std::string> known;
  for (const H3StageSpec& stage : all) known.emplace_back(stage.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return InvalidArgument(Reason::kUnknownOption, "stages", name, JoinNames(known),
                           "the chain has no such stage");
  }
  std::vector<const H3StageSpec*> chosen;
  std::vector<std::string> before;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool wanted = names.empty()
                            ? backward || i < kH3ForwardStages
                            : std::find(names.begin(), names.end(), known[i]) != names.end();
    if (!wanted) continue;
    before.assign(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (chosen.size() < i) {
      return InvalidArgument(Reason::kUnknownOption, "stages", JoinNames(names), JoinNames(before),
                             "stage " + known[i] + " is chosen without those before it");
    }
    chosen.push_back(&all[i]);
  }
  return chosen;
}

absl::Status CheckH3Contracts(const std::vector<std::string>& contracts) {
  for (const std::string& contract : contracts) {
    const std::string operator_name = contract.substr(0, contract.find('/'));
    const std::vector<H3StageSpec>& all = H3Stages();
    const bool known =
        std::any_of(all.begin(), all.end(), [&operator_name](const H3StageSpec& stage) {
          return std::string(stage.method).starts_with(operator_name + ".");
        });
    if (known) continue;
    return InvalidArgument(Reason::kUnknownContract, "contracts", contract,
                           "contracts of the operators of the chain",
                           "no stage of the chain has this contract");
  }
  return absl::OkStatus();
}

bool TakenLater(const std::vector<const H3StageSpec*>& stages, size_t count,
                const std::string& name) {
  for (size_t i = count; i < stages.size(); ++i) {
    for (const auto& [input, source] : stages[i]->inputs) {
      if (name == source) return true;
    }
  }
  return false;
}

}  // namespace rlk::client
