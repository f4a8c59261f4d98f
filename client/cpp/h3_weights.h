// The weights of MiniMax-H3's timestep conditioning on a server: the time embedder and the AdaLN
// projection of one block, as a manifest of `rlk weights prepare` names them.
//
//   absl::StatusOr<rlk::v1::WeightsManifest> manifest = ParseH3Manifest(text_of_the_file);
//   absl::StatusOr<H3Weights> weights = LoadH3Weights(*client, *manifest);
//
// server/tensors/README.md says how files are loaded, client/cli/README.md how a manifest is made.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "rlk/v1/weights.pb.h"

namespace rlk::client {

inline constexpr char kWeightsFormat[] = "rlk-weights-v1";
inline constexpr char kH3Model[] = "minimax-h3";

// Those of the model, unless a manifest of made-up weights has others.
struct H3Sizes {
  int64_t channels = 256;    // K: of the sinusoid
  int64_t hidden = 5376;     // M: of the MLP
  int64_t embedding = 2688;  // D: of the timestep
  int64_t width = 5376;      // H: of the model

  bool operator==(const H3Sizes&) const = default;
};

// One tensor that the chain takes.
struct H3Role {
  const char* name;  // "w1": of the operator's input too
  DType dtype;
  Dims shape;
};

// The six of them: w1 [M, K], b1 [M], w2 [D, M], b2 [D] in F32; weight [18 H, D], bias [18 H] in
// BF16.
std::vector<H3Role> H3Roles(const H3Sizes& sizes);

// The manifest of its JSON text. INVALID_ARGUMENT where it is not one, has a field that is not
// known, lacks a role or has one twice, or where dtypes or shapes are not those of H3Roles: of the
// model's sizes, unless it says that the weights are synthetic.
absl::StatusOr<rlk::v1::WeightsManifest> ParseH3Manifest(const std::string& json);
// The same of a message that was made here.
absl::Status CheckH3Manifest(const rlk::v1::WeightsManifest& manifest);
H3Sizes SizesOf(const rlk::v1::WeightsManifest& checked);

struct H3LoadOptions {
  // The folder that the manifest is of, relative to the server's --weights-root.
  std::string folder = {};
  // By default the server's first GPU, or its host.
  std::string device_uuid = {};
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

// On one device. Nothing is released with it.
struct H3Weights {
  H3Sizes sizes;
  // Empty for weights of the model; else how they were made up.
  std::string synthetic;
  // In the order of H3Roles.
  std::vector<ResidentTensor> tensors;

  const ResidentTensor& Role(const std::string& name) const;
  const std::string& device_uuid() const { return tensors.front().device_uuid; }
};

// All of them or none, by one LoadTensors. The errors of CheckH3Manifest and of Client::Load.
absl::StatusOr<H3Weights> LoadH3Weights(const Client& client,
                                        const rlk::v1::WeightsManifest& manifest,
                                        const H3LoadOptions& options = {});

// FAILED_PRECONDITION (SYNTHETIC_WEIGHTS) unless the manifest is of weights of the model: for
// evidence that is said to be about it.
absl::Status RequireRealWeights(const rlk::v1::WeightsManifest& manifest);

}  // namespace rlk::client
