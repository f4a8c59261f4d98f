#include "kernels/digest/digest.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "kernels/core/cpu_features.h"
#include "kernels/digest/leaf_hash.h"
#include "tests/support/golden_json.h"

namespace rlk {
namespace {

// The bytes of digest_vectors.py.
std::vector<std::byte> TestBytes(uint64_t seed, int64_t size) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  uint64_t state = seed;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

DType ParseDType(const std::string& name) {
  for (int i = 1; i < kDTypeCount; ++i) {
    if (DTypeName(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  ADD_FAILURE() << name;
  return DType::kUnspecified;
}

TensorView Contiguous(DType dtype, const Dims& shape, const void* data) {
  return {dtype, shape, ContiguousStrides(shape), data};
}

Digest Streamed(const TensorView& tensor, size_t chunk) {
  DigestStream stream(tensor.dtype, tensor.shape);
  const auto* data = tensor.as<std::byte>();
  const auto size = static_cast<size_t>(tensor.bytes());
  for (size_t at = 0; at < size; at += chunk) {
    stream.Update({data + at, std::min(chunk, size - at)});
  }
  return stream.Finish();
}

TEST(Digest, GivesTheStoredVectorsInEveryWayItCanBeComputed) {
  const nlohmann::json golden = test::LoadGolden("digests_xxh3_tree4k.json");
  EXPECT_EQ(golden.at("id").get<std::string>(), kDigestId);
  ThreadPool pool(3);
  int checked = 0;
  for (const auto& vector : golden.at("vectors")) {
    Dims shape;
    for (const auto& size : vector.at("shape")) shape.push_back(size.get<int64_t>());
    const DType dtype = ParseDType(vector.at("dtype"));
    SCOPED_TRACE(vector.dump().substr(0, 120));
    const std::vector<std::byte> bytes =
        TestBytes(vector.at("seed").get<uint64_t>(), ByteCount(shape, dtype));
    const TensorView tensor = Contiguous(dtype, shape, bytes.data());
    const std::string expected = vector.at("digest");
    EXPECT_EQ(ComputeDigest(tensor).Text(), expected);
    EXPECT_EQ(ComputeDigest(tensor, &pool).Text(), expected);
    for (size_t chunk : {size_t{1} << 30, size_t{4096}, size_t{4095}, size_t{1000003}}) {
      EXPECT_EQ(Streamed(tensor, chunk).Text(), expected) << chunk;
    }
    if (vector.count("rows") != 0) {
      std::vector<std::string> rows;
      for (const Digest& row : ComputeRowDigests(tensor, &pool)) rows.push_back(row.Text());
      EXPECT_EQ(rows, vector.at("rows").get<std::vector<std::string>>());
    }
    ++checked;
  }
  EXPECT_GE(checked, 27);
}

TEST(Digest, StridesNeverEnter) {
  const std::vector<std::byte> bytes = TestBytes(3, 1 << 16);
  struct Case {
    DType dtype;
    Dims shape, strides;
  };
  for (const Case& c : std::vector<Case>{{DType::kBF16, {33, 77}, {1, 33}},
                                         {DType::kF32, {9, 5, 31}, {310, 62, 2}},
                                         {DType::kF32, {4, 3000}, {0, 1}},
                                         {DType::kU8, {5000}, {3}},
                                         {DType::kF64, {7, 1, 129}, {129, 5, 1}},
                                         {DType::kF32, {3, 0}, {7, 7}}}) {
    const TensorView strided{c.dtype, c.shape, c.strides, bytes.data()};
    const int64_t size = DTypeSize(c.dtype);
    std::vector<std::byte> copy;
    for (int64_t i = 0; i < strided.elements(); ++i) {
      int64_t rest = i, offset = 0;
      for (int d = c.shape.rank() - 1; d >= 0; --d) {
        offset += rest % c.shape[d] * c.strides[d];
        rest /= c.shape[d];
      }
      copy.insert(copy.end(), bytes.begin() + offset * size, bytes.begin() + (offset + 1) * size);
    }
    const TensorView dense = Contiguous(c.dtype, c.shape, copy.data());
    EXPECT_EQ(ComputeDigest(strided), ComputeDigest(dense));
    EXPECT_EQ(ComputeRowDigests(strided), ComputeRowDigests(dense));
  }
}

TEST(Digest, DtypeShapeAndEveryBitMatter) {
  std::vector<std::byte> bytes = TestBytes(4, 6000);
  const Digest original = ComputeDigest(Contiguous(DType::kF16, {3000}, bytes.data()));
  EXPECT_NE(ComputeDigest(Contiguous(DType::kBF16, {3000}, bytes.data())), original);
  EXPECT_NE(ComputeDigest(Contiguous(DType::kF16, {1, 3000}, bytes.data())), original);
  EXPECT_NE(ComputeDigest(Contiguous(DType::kF16, {30, 100}, bytes.data())), original);
  for (size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{5999}}) {
    bytes[at] ^= std::byte{1};
    EXPECT_NE(ComputeDigest(Contiguous(DType::kF16, {3000}, bytes.data())), original) << at;
    bytes[at] ^= std::byte{1};
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 4, bytes.begin() + 4096);
  EXPECT_NE(ComputeDigest(Contiguous(DType::kF16, {3000}, bytes.data())), original);
}

TEST(Digest, InstructionSetsAgree) {
  if (BestIsa() < Isa::kV3) GTEST_SKIP() << "this CPU has x86-64 only";
  const std::vector<std::byte> bytes = TestBytes(5, 5000);
  for (size_t size = 0; size <= 5000; size += size < 300 ? 1 : 47) {
    HashNode base, v3;
    LeafHashBase(bytes.data(), size, base.data());
    LeafHashV3(bytes.data(), size, v3.data());
    ASSERT_EQ(base, v3) << size;
  }
}

TEST(Digest, ChunkingOfAStreamDoesNotMatter) {
  const std::vector<std::byte> bytes = TestBytes(6, 3 << 20);
  const TensorView tensor = Contiguous(DType::kU8, {3 << 20}, bytes.data());
  const Digest expected = ComputeDigest(tensor);
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    DigestStream stream(tensor.dtype, tensor.shape);
    for (size_t at = 0; at < bytes.size();) {
      const size_t chunk = std::min<size_t>(random() % 20000, bytes.size() - at);
      stream.Update({bytes.data() + at, chunk});
      at += chunk;
    }
    EXPECT_EQ(stream.Finish(), expected);
  }
}

}  // namespace
}  // namespace rlk
