// Calls on tensors that stay, by the C++ client; and the side socket.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "client/cpp/client.h"
#include "kernels/digest/digest.h"
#include "tests/integration/peer.h"
#include "tests/support/fake_gpu.h"

namespace rlk::test {
namespace {

class ResidentCallsTest : public testing::Test {
 protected:
  ResidentCallsTest() {
    server::Options options = TestOptions();
    options.unix_path = dir_.File("socket");
    server_.emplace(options);
  }
  TempDir dir_;
  std::optional<TestServer> server_;
};

TEST_F(ResidentCallsTest, CallsOnResidentTensorsGiveTheSameBits) {
  const auto client = client::Client::Connect("unix:" + dir_.File("socket"));
  ASSERT_TRUE(client.ok());
  client::Tensor x = *client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{64, 257});
  float next = -40;
  for (float& value : x.mutable_as<float>()) value = next += 0.005f;
  client::CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref()}};
  const auto inline_result = client->Call(request);
  ASSERT_TRUE(inline_result.ok()) << inline_result.status();
  const auto resident = client->Put(x.ref());
  ASSERT_TRUE(resident.ok()) << resident.status();
  request.inputs = {{"x", resident->ref()}};
  (*request.options.mutable_outputs())["y"].mutable_resident();
  const auto kept = client->Call(request);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->report->transports_size(), 1);
  EXPECT_EQ(kept->report->transports(0), "resident");
  ASSERT_NE(kept->Resident("y"), nullptr);
  const auto y = client->Get(*kept->Resident("y"));
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(ComputeDigest(y->view()), ComputeDigest(inline_result->Output("y")->view()));
  // A row of it, by its offset.
  client::TensorRef row = resident->ref();
  row.shape = {257};
  row.resident->set_offset(63 * 257 * sizeof(float));
  request.inputs = {{"x", row}};
  request.options.clear_outputs();
  const auto last = client->Call(request);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(0, std::memcmp(last->Output("y")->bytes().data(),
                           y->bytes().data() + 63 * 257 * sizeof(float), 257 * sizeof(float)));
}

TEST_F(ResidentCallsTest, TheClientPicksTheWay) {
  const auto client = client::Client::Connect(server_->tcp());
  ASSERT_TRUE(client.ok());
  for (const int64_t rows : {int64_t{1}, int64_t{300}, int64_t{1000}}) {
    client::Tensor x = *client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{rows, 1024});
    float next = -40;
    for (float& value : x.mutable_as<float>()) value = next += 0.0001f;
    client::CallRequest request{.method = "final_logit_softcap.forward"};
    // Transposed in memory: a view, sent as what it spans.
    request.inputs = {{"x",
                       {.dtype = DType::kF32,
                        .shape = {1024, rows},
                        .strides = Dims{1, 1024},
                        .data = x.bytes().data()}}};
    const auto result = client->Call(request);
    ASSERT_TRUE(result.ok()) << rows << ": " << result.status();
    ASSERT_NE(result->Output("y"), nullptr);
    EXPECT_TRUE(result->residents.empty());
    const auto y = result->Output("y")->as<float>();
    const auto values = x.as<float>();
    for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
      EXPECT_NEAR(y[static_cast<size_t>(7 * rows + row)],
                  30 * std::tanh(values[static_cast<size_t>(row * 1024 + 7)] / 30), 1e-4);
    }
  }
  // Nothing is left on the server.
  EXPECT_TRUE(client->ListTensors()->empty());
}

TEST_F(ResidentCallsTest, ALostSideConnectionEndsItsSession) {
  std::optional<client::Client> client = *client::Client::Connect("unix:" + dir_.File("socket"));
  client::Tensor x = *client::Tensor::Allocate(DType::kU8, std::vector<int64_t>{1000});
  for (uint8_t& value : x.mutable_as<uint8_t>()) value = 7;
  ASSERT_TRUE(client->Put(x.ref()).ok());
  AwaitSeries(*server_, "rlk_sessions", 1);
  client.reset();
  AwaitSeries(*server_, "rlk_sessions", 0);
  AwaitSeries(*server_, "rlk_leases", 0);
}

TEST_F(ResidentCallsTest, TheSideSocketAnswersWhatItIsNotAskedWithErrors) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, (dir_.File("socket") + ".side").c_str(), sizeof(address.sun_path) - 1);
  rlk::v1::SideRequest open;
  open.mutable_open_session();
  const std::string cases[][2] = {{"garbage", "MALFORMED_MESSAGE"},
                                  {std::string(5000, 'x'), "MESSAGE_TOO_LARGE"},
                                  {std::string("\x7a\x00", 2), "UNKNOWN_FIELD"}};
  for (const auto& [packet, reason] : cases) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_GT(send(fd, packet.data(), packet.size(), 0), 0);
    char buffer[8192];
    rlk::v1::SideReply reply;
    const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
    ASSERT_TRUE(reply.ParseFromArray(buffer, static_cast<int>(got)));
    const grpc::Status status(grpc::StatusCode::UNKNOWN, "", reply.error());
    EXPECT_EQ(FactsOf(status).reason, reason);
    // The connection is good for a session still.
    const std::string good = open.SerializeAsString();
    ASSERT_GT(send(fd, good.data(), good.size(), 0), 0);
    const ssize_t opened = recv(fd, buffer, sizeof(buffer), 0);
    ASSERT_TRUE(reply.ParseFromArray(buffer, static_cast<int>(opened)));
    EXPECT_EQ(reply.open_session().token().size(), 65u);
    close(fd);
  }
  AwaitSeries(*server_, "rlk_sessions", 0);
}

TEST_F(ResidentCallsTest, ABudgetThatIsUsedUpIsRefusedBeforeAByteIsRead) {
  server::Options options = TestOptions();
  options.limits.resident_bytes_max = 64 << 10;
  const TestServer server(options);
  const Peer peer(server.tcp());
  TensorDescription tensor, refused;
  ASSERT_TRUE(peer.Put(Header(rlk::v1::DATA_TYPE_U8, {60 << 10}), Pattern(60 << 10), &tensor).ok());
  const grpc::Status status =
      peer.Put(Header(rlk::v1::DATA_TYPE_U8, {8 << 10}), Pattern(8 << 10), &refused);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(FactsOf(status).reason, "BYTES_EXHAUSTED");
  EXPECT_TRUE(FactsOf(status).has_retry_info);
  const grpc::Status never =
      peer.Put(Header(rlk::v1::DATA_TYPE_U8, {80 << 10}), Pattern(80 << 10), &refused);
  EXPECT_EQ(never.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(peer.Release(tensor.handle()).ok());
  EXPECT_TRUE(peer.Put(Header(rlk::v1::DATA_TYPE_U8, {8 << 10}), Pattern(8 << 10), &tensor).ok());
}

TEST_F(ResidentCallsTest, AGpuIsWhereTensorsGoWhereThereIsOne) {
  server::ServerHooks hooks;
  const auto control = std::make_shared<FakeControl>();
  hooks.devices = MakeFakeGpus({control});
  hooks.fill_registry = FillFakeGpuRegistry;
  const TestServer server(TestOptions(), std::move(hooks));
  const auto client = client::Client::Connect(server.tcp());
  ASSERT_TRUE(client.ok());
  client::Tensor x = *client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{1000});
  for (float& value : x.mutable_as<float>()) value = 1;
  const auto resident = client->Put(x.ref());
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_EQ(resident->device_uuid, "fake-0");
  client::CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", resident->ref()}};
  const auto result = client->Call(request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report->device().uuid(), "fake-0");
  EXPECT_EQ(control->arrivals(FakePoint::kStageIn), 0) << "nothing moves to the device";
  request.options.set_backend("cpu");
  const auto refused = client->Call(request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace rlk::test
