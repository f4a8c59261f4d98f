// Large tensors and many of them at once: sizes beyond 32 bits, and what the server's memory grows
// by.
#include <atomic>
#include <thread>
#include <vector>

#include "kernels/digest/digest.h"
#include "tests/integration/peer.h"
#include "tests/integration/server_process.h"

namespace rlk::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Sends `bytes` bytes of a pattern without having them all.
grpc::Status Stream(const Peer& peer, int64_t bytes, std::string* digest,
                    TensorDescription* tensor) {
  const auto context = std::make_unique<grpc::ClientContext>();
  context->AddMetadata("rlk-session", peer.token());
  rlk::v1::UploadResponse response;
  const auto writer = peer.tensors().Upload(context.get(), &response);
  UploadRequest part;
  *part.mutable_header() = Header(rlk::v1::DATA_TYPE_U8, {bytes});
  bool open = writer->Write(part);
  DigestStream expected(DType::kU8, Dims{bytes});
  const std::string pattern = Pattern(kChunk + 4096);
  for (int64_t at = 0; open && at < bytes;) {
    const auto size = static_cast<size_t>(std::min<int64_t>(bytes - at, kChunk));
    // Another pattern for each chunk, so that none can take the place of another.
    part.set_data(pattern.substr(static_cast<size_t>(at / kMiB % 4096), size));
    expected.Update(std::as_bytes(std::span(part.data())));
    open = writer->Write(part);
    at += static_cast<int64_t>(size);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  *digest = expected.Finish().Text();
  *tensor = response.tensor();
  return status;
}

TEST(LargeTensorsTest, ATensorBeyond32BitsPasses) {
  const int64_t bytes = Count(48 * kMiB, 3 * 1024 * kMiB) + 5;
  const ServerProcess process({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0"});
  const Peer peer(process.listen());
  std::string digest;
  TensorDescription tensor;
  const grpc::Status status = Stream(peer, bytes, &digest, &tensor);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(tensor.bytes(), bytes);
  EXPECT_EQ(tensor.digest(), digest);
  // And back.
  grpc::ClientContext context;
  context.AddMetadata("rlk-session", peer.token());
  rlk::v1::DownloadRequest request;
  *request.mutable_handle() = tensor.handle();
  const auto reader = peer.tensors().Download(&context, request);
  DigestStream back(DType::kU8, Dims{bytes});
  for (DownloadResponse part; reader->Read(&part);) {
    back.Update(std::as_bytes(std::span(part.data())));
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(back.Finish().Text(), digest);
}

TEST(LargeTensorsTest, ManyClientsAtOnceStayWithinTheBudget) {
  constexpr int kClients = 64;
  const int64_t each = Count(16 * kMiB, 256 * kMiB);
  const int64_t budget = Count(128 * kMiB, 1024 * kMiB);
  // What gRPC has read ahead of those that are refused later, and the allocator's.
  constexpr int64_t kSlack = 64 * kMiB;
  const ServerProcess process({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
                               "--resident-bytes-max=" + std::to_string(budget)});
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < kClients; ++i) peers.push_back(std::make_unique<Peer>(process.listen()));
  {
    // Warm: one of each has been here.
    std::string digest;
    TensorDescription tensor;
    ASSERT_TRUE(Stream(*peers[0], 4 * kMiB, &digest, &tensor).ok());
    ASSERT_TRUE(peers[0]->Release(tensor.handle()).ok());
  }
  const int64_t idle = process.rss_bytes();
  std::atomic<int> accepted{0}, refused{0}, running{kClients};
  std::vector<std::thread> threads;
  for (const auto& peer : peers) {
    threads.emplace_back([&, client = peer.get()] {
      std::string digest;
      TensorDescription tensor;
      const grpc::Status status = Stream(*client, each, &digest, &tensor);
      if (status.ok()) {
        ++accepted;
        EXPECT_EQ(tensor.digest(), digest);
      } else {
        ++refused;
        EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
            << status.error_message();
        EXPECT_EQ(FactsOf(status).reason, "BYTES_EXHAUSTED");
        EXPECT_TRUE(FactsOf(status).has_retry_info);
      }
      --running;
    });
  }
  int64_t most = 0;
  while (running > 0) {
    most = std::max(most, process.rss_bytes());
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  most = std::max(most, process.rss_bytes());
  EXPECT_EQ(accepted, budget / each);
  EXPECT_EQ(accepted + refused, kClients);
  printf("%lld MiB above idle for %lld MiB that were offered, %lld of them taken\n",
         static_cast<long long>((most - idle) / kMiB),
         static_cast<long long>(kClients * each / kMiB), static_cast<long long>(budget / kMiB));
  EXPECT_LE(most - idle, budget + kSlack);
  for (const auto& peer : peers) EXPECT_TRUE(peer->Close().ok());
  EXPECT_EQ(SeriesValue(Scrape(process.metrics()), "rlk_resident_bytes"), 0);
}

}  // namespace
}  // namespace rlk::test
