#include "client/cpp/h3_weights.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "client/cpp/strict_json.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

constexpr int64_t kViews = 18;

absl::Status Bad(const std::string& field, const std::string& value, const std::string& allowed,
                 const char* message) {
  return InvalidArgument(Reason::kFileMismatch, field, value, allowed, message);
}

Dims ShapeOf(const rlk::v1::ExpectedTensor& tensor) {
  Dims shape;
  for (const int64_t size : tensor.shape()) {
    if (shape.rank() < kMaxRank) shape.push_back(size);
  }
  return shape;
}

std::string ShapeText(const Dims& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

const rlk::v1::ExpectedTensor* Find(const rlk::v1::WeightsManifest& manifest,
                                    const std::string& role) {
  for (const auto& entry : manifest.tensors()) {
    if (entry.role() == role) return &entry.tensor();
  }
  return nullptr;
}

int64_t SizeAt(const rlk::v1::WeightsManifest& manifest, const char* role, int axis) {
  const rlk::v1::ExpectedTensor* const tensor = Find(manifest, role);
  return tensor != nullptr && axis < tensor->shape_size() ? tensor->shape(axis) : 0;
}

absl::Status CheckRole(const rlk::v1::WeightsManifest& manifest, const H3Role& role) {
  const std::string name = role.name;
  const auto count = std::count_if(manifest.tensors().begin(), manifest.tensors().end(),
                                   [&name](const auto& entry) { return entry.role() == name; });
  if (count != 1) {
    return Bad("tensors", name + " " + std::to_string(count) + " times", "each role once",
               "the manifest does not name the weights");
  }
  const rlk::v1::ExpectedTensor& tensor = *Find(manifest, name);
  const auto dtype = static_cast<DType>(tensor.dtype());
  if (dtype != role.dtype) {
    return Bad(name + ".dtype (" + tensor.key() + ")", std::string(DTypeName(dtype)),
               std::string(DTypeName(role.dtype)), "the tensor has another dtype");
  }
  if (!(ShapeOf(tensor) == role.shape)) {
    return Bad(name + ".shape (" + tensor.key() + ")", ShapeText(ShapeOf(tensor)),
               ShapeText(role.shape), "the tensor has another shape");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<H3Role> H3Roles(const H3Sizes& sizes) {
  const auto [channels, hidden, embedding, width] = sizes;
  return {{"w1", DType::kF32, {hidden, channels}},
          {"b1", DType::kF32, {hidden}},
          {"w2", DType::kF32, {embedding, hidden}},
          {"b2", DType::kF32, {embedding}},
          {"weight", DType::kBF16, {kViews * width, embedding}},
          {"bias", DType::kBF16, {kViews * width}}};
}

H3Sizes SizesOf(const rlk::v1::WeightsManifest& checked) {
  return {.channels = SizeAt(checked, "w1", 1),
          .hidden = SizeAt(checked, "w1", 0),
          .embedding = SizeAt(checked, "w2", 0),
          .width = SizeAt(checked, "weight", 0) / kViews};
}

absl::Status CheckH3Manifest(const rlk::v1::WeightsManifest& manifest) {
  if (manifest.format() != kWeightsFormat) {
    return Bad("format", manifest.format(), kWeightsFormat, "the manifest has another format");
  }
  if (manifest.model() != kH3Model) {
    return Bad("model", manifest.model(), kH3Model, "the manifest is of another model");
  }
  const H3Sizes sizes = manifest.synthetic().empty() ? H3Sizes() : SizesOf(manifest);
  const std::vector<H3Role> roles = H3Roles(sizes);
  for (const H3Role& role : roles) RLK_RETURN_IF_ERROR(CheckRole(manifest, role));
  if (manifest.tensors_size() == static_cast<int>(roles.size())) return absl::OkStatus();
  return Bad("tensors", std::to_string(manifest.tensors_size()), std::to_string(roles.size()),
             "the manifest names tensors that the chain does not take");
}

absl::StatusOr<rlk::v1::WeightsManifest> ParseH3Manifest(const std::string& json) {
  const auto refuse = [](const std::string& what) {
    return InvalidArgument(Reason::kMalformedMessage, "manifest", what,
                           "the JSON of rlk.v1.WeightsManifest", "it is no weights manifest");
  };
  // An object of a list of tensors, each with a shape, which has a list of sizes.
  constexpr size_t kDepthMax = 5;
  if (const std::string problem = StrictJsonProblem(json, kDepthMax); !problem.empty()) {
    return refuse(problem);
  }
  rlk::v1::WeightsManifest manifest;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &manifest);
  if (!parsed.ok()) return refuse(std::string(parsed.message()));
  RLK_RETURN_IF_ERROR(CheckH3Manifest(manifest));
  return manifest;
}

const ResidentTensor& H3Weights::Role(const std::string& name) const {
  const std::vector<H3Role> roles = H3Roles(sizes);
  for (size_t i = 0; i < roles.size(); ++i) {
    if (name == roles[i].name) return tensors.at(i);
  }
  std::abort();
}

absl::StatusOr<H3Weights> LoadH3Weights(const Client& client,
                                        const rlk::v1::WeightsManifest& manifest,
                                        const H3LoadOptions& options) {
  RLK_RETURN_IF_ERROR(CheckH3Manifest(manifest));
  H3Weights weights{.sizes = SizesOf(manifest), .synthetic = manifest.synthetic(), .tensors = {}};
  std::vector<ExpectedTensor> expected;
  for (const H3Role& role : H3Roles(weights.sizes)) {
    const rlk::v1::ExpectedTensor& tensor = *Find(manifest, role.name);
    const std::string folder = options.folder.empty() ? "" : options.folder + "/";
    expected.push_back(
        {tensor.key(), role.dtype, role.shape, tensor.sha256(), folder + tensor.path()});
  }
  RLK_ASSIGN_OR_RETURN(weights.tensors, client.Load("", expected,
                                                    {.device_uuid = options.device_uuid,
                                                     .synthetic = manifest.synthetic(),
                                                     .timeout = options.timeout}));
  return weights;
}

absl::Status RequireRealWeights(const rlk::v1::WeightsManifest& manifest) {
  if (manifest.synthetic().empty()) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      {Reason::kSyntheticWeights, "synthetic", manifest.synthetic(), "weights of the model"},
      "the manifest is of made-up weights: they say nothing about the model");
}

}  // namespace rlk::client
