#include "server/tensors/weights_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"
#include "server/engine/contract_check.h"
#include "server/sessions/random_id.h"

namespace rlk::server {
namespace {

using Json = nlohmann::json;

constexpr int64_t kHeaderBytesMax = int64_t{16} << 20;
constexpr int kNestingMax = 8;
constexpr size_t kReadBytes = size_t{1} << 20;

absl::Status CannotOpen(const std::string& path, const std::string& why) {
  return MakeError(absl::StatusCode::kNotFound,
                   {Reason::kFilesUnavailable, "path", path,
                    "a file under --weights-root, without symbolic links"},
                   "the file cannot be opened: " + why);
}

absl::Status NoSafetensors(const std::string& path, const std::string& why) {
  return InvalidArgument(Reason::kMalformedMessage, "path", path, "a safetensors file",
                         "the file is no safetensors file: " + why);
}

absl::Status Mismatch(const ExpectedTensor& expected, const std::string& part,
                      const std::string& found, const std::string& wanted) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kFileMismatch, "manifest[" + expected.key + "]." + part, found, wanted},
                   "the file holds another tensor than the manifest says");
}

// An open descriptor.
class File {
 public:
  static absl::StatusOr<File> Open(const std::string& root, const std::string& path) {
    const int folder = open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return CannotOpen(path, "--weights-root: " + std::string(strerror(errno)));
    open_how how = {};
    how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    const auto fd = static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how)));
    const int error = errno;
    close(folder);
    if (fd < 0) return CannotOpen(path, strerror(error));
    File file(fd);
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      return CannotOpen(path, "it is not a regular file");
    }
    file.size_ = info.st_size;
    return file;
  }
  File(File&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  int64_t size() const { return size_; }
  // False where the file ends before, or cannot be read.
  bool Read(int64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const ssize_t got = pread(descriptor_, out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      out = out.subspan(static_cast<size_t>(got));
      offset += got;
    }
    return true;
  }

 private:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
  int64_t size_ = 0;
};

struct FileTensor {
  DType dtype = DType::kUnspecified;
  Dims shape;
  int64_t begin = 0, end = 0;  // in the file
};

DType FromSafetensors(const std::string& name) {
  static constexpr std::pair<const char*, DType> kNames[] = {
      {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"F64", DType::kF64},
      {"I32", DType::kI32}, {"I64", DType::kI64}, {"U8", DType::kU8},     {"BOOL", DType::kBool}};
  for (const auto& [text, dtype] : kNames) {
    if (name == text) return dtype;
  }
  return DType::kUnspecified;
}

// Texts that nest deeper, or name a key twice, have no meaning here.
absl::StatusOr<Json> ParseHeader(const std::string& path, const std::string& text) {
  bool deep = false;
  const auto look = [&deep](int depth, Json::parse_event_t, Json&) {
    deep = deep || depth > kNestingMax;
    return !deep;
  };
  Json header = Json::parse(text, look, /*allow_exceptions=*/false);
  if (deep || header.is_discarded() || !header.is_object()) {
    return NoSafetensors(path, "its header is no JSON object");
  }
  return header;
}

std::optional<FileTensor> ParseEntry(const Json& entry, int64_t data_begin, int64_t file_size) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() ||
      entry["shape"].size() > static_cast<size_t>(kMaxRank) || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return std::nullopt;
  }
  FileTensor tensor;
  tensor.dtype = FromSafetensors(entry["dtype"].get<std::string>());
  for (const Json& size : entry["shape"]) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) return std::nullopt;
    tensor.shape.push_back(size.get<int64_t>());
  }
  int64_t ends[2];
  for (size_t i = 0; i < 2; ++i) {
    const Json& offset = entry["data_offsets"][i];
    if (!offset.is_number_unsigned()) return std::nullopt;
    if (offset.get<uint64_t>() > static_cast<uint64_t>(file_size - data_begin)) return std::nullopt;
    ends[i] = offset.get<int64_t>();
  }
  if (ends[0] > ends[1]) return std::nullopt;
  tensor.begin = data_begin + ends[0];
  tensor.end = data_begin + ends[1];
  return tensor;
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

class Loader {
 public:
  Loader(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  absl::Status ReadHeader() {
    uint64_t size = 0;
    if (!file_.Read(0, std::as_writable_bytes(std::span(&size, 1)))) {
      return NoSafetensors(path_, "it ends in its first 8 bytes");
    }
    const int64_t size_max = std::min<int64_t>(kHeaderBytesMax, file_.size() - 8);
    if (size > static_cast<uint64_t>(size_max)) {
      return NoSafetensors(path_, "its header has " + std::to_string(size) + " bytes");
    }
    std::string text(size, '\0');
    if (!file_.Read(8, std::as_writable_bytes(std::span(text)))) {
      return NoSafetensors(path_, "it ends in its header");
    }
    RLK_ASSIGN_OR_RETURN(header_, ParseHeader(path_, text));
    data_begin_ = 8 + static_cast<int64_t>(size);
    return absl::OkStatus();
  }

  // What the file says of the tensor is what the manifest says.
  absl::StatusOr<FileTensor> Check(const ExpectedTensor& expected) const {
    const auto found = header_.find(expected.key);
    if (found == header_.end() || expected.key == "__metadata__") {
      return Mismatch(expected, "key", "absent", "a tensor of the file");
    }
    const std::optional<FileTensor> tensor = ParseEntry(*found, data_begin_, file_.size());
    if (!tensor) return NoSafetensors(path_, "the entry of a tensor is malformed");
    if (tensor->dtype != expected.dtype || DTypeSize(expected.dtype) == 0) {
      return Mismatch(expected, "dtype", std::string(DTypeName(tensor->dtype)),
                      std::string(DTypeName(expected.dtype)));
    }
    if (!(tensor->shape == expected.shape)) {
      return Mismatch(expected, "shape", ShapeText(tensor->shape), ShapeText(expected.shape));
    }
    const std::optional<int64_t> elements = CheckedProduct(tensor->shape.span());
    const std::optional<int64_t> bytes =
        elements ? CheckedMul(*elements, DTypeSize(tensor->dtype)) : std::nullopt;
    if (bytes != tensor->end - tensor->begin) {
      return NoSafetensors(path_, "a tensor's offsets are not those of its shape");
    }
    return *tensor;
  }

  absl::StatusOr<TensorInfo> Load(const ExpectedTensor& expected, const FileTensor& tensor,
                                  TensorUpload& upload) {
    Sha256 sha256;
    buffer_.resize(kReadBytes);
    for (int64_t at = tensor.begin; at < tensor.end;) {
      const std::span<std::byte> part(buffer_.data(),
                                      std::min(kReadBytes, static_cast<size_t>(tensor.end - at)));
      if (!file_.Read(at, part)) return NoSafetensors(path_, "it ends in a tensor");
      sha256.Update(part);
      const std::span<const std::byte> piece = part;
      RLK_RETURN_IF_ERROR(upload.Write({&piece, 1}));
      at += static_cast<int64_t>(part.size());
    }
    if (const std::string hex = sha256.Hex(); hex.empty() || hex != expected.sha256) {
      return Mismatch(expected, "sha256", hex, expected.sha256);
    }
    return upload.Finish(std::nullopt);
  }

 private:
  File file_;
  const std::string path_;
  Json header_;
  int64_t data_begin_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

absl::StatusOr<std::vector<TensorInfo>> LoadWeights(
    const std::string& root, const std::string& path, const std::vector<ExpectedTensor>& manifest,
    const std::string& device_uuid, int64_t lease_ms,
    const std::shared_ptr<const Principal>& principal, TensorStore& store) {
  RLK_ASSIGN_OR_RETURN(File file, File::Open(root, path));
  Loader loader(std::move(file), path);
  RLK_RETURN_IF_ERROR(loader.ReadHeader());
  std::vector<FileTensor> tensors;
  for (const ExpectedTensor& expected : manifest) {
    RLK_ASSIGN_OR_RETURN(FileTensor tensor, loader.Check(expected));
    tensors.push_back(tensor);
  }
  std::vector<TensorInfo> loaded;
  absl::Status status;
  for (size_t i = 0; i < manifest.size() && status.ok(); ++i) {
    const NewTensor wanted{.dtype = tensors[i].dtype,
                           .shape = tensors[i].shape,
                           .device_uuid = device_uuid,
                           .label = manifest[i].key,
                           .lease_ms = lease_ms};
    absl::StatusOr<std::unique_ptr<TensorUpload>> upload = store.Upload(principal, wanted);
    status = upload.status();
    if (!status.ok()) break;
    absl::StatusOr<TensorInfo> info = loader.Load(manifest[i], tensors[i], **upload);
    status = info.status();
    if (status.ok()) loaded.push_back(*std::move(info));
  }
  if (status.ok()) return loaded;
  for (const TensorInfo& info : loaded) {
    (void)store.Release(principal.get(), {&info.handle, 1});
  }
  return status;
}

}  // namespace rlk::server
