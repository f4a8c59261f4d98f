#include "client/cli/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "client/cli/file.h"
#include "client/cli/strict_json.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kHeaderBytesMax = 100'000'000;
constexpr char kMetadata[] = "__metadata__";

// Dtypes of the format with the bytes of an element, to check the layout of entries of other types.
struct FormatDtype {
  const char* name;
  int64_t bytes;
  DType dtype;
};
constexpr FormatDtype kDtypes[] = {
    {"BOOL", 1, DType::kBool},
    {"U8", 1, DType::kU8},
    {"I8", 1, DType::kUnspecified},
    {"F8_E5M2", 1, DType::kUnspecified},
    {"F8_E4M3", 1, DType::kUnspecified},
    {"I16", 2, DType::kUnspecified},
    {"U16", 2, DType::kUnspecified},
    {"F16", 2, DType::kF16},
    {"BF16", 2, DType::kBF16},
    {"I32", 4, DType::kI32},
    {"U32", 4, DType::kUnspecified},
    {"F32", 4, DType::kF32},
    {"F64", 8, DType::kF64},
    {"I64", 8, DType::kI64},
    {"U64", 8, DType::kUnspecified},
};

bool IsMetadata(const Json& value) {
  return value.is_object() &&
         std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); });
}

// A size or an offset: an integer in [0, 2^63).
std::optional<int64_t> ToSize(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(number);
}

// Empty, or what is wrong with the entry.
std::string ParseEntry(const Json& value, int64_t data_begin, int64_t data_bytes,
                       SafetensorsEntry& entry) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return "it must have dtype, shape and data_offsets, and nothing else";
  }
  const Json& dtype = value["dtype"];
  const Json& shape = value["shape"];
  const Json& offsets = value["data_offsets"];
  if (!dtype.is_string()) return "dtype is not a string";
  entry.dtype_name = dtype.get<std::string>();
  const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const auto& d) { return entry.dtype_name == d.name; });
  if (known == std::end(kDtypes)) return "dtype " + entry.dtype_name + " is not known";
  entry.dtype = known->dtype;
  if (!shape.is_array() || shape.size() > kMaxRank) return "shape is not a list of at most 8 sizes";
  for (const Json& item : shape) {
    const auto size = ToSize(item);
    if (!size) return "a size is not an integer in [0, 2^63)";
    entry.shape.push_back(*size);
  }
  if (!offsets.is_array() || offsets.size() != 2) return "data_offsets is not [begin, end]";
  const auto begin = ToSize(offsets[0]);
  const auto end = ToSize(offsets[1]);
  if (!begin || !end || *begin > *end || *end > data_bytes) {
    return "data_offsets are out of range; the file has " + std::to_string(data_bytes) +
           " bytes of data";
  }
  const auto elements = CheckedProduct(entry.shape);
  const auto bytes = elements ? CheckedMul(*elements, known->bytes) : std::nullopt;
  if (!bytes || *bytes != *end - *begin) {
    return "data_offsets span " + std::to_string(*end - *begin) + " bytes, but the shape has " +
           (bytes ? std::to_string(*bytes) : std::string("more than 2^63"));
  }
  entry.begin = data_begin + *begin;
  entry.end = data_begin + *end;
  return "";
}

absl::StatusOr<std::vector<SafetensorsEntry>> List(const InputFile& file,
                                                   SafetensorsMetadata* metadata = nullptr) {
  const auto bad = [&file](const std::string& what) {
    return absl::InvalidArgumentError(file.path() + ": " + what);
  };
  std::array<std::byte, kLengthBytes> length_bytes;
  if (file.size() < kLengthBytes) return bad("too short for a safetensors file");
  RLK_RETURN_IF_ERROR(file.ReadAt(0, length_bytes));
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) {
    length = length << 8 | std::to_integer<uint64_t>(length_bytes[static_cast<size_t>(i)]);
  }
  if (length > static_cast<uint64_t>(kHeaderBytesMax) ||
      static_cast<int64_t>(length) > file.size() - kLengthBytes) {
    return bad("a header of " + std::to_string(length) + " bytes is not possible; at most " +
               std::to_string(std::min(kHeaderBytesMax, file.size() - kLengthBytes)));
  }
  std::string text(length, '\0');
  RLK_RETURN_IF_ERROR(
      file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(text.data(), text.size()))));
  std::string what;
  if (text.empty() || text[0] != '{') return bad("the header does not begin with {");
  const std::optional<Json> json = ParseStrict(text, what);
  if (!json) return bad("the header is refused: " + what);

  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [key, value] : json->items()) {
    if (key == kMetadata) {
      if (!IsMetadata(value)) return bad("__metadata__ is not an object of strings");
      if (metadata != nullptr) *metadata = value.get<SafetensorsMetadata>();
      continue;
    }
    SafetensorsEntry entry;
    entry.key = key;
    what = ParseEntry(value, data_begin, file.size() - data_begin, entry);
    if (!what.empty()) return bad("tensor " + key + ": " + what);
    entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered) {
      return bad("tensor " + entry.key +
                 (entry.begin < covered ? ": its bytes overlap another tensor's"
                                        : ": there is a hole before its bytes"));
    }
    covered = entry.end;
  }
  if (covered != file.size()) return bad("there are bytes behind the last tensor");
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<SafetensorsEntry>> ListSafetensors(const std::string& path,
                                                              SafetensorsMetadata* metadata) {
  RLK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  return List(file, metadata);
}

absl::StatusOr<client::Tensor> ReadSafetensors(const std::string& path, const std::string& key) {
  RLK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  RLK_ASSIGN_OR_RETURN(const std::vector<SafetensorsEntry> entries, List(file));
  std::string keys;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.key == key) {
      if (entry.dtype == DType::kUnspecified) {
        return absl::InvalidArgumentError(path + ": tensor " + key + " has dtype " +
                                          entry.dtype_name + ", which rlk does not have");
      }
      RLK_ASSIGN_OR_RETURN(client::Tensor tensor,
                           client::Tensor::Allocate(entry.dtype, entry.shape));
      RLK_RETURN_IF_ERROR(file.ReadAt(entry.begin, tensor.mutable_bytes()));
      return tensor;
    }
    if (keys.size() < 1024) keys += (keys.empty() ? "" : ", ") + entry.key;
  }
  return absl::NotFoundError(path + ": there is no tensor " + key +
                             "; the keys are: " + (keys.empty() ? "none" : keys));
}

absl::Status WriteSafetensors(
    const std::string& path,
    const std::vector<std::pair<std::string, const client::Tensor*>>& tensors,
    const SafetensorsMetadata& metadata) {
  auto sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const int64_t size_a = DTypeSize(a.second->dtype()), size_b = DTypeSize(b.second->dtype());
    return size_a != size_b ? size_a > size_b : a.first < b.first;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::vector<std::span<const std::byte>> pieces(1);
  int64_t offset = 0;
  for (const auto& [name, tensor] : sorted) {
    if (header.contains(name) || name == kMetadata) {
      return absl::InvalidArgumentError(path + ": the name " + name + " cannot be used (again)");
    }
    const auto size = static_cast<int64_t>(tensor->bytes().size());
    header[name] = {{"dtype", std::string(DTypeName(tensor->dtype()))},
                    {"shape", std::vector<int64_t>(tensor->shape().begin(), tensor->shape().end())},
                    {"data_offsets", {offset, offset + size}}};
    offset += size;
    pieces.push_back(tensor->bytes());
  }
  std::string text = header.dump();
  // The data starts at a multiple of 8.
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string start;
  for (int i = 0; i < kLengthBytes; ++i) {
    start.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  }
  start += text;
  pieces[0] = std::as_bytes(std::span(start.data(), start.size()));
  return WriteFile(path, pieces);
}

}  // namespace rlk::cli
