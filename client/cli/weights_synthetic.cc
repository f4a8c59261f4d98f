// Made-up weights of the structure of the model's checkpoint.
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "client/cli/file.h"
#include "client/cli/render.h"
#include "client/cli/safetensors.h"
#include "client/cli/weights_prepare.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr int64_t kSizeMax = 65536;
constexpr int64_t kShardsMax = 6;
constexpr double kBiasScale = 0.1;

uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

absl::Status CheckSizes(const SyntheticOptions& options) {
  const auto [channels, hidden, embedding, width] = options.sizes;
  const std::pair<const char*, std::pair<int64_t, int64_t>> sizes[] = {
      {"channels", {channels, 4}},
      {"hidden", {hidden, 4}},
      {"embedding", {embedding, 8}},
      {"width", {width, 1}}};
  for (const auto& [name, size] : sizes) {
    if (size.first >= size.second && size.first <= kSizeMax && size.first % size.second == 0) {
      continue;
    }
    return InvalidArgument(
        Reason::kUnknownOption, "--sizes", std::string(name) + " " + std::to_string(size.first),
        "a multiple of " + std::to_string(size.second) + ", at most " + std::to_string(kSizeMax),
        "the operators do not take this size");
  }
  if (options.shards >= 1 && options.shards <= kShardsMax) return absl::OkStatus();
  return InvalidArgument(Reason::kUnknownOption, "--shards", std::to_string(options.shards),
                         "1 to " + std::to_string(kShardsMax), "the value is not allowed");
}

std::string NameOf(const std::string& role, int64_t block) {
  const bool weight = role[0] == 'w';
  if (role.size() == 2) {
    return "time_embedder.linear_" + role.substr(1) + (weight ? ".weight" : ".bias");
  }
  return "transformer_blocks." + std::to_string(block) + ".adaln_proj.linear." + role;
}

absl::StatusOr<client::Tensor> MakeWeights(const client::H3Role& role, uint64_t seed) {
  RLK_ASSIGN_OR_RETURN(client::Tensor tensor,
                       client::Tensor::Allocate(role.dtype, role.shape.span()));
  const double scale =
      role.shape.rank() == 2 ? 1.0 / std::sqrt(static_cast<double>(role.shape[1])) : kBiasScale;
  const auto value = [&](int64_t i) {
    return static_cast<float>(NearlyNormal(RandomBits(seed, static_cast<uint64_t>(i))) * scale);
  };
  const int64_t count = tensor.elements();
  if (role.dtype == DType::kF32) {
    float* const to = tensor.mutable_as<float>().data();
    for (int64_t i = 0; i < count; ++i) to[i] = value(i);
  } else {
    uint16_t* const to = tensor.mutable_as<uint16_t>().data();
    for (int64_t i = 0; i < count; ++i) to[i] = ToBf16(value(i));
  }
  return tensor;
}

std::string ShardName(int64_t shard, int64_t shards) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", static_cast<int>(shard + 1),
                static_cast<int>(shards));
  return name;
}

}  // namespace

absl::Status WriteSyntheticH3(const std::string& folder, const SyntheticOptions& options) {
  RLK_RETURN_IF_ERROR(CheckSizes(options));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::FailedPreconditionError(folder + ": " + error.message());
  const SafetensorsMetadata metadata = {{kSyntheticKey, "seed " + std::to_string(options.seed)}};
  const std::vector<client::H3Role> roles = client::H3Roles(options.sizes);
  Json weight_map = Json::object();
  int64_t total = 0;
  size_t next = 0;
  for (int64_t shard = 0; shard < options.shards; ++shard) {
    const std::string file = ShardName(shard, options.shards);
    const auto end =
        roles.size() * static_cast<size_t>(shard + 1) / static_cast<size_t>(options.shards);
    std::vector<client::Tensor> tensors;
    for (size_t i = next; i < end; ++i) {
      RLK_ASSIGN_OR_RETURN(client::Tensor made, MakeWeights(roles[i], options.seed + i));
      total += static_cast<int64_t>(made.bytes().size());
      tensors.push_back(std::move(made));
    }
    std::vector<std::pair<std::string, const client::Tensor*>> named;
    for (const client::Tensor& tensor : tensors) {
      named.emplace_back(NameOf(roles[next++].name, options.block), &tensor);
      weight_map[named.back().first] = file;
    }
    RLK_RETURN_IF_ERROR(WriteSafetensors(folder + "/" + file, named, metadata));
  }
  const std::string index =
      Dump({{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}}) + "\n";
  return WriteFile(folder + "/model.safetensors.index.json",
                   {std::as_bytes(std::span(index.data(), index.size()))});
}

}  // namespace rlk::cli
