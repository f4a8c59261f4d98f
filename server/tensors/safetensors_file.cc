#include "server/tensors/safetensors_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"
#include "server/engine/contract_check.h"

namespace rlk::server {
namespace {

using Json = nlohmann::json;

constexpr int64_t kHeaderBytesMax = int64_t{16} << 20;
constexpr int kNestingMax = 8;
constexpr size_t kLabelBytesMax = 128;
constexpr char kMetadata[] = "__metadata__";
constexpr char kSyntheticKey[] = "rlk.synthetic";

absl::Status CannotOpen(const std::string& path, const std::string& why) {
  return MakeError(absl::StatusCode::kNotFound,
                   {Reason::kFilesUnavailable, "path", path,
                    "a file under --weights-root, without symbolic links"},
                   "the file cannot be opened: " + why);
}

DType FromSafetensors(const std::string& name) {
  static constexpr std::pair<const char*, DType> kNames[] = {
      {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"F64", DType::kF64},
      {"I32", DType::kI32}, {"I64", DType::kI64}, {"U8", DType::kU8},     {"BOOL", DType::kBool}};
  for (const auto& [text, dtype] : kNames) {
    if (name == text) return dtype;
  }
  return DType::kUnspecified;
}

// Texts that nest deeper, or name a key twice, have no meaning here. A callback of the DOM's parser
// could tell the depth, but then that parser looks at every entry again for each new one.
class HeaderCheck final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& value) override { return open_.back().insert(value).second; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Open() {
    open_.emplace_back();
    return open_.size() <= static_cast<size_t>(kNestingMax);
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> open_;
};

absl::StatusOr<Json> ParseHeader(const std::string& path, const std::string& text) {
  HeaderCheck check;
  if (!Json::sax_parse(text, &check)) return NotSafetensors(path, "its header is no JSON object");
  Json header = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) {
    return NotSafetensors(path, "its header is no JSON object");
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

// Empty where the file says nothing of the kind; nothing where what it says makes no sense.
std::optional<std::string> SyntheticLabel(const Json& header) {
  const auto metadata = header.find(kMetadata);
  if (metadata == header.end()) return "";
  if (!metadata->is_object()) return std::nullopt;
  const auto label = metadata->find(kSyntheticKey);
  if (label == metadata->end()) return "";
  if (!label->is_string()) return std::nullopt;
  std::string text = label->get<std::string>();
  if (text.empty() || text.size() > kLabelBytesMax) return std::nullopt;
  return text;
}

}  // namespace

absl::Status NotSafetensors(const std::string& path, const std::string& why) {
  return InvalidArgument(Reason::kMalformedMessage, "path", path, "a safetensors file",
                         "the file is no safetensors file: " + why);
}

absl::Status FileMismatch(const std::string& path, const std::string& key, const std::string& part,
                          const std::string& found, const std::string& wanted) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kFileMismatch, "manifest[" + key + "]." + part, found, wanted},
                   path + " holds another tensor than the manifest says");
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& root,
                                                      const std::string& path) {
  if (path.find('\0') != std::string::npos) return CannotOpen(path, "its name has a NUL");
  const int folder = open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return CannotOpen(path, "--weights-root: " + std::string(strerror(errno)));
  open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const auto fd = static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how)));
  const int error = errno;
  close(folder);
  if (fd < 0) return CannotOpen(path, strerror(error));
  SafetensorsFile file(fd, path);
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return CannotOpen(path, "it is not a regular file");
  }
  file.size_ = info.st_size;
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_) {}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool SafetensorsFile::Read(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return true;
}

absl::StatusOr<FileContent> SafetensorsFile::Check(
    const std::vector<const ExpectedTensor*>& expected) const {
  uint64_t size = 0;
  if (!Read(0, std::as_writable_bytes(std::span(&size, 1)))) {
    return NotSafetensors(path_, "it ends in its first 8 bytes");
  }
  const int64_t size_max = std::min<int64_t>(kHeaderBytesMax, size_ - 8);
  if (size > static_cast<uint64_t>(size_max)) {
    return NotSafetensors(path_, "its header has " + std::to_string(size) + " bytes");
  }
  std::string text(size, '\0');
  if (!Read(8, std::as_writable_bytes(std::span(text)))) {
    return NotSafetensors(path_, "it ends in its header");
  }
  RLK_ASSIGN_OR_RETURN(const Json header, ParseHeader(path_, text));
  const std::optional<std::string> label = SyntheticLabel(header);
  if (!label) return NotSafetensors(path_, "its rlk.synthetic is no text of 1 to 128 bytes");
  FileContent content{.synthetic = *label, .tensors = {}};
  for (const ExpectedTensor* each : expected) {
    const auto found = header.find(each->key);
    if (found == header.end() || each->key == kMetadata) {
      return FileMismatch(path_, each->key, "key", "absent", "a tensor of the file");
    }
    const auto tensor = ParseEntry(*found, 8 + static_cast<int64_t>(size), size_);
    if (!tensor) {
      return NotSafetensors(path_, "the entry of " + each->key +
                                       " is malformed, or reaches past the end of the file");
    }
    RLK_RETURN_IF_ERROR(CheckTensor(*each, *tensor));
    content.tensors.push_back(*tensor);
  }
  return content;
}

absl::Status SafetensorsFile::CheckTensor(const ExpectedTensor& expected,
                                          const FileTensor& tensor) const {
  if (tensor.dtype != expected.dtype || DTypeSize(expected.dtype) == 0) {
    return FileMismatch(path_, expected.key, "dtype", std::string(DTypeName(tensor.dtype)),
                        std::string(DTypeName(expected.dtype)));
  }
  if (!(tensor.shape == expected.shape)) {
    return FileMismatch(path_, expected.key, "shape", ShapeText(tensor.shape),
                        ShapeText(expected.shape));
  }
  const std::optional<int64_t> elements = CheckedProduct(tensor.shape.span());
  const std::optional<int64_t> bytes =
      elements ? CheckedMul(*elements, DTypeSize(tensor.dtype)) : std::nullopt;
  if (bytes != tensor.end - tensor.begin) {
    return NotSafetensors(path_, "the offsets of " + expected.key + " are not those of its shape");
  }
  return absl::OkStatus();
}

}  // namespace rlk::server
