// Loads of files that end early: with their caller, their session, the server. They leave nothing.
#include <openssl/evp.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "server/sessions/random_id.h"
#include "tests/integration/peer.h"

namespace rlk::test {
namespace {

using rlk::v1::LoadTensorsRequest;
using rlk::v1::LoadTensorsResponse;

// Of the tensor of zeros that is loaded: so many that a load takes its time.
constexpr int64_t kBytes = int64_t{256} << 20;

std::string Sha256OfZeros() {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  EXPECT_EQ(EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr), 1);
  const std::string piece(1 << 20, '\0');
  for (int64_t at = 0; at < kBytes; at += static_cast<int64_t>(piece.size())) {
    EXPECT_EQ(EVP_DigestUpdate(context.get(), piece.data(), piece.size()), 1);
  }
  std::string digest(32, '\0');
  EXPECT_EQ(
      EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr),
      1);
  return server::HexText(digest);
}

// A load that runs beside the test.
class AsyncLoad {
 public:
  AsyncLoad(const Peer& peer, const LoadTensorsRequest& request)
      : context_(peer.Context()), status_(std::async(std::launch::async, [this, &peer, request] {
          return peer.tensors().LoadTensors(context_.get(), request, &response_);
        })) {}
  void Cancel() { context_->TryCancel(); }
  grpc::Status Wait() { return status_.get(); }

 private:
  const std::unique_ptr<grpc::ClientContext> context_;
  LoadTensorsResponse response_;
  std::future<grpc::Status> status_;
};

class LoadTest : public testing::Test {
 protected:
  LoadTest() {
    const std::string header = R"({"zeros":{"dtype":"U8","shape":[)" + std::to_string(kBytes) +
                               R"(],"data_offsets":[0,)" + std::to_string(kBytes) + "]}}";
    const uint64_t size = header.size();
    std::ofstream(dir_.File("zeros.safetensors"), std::ios::binary)
        .write(reinterpret_cast<const char*>(&size), sizeof(size))
        .write(header.data(), static_cast<std::streamsize>(size));
    // The zeros are a hole.
    std::filesystem::resize_file(dir_.File("zeros.safetensors"), 8 + size + kBytes);
    request_.set_path("zeros.safetensors");
    auto& expected = *request_.add_manifest();
    expected.set_key("zeros");
    expected.set_dtype(rlk::v1::DATA_TYPE_U8);
    expected.add_shape(kBytes);
    expected.set_sha256(Sha256OfZeros());
  }

  std::unique_ptr<TestServer> StartServer() const {
    server::Options options = TestOptions();
    options.weights_root = dir_.File("");
    return std::make_unique<TestServer>(options);
  }

  static int TensorsListed(const Peer& peer) {
    rlk::v1::ListTensorsResponse listed;
    EXPECT_TRUE(peer.tensors().ListTensors(peer.Context().get(), {}, &listed).ok());
    return listed.tensors_size();
  }

  TempDir dir_;
  LoadTensorsRequest request_;
};

// In each of the following a load may be done before it is told to end. Then another one is made.

TEST_F(LoadTest, EndsWithItsCaller) {
  const auto server = StartServer();
  for (bool ended = false; !ended;) {
    const Peer peer(server->tcp());
    AsyncLoad load(peer, request_);
    AwaitSeries(*server, "rlk_leases", 1);
    load.Cancel();
    (void)load.Wait();
    // What is listed was done; what is charged and not listed is being loaded.
    bool done = false;
    while (!done && SeriesValue(Scrape(server->metrics()), "rlk_leases") != 0) {
      done = TensorsListed(peer) > 0;
    }
    ended = !done;
    EXPECT_TRUE(peer.Close().ok());
    AwaitSeries(*server, "rlk_leases", 0);
  }
  AwaitSeries(*server, "rlk_resident_bytes", 0);
}

TEST_F(LoadTest, EndsWithItsSession) {
  const auto server = StartServer();
  for (bool ended = false; !ended;) {
    const Peer peer(server->tcp());
    AsyncLoad load(peer, request_);
    AwaitSeries(*server, "rlk_leases", 1);
    EXPECT_TRUE(peer.Close().ok());
    const grpc::Status status = load.Wait();
    ended = !status.ok();
    EXPECT_EQ(FactsOf(status).reason, ended ? "CANCELLED" : "") << status.error_message();
    AwaitSeries(*server, "rlk_leases", 0);
  }
}

TEST_F(LoadTest, EndsWithTheServer) {
  for (bool ended = false; !ended;) {
    const auto server = StartServer();
    const Peer peer(server->tcp());
    AsyncLoad load(peer, request_);
    AwaitSeries(*server, "rlk_leases", 1);
    server->server().Drain(0, 0.001);
    // The transport may end before the load has said why it did.
    const bool answered = load.Wait().ok();
    ended = SeriesValue(Scrape(server->metrics()), "rlk_leases") == 0;
    EXPECT_FALSE(ended && answered);
  }
}

TEST_F(LoadTest, CountsAsACallOfItsSession) {
  server::Options options = TestOptions();
  options.weights_root = dir_.File("");
  options.limits.session_calls_max = 1;
  const TestServer server(options);
  const Peer peer(server.tcp());
  const auto context = peer.Context();
  rlk::v1::UploadResponse response;
  const auto writer = peer.tensors().Upload(context.get(), &response);
  UploadRequest part;
  *part.mutable_header() = Header(rlk::v1::DATA_TYPE_U8, {1});
  ASSERT_TRUE(writer->Write(part));
  AwaitSeries(server, "rlk_leases", 1);
  LoadTensorsResponse loaded;
  const grpc::Status refused = peer.tensors().LoadTensors(peer.Context().get(), request_, &loaded);
  EXPECT_EQ(FactsOf(refused).reason, "QUEUE_FULL") << refused.error_message();
  EXPECT_EQ(FactsOf(refused).metadata["field"], "session_calls_max");
  context->TryCancel();
  (void)writer->Finish();
}

}  // namespace
}  // namespace rlk::test
