#include "client/cli/random.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include "client/cli/elements.h"
#include "client/cli/numbers.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr char kPrefix[] = "random:";
constexpr int64_t kBytesMax = int64_t{4} << 30;

absl::Status Bad(const char* part, const std::string& value, const std::string& allowed) {
  return InvalidArgument(Reason::kUnknownOption, part, value, allowed,
                         "not a part of random:SHAPE:DTYPE:SEED[:SCALE]");
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& text) {
  std::vector<int64_t> shape;
  if (text == "scalar") return shape;
  for (const std::string& part : Split(text, 'x')) {
    const auto size = ParseInteger<int64_t>(part);
    if (!size || *size < 0) return Bad("SHAPE", text, "scalar, or sizes as in 2x3x257");
    shape.push_back(*size);
  }
  if (shape.size() > kMaxRank) {
    return Bad("SHAPE", text, "at most " + std::to_string(kMaxRank) + " sizes");
  }
  return shape;
}

template <typename T, typename Element>
void Fill(client::Tensor& tensor, uint64_t seed, const Element& element) {
  uint64_t i = 0;
  for (T& value : tensor.mutable_as<T>()) value = element(RandomBits(seed, i++));
}

absl::Status FillFloat(client::Tensor& tensor, uint64_t seed, const std::string* text) {
  const std::optional<double> parsed = text == nullptr ? 1.0 : ParseNumber(*text);
  if (!parsed || !std::isfinite(*parsed)) return Bad("SCALE", *text, "a finite number");
  const double scale = *parsed;
  const auto single = [scale](uint64_t z) { return static_cast<float>(NearlyNormal(z) * scale); };
  switch (tensor.dtype()) {
    case DType::kF64:
      Fill<double>(tensor, seed, [scale](uint64_t z) { return NearlyNormal(z) * scale; });
      break;
    case DType::kF32:
      Fill<float>(tensor, seed, single);
      break;
    case DType::kBF16:
      Fill<uint16_t>(tensor, seed, [&](uint64_t z) { return ToBf16(single(z)); });
      break;
    default:
      Fill<uint16_t>(tensor, seed, [&](uint64_t z) { return ToF16(single(z)); });
  }
  return absl::OkStatus();
}

absl::Status FillInteger(client::Tensor& tensor, uint64_t seed, const std::string* text) {
  const bool wide = tensor.dtype() == DType::kI64;
  const uint64_t scale_max = wide ? uint64_t{1} << 63 : uint64_t{1} << 31;
  const auto scale = text == nullptr ? std::optional<uint64_t>(256) : ParseInteger<uint64_t>(*text);
  if (!scale || *scale < 1 || *scale > scale_max) {
    return Bad("SCALE", *text, "an integer in [1, " + std::to_string(scale_max) + "]");
  }
  const uint64_t modulus = *scale;
  if (wide) {
    Fill<int64_t>(tensor, seed, [=](uint64_t z) { return static_cast<int64_t>(z % modulus); });
  } else {
    Fill<int32_t>(tensor, seed, [=](uint64_t z) { return static_cast<int32_t>(z % modulus); });
  }
  return absl::OkStatus();
}

}  // namespace

bool IsRandomSpec(const std::string& text) { return text.rfind(kPrefix, 0) == 0; }

absl::StatusOr<client::Tensor> MakeRandom(const std::string& spec) {
  const std::vector<std::string> parts = Split(spec, ':');
  if (parts.size() < 4 || parts.size() > 5 || parts[0] != "random") {
    return Bad("VALUE", spec, "e.g. random:2x3x257:bf16:7:30 or random:scalar:f32:1");
  }
  RLK_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, ParseShape(parts[1]));
  const DType dtype = DTypeFromText(parts[2]);
  if (dtype == DType::kUnspecified) return Bad("DTYPE", parts[2], DTypeNames());
  const auto seed = ParseInteger<uint64_t>(parts[3]);
  if (!seed) return Bad("SEED", parts[3], "an integer in [0, 2^64)");
  const std::string* scale = parts.size() == 5 ? &parts[4] : nullptr;
  const auto elements = CheckedProduct(shape);
  const auto bytes = elements ? CheckedMul(*elements, DTypeSize(dtype)) : std::nullopt;
  if (!bytes || *bytes > kBytesMax) {
    return Bad("SHAPE", parts[1], "at most " + std::to_string(kBytesMax) + " bytes");
  }
  RLK_ASSIGN_OR_RETURN(client::Tensor tensor, client::Tensor::Allocate(dtype, shape));
  switch (dtype) {
    case DType::kI32:
    case DType::kI64:
      RLK_RETURN_IF_ERROR(FillInteger(tensor, *seed, scale));
      break;
    case DType::kU8:
    case DType::kBool: {
      if (scale != nullptr) return Bad("SCALE", *scale, "none for u8 and bool");
      const uint64_t mask = dtype == DType::kU8 ? 255 : 1;
      Fill<uint8_t>(tensor, *seed, [=](uint64_t z) { return static_cast<uint8_t>(z & mask); });
      break;
    }
    default:
      RLK_RETURN_IF_ERROR(FillFloat(tensor, *seed, scale));
  }
  return tensor;
}

}  // namespace rlk::cli
