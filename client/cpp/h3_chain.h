// The timestep conditioning of MiniMax-H3 as a chain of calls on one server, forward and backward,
// and its comparison with a reference, stage by stage.
//
//   absl::StatusOr<H3Weights> weights = LoadH3Weights(*client, manifest);
//   absl::StatusOr<H3Run> run = RunH3Chain(*client, *weights, timesteps, {.backward = true});
//   absl::StatusOr<Tensor> gate = client->Get(run->tensors.at("gate_msa"));
//
//   absl::StatusOr<H3Report> report = CheckH3Chain(*client, manifest, {.run = {.backward = true}});
//   if (report->first) std::puts(report->first->stage.c_str());
//
// Weights and intermediates stay on the server; a stage that takes what another one made names it
// by its handle. client/cli/README.md states the stages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/h3_stages.h"
#include "client/cpp/h3_weights.h"
#include "rlk/v1/comparison.pb.h"

namespace rlk::client {

// Which stages run, where, and on what they run besides timesteps and weights.
struct H3RunOptions {
  // All six stages, not only those of the forward.
  bool backward = false;
  // Instead: these. A stage without those before it is refused (UNKNOWN_OPTION).
  std::vector<std::string> stages = {};
  // Empty: the server selects.
  std::string backend = {};
  // Each method takes the one that it has, or else its default.
  std::vector<std::string> contracts = {};
  double max_period = 10000;
  // The gradients of the projection's outputs are "random:3TxH:bf16:SEED", with SEED + i for output
  // i.
  uint64_t gradient_seed = 123;
  // Intermediates come to the client after each stage and are sent again: the same bits, by a
  // chain that the client runs stage by stage.
  bool through_client = false;
  // Of each call.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct H3Call {
  std::string stage;
  rlk::v1::CallReport report;  // with the digests of the outputs
  double seconds = 0;          // as the client saw it
};

struct H3Run {
  std::vector<H3Call> calls;
  // By name, as in H3Stages: "embedding", "pre", "temb", "shift_msa", ..., "grad_timestep". The
  // caller releases them.
  std::map<std::string, ResidentTensor> tensors;
};

// `timesteps`: F32, [T], each in [0, 1]. Where a stage fails nothing stays on the server.
absl::StatusOr<H3Run> RunH3Chain(const Client& client, const H3Weights& weights,
                                 const TensorRef& timesteps, const H3RunOptions& options = {});

struct H3CheckOptions {
  H3RunOptions run = {};
  // "golden": compared by the tolerance contract. Another backend: every bit.
  std::string reference = "golden";
  H3LoadOptions load = {};
  // In [0, 1]. Empty: four fractions of 24 random bits.
  std::vector<float> timesteps = {};
  uint64_t seed = 1;
  // The chain runs on the first T of the timesteps, for each T. Empty: 1 to 4, as far as there are
  // so many, and all.
  std::vector<int64_t> counts = {};
  // Refuses made-up weights.
  bool real_weights = false;
  // Called before each step, on the caller's thread: "T = 4, projection, golden".
  std::function<void(const std::string& step)> progress = nullptr;
};

enum class H3Verdict {
  kPassed,
  // The stage differs although it is given what the reference was given: the fault is its own.
  kInjected,
  // It differs in the chain alone: it was given something that differs.
  kInherited,
};

struct H3Output {
  std::string name;
  // Against the reference's chain. Left is the chain under check.
  rlk::v1::Comparison chain;
  // The same stage on the reference's own inputs. Equal to `chain` where these are the same bits.
  rlk::v1::Comparison alone;
};

struct H3StageReport {
  std::string stage, method;
  H3Verdict verdict = H3Verdict::kPassed;
  // Every input is what the reference's chain has, bit by bit.
  bool same_inputs = false;
  std::vector<H3Output> outputs;
  H3Call checked, reference;
};

struct H3CountReport {
  int64_t count = 0;  // T
  std::vector<H3StageReport> stages;
};

// The first stage that is not what it should be.
struct H3Finding {
  std::string stage, output;
  H3Verdict verdict = H3Verdict::kInjected;
  int64_t count = 0;
};

struct H3Report {
  H3Sizes sizes;
  // Empty for weights of the model.
  std::string synthetic;
  std::vector<float> timesteps;
  std::string reference;
  std::vector<H3CountReport> counts;
  // Differs from the reference: of the first stage in the chain, whatever the T.
  std::optional<H3Finding> first;
  // "projection gate_msa, T = 2: row 0 has other bits than with T = 4". Each row's bits are the
  // same for every T.
  std::vector<std::string> rows_that_differ;
  int64_t rows_compared = 0;
  // "mlp temb, T = 2". A chain that the client runs stage by stage has the same bits.
  std::vector<std::string> through_client_differs;
  int64_t digests_compared = 0;

  bool passed() const {
    return !first && rows_that_differ.empty() && through_client_differs.empty();
  }
};

// Loads the weights (once for each device that takes part), runs the chain for each T on both
// sides, compares each output of each stage by ParityService.Compare, and runs each stage of the
// chain under check once more on the reference's inputs. Then it runs the chain through the client
// and compares digests. Everything is released at the end. That something differs is no error.
absl::StatusOr<H3Report> CheckH3Chain(const Client& client,
                                      const rlk::v1::WeightsManifest& manifest,
                                      const H3CheckOptions& options = {});

}  // namespace rlk::client
