// Clients that never read their replies or streams, or never finish their requests: what they hold
// is bounded.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/integration/fixture.h"
#include "tests/integration/http2_bytes.h"
#include "tests/integration/peer.h"
#include "tests/integration/server_process.h"

namespace rlk::test {
namespace {

// What may come and go beside the replies: arenas of the allocator, gRPC's buffers.
constexpr int64_t kSlackBytes = int64_t{48} << 20;

// One element, read 2^18 times: 48 bytes ask for a reply of 1 MiB.
rlk::v1::FinalLogitSoftcapForwardRequest LargeReply() {
  rlk::v1::FinalLogitSoftcapForwardRequest request;
  request.mutable_x()->set_dtype(rlk::v1::DATA_TYPE_F32);
  request.mutable_x()->add_shape(1 << 18);
  request.mutable_x()->add_strides(0);
  request.mutable_x()->set_data(BytesOf<float>({1}));
  return request;
}

double Done(const ServerProcess& process) {
  return SeriesValue(Scrape(process.metrics()),
                     "rlk_requests_total{code=\"OK\",direction=\"forward\",operator=\"final_logit_"
                     "softcap\"}");
}

bool Serves(const ServerProcess& process) {
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(process.listen()));
  grpc::ClientContext context;
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  return stub->FinalLogitSoftcapForward(&context, ForwardRequest(), &response).ok();
}

// The client acknowledges nothing, so that the limit on its streams does not hold it either.
TEST(HostileClientTest, AReaderThatNeverReadsHoldsAQuarterOfTheBound) {
  constexpr int64_t kBytesMax = int64_t{128} << 20;
  constexpr int kCalls = 400;
  ServerProcess process({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
                         "--selftest-interval-seconds=0", "--streams-per-connection-max=32",
                         "--queue-bytes-max=" + std::to_string(kBytesMax)});
  ASSERT_TRUE(Serves(process));
  const int64_t rss_before = process.rss_bytes();
  const int fd = ConnectTcp(process.listen());
  ASSERT_GE(fd, 0);
  std::string bytes = Preface();
  for (uint32_t call = 0; call < kCalls; ++call) {
    bytes += UnaryCall(2 * call + 1, kForwardPath, LargeReply().SerializeAsString());
  }
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  while (Done(process) < kCalls) std::this_thread::yield();
  // Others are served meanwhile, large replies included.
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(process.listen()));
  for (int i = 0; i < 10; ++i) {
    grpc::ClientContext context;
    rlk::v1::FinalLogitSoftcapForwardResponse response;
    const auto status = stub->FinalLogitSoftcapForward(&context, LargeReply(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  const int64_t held = process.rss_bytes() - rss_before;
  const double refused = SeriesValue(Scrape(process.metrics()),
                                     "rlk_admission_rejections_total{reason=\"BYTES_EXHAUSTED\"}");
  printf("%lld MiB held for %d replies of 1 MiB that nobody reads; %.0f refused\n",
         static_cast<long long>(held >> 20), kCalls, refused);
  EXPECT_GE(refused, kCalls - kBytesMax / 4 / (1 << 20));
  EXPECT_LE(held, kBytesMax / 4 + kSlackBytes);
  close(fd);
  EXPECT_TRUE(Serves(process));
}

// Replies of 8 KiB, each below what is looked at one by one: together they are bounded too.
TEST(HostileClientTest, SmallRepliesThatNobodyReadsAreBoundedTogether) {
  constexpr int64_t kBytesMax = int64_t{16} << 20, kReplyBytes = int64_t{8} << 10;
  constexpr int kCalls = 2000;
  ServerProcess process({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
                         "--selftest-interval-seconds=0", "--streams-per-connection-max=32",
                         "--queue-bytes-max=" + std::to_string(kBytesMax)});
  ASSERT_TRUE(Serves(process));
  rlk::v1::FinalLogitSoftcapForwardRequest request = LargeReply();
  request.mutable_x()->set_shape(0, kReplyBytes / 4);
  const int fd = ConnectTcp(process.listen());
  ASSERT_GE(fd, 0);
  std::string bytes = Preface();
  for (uint32_t call = 0; call < kCalls; ++call) {
    bytes += UnaryCall(2 * call + 1, kForwardPath, request.SerializeAsString());
  }
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  while (Done(process) < kCalls) std::this_thread::yield();
  const double refused = SeriesValue(Scrape(process.metrics()),
                                     "rlk_admission_rejections_total{reason=\"BYTES_EXHAUSTED\"}");
  // What is let through: everybody's sixteenth and this connection's quarter, and what the window
  // of the connection took.
  constexpr int64_t kLetThrough = (kBytesMax / 16 + kBytesMax / 4) / kReplyBytes;
  EXPECT_GE(refused, kCalls - kLetThrough - 64);
  EXPECT_TRUE(Serves(process)) << "others are served meanwhile";
  close(fd);
  EXPECT_TRUE(Serves(process));
}

// What a download has not sent yet is the tensor itself: nothing is copied for a client that does
// not read.
TEST(HostileClientTest, DownloadsThatNobodyReadsHoldNothingMore) {
  constexpr int kDownloads = 200;
  constexpr int64_t kTensorBytes = int64_t{16} << 20;
  ServerProcess process(
      {"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--selftest-interval-seconds=0"});
  const Peer owner(process.listen());
  TensorDescription tensor;
  const std::string bytes = Pattern(kTensorBytes);
  ASSERT_TRUE(owner.Put(Header(rlk::v1::DATA_TYPE_U8, {kTensorBytes}), bytes, &tensor).ok());
  std::string back;
  ASSERT_TRUE(owner.Get(tensor.handle(), &back).ok());
  const int64_t rss_before = process.rss_bytes();
  // On a connection of their own, with the owner's token.
  const auto stub = rlk::v1::TensorService::NewStub(DefaultChannel(process.listen()));
  rlk::v1::DownloadRequest request;
  *request.mutable_handle() = tensor.handle();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<DownloadResponse>>> readers;
  for (int i = 0; i < kDownloads; ++i) {
    contexts.push_back(owner.Context());
    readers.push_back(stub->Download(contexts.back().get(), request));
    // The description; the data behind it is never asked for.
    DownloadResponse first;
    ASSERT_TRUE(readers.back()->Read(&first));
    ASSERT_TRUE(first.has_tensor());
  }
  // Others are served meanwhile.
  ASSERT_TRUE(owner.Get(tensor.handle(), &back).ok());
  EXPECT_TRUE(back == bytes);
  const int64_t held = process.rss_bytes() - rss_before;
  printf("%lld KiB held for %d downloads of %lld MiB that nobody reads\n",
         static_cast<long long>(held >> 10), kDownloads,
         static_cast<long long>(kTensorBytes >> 20));
  // A copy of one chunk each would be four times the slack.
  EXPECT_LE(held, kSlackBytes);
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& reader : readers) {
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // And what they pinned goes with them.
  ASSERT_TRUE(owner.Release(tensor.handle()).ok());
  while (SeriesValue(Scrape(process.metrics()), "rlk_resident_bytes") != 0) {
    std::this_thread::yield();
  }
}

TEST(HostileClientTest, RequestsThatNeverEndHoldNoMoreThanTheirWindow) {
  const int64_t connections = Count(50, 400);
  constexpr int64_t kWindowBytes = 65535;
  ServerProcess process(
      {"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--selftest-interval-seconds=0"});
  ASSERT_TRUE(Serves(process));
  const int64_t rss_before = process.rss_bytes();
  // The beginning of a message of 1 MiB, as much as the window of a connection takes.
  std::string begin = GrpcMessage(std::string(1 << 20, 'x')).substr(0, 48 << 10);
  std::string bytes = Preface() + Frame(kHeaders, kEndHeaders, 1, RequestHeaders(kForwardPath));
  for (size_t at = 0; at < begin.size(); at += 16384) {
    bytes += Frame(kData, 0, 1, begin.substr(at, 16384));
  }
  std::vector<int> sockets;
  for (int64_t i = 0; i < connections; ++i) {
    sockets.push_back(ConnectTcp(process.listen()));
    ASSERT_GE(sockets.back(), 0);
    ASSERT_EQ(send(sockets.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  EXPECT_TRUE(Serves(process));
  const int64_t held = process.rss_bytes() - rss_before;
  printf("%lld KiB held for %lld requests that do not end\n", static_cast<long long>(held >> 10),
         static_cast<long long>(connections));
  EXPECT_LE(held, 4 * connections * kWindowBytes + kSlackBytes);
  for (const int fd : sockets) close(fd);
  EXPECT_TRUE(Serves(process));
}

}  // namespace
}  // namespace rlk::test
