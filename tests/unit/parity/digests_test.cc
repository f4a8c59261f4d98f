// Digests of tensors and rows wherever they lie.
#include "server/parity/digests.h"

#include "tests/unit/parity/parity_data.h"

namespace rlk::test {
namespace {

using server::ParityTensor;

TEST(ParityDigests, RowsAreThoseOfTheTensorForEveryRange) {
  // More than a slice of 16 MiB.
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{7, 3}, {1, 5}, {600, 16384}}) {
    const std::vector<double> x = Normals(rows * columns, 1);
    const ParityTensor tensor = TensorOf(DType::kBF16, {rows, columns}, x);
    const std::vector<Digest> all = ComputeRowDigests(tensor.view());
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, rows}, {rows / 2, rows / 3}, {rows - 1, 1}, {rows, 0}}) {
      const auto found = server::RowDigestsOf(tensor, first, count, {});
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, std::vector<Digest>(all.begin() + first, all.begin() + first + count));
    }
    EXPECT_EQ(*server::DigestOf(tensor, {}), ComputeDigest(tensor.view()));
  }
}

TEST(ParityDigests, ScalarsAndEmptyRowsHaveDigests) {
  const float one = 1;
  const ParityTensor scalar = TensorOf(DType::kF32, {}, &one);
  EXPECT_EQ(*server::RowDigestsOf(scalar, 0, 1, {}), ComputeRowDigests(scalar.view()));
  const ParityTensor empty = TensorOf(DType::kF32, {3, 0}, &one);
  EXPECT_EQ(*server::RowDigestsOf(empty, 0, 3, {}), ComputeRowDigests(empty.view()));
}

TEST(ParityDigests, TextIsReadBack) {
  const float one = 1;
  const Digest digest = ComputeDigest(TensorOf(DType::kF32, {}, &one).view());
  EXPECT_EQ(server::ParseDigest(digest.Text()), digest);
  for (const std::string& text : {std::string(), digest.Text().substr(1), digest.Text() + "0"}) {
    EXPECT_EQ(server::ParseDigest(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace rlk::test
