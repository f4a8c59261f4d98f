#include "server/tensors/weights_file.h"

#include <openssl/evp.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/core/status.h"
#include "server/sessions/random_id.h"

namespace rlk::server {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

absl::Status SyntheticMismatch(const std::string& path, const std::string& found,
                               const std::string& wanted) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      {Reason::kSyntheticWeights, "synthetic",
       path + ": " + (found.empty() ? "weights of a model" : "made up (" + found + ")"),
       wanted.empty() ? "weights of a model" : "made up (" + wanted + ")"},
      found.empty() ? "the file does not say that its values are made up"
                    : "the file says that its values are made up");
}

// SHA-256 over bytes that arrive in order.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    ok_ = context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
  }
  void Update(std::span<const std::byte> bytes) {
    ok_ = ok_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }
  // Empty where OpenSSL failed: equal to no digest.
  std::string Hex() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (!ok_ || EVP_DigestFinal_ex(context_.get(), bytes, &size) != 1) return "";
    return HexText({reinterpret_cast<const char*>(bytes), size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
  bool ok_ = false;
};

// One file of a load, and the places of its tensors in the manifest.
struct OpenFile {
  SafetensorsFile file;
  std::vector<size_t> places;
  FileContent content = {};
};

absl::StatusOr<std::vector<OpenFile>> OpenFiles(const WeightsLoad& load) {
  std::vector<OpenFile> files;
  for (size_t i = 0; i < load.manifest.size(); ++i) {
    const std::string& named = load.manifest[i].path;
    const std::string& path = named.empty() ? load.path : named;
    auto open = std::find_if(files.begin(), files.end(),
                             [&path](const OpenFile& each) { return each.file.path() == path; });
    if (open == files.end()) {
      RLK_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(load.root, path));
      files.push_back({std::move(file), {}});
      open = files.end() - 1;
    }
    open->places.push_back(i);
  }
  return files;
}

absl::Status GoOn(const WeightsLoad& load) {
  return load.check == nullptr ? absl::OkStatus() : load.check();
}

absl::Status CheckFile(const WeightsLoad& load, OpenFile& open) {
  RLK_RETURN_IF_ERROR(GoOn(load));
  std::vector<const ExpectedTensor*> expected;
  for (const size_t place : open.places) expected.push_back(&load.manifest[place]);
  RLK_ASSIGN_OR_RETURN(open.content, open.file.Check(expected));
  if (open.content.synthetic == load.synthetic) return absl::OkStatus();
  return SyntheticMismatch(open.file.path(), open.content.synthetic, load.synthetic);
}

absl::StatusOr<TensorInfo> LoadOne(const WeightsLoad& load, const SafetensorsFile& file,
                                   const ExpectedTensor& expected, const FileTensor& tensor,
                                   TensorUpload& upload) {
  Sha256 sha256;
  std::vector<std::byte> buffer(kReadBytes);
  for (int64_t at = tensor.begin; at < tensor.end;) {
    RLK_RETURN_IF_ERROR(GoOn(load));
    const std::span<std::byte> part(buffer.data(),
                                    std::min(kReadBytes, static_cast<size_t>(tensor.end - at)));
    if (!file.Read(at, part)) return NotSafetensors(file.path(), "it ends in " + expected.key);
    sha256.Update(part);
    const std::span<const std::byte> piece = part;
    RLK_RETURN_IF_ERROR(upload.Write({&piece, 1}));
    at += static_cast<int64_t>(part.size());
  }
  if (const std::string hex = sha256.Hex(); hex.empty() || hex != expected.sha256) {
    return FileMismatch(file.path(), expected.key, "sha256", hex, expected.sha256);
  }
  return upload.Finish(std::nullopt);
}

// `loaded` has those that are there already, by their places, when it fails.
absl::Status LoadFile(const WeightsLoad& load, const OpenFile& open,
                      const std::shared_ptr<const Principal>& principal, TensorStore& store,
                      std::vector<std::optional<TensorInfo>>& loaded) {
  for (size_t i = 0; i < open.places.size(); ++i) {
    const ExpectedTensor& expected = load.manifest[open.places[i]];
    const FileTensor& tensor = open.content.tensors[i];
    RLK_ASSIGN_OR_RETURN(const auto upload,
                         store.Upload(principal, {.dtype = tensor.dtype,
                                                  .shape = tensor.shape,
                                                  .device_uuid = load.device_uuid,
                                                  .label = expected.key,
                                                  .lease_ms = load.lease_ms,
                                                  .synthetic = open.content.synthetic}));
    RLK_ASSIGN_OR_RETURN(loaded[open.places[i]],
                         LoadOne(load, open.file, expected, tensor, *upload));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TensorInfo>> LoadWeights(
    const WeightsLoad& load, const std::shared_ptr<const Principal>& principal,
    TensorStore& store) {
  RLK_ASSIGN_OR_RETURN(std::vector<OpenFile> files, OpenFiles(load));
  for (OpenFile& open : files) RLK_RETURN_IF_ERROR(CheckFile(load, open));
  std::vector<std::optional<TensorInfo>> loaded(load.manifest.size());
  absl::Status status;
  for (const OpenFile& open : files) {
    if (status.ok()) status = LoadFile(load, open, principal, store, loaded);
  }
  // Nobody would know of tensors whose caller has gone.
  if (status.ok()) status = GoOn(load);
  std::vector<TensorInfo> infos;
  for (std::optional<TensorInfo>& info : loaded) {
    if (!info) continue;
    if (!status.ok()) (void)store.Release(principal.get(), {&info->handle, 1});
    infos.push_back(*std::move(info));
  }
  if (!status.ok()) return status;
  return infos;
}

}  // namespace rlk::server
