#include "client/cli/value.h"

#include <vector>

#include "client/cli/elements.h"
#include "client/cli/npy.h"
#include "client/cli/numbers.h"
#include "client/cli/random.h"
#include "client/cli/safetensors.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr char kTensorForms[] =
    "file.npy, file.safetensors#key, random:SHAPE:DTYPE:SEED[:SCALE], or a number";

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

absl::StatusOr<client::Tensor> LoadSafetensors(const std::string& path, const std::string& key) {
  if (!key.empty()) return ReadSafetensors(path, key);
  RLK_ASSIGN_OR_RETURN(const auto entries, ListSafetensors(path));
  if (entries.size() == 1) return ReadSafetensors(path, entries[0].key);
  std::vector<std::string> keys;
  for (const SafetensorsEntry& entry : entries) keys.push_back(entry.key);
  return InvalidArgument(
      Reason::kUnknownOption, "VALUE", path, client::JoinNames(keys),
      "the file has " + std::to_string(entries.size()) + " tensors; name one as FILE#KEY");
}

absl::Status BadAttribute(const AttributeSpec& spec, const std::string& text,
                          const std::string& allowed) {
  return InvalidArgument(Reason::kAttributeOutOfRange, spec.name, text, allowed,
                         "the value cannot be read");
}

}  // namespace

absl::StatusOr<std::pair<std::string, std::string>> SplitNameValue(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidArgument(Reason::kUnknownOption, "NAME=VALUE", argument, "e.g. softcap=20",
                           "the argument is not NAME=VALUE");
  }
  return std::pair(argument.substr(0, equals), argument.substr(equals + 1));
}

absl::StatusOr<client::Tensor> LoadTensor(const std::string& text) {
  if (IsRandomSpec(text)) return MakeRandom(text);
  const size_t hash = text.rfind('#');
  const std::string path = text.substr(0, hash);
  if (EndsWith(path, ".safetensors")) {
    return LoadSafetensors(path, hash == std::string::npos ? "" : text.substr(hash + 1));
  }
  if (EndsWith(text, ".npy")) return ReadNpy(text);
  if (const auto number = ParseNumber(text)) {
    RLK_ASSIGN_OR_RETURN(client::Tensor tensor, client::Tensor::Allocate(DType::kF32, {}));
    tensor.mutable_as<float>()[0] = static_cast<float>(*number);
    return tensor;
  }
  return InvalidArgument(Reason::kUnknownOption, "VALUE", text, kTensorForms,
                         "the value is not a tensor");
}

namespace {

constexpr char kHandlePrefix[] = "handle:";
constexpr size_t kHandleBytes = 16;

}  // namespace

bool IsHandle(const std::string& text) { return text.rfind(kHandlePrefix, 0) == 0; }

absl::StatusOr<rlk::v1::TensorHandle> ParseHandle(const std::string& text) {
  const auto bad = [&text] {
    return InvalidArgument(Reason::kUnknownOption, "HANDLE", text,
                           "handle: and 32 hex digits, perhaps @GENERATION",
                           "the handle cannot be read");
  };
  std::string hex = IsHandle(text) ? text.substr(sizeof(kHandlePrefix) - 1) : text;
  rlk::v1::TensorHandle handle;
  if (const size_t at = hex.find('@'); at != std::string::npos) {
    const auto generation = ParseInteger<uint64_t>(hex.substr(at + 1));
    if (!generation) return bad();
    handle.set_generation(*generation);
    hex.resize(at);
  }
  if (hex.size() != 2 * kHandleBytes) return bad();
  for (size_t i = 0; i < kHandleBytes; ++i) {
    unsigned value = 0;
    const char* const begin = hex.data() + 2 * i;
    const auto read = std::from_chars(begin, begin + 2, value, 16);
    if (read.ec != std::errc() || read.ptr != begin + 2) return bad();
    handle.mutable_id()->push_back(static_cast<char>(value));
  }
  return handle;
}

std::string HandleText(const rlk::v1::TensorHandle& handle) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = kHandlePrefix;
  for (const char c : handle.id()) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

absl::StatusOr<client::Attribute> ParseAttribute(const AttributeSpec& spec,
                                                 const std::string& text) {
  switch (spec.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      if (const auto number = ParseNumber(text)) return client::Attribute(*number);
      return BadAttribute(spec, text, "a number that FP64 can hold");
    case AttributeKind::kI64:
      if (const auto integer = ParseInteger<int64_t>(text)) return client::Attribute(*integer);
      return BadAttribute(spec, text, "an integer in [-2^63, 2^63)");
    case AttributeKind::kBool:
      if (text == "true" || text == "1") return client::Attribute(true);
      if (text == "false" || text == "0") return client::Attribute(false);
      return BadAttribute(spec, text, "true, false");
    case AttributeKind::kDType: {
      const DType dtype = DTypeFromText(text);
      if (dtype != DType::kUnspecified) return client::Attribute(dtype);
      return BadAttribute(spec, text, DTypeNames());
    }
    case AttributeKind::kEnum: {
      std::vector<std::string> names;
      for (const auto& [number, name] : spec.enumerators) {
        if (name == LowerCase(text)) return client::Attribute(name);
        names.push_back(name);
      }
      return BadAttribute(spec, text, client::JoinNames(names));
    }
  }
  return BadAttribute(spec, text, "an attribute of a known kind");
}

}  // namespace rlk::cli
