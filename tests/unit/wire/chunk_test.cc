#include "proto/wire/chunk.h"

#include <random>

#include "rlk/v1/tensor_service.pb.h"
#include "tests/unit/wire/wire_testing.h"

namespace rlk::wire {
namespace {

using rlk::v1::DownloadResponse;
using rlk::v1::UploadRequest;

constexpr int kData = UploadRequest::kDataFieldNumber;

TEST(ChunkTest, IsWhatGeneratedClassesReadAndWrite) {
  for (const size_t size : {0, 1, 127, 128, 16384, 1 << 20}) {
    const std::string payload(size, 'p');
    UploadRequest message;
    message.set_data(payload);
    const std::string bytes = message.SerializeAsString();
    EXPECT_EQ(Flatten(EncodeChunk(kData, AsHostBytes(payload))), bytes) << size;
    for (const size_t piece : {size_t{0}, size_t{1}, size_t{3}, size_t{4096}}) {
      if (piece == 1 && size > 16384) continue;
      const auto chunk = DecodeChunk(kData, Pieces(bytes, piece));
      ASSERT_TRUE(chunk.ok() && chunk->has_value()) << size;
      EXPECT_EQ((*chunk)->size, static_cast<int64_t>(size));
      EXPECT_EQ(Flatten(**chunk), payload) << size;
    }
  }
  EXPECT_EQ(kData, DownloadResponse::kDataFieldNumber);
}

TEST(ChunkTest, LeavesOtherMessagesToTheirParser) {
  UploadRequest header;
  header.mutable_header()->set_label("x");
  UploadRequest digest;
  digest.set_digest("d");
  for (const std::string& bytes : {header.SerializeAsString(), digest.SerializeAsString(),
                                   std::string(), std::string("\xff"), VarintField(kData, 1)}) {
    const auto chunk = DecodeChunk(kData, Pieces(bytes));
    ASSERT_TRUE(chunk.ok());
    EXPECT_FALSE(chunk->has_value());
  }
}

TEST(ChunkTest, RefusesWhatIsNotOneField) {
  const std::string good = BytesField(kData, "abcd");
  const std::string cases[] = {good.substr(0, 1),
                               good.substr(0, 5),
                               good + "x",
                               good + good,
                               good + VarintField(9, 1),
                               std::string("\x12\xff\xff\xff\xff\x0f", 6),
                               std::string("\x12\x80\x80\x80\x80\x80\x80\x01", 8)};
  for (const std::string& bytes : cases) {
    SCOPED_TRACE(testing::PrintToString(bytes));
    ExpectError(DecodeChunk(kData, Pieces(bytes)).status(), {Reason::kMalformedMessage, ""});
  }
}

TEST(ChunkTest, NeverReadsBeyondRandomBytes) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 24, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (!bytes.empty() && random() % 2 == 0) bytes[0] = '\x12';
    const auto chunk = DecodeChunk(kData, Pieces(bytes, 1 + random() % 5));
    if (!chunk.ok() || !chunk->has_value()) continue;
    EXPECT_LE((*chunk)->size, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(static_cast<int64_t>(Flatten(**chunk).size()), (*chunk)->size);
  }
}

}  // namespace
}  // namespace rlk::wire
