// Tensor digest `xxh3-tree4k-v1`: 128 bits over the logical C-order little-endian bytes.
//
// Leaf i is XXH3_128 (seed 0, default secret) of bytes 4096 i .. min(n, 4096 (i + 1)), kept as its
// canonical 16 bytes. While a level has more than one node, node j of the next is XXH3_128 of
// nodes 256 j .. 256 j + 255 concatenated. The root is XXH3_128 of the preamble followed by the
// last node (by nothing if n = 0). Preamble: the ASCII id zero-padded to 16 bytes, the DataType
// number as u32, the rank as u32, the sizes as u64, all little-endian. Strides never enter.
// It detects differences; it is no proof against a dishonest server.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/parallel.h"
#include "kernels/core/tensor_view.h"

namespace rlk {

inline constexpr std::string_view kDigestId = "xxh3-tree4k-v1";
inline constexpr int64_t kDigestLeafBytes = 4096;
inline constexpr int64_t kDigestFanout = 256;

// Canonical (big-endian) bytes of the root.
struct Digest {
  std::array<uint8_t, 16> bytes = {};

  // "xxh3-tree4k-v1:" and 32 hex digits.
  std::string Text() const;
  friend bool operator==(const Digest&, const Digest&) = default;
};

// Digest of a tensor in host memory, contiguous or strided. `pool` may be null.
Digest ComputeDigest(const TensorView& tensor, ThreadPool* pool = nullptr);

// Digest of each row along the last dimension, as a tensor of shape [last dimension], in logical
// row order. A scalar has one row of shape [1].
std::vector<Digest> ComputeRowDigests(const TensorView& tensor, ThreadPool* pool = nullptr);

// The same digest over bytes that arrive in order.
class DigestStream {
 public:
  DigestStream(DType dtype, const Dims& shape);
  void Update(std::span<const std::byte> bytes);
  // After all bytes of the tensor.
  Digest Finish();

 private:
  void PushNode(const std::array<uint8_t, 16>& node, size_t level);

  DType dtype_;
  Dims shape_;
  std::vector<std::byte> leaf_;
  std::vector<std::vector<std::byte>> levels_;
};

// The preamble, and the root from the last node: shared with the device's digest.
std::vector<std::byte> DigestPreamble(DType dtype, const Dims& shape);
Digest DigestRoot(DType dtype, const Dims& shape, const std::array<uint8_t, 16>* last_node);

}  // namespace rlk
