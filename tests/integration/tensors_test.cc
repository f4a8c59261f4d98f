// Sessions and tensors that stay, over gRPC, by generated stubs.
#include <functional>
#include <optional>
#include <set>

#include "kernels/digest/digest.h"
#include "tests/integration/peer.h"

namespace rlk::test {
namespace {

class TensorsTest : public testing::Test {
 protected:
  TensorsTest() {
    server::Options options = TestOptions();
    options.unix_path = dir_.File("socket");
    server_.emplace(options);
  }
  TempDir dir_;
  std::optional<TestServer> server_;
};

TEST_F(TensorsTest, EveryPatternOfSixteenBitsPasses) {
  std::string patterns;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    patterns += {static_cast<char>(bits & 255), static_cast<char>(bits >> 8)};
  }
  for (const std::string& target : {server_->tcp(), server_->unix_target()}) {
    const Peer peer(target);
    for (const auto dtype : {rlk::v1::DATA_TYPE_BF16, rlk::v1::DATA_TYPE_F16}) {
      TensorDescription tensor;
      const grpc::Status put = peer.Put(Header(dtype, {256, 256}), patterns, &tensor, 1000);
      ASSERT_TRUE(put.ok()) << put.error_message();
      EXPECT_EQ(tensor.bytes(), 131072);
      const TensorView view{static_cast<DType>(dtype), {256, 256}, {256, 1}, patterns.data()};
      EXPECT_EQ(tensor.digest(), ComputeDigest(view).Text());
      std::string back;
      ASSERT_TRUE(peer.Get(tensor.handle(), &back).ok());
      EXPECT_TRUE(back == patterns);
    }
  }
}

TEST_F(TensorsTest, ChunksOfAnySizeMakeTheSameTensor) {
  const Peer peer(server_->tcp());
  const std::string bytes = Pattern(3 * kChunk + 17);
  std::set<std::string> digests;
  for (const size_t chunk : {kChunk, kChunk - 1, size_t{65536}, size_t{4097}}) {
    TensorDescription tensor;
    const auto header = Header(rlk::v1::DATA_TYPE_U8, {static_cast<int64_t>(bytes.size())});
    ASSERT_TRUE(peer.Put(header, bytes, &tensor, chunk).ok());
    digests.insert(tensor.digest());
    std::string back;
    ASSERT_TRUE(peer.Get(tensor.handle(), &back).ok());
    EXPECT_TRUE(back == bytes);
    EXPECT_TRUE(peer.Release(tensor.handle()).ok());
  }
  EXPECT_EQ(digests.size(), 1u);
  EXPECT_EQ(peer.Budget().resident_bytes(), 0);
}

TEST_F(TensorsTest, RefusesStreamsThatAreNone) {
  const Peer peer(server_->tcp());
  const auto good = Header(rlk::v1::DATA_TYPE_U8, {4});
  const auto part = [](auto set) {
    UploadRequest request;
    set(request);
    return request;
  };
  const UploadRequest header = part([&](auto& r) { *r.mutable_header() = good; });
  const UploadRequest data = part([](auto& r) { r.set_data("abcd"); });
  const UploadRequest more = part([](auto& r) { r.set_data("e"); });
  const UploadRequest digest = part([](auto& r) { r.set_digest("xxh3-tree4k-v1:00"); });
  const UploadRequest huge = part([](auto& r) { r.set_data(std::string(kChunk + 1, 'x')); });
  const UploadRequest empty;
  struct Case {
    const char* name;
    std::vector<UploadRequest> parts;
    const char* reason;
  } const cases[] = {
      {"nothing", {}, "MALFORMED_MESSAGE"},
      {"an empty message", {empty}, "MALFORMED_MESSAGE"},
      {"data before the header", {data}, "MALFORMED_MESSAGE"},
      {"a digest before the header", {digest}, "MALFORMED_MESSAGE"},
      {"two headers", {header, header}, "MALFORMED_MESSAGE"},
      {"too little", {header}, "PAYLOAD_SIZE_MISMATCH"},
      {"too much", {header, data, more}, "PAYLOAD_SIZE_MISMATCH"},
      {"another digest", {header, data, digest}, "VERIFICATION_FAILED"},
      {"data after the digest", {header, digest, data}, "MALFORMED_MESSAGE"},
      {"a chunk above the limit", {header, huge}, "LIMIT_EXCEEDED"},
  };
  for (const Case& c : cases) {
    const auto context = peer.Context();
    rlk::v1::UploadResponse response;
    const auto writer = peer.tensors().Upload(context.get(), &response);
    for (const UploadRequest& request : c.parts) {
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_FALSE(status.ok()) << c.name;
    EXPECT_EQ(FactsOf(status).reason, c.reason) << c.name << ": " << status.error_message();
    EXPECT_EQ(peer.Budget().tensors(), 0) << c.name;
  }
}

TEST_F(TensorsTest, AnUploadThatBreaksOffLeavesNothing) {
  const auto header = Header(rlk::v1::DATA_TYPE_U8, {8 << 20});
  const std::string chunk = Pattern(kChunk);
  for (const int chunks : {0, 1, 5}) {
    auto peer = std::make_unique<Peer>(server_->tcp());
    auto context = peer->Context();
    rlk::v1::UploadResponse response;
    auto writer = peer->tensors().Upload(context.get(), &response);
    UploadRequest part;
    *part.mutable_header() = header;
    ASSERT_TRUE(writer->Write(part));
    for (int i = 0; i < chunks; ++i) {
      part.set_data(chunk);
      ASSERT_TRUE(writer->Write(part));
    }
    AwaitSeries(*server_, "rlk_leases", 1);
    context->TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
    AwaitSeries(*server_, "rlk_leases", 0);
    AwaitSeries(*server_, "rlk_resident_bytes", 0);
  }
}

TEST_F(TensorsTest, AStreamEndsWithItsSession) {
  const Peer peer(server_->tcp());
  auto context = peer.Context();
  rlk::v1::UploadResponse response;
  auto writer = peer.tensors().Upload(context.get(), &response);
  UploadRequest part;
  *part.mutable_header() = Header(rlk::v1::DATA_TYPE_U8, {100});
  ASSERT_TRUE(writer->Write(part));
  AwaitSeries(*server_, "rlk_leases", 1);
  EXPECT_TRUE(peer.Close().ok());
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  AwaitSeries(*server_, "rlk_leases", 0);
}

// Once a client has read a tensor to its end it may have it written in place, and a tensor that was
// given back after that takes no room: the server is done with the bytes before the client hears of
// the end.
TEST_F(TensorsTest, ATensorThatWasReadIsFreeAtOnce) {
  const Peer peer(server_->tcp());
  auto request = ForwardOfSize(1 << 16);
  TensorDescription tensor;
  const auto header = Header(rlk::v1::DATA_TYPE_F32, {1 << 16});
  ASSERT_TRUE(peer.Put(header, request.x().data(), &tensor).ok());
  TensorHandle state = tensor.handle();
  std::string back;
  for (int64_t i = 0; i < Count(200, 20000); ++i) {
    ASSERT_TRUE(peer.Get(state, &back).ok());
    auto& outputs = *request.mutable_options()->mutable_outputs();
    *outputs["y"].mutable_resident()->mutable_into() = state;
    rlk::v1::FinalLogitSoftcapForwardResponse response;
    const auto context = peer.Context();
    const grpc::Status status =
        peer.operators().FinalLogitSoftcapForward(context.get(), request, &response);
    ASSERT_TRUE(status.ok()) << i << ": " << status.error_message();
    state = response.y().resident();
  }
  ASSERT_TRUE(peer.Get(state, &back).ok());
  ASSERT_TRUE(peer.Release(state).ok());
  EXPECT_EQ(peer.Budget().resident_bytes(), 0);
}

// Whatever one session tries with the handle of another's tensor, there is no such tensor.
TEST_F(TensorsTest, NobodyElseReachesATensor) {
  const Peer owner(server_->tcp()), other(server_->tcp());
  TensorDescription tensor;
  const std::string bytes = Pattern(24);
  ASSERT_TRUE(owner.Put(Header(rlk::v1::DATA_TYPE_F32, {6}), bytes, &tensor).ok());
  using Attempt = std::function<grpc::Status(const Peer&, const TensorHandle&)>;
  const std::pair<const char*, Attempt> attempts[] = {
      {"read",
       [](const Peer& peer, const TensorHandle& handle) {
         std::string ignored;
         return peer.Get(handle, &ignored);
       }},
      {"free", [](const Peer& peer, const TensorHandle& handle) { return peer.Release(handle); }},
      {"describe",
       [](const Peer& peer, const TensorHandle& handle) {
         rlk::v1::DescribeTensorRequest request;
         *request.mutable_handle() = handle;
         rlk::v1::DescribeTensorResponse response;
         return peer.tensors().DescribeTensor(peer.Context().get(), request, &response);
       }},
      {"renew",
       [](const Peer& peer, const TensorHandle& handle) {
         rlk::v1::RenewTensorRequest request;
         *request.mutable_handle() = handle;
         request.set_lease_ms(1);
         rlk::v1::RenewTensorResponse response;
         return peer.tensors().RenewTensor(peer.Context().get(), request, &response);
       }},
      {"name as an input",
       [](const Peer& peer, const TensorHandle& handle) {
         auto request = ForwardRequest();
         *request.mutable_x()->mutable_resident() = handle;
         rlk::v1::FinalLogitSoftcapForwardResponse response;
         return peer.operators().FinalLogitSoftcapForward(peer.Context().get(), request, &response);
       }},
      {"write an output into it",
       [](const Peer& peer, const TensorHandle& handle) {
         auto request = ForwardRequest();
         auto& outputs = *request.mutable_options()->mutable_outputs();
         *outputs["y"].mutable_resident()->mutable_into() = handle;
         rlk::v1::FinalLogitSoftcapForwardResponse response;
         return peer.operators().FinalLogitSoftcapForward(peer.Context().get(), request, &response);
       }},
  };
  TensorHandle invented = tensor.handle();
  invented.set_id(std::string(16, 'i'));
  TensorHandle stale = tensor.handle();
  stale.set_generation(9);
  TensorHandle cut = tensor.handle();
  cut.set_id(cut.id().substr(0, 15));
  TensorHandle elsewhere = tensor.handle();
  elsewhere.set_server_id(std::string(32, 'e'));
  for (const auto& [name, attempt] : attempts) {
    const grpc::Status foreign = attempt(other, tensor.handle());
    EXPECT_EQ(foreign.error_code(), grpc::StatusCode::NOT_FOUND) << name;
    EXPECT_EQ(FactsOf(foreign).reason, "TENSOR_NOT_FOUND") << name;
    for (const TensorHandle& handle : {invented, stale, cut}) {
      EXPECT_EQ(attempt(owner, handle).error_code(), grpc::StatusCode::NOT_FOUND) << name;
    }
    const grpc::Status wrong_server = attempt(owner, elsewhere);
    EXPECT_EQ(wrong_server.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << name;
    EXPECT_EQ(FactsOf(wrong_server).reason, "WRONG_SERVER") << name;
  }
  rlk::v1::ListTensorsResponse listed;
  ASSERT_TRUE(other.tensors().ListTensors(other.Context().get(), {}, &listed).ok());
  EXPECT_EQ(listed.tensors_size(), 0);
  rlk::v1::FindTensorRequest find;
  find.set_digest(tensor.digest());
  rlk::v1::FindTensorResponse found;
  ASSERT_TRUE(other.tensors().FindTensor(other.Context().get(), find, &found).ok());
  EXPECT_FALSE(found.has_tensor());
  ASSERT_TRUE(owner.tensors().FindTensor(owner.Context().get(), find, &found).ok());
  EXPECT_TRUE(found.has_tensor());
  std::string back;
  EXPECT_TRUE(owner.Get(tensor.handle(), &back).ok());
  EXPECT_EQ(back, bytes);
}

TEST_F(TensorsTest, NothingStaysWithoutASession) {
  const auto channel = DefaultChannel(server_->tcp());
  const auto tensors = rlk::v1::TensorService::NewStub(channel);
  const auto sessions = rlk::v1::SessionService::NewStub(channel);
  const Peer peer(server_->tcp());
  for (const std::string& token :
       {std::string(), std::string("wrong"), std::string(32, '0'), peer.token() + "0"}) {
    const auto context = [&token] {
      auto made = std::make_unique<grpc::ClientContext>();
      if (!token.empty()) made->AddMetadata("rlk-session", token);
      return made;
    };
    const auto expect = [&token](const grpc::Status& status) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << token;
      EXPECT_EQ(FactsOf(status).reason, "UNAUTHENTICATED") << token;
      EXPECT_EQ(FactsOf(status).domain, "rlk") << token;
    };
    rlk::v1::ListTensorsResponse list;
    expect(tensors->ListTensors(context().get(), {}, &list));
    rlk::v1::RenewSessionResponse renewed;
    expect(sessions->RenewSession(context().get(), {}, &renewed));
    rlk::v1::UploadResponse uploaded;
    const auto upload_context = context();
    const auto writer = tensors->Upload(upload_context.get(), &uploaded);
    expect(writer->Finish());
    const auto download_context = context();
    const auto reader = tensors->Download(download_context.get(), {});
    DownloadResponse part;
    EXPECT_FALSE(reader->Read(&part));
    expect(reader->Finish());
    rlk::v1::FinalLogitSoftcapForwardResponse reply;
    auto request = ForwardRequest();
    (*request.mutable_options()->mutable_outputs())["y"].mutable_resident();
    expect(peer.operators().FinalLogitSoftcapForward(context().get(), request, &reply));
  }
  // A session that was closed is none.
  EXPECT_TRUE(peer.Close().ok());
  EXPECT_EQ(peer.Close().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(TensorsTest, TheLeaseOfAClientThatIsGoneGivesItsMemoryBack) {
  {
    const Peer peer(server_->tcp());
    TensorDescription tensor;
    ASSERT_TRUE(peer.Put(Header(rlk::v1::DATA_TYPE_U8, {100}), Pattern(100), &tensor).ok());
    EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_leases"), 1);
    // The last word of the client. A short lease from the start might end before the tensor is
    // there.
    rlk::v1::RenewSessionRequest request;
    request.set_lease_ms(1);
    rlk::v1::RenewSessionResponse response;
    ASSERT_TRUE(peer.sessions().RenewSession(peer.Context().get(), request, &response).ok());
  }
  AwaitSeries(*server_, "rlk_leases", 0);
  AwaitSeries(*server_, "rlk_sessions", 0);
  AwaitSeries(*server_, "rlk_resident_bytes", 0);
  AwaitSeries(*server_, R"(rlk_device_memory_bytes{device="cpu:0",kind="resident"})", 0);
}

}  // namespace
}  // namespace rlk::test
