#include "server/parity/digests.h"

#include <algorithm>
#include <utility>

#include "kernels/compare/compare.h"
#include "kernels/core/status.h"
#include "server/engine/host_memory.h"

namespace rlk::server {
namespace {

// Between two looks at the clock.
constexpr int64_t kSliceBytes = int64_t{16} << 20;

// Reads the tensor in slices, which `change` may alter.
template <typename Change>
absl::StatusOr<Digest> DigestSlices(const ParityTensor& tensor, const Interrupt& interrupt,
                                    const Change& change) {
  RLK_ASSIGN_OR_RETURN(TensorReader reader, TensorReader::Make(tensor));
  const int64_t step = kSliceBytes / DTypeSize(tensor.dtype);
  DigestStream stream(tensor.dtype, tensor.shape);
  for (int64_t begin = 0; begin < tensor.elements(); begin += step) {
    RLK_RETURN_IF_ERROR(interrupt.Check());
    const int64_t count = std::min(step, tensor.elements() - begin);
    RLK_ASSIGN_OR_RETURN(const HostBytes bytes, reader.Read(begin, count));
    change(bytes, count, stream);
  }
  return stream.Finish();
}

}  // namespace

std::optional<Digest> ParseDigest(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (!text.starts_with(kDigestId)) return std::nullopt;
  text.remove_prefix(kDigestId.size());
  Digest digest;
  if (text.size() != 1 + 2 * digest.bytes.size() || text[0] != ':') return std::nullopt;
  for (size_t i = 0; i < digest.bytes.size(); ++i) {
    const size_t high = kHex.find(text[1 + 2 * i]), low = kHex.find(text[2 + 2 * i]);
    if (high == kHex.npos || low == kHex.npos) return std::nullopt;
    digest.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return digest;
}

absl::StatusOr<Digest> DigestOf(const ParityTensor& tensor, const Interrupt& interrupt) {
  if (tensor.digest) return *tensor.digest;
  RLK_RETURN_IF_ERROR(interrupt.Check());
  if (!tensor.on_host() && tensor.device->inspector() != nullptr && tensor.elements() > 0) {
    return tensor.device->inspector()->ComputeDigest(tensor.view());
  }
  return DigestSlices(tensor, interrupt, [](const HostBytes& bytes, int64_t, DigestStream& stream) {
    for (const auto& piece : bytes.pieces) stream.Update(piece);
  });
}

absl::StatusOr<Digest> CanonicalNanDigestOf(const ParityTensor& tensor,
                                            const Interrupt& interrupt) {
  std::vector<std::byte> slice;
  return DigestSlices(tensor, interrupt,
                      [&](const HostBytes& bytes, int64_t count, DigestStream& stream) {
                        slice.resize(static_cast<size_t>(bytes.size));
                        Gather(bytes, slice.data());
                        compare::CanonicalizeNan(tensor.dtype, slice.data(), count);
                        stream.Update(slice);
                      });
}

absl::StatusOr<std::vector<Digest>> RowDigestsOf(const ParityTensor& tensor, int64_t first,
                                                 int64_t count, const Interrupt& interrupt) {
  const int64_t columns = tensor.columns();
  if (columns == 0) {
    const Digest empty = DigestRoot(tensor.dtype, Dims{0}, nullptr);
    return std::vector<Digest>(static_cast<size_t>(count), empty);
  }
  if (!tensor.on_host() && tensor.device->inspector() != nullptr && count > 0) {
    RLK_RETURN_IF_ERROR(interrupt.Check());
    TensorView rows = tensor.view();
    rows.shape = Dims{count, columns};
    rows.strides = ContiguousStrides(rows.shape);
    rows.data = rows.as<std::byte>() + first * columns * DTypeSize(tensor.dtype);
    return tensor.device->inspector()->ComputeRowDigests(rows);
  }
  RLK_ASSIGN_OR_RETURN(TensorReader reader, TensorReader::Make(tensor));
  const int64_t row_bytes = columns * DTypeSize(tensor.dtype);
  const int64_t step = std::max<int64_t>(kSliceBytes / row_bytes, 1);
  std::vector<Digest> digests;
  for (int64_t begin = 0; begin < count; begin += step) {
    RLK_RETURN_IF_ERROR(interrupt.Check());
    const int64_t rows = std::min(step, count - begin);
    RLK_ASSIGN_OR_RETURN(const HostBytes bytes,
                         reader.Read((first + begin) * columns, rows * columns));
    const Contiguous block = MakeContiguous(bytes, DTypeSize(tensor.dtype));
    if (block.data == nullptr) return HostMemoryError(bytes.size);
    const Dims shape = {rows, columns};
    const auto some =
        ComputeRowDigests({tensor.dtype, shape, ContiguousStrides(shape), block.data});
    digests.insert(digests.end(), some.begin(), some.end());
  }
  return digests;
}

}  // namespace rlk::server
