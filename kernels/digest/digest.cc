#include "kernels/digest/digest.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernels/core/cpu_features.h"
#include "kernels/core/strided.h"
#include "kernels/digest/leaf_hash.h"

namespace rlk {
namespace {

constexpr int64_t kNodeBytes = 16;
// Leaves that one step of the thread pool takes: a whole node of the second level.
constexpr int64_t kGrainLeaves = kDigestFanout;
// The hardware stops its prefetch at the end of a page, which is a leaf: leaves further on are
// asked for by hand. Worth a third of the speed over memory that is not in the cache.
constexpr int64_t kPrefetchLeaves = 2;
constexpr int64_t kCacheLineBytes = 64;

void PrefetchLeaf(const std::byte* leaf) {
  for (int64_t i = 0; i < kDigestLeafBytes; i += kCacheLineBytes) {
    __builtin_prefetch(leaf + i, /*rw=*/0, /*locality=*/2);
  }
}

void HashBytes(const void* data, int64_t bytes, uint8_t* node) {
  static const LeafHashFn hash = BestIsa() >= Isa::kV3 ? &LeafHashV3 : &LeafHashBase;
  hash(data, static_cast<size_t>(bytes), node);
}

template <typename T>
void AppendLittleEndian(T value, std::vector<std::byte>& out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<std::byte>((static_cast<uint64_t>(value) >> (8 * i)) & 0xff));
  }
}

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Reduces a level of nodes in place until one is left.
HashNode ReduceLevels(std::vector<uint8_t>& nodes) {
  int64_t count = static_cast<int64_t>(nodes.size()) / kNodeBytes;
  while (count > 1) {
    const int64_t parents = DivideUp(count, kDigestFanout);
    for (int64_t j = 0; j < parents; ++j) {
      const int64_t first = j * kDigestFanout;
      const int64_t children = std::min(kDigestFanout, count - first);
      // The parent's place lies at or before its children, which are read first.
      HashNode parent;
      HashBytes(nodes.data() + first * kNodeBytes, children * kNodeBytes, parent.data());
      memcpy(nodes.data() + j * kNodeBytes, parent.data(), parent.size());
    }
    count = parents;
  }
  HashNode root;
  memcpy(root.data(), nodes.data(), root.size());
  return root;
}

Digest DigestContiguous(DType dtype, const Dims& shape, const std::byte* data, int64_t bytes,
                        ThreadPool* pool) {
  if (bytes == 0) return DigestRoot(dtype, shape, nullptr);
  const int64_t leaves = DivideUp(bytes, kDigestLeafBytes);
  HashNode last;
  if (leaves == 1) {
    HashBytes(data, bytes, last.data());
    return DigestRoot(dtype, shape, &last);
  }
  std::vector<uint8_t> nodes(static_cast<size_t>(leaves * kNodeBytes));
  const auto hash_range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t offset = i * kDigestLeafBytes;
      if (i + kPrefetchLeaves + 1 < leaves) {
        PrefetchLeaf(data + offset + kPrefetchLeaves * kDigestLeafBytes);
      }
      HashBytes(data + offset, std::min(kDigestLeafBytes, bytes - offset),
                nodes.data() + i * kNodeBytes);
    }
  };
  if (pool != nullptr) {
    pool->ParallelFor(leaves, kGrainLeaves, hash_range);
  } else {
    hash_range(0, leaves);
  }
  last = ReduceLevels(nodes);
  return DigestRoot(dtype, shape, &last);
}

}  // namespace

std::string Digest::Text() const {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text(kDigestId);
  text.push_back(':');
  for (uint8_t byte : bytes) {
    text.push_back(kHex[byte >> 4]);
    text.push_back(kHex[byte & 15]);
  }
  return text;
}

std::vector<std::byte> DigestPreamble(DType dtype, const Dims& shape) {
  std::vector<std::byte> preamble;
  for (char c : kDigestId) preamble.push_back(static_cast<std::byte>(c));
  preamble.resize(16);
  AppendLittleEndian(static_cast<uint32_t>(dtype), preamble);
  AppendLittleEndian(static_cast<uint32_t>(shape.rank()), preamble);
  for (int64_t size : shape) AppendLittleEndian(static_cast<uint64_t>(size), preamble);
  return preamble;
}

Digest DigestRoot(DType dtype, const Dims& shape, const std::array<uint8_t, 16>* last_node) {
  std::vector<std::byte> bytes = DigestPreamble(dtype, shape);
  if (last_node != nullptr) {
    for (uint8_t byte : *last_node) bytes.push_back(static_cast<std::byte>(byte));
  }
  Digest digest;
  HashBytes(bytes.data(), std::ssize(bytes), digest.bytes.data());
  return digest;
}

Digest ComputeDigest(const TensorView& tensor, ThreadPool* pool) {
  if (tensor.contiguous()) {
    return DigestContiguous(tensor.dtype, tensor.shape, tensor.as<std::byte>(), tensor.bytes(),
                            pool);
  }
  DigestStream stream(tensor.dtype, tensor.shape);
  const int64_t size = DTypeSize(tensor.dtype);
  const int64_t count = tensor.elements();
  const int64_t step = kDigestLeafBytes / size;
  std::array<std::byte, kDigestLeafBytes> leaf;
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t elements = std::min(step, count - begin);
    GatherElements(tensor, begin, elements, leaf.data());
    stream.Update({leaf.data(), static_cast<size_t>(elements * size)});
  }
  return stream.Finish();
}

std::vector<Digest> ComputeRowDigests(const TensorView& tensor, ThreadPool* pool) {
  const int rank = tensor.shape.rank();
  const int64_t last = rank == 0 ? 1 : tensor.shape[rank - 1];
  int64_t rows = 1;
  for (int d = 0; d + 1 < rank; ++d) rows *= tensor.shape[d];
  std::vector<Digest> digests(static_cast<size_t>(rows));
  const auto digest_range = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t offset = 0, rest = row;
      for (int d = rank - 2; d >= 0; --d) {
        offset += rest % tensor.shape[d] * tensor.strides[d];
        rest /= tensor.shape[d];
      }
      TensorView view;
      view.dtype = tensor.dtype;
      view.shape = Dims{last};
      view.strides = Dims{rank == 0 ? 1 : tensor.strides[rank - 1]};
      view.data = tensor.as<std::byte>() + offset * DTypeSize(tensor.dtype);
      digests[static_cast<size_t>(row)] = ComputeDigest(view, nullptr);
    }
  };
  if (pool != nullptr) {
    const int64_t row_bytes = std::max<int64_t>(last * DTypeSize(tensor.dtype), 1);
    pool->ParallelFor(rows, std::max<int64_t>((int64_t{1} << 18) / row_bytes, 1), digest_range);
  } else {
    digest_range(0, rows);
  }
  return digests;
}

DigestStream::DigestStream(DType dtype, const Dims& shape) : dtype_(dtype), shape_(shape) {
  leaf_.reserve(kDigestLeafBytes);
}

void DigestStream::Update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    HashNode node;
    if (leaf_.empty() && bytes.size() >= static_cast<size_t>(kDigestLeafBytes)) {
      HashBytes(bytes.data(), kDigestLeafBytes, node.data());
      bytes = bytes.subspan(kDigestLeafBytes);
    } else {
      const size_t take = std::min(bytes.size(), kDigestLeafBytes - leaf_.size());
      leaf_.insert(leaf_.end(), bytes.begin(), bytes.begin() + static_cast<int64_t>(take));
      bytes = bytes.subspan(take);
      if (leaf_.size() < static_cast<size_t>(kDigestLeafBytes)) return;
      HashBytes(leaf_.data(), std::ssize(leaf_), node.data());
      leaf_.clear();
    }
    PushNode(node, 0);
  }
}

// Adds a node to a level; a full level becomes a node of the next one only when another node
// follows, because a level of exactly one node is the last.
void DigestStream::PushNode(const std::array<uint8_t, 16>& node, size_t level) {
  if (levels_.size() <= level) levels_.emplace_back();
  if (levels_[level].size() == static_cast<size_t>(kDigestFanout * kNodeBytes)) {
    HashNode parent;
    HashBytes(levels_[level].data(), std::ssize(levels_[level]), parent.data());
    levels_[level].clear();
    PushNode(parent, level + 1);
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(node.data());
  levels_[level].insert(levels_[level].end(), bytes, bytes + node.size());
}

Digest DigestStream::Finish() {
  HashNode node;
  if (!leaf_.empty()) {
    HashBytes(leaf_.data(), std::ssize(leaf_), node.data());
    leaf_.clear();
    PushNode(node, 0);
  }
  if (levels_.empty()) return DigestRoot(dtype_, shape_, nullptr);
  for (size_t level = 0; level < levels_.size(); ++level) {
    const bool top = level + 1 == levels_.size();
    if (top && levels_[level].size() == static_cast<size_t>(kNodeBytes)) {
      memcpy(node.data(), levels_[level].data(), node.size());
      return DigestRoot(dtype_, shape_, &node);
    }
    HashBytes(levels_[level].data(), std::ssize(levels_[level]), node.data());
    levels_[level].clear();
    PushNode(node, level + 1);
  }
  return DigestRoot(dtype_, shape_, &node);  // not reached: the top level ends at one node
}

}  // namespace rlk
