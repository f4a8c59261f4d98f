#include "client/cli/npy.h"

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "client/cli/file.h"
#include "client/cli/numbers.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr int64_t kHeaderBytesMax = int64_t{1} << 20;

struct DescrName {
  const char* descr;
  DType dtype;
};
// The first name of a type is the one written.
constexpr DescrName kDescrs[] = {
    {"<f4", DType::kF32},  {"<f2", DType::kF16},       {"<V2", DType::kBF16}, {"<f8", DType::kF64},
    {"<i4", DType::kI32},  {"<i8", DType::kI64},       {"|u1", DType::kU8},   {"|b1", DType::kBool},
    {"|V2", DType::kBF16}, {"bfloat16", DType::kBF16}, {"<u1", DType::kU8},   {"<b1", DType::kBool},
};

struct Header {
  DType dtype = DType::kUnspecified;
  std::vector<int64_t> shape;
  bool fortran_order = false;
  int64_t data_offset = 0;
};

// The header is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class HeaderParser {
 public:
  explicit HeaderParser(const std::string& text) : text_(text) {}

  // Empty, or what is wrong.
  std::string Parse(Header& header, std::string& descr) {
    std::optional<std::string> got_descr;
    std::optional<bool> got_order;
    std::optional<std::vector<int64_t>> got_shape;
    if (!Take('{')) return "the header is not a dictionary";
    while (!Take('}')) {
      const auto key = TakeString();
      if (!key || !Take(':')) return "a key of the header is malformed";
      if (*key == "descr" && !got_descr) {
        got_descr = TakeString();
        if (!got_descr) return "descr is not a plain type name";
      } else if (*key == "fortran_order" && !got_order) {
        got_order = TakeBool();
        if (!got_order) return "fortran_order is not True or False";
      } else if (*key == "shape" && !got_shape) {
        got_shape = TakeTuple();
        if (!got_shape) return "shape is not a tuple of sizes";
      } else {
        return "the header has the key '" + *key + "' twice or does not know it";
      }
      if (!Take(',') && Peek() != '}') return "the header is malformed";
    }
    SkipSpace();
    if (at_ != text_.size()) return "there is text behind the header";
    if (!got_descr || !got_order || !got_shape) return "descr, fortran_order or shape is missing";
    descr = *got_descr;
    header.fortran_order = *got_order;
    header.shape = *got_shape;
    return "";
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  std::optional<std::string> TakeString() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string::npos || end - at_ > 64) return std::nullopt;
    std::string value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }
  std::optional<bool> TakeBool() {
    SkipSpace();
    for (const bool value : {false, true}) {
      const std::string word = value ? "True" : "False";
      if (text_.compare(at_, word.size(), word) == 0) {
        at_ += word.size();
        return value;
      }
    }
    return std::nullopt;
  }
  std::optional<std::vector<int64_t>> TakeTuple() {
    if (!Take('(')) return std::nullopt;
    std::vector<int64_t> sizes;
    while (!Take(')')) {
      SkipSpace();
      const size_t begin = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      const auto size = ParseInteger<int64_t>(text_.substr(begin, at_ - begin));
      if (!size || sizes.size() > 64) return std::nullopt;
      sizes.push_back(*size);
      const bool comma = Take(',');
      // (3) is a number in Python, not a tuple.
      if (!comma && (Peek() != ')' || sizes.size() == 1)) return std::nullopt;
    }
    return sizes;
  }

  const std::string& text_;
  size_t at_ = 0;
};

absl::StatusOr<Header> ReadHeader(const InputFile& file) {
  const auto bad = [&file](const std::string& what) {
    return absl::InvalidArgumentError(file.path() + ": " + what);
  };
  std::array<std::byte, 12> start = {};
  if (file.size() < 10) return bad("too short for a .npy file");
  const int64_t start_bytes = std::min<int64_t>(file.size(), 12);
  RLK_RETURN_IF_ERROR(file.ReadAt(0, std::span(start).first(static_cast<size_t>(start_bytes))));
  if (std::memcmp(start.data(), kMagic, kMagicBytes) != 0) return bad("not a .npy file");
  const int version = std::to_integer<int>(start[6]);
  if (version < 1 || version > 3) {
    return bad("format version " + std::to_string(version) + "; allowed: 1, 2, 3");
  }
  const int length_bytes = version == 1 ? 2 : 4;
  int64_t length = 0;
  for (int i = length_bytes - 1; i >= 0; --i) {
    length = length * 256 + std::to_integer<int64_t>(start[static_cast<size_t>(8 + i)]);
  }
  Header header;
  header.data_offset = 8 + length_bytes + length;
  if (length > kHeaderBytesMax || header.data_offset > file.size()) {
    return bad("a header of " + std::to_string(length) + " bytes does not fit");
  }
  std::string text(static_cast<size_t>(length), '\0');
  RLK_RETURN_IF_ERROR(
      file.ReadAt(8 + length_bytes, std::as_writable_bytes(std::span(text.data(), text.size()))));
  std::string descr;
  if (const std::string what = HeaderParser(text).Parse(header, descr); !what.empty()) {
    return bad(what);
  }
  std::string allowed;
  for (const DescrName& known : kDescrs) {
    if (descr == known.descr) header.dtype = known.dtype;
    allowed += std::string(allowed.empty() ? "" : ", ") + known.descr;
  }
  if (header.dtype == DType::kUnspecified) {
    return bad("type " + descr + " is not supported; allowed: " + allowed);
  }
  if (header.shape.size() > kMaxRank) {
    return bad("rank " + std::to_string(header.shape.size()) + "; at most 8");
  }
  return header;
}

// Element i of C order comes from the place that Fortran order gives it.
void FromFortran(std::span<const std::byte> from, const Dims& shape, size_t element,
                 std::span<std::byte> to) {
  Dims index = shape, strides = shape;
  int64_t step = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    index[i] = 0;
    strides[i] = step;
    step *= shape[i];
  }
  int64_t source = 0;
  for (size_t done = 0; done < to.size(); done += element) {
    std::memcpy(to.data() + done, from.data() + static_cast<size_t>(source) * element, element);
    for (int i = shape.rank() - 1; i >= 0; --i) {
      source += strides[i];
      if (++index[i] < shape[i]) break;
      source -= strides[i] * shape[i];
      index[i] = 0;
    }
  }
}

}  // namespace

absl::StatusOr<client::Tensor> ReadNpy(const std::string& path) {
  RLK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  RLK_ASSIGN_OR_RETURN(const Header header, ReadHeader(file));
  const auto elements = CheckedProduct(header.shape);
  const auto bytes = elements ? CheckedMul(*elements, DTypeSize(header.dtype)) : std::nullopt;
  const int64_t available = file.size() - header.data_offset;
  if (!bytes || *bytes != available) {
    return absl::InvalidArgumentError(
        path + ": " + std::to_string(available) + " bytes of data, but the shape has " +
        (bytes ? std::to_string(*bytes) : std::string("more than 2^63")));
  }
  RLK_ASSIGN_OR_RETURN(client::Tensor tensor, client::Tensor::Allocate(header.dtype, header.shape));
  if (header.fortran_order && header.shape.size() > 1) {
    std::vector<std::byte> data(static_cast<size_t>(*bytes));
    RLK_RETURN_IF_ERROR(file.ReadAt(header.data_offset, data));
    FromFortran(data, tensor.shape(), static_cast<size_t>(DTypeSize(header.dtype)),
                tensor.mutable_bytes());
  } else {
    RLK_RETURN_IF_ERROR(file.ReadAt(header.data_offset, tensor.mutable_bytes()));
  }
  return tensor;
}

absl::Status WriteNpy(const std::string& path, const client::Tensor& tensor) {
  std::string descr;
  for (const DescrName& known : kDescrs) {
    if (descr.empty() && known.dtype == tensor.dtype()) descr = known.descr;
  }
  std::string shape;
  for (int64_t size : tensor.shape()) shape += std::to_string(size) + ", ";
  // One size keeps its comma: (3,) is a tuple, (3) is not.
  if (!shape.empty()) shape.erase(shape.size() - (tensor.shape().rank() > 1 ? 2 : 1));
  std::string text = "{'descr': '";
  text += descr;
  text += "', 'fortran_order': False, 'shape': (";
  text += shape;
  text += "), }";
  // The data starts at a multiple of 64.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text.push_back('\n');
  std::string header(kMagic, kMagicBytes);
  header += {1, 0, static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  header += text;
  return WriteFile(path, {std::as_bytes(std::span(header.data(), header.size())), tensor.bytes()});
}

}  // namespace rlk::cli
