// --replay-every from outside: what the caller gets, the series, and the line of the log.
#include <sys/mman.h>
#include <unistd.h>

#include <sstream>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/digest/digest.h"
#include "tests/integration/fixture.h"
#include "tests/support/fake_device.h"

namespace rlk::test {
namespace {

constexpr char kTraceId[] = "0af7651916cd43dd8448eb211c80319c";

std::string TextOf(int fd) {
  std::string text;
  char buffer[4096];
  off_t offset = 0;
  for (ssize_t got; (got = pread(fd, buffer, sizeof(buffer), offset)) > 0; offset += got) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// The line of the log with this message.
google::protobuf::Struct LineOf(const std::string& log, const std::string& message) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    google::protobuf::Struct entry;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(line, &entry).ok()) << line;
    if (entry.fields().at("message").string_value() == message) return entry;
  }
  ADD_FAILURE() << "no line \"" << message << "\" in " << log;
  return {};
}

const google::protobuf::Value& Field(const google::protobuf::Struct& line, const char* name) {
  const auto found = line.fields().find(name);
  EXPECT_NE(found, line.fields().end()) << name;
  return found != line.fields().end() ? found->second : google::protobuf::Value::default_instance();
}

TEST(ReplayTest, AWrongBitIsDataLossASeriesAndALineThatReproducesIt) {
  const auto control = std::make_shared<FakeControl>();
  control->FlipBitAt(4);  // the second run of the second call
  server::ServerHooks hooks;
  FakeDeviceOptions fake;
  fake.kind = DeviceKind::kHost;
  fake.compute_capability = 0;
  hooks.devices.push_back(MakeFakeDevice(control, fake));
  server::Options options = TestOptions();
  options.replay_every = 1;
  const int log = memfd_create("log", MFD_CLOEXEC);
  TestServer server(options, std::move(hooks), server::LogLevel::kError, log);

  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  const rlk::v1::FinalLogitSoftcapForwardRequest request = ForwardRequest();
  for (const bool good : {true, false, true}) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", std::string("00-") + kTraceId + "-b7ad6b7169203331-01");
    rlk::v1::FinalLogitSoftcapForwardResponse response;
    const grpc::Status status = stub->FinalLogitSoftcapForward(&context, request, &response);
    ASSERT_EQ(status.ok(), good) << status.error_message();
    // Nobody asked: nobody is told.
    EXPECT_FALSE(response.report().has_verification());
    if (good) continue;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
    EXPECT_EQ(FactsOf(status).reason, "VERIFICATION_FAILED");
  }

  const std::string text = Scrape(server.metrics());
  EXPECT_EQ(SeriesValue(text, "rlk_replays_total"), 3);
  EXPECT_EQ(SeriesValue(text, "rlk_replay_mismatches_total"), 1);
  EXPECT_EQ(SeriesValue(text, "rlk_replays_skipped_total{reason=\"memory\"}"), 0);
  EXPECT_EQ(SeriesValue(text, "rlk_verifications_total{result=\"fail\",verification=\"repeat\"}"),
            0);

  const google::protobuf::Struct line =
      LineOf(TextOf(log), "two runs of a call gave different bits");
  close(log);
  EXPECT_EQ(Field(line, "level").string_value(), "error");
  EXPECT_EQ(Field(line, "trace_id").string_value(), kTraceId);
  EXPECT_EQ(Field(line, "method").string_value(), "final_logit_softcap.forward");
  EXPECT_EQ(Field(line, "contract").string_value(), "final_logit_softcap/portable-v1");
  EXPECT_EQ(Field(line, "backend").string_value(), "cpu");
  EXPECT_EQ(Field(line, "device_uuid").string_value(), "fake-0");
  EXPECT_TRUE(Field(line, "sampled").bool_value());
  EXPECT_FALSE(Field(line, "kernel").string_value().empty());
  EXPECT_EQ(Field(line, "provenance_id").string_value().size(), 32u);
  EXPECT_EQ(Field(line, "attributes").struct_value().fields().at("softcap").number_value(), 20);
  const std::vector<float> x = FloatsOf(request.x().data());
  const std::string digest =
      ComputeDigest(TensorView{DType::kF32, {2, 3}, {3, 1}, x.data()}).Text();
  const auto& input = Field(line, "inputs").list_value().values(0).struct_value().fields();
  EXPECT_EQ(input.at("name").string_value(), "x");
  EXPECT_EQ(input.at("digest").string_value(), digest);
  const auto& output = Field(line, "outputs").list_value().values(0).struct_value().fields();
  EXPECT_EQ(output.at("name").string_value(), "y");
  EXPECT_EQ(output.at("mismatched").number_value(), 1);
  EXPECT_NE(output.at("digest").string_value(), output.at("digest_again").string_value());
}

}  // namespace
}  // namespace rlk::test
