#include "client/cli/weights_prepare.h"

#include <openssl/evp.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "client/cli/file.h"
#include "client/cli/safetensors.h"
#include "client/cli/strict_json.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kIndexBytesMax = 100'000'000;
constexpr size_t kReadBytes = size_t{1} << 20;
constexpr char kIndexSuffix[] = ".safetensors.index.json";
constexpr char kSuffix[] = ".safetensors";

// How a checkpoint spells the tensors: what a name ends with, behind a dot or at its beginning.
std::string UsualName(const std::string& role, int64_t block) {
  if (role == "w1") return "time_embedder.linear_1.weight";
  if (role == "b1") return "time_embedder.linear_1.bias";
  if (role == "w2") return "time_embedder.linear_2.weight";
  if (role == "b2") return "time_embedder.linear_2.bias";
  return "blocks." + std::to_string(block) + ".adaln_proj.linear." + role;
}

bool EndsAs(const std::string& name, const std::string& ending) {
  if (!name.ends_with(ending)) return false;
  const size_t before = name.size() - ending.size();
  // "transformer_blocks.0" is a block, "refiner_blocks.0" is not one of those.
  return before == 0 || name[before - 1] == '.' || name.ends_with("transformer_" + ending);
}

absl::Status Bad(const std::string& field, const std::string& value, const std::string& allowed,
                 const std::string& message) {
  return InvalidArgument(Reason::kFileMismatch, field, value, allowed, message);
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    ok_ = context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
  }
  void Update(std::span<const std::byte> bytes) {
    ok_ = ok_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }
  // Empty where OpenSSL failed.
  std::string Hex() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (!ok_ || EVP_DigestFinal_ex(context_.get(), bytes, &size) != 1) return "";
    std::string text;
    constexpr char kDigits[] = "0123456789abcdef";
    for (unsigned int i = 0; i < size; ++i) {
      text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
  bool ok_ = false;
};

// Files of a folder, by the tensors that its index says they hold.
using Index = std::map<std::string, std::string>;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  RLK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size() > kIndexBytesMax) {
    return Bad("index", path, "at most " + std::to_string(kIndexBytesMax) + " bytes",
               "the index is too large");
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  RLK_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

absl::StatusOr<Index> ReadIndex(const std::string& path) {
  RLK_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  std::string what;
  const std::optional<nlohmann::json> json = ParseStrict(text, what);
  if (!json) return Bad("index", path, "a JSON object", "the index is refused: " + what);
  const auto map = json->find("weight_map");
  if (map == json->end() || !map->is_object() || map->empty()) {
    return Bad("index", path, "weight_map: files by tensor", "the index maps no tensors");
  }
  Index index;
  for (const auto& [name, file] : map->items()) {
    const std::string text_of = file.is_string() ? file.get<std::string>() : "";
    if (!text_of.ends_with(kSuffix) || text_of.find('/') != std::string::npos) {
      return Bad("index", name, "the name of a safetensors file beside the index",
                 path + " maps the tensor to no such file");
    }
    index[name] = text_of;
  }
  return index;
}

absl::StatusOr<Index> FindIndex(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> indices, files;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(kIndexSuffix)) indices.push_back(name);
    if (name.ends_with(kSuffix)) files.push_back(name);
  }
  if (error) return absl::NotFoundError(folder + ": cannot be listed: " + error.message());
  if (indices.size() == 1) return ReadIndex(folder + "/" + indices[0]);
  if (!indices.empty() || files.size() != 1) {
    return Bad("DIR", folder, "one *.safetensors.index.json, or one *.safetensors",
               "there are " + std::to_string(indices.size()) + " indices and " +
                   std::to_string(files.size()) + " safetensors files");
  }
  RLK_ASSIGN_OR_RETURN(const auto entries, ListSafetensors(folder + "/" + files[0]));
  Index index;
  for (const SafetensorsEntry& entry : entries) index[entry.key] = files[0];
  return index;
}

absl::StatusOr<std::string> FindName(const Index& index, const std::string& role,
                                     const PrepareOptions& options) {
  const auto given = options.names.find(role);
  if (given != options.names.end()) {
    if (index.count(given->second) != 0) return given->second;
    return Bad("--tensor " + role, given->second, "a tensor of the index",
               "the index has no such tensor");
  }
  const std::string ending = UsualName(role, options.block);
  std::vector<std::string> found;
  for (const auto& [name, file] : index) {
    if (EndsAs(name, ending)) found.push_back(name);
  }
  if (found.size() == 1) return found[0];
  return Bad("index", found.empty() ? "no such tensor" : client::JoinNames(found),
             "one name that ends in " + ending,
             "the index does not say which tensor is " + role + "; name it with --tensor " + role +
                 "=NAME");
}

// What a file has, read once.
struct Shard {
  std::vector<SafetensorsEntry> entries;
  std::string synthetic;
};

// Everything that the index puts into the file is there, and nothing else.
absl::StatusOr<Shard> ReadShard(const std::string& folder, const std::string& name,
                                const Index& index) {
  std::error_code error;
  if (fs::is_symlink(folder + "/" + name, error)) {
    return Bad("DIR", name, "regular files", "the server follows no symbolic links");
  }
  Shard shard;
  SafetensorsMetadata metadata;
  RLK_ASSIGN_OR_RETURN(shard.entries, ListSafetensors(folder + "/" + name, &metadata));
  std::set<std::string> present;
  for (const SafetensorsEntry& entry : shard.entries) {
    present.insert(entry.key);
    const auto listed = index.find(entry.key);
    if (listed != index.end() && listed->second == name) continue;
    return Bad("index", entry.key, listed == index.end() ? "absent" : listed->second,
               name + " holds a tensor that the index does not put there");
  }
  for (const auto& [tensor, file] : index) {
    if (file != name || present.count(tensor) != 0) continue;
    return Bad("index", tensor, "a tensor of " + name,
               name + " does not hold the tensor that the index puts there");
  }
  shard.synthetic = metadata[kSyntheticKey];
  return shard;
}

absl::StatusOr<std::string> HashOf(const std::string& path, const SafetensorsEntry& entry,
                                   const PrepareOptions& options) {
  RLK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  Sha256 sha256;
  std::vector<std::byte> buffer(kReadBytes);
  for (int64_t at = entry.begin; at < entry.end;) {
    const std::span<std::byte> part(buffer.data(),
                                    std::min(kReadBytes, static_cast<size_t>(entry.end - at)));
    RLK_RETURN_IF_ERROR(file.ReadAt(at, part));
    sha256.Update(part);
    at += static_cast<int64_t>(part.size());
    if (options.progress) {
      options.progress(entry.key, at - entry.begin, entry.end - entry.begin);
    }
  }
  std::string hex = sha256.Hex();
  if (hex.empty()) return absl::InternalError("OpenSSL computes no SHA-256");
  return hex;
}

absl::Status AddTensor(const std::string& folder, const std::string& role, const std::string& name,
                       const std::string& file, const Shard& shard, const PrepareOptions& options,
                       rlk::v1::WeightsManifest& manifest) {
  const auto entry = std::find_if(shard.entries.begin(), shard.entries.end(),
                                  [&name](const auto& each) { return each.key == name; });
  if (entry->dtype == DType::kUnspecified) {
    return Bad(role + ".dtype (" + name + ")", entry->dtype_name, "F32, BF16",
               file + " holds the tensor in a dtype that rlk does not have");
  }
  auto& added = *manifest.add_tensors();
  added.set_role(role);
  rlk::v1::ExpectedTensor& tensor = *added.mutable_tensor();
  tensor.set_key(name);
  tensor.set_path(file);
  tensor.set_dtype(static_cast<rlk::v1::DataType>(entry->dtype));
  for (const int64_t size : entry->shape) tensor.add_shape(size);
  RLK_ASSIGN_OR_RETURN(*tensor.mutable_sha256(), HashOf(folder + "/" + file, *entry, options));
  return absl::OkStatus();
}

}  // namespace

std::string Sha256Hex(const std::string& bytes) {
  Sha256 sha256;
  sha256.Update(std::as_bytes(std::span(bytes)));
  return sha256.Hex();
}

absl::StatusOr<rlk::v1::WeightsManifest> PrepareH3Weights(const std::string& folder,
                                                          const PrepareOptions& options) {
  const std::vector<client::H3Role> roles = client::H3Roles({});
  for (const auto& [given, name] : options.names) {
    const std::string& role = given;
    if (std::any_of(roles.begin(), roles.end(),
                    [&role](const client::H3Role& each) { return each.name == role; })) {
      continue;
    }
    return Bad("--tensor", role, "w1, b1, w2, b2, weight, bias", "there is no such role");
  }
  RLK_ASSIGN_OR_RETURN(const Index index, FindIndex(folder));
  rlk::v1::WeightsManifest manifest;
  manifest.set_format(client::kWeightsFormat);
  manifest.set_model(client::kH3Model);
  std::map<std::string, Shard> shards;
  for (const client::H3Role& role : roles) {
    RLK_ASSIGN_OR_RETURN(const std::string name, FindName(index, role.name, options));
    const std::string& file = index.at(name);
    if (shards.count(file) == 0) {
      RLK_ASSIGN_OR_RETURN(shards[file], ReadShard(folder, file, index));
      const std::string& label = shards[file].synthetic;
      if (shards.size() == 1) manifest.set_synthetic(label);
      if (manifest.synthetic() != label) {
        return Bad(std::string(kSyntheticKey) + " of " + file, label, manifest.synthetic(),
                   "the files do not say the same of their values");
      }
    }
    RLK_RETURN_IF_ERROR(AddTensor(folder, role.name, name, file, shards[file], options, manifest));
  }
  RLK_RETURN_IF_ERROR(client::CheckH3Manifest(manifest));
  return manifest;
}

}  // namespace rlk::cli
