// --record, rlk record and rlk replay: what a server did, taken down and done again.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "client/cli/command.h"
#include "client/cli/replay.h"
#include "client/cpp/client.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"
#include "tests/integration/fixture.h"
#include "tests/integration/server_process.h"
#include "tests/support/fake_device.h"
#include "tests/support/fake_gpu.h"

namespace rlk::test {
namespace {

using nlohmann::json;

constexpr int64_t kCalls = 1000;

struct Ran {
  int exit_code = 0;
  json document;
  std::string text, errors;
};

Ran Rlk(std::vector<std::string> words) {
  Ran ran;
  std::ostringstream out, err;
  words.emplace_back("--json");
  ran.exit_code = cli::RunCommand(words, out, err);
  ran.document = json::parse(out.str(), nullptr, false);
  ran.errors = err.str();
  words.pop_back();
  std::ostringstream text;
  EXPECT_EQ(cli::RunCommand(words, text, err), ran.exit_code);
  ran.text = text.str();
  return ran;
}

int64_t SizeOf(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? status.st_size : -1;
}

// Small and different: call i has values of its own.
client::Tensor ValuesOf(int64_t i, int64_t count = 6) {
  client::Tensor x = *client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{2, count / 2});
  float next = static_cast<float>(i) * 0.125f - 30;
  for (float& value : x.mutable_as<float>()) value = next += 0.5f;
  return x;
}

client::CallRequest Softcap(const client::Tensor& x) {
  client::CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref()}};
  request.attributes = {{"softcap", 20.0}};
  return request;
}

// Of a server's series: calls that are written, and those that are not.
struct Counts {
  double recorded = 0, queue_drops = 0, file_drops = 0;
};

// When so many calls have met their end: a thread of the server writes them.
Counts AwaitCounts(const std::string& metrics, double calls) {
  for (;;) {
    const std::string text = Scrape(metrics);
    const Counts counts = {SeriesValue(text, "rlk_recorded_calls_total"),
                           SeriesValue(text, "rlk_recording_drops_total{reason=\"queue\"}"),
                           SeriesValue(text, "rlk_recording_drops_total{reason=\"file\"}")};
    if (counts.recorded + counts.queue_drops + counts.file_drops >= calls) return counts;
    std::this_thread::yield();
  }
}

// A host whose n-th launch has one wrong bit.
server::ServerHooks FaultyHost(int64_t launch) {
  const auto control = std::make_shared<FakeControl>();
  control->FlipBitAt(launch);
  server::ServerHooks hooks;
  FakeDeviceOptions fake;
  fake.kind = DeviceKind::kHost;
  fake.compute_capability = 0;
  hooks.devices.push_back(MakeFakeDevice(control, fake));
  return hooks;
}

class RecordTest : public testing::Test {
 protected:
  server::Options Recording(bool tensors) const {
    server::Options options = TestOptions();
    options.record = file_;
    options.record_tensors = tensors;
    return options;
  }

  TempDir dir_;
  const std::string file_ = dir_.File("calls.rlkrec");
};

TEST_F(RecordTest, ReplayFindsTheOneWrongBitOfAThousandCalls) {
  constexpr int64_t kWrong = 618;
  {
    TestServer server(Recording(true), FaultyHost(kWrong));
    const auto client = client::Client::Connect(server.tcp());
    ASSERT_TRUE(client.ok()) << client.status();
    for (int64_t i = 0; i < kCalls; ++i) {
      const auto result = client->Call(Softcap(ValuesOf(i)));
      ASSERT_TRUE(result.ok()) << result.status();
      // Recording is nobody's business but the operator's.
      ASSERT_EQ(result->report->input_digests_size(), 0);
      ASSERT_EQ(result->report->output_digests_size(), 0);
    }
    EXPECT_EQ(AwaitCounts(server.metrics(), kCalls).recorded, kCalls);
  }
  TestServer sound;
  const Ran ran = Rlk({"replay", file_, "--server", sound.tcp()});
  EXPECT_EQ(ran.exit_code, cli::kExitRefused);
  EXPECT_EQ(ran.document.at("calls"), kCalls);
  EXPECT_EQ(ran.document.at("equal"), kCalls - 1);
  EXPECT_EQ(ran.document.at("different"), 1);
  const json& first = ran.document.at("first_different");
  EXPECT_EQ(first.at("number"), kWrong);
  EXPECT_EQ(first.at("method"), "final_logit_softcap.forward");
  EXPECT_EQ(first.at("attributes").at("softcap"), 20);
  EXPECT_EQ(first.at("inputs").at(0).at("digest"),
            ComputeDigest(ValuesOf(kWrong - 1).view()).Text());
  ASSERT_EQ(first.at("outputs").size(), 1u);
  EXPECT_EQ(first.at("outputs").at(0).at("name"), "y");
  EXPECT_NE(first.at("outputs").at(0).at("recorded"), first.at("outputs").at(0).at("replayed"));
  EXPECT_NE(ran.text.find("the first with other bits is call 618"), std::string::npos) << ran.text;
  EXPECT_NE(ran.text.find("softcap=20"), std::string::npos) << ran.text;
  EXPECT_NE(ran.errors.find("call 618"), std::string::npos);

  const Ran stopped = Rlk({"replay", file_, "--server", sound.tcp(), "--stop"});
  EXPECT_EQ(stopped.exit_code, cli::kExitRefused);
  EXPECT_EQ(stopped.document.at("calls"), kWrong);
}

TEST_F(RecordTest, TheSameBuildGivesTheSameBits) {
  {
    TestServer server(Recording(true));
    const auto client = client::Client::Connect(server.tcp());
    ASSERT_TRUE(client.ok());
    for (int64_t i = 0; i < 20; ++i) ASSERT_TRUE(client->Call(Softcap(ValuesOf(i % 5))).ok());
    // Attributes by name, an input that is optional, and an output that is not wanted.
    const client::Tensor x = ValuesOf(3, 16);
    client::Tensor weight = *client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{8});
    for (float& value : weight.mutable_as<float>()) value = 1.5f;
    client::CallRequest norm{.method = "rms_norm_gated.forward"};
    norm.inputs = {{"x", x.ref()}, {"gate", x.ref()}, {"weight", weight.ref()}};
    const auto gated = client->Call(norm);
    ASSERT_TRUE(gated.ok()) << gated.status();
    client::CallRequest backward{.method = "rms_norm.backward"};
    backward.inputs = {{"grad_y", x.ref()}, {"x", x.ref()}, {"weight", weight.ref()}};
    backward.options.add_wanted_outputs("grad_x");
    const auto gradient = client->Call(backward);
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    // The reference has contracts of its own, which no other backend has.
    client::CallRequest golden = Softcap(x);
    golden.options.set_backend("golden");
    golden.attributes["output_dtype"] = DType::kF32;
    ASSERT_TRUE(client->Call(golden).ok());
    // It has no bits to compare.
    client::CallRequest wrong = Softcap(x);
    wrong.attributes = {{"softcap", -1.0}};
    EXPECT_FALSE(client->Call(wrong).ok());
  }
  EXPECT_EQ(SizeOf(file_) > 0, true);
  struct stat status = {};
  ASSERT_EQ(stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);

  const Ran contents = Rlk({"record", file_});
  EXPECT_EQ(contents.exit_code, cli::kExitOk);
  EXPECT_EQ(contents.document.at("calls"), 23);
  // Each tensor once, however often it came.
  EXPECT_EQ(contents.document.at("tensors"), 7);
  EXPECT_EQ(contents.document.at("failed"), 1);
  EXPECT_EQ(contents.document.at("without_tensors"), 0);
  EXPECT_EQ(contents.document.at("methods").at("final_logit_softcap.forward"), 21);
  EXPECT_TRUE(contents.document.at("complete").get<bool>());

  TestServer again;
  for (const char* backend : {"", "cpu"}) {
    const Ran ran = Rlk({"replay", file_, "--server", again.tcp(), "--backend", backend});
    EXPECT_EQ(ran.exit_code, cli::kExitOk) << ran.errors << ran.text;
    EXPECT_EQ(ran.document.at("equal"), 23);
    EXPECT_TRUE(ran.document.at("first_different").is_null());
  }
}

TEST_F(RecordTest, DigestsAloneAreToldApartFromCallsThatWereReplayed) {
  TestServer sound;
  {
    TestServer server(Recording(false));
    const auto client = client::Client::Connect(server.tcp());
    ASSERT_TRUE(client->Call(Softcap(ValuesOf(1))).ok());
  }
  const Ran ran = Rlk({"replay", file_, "--server", sound.tcp()});
  EXPECT_EQ(ran.exit_code, cli::kExitRefused);
  EXPECT_EQ(ran.document.at("without_tensors"), 1);
  EXPECT_EQ(ran.document.at("equal"), 0);
  EXPECT_NE(ran.errors.find("--record-tensors"), std::string::npos) << ran.errors;
  // The digests are there.
  const auto file = cli::RecordingFile::Open(file_, false);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto call = (*file)->reader().Next();
  ASSERT_TRUE(call.ok() && call->has_value());
  EXPECT_EQ((*call)->inputs[0].digest, ComputeDigest(ValuesOf(1).view()));
}

TEST_F(RecordTest, RecordsResidentTensorsWhereverTheyLie) {
  for (const bool gpu : {false, true}) {
    const std::string path = dir_.File(gpu ? "gpu" : "host");
    server::Options options = Recording(true);
    options.record = path;
    server::ServerHooks hooks;
    if (gpu) {
      hooks.devices = MakeFakeGpus({std::make_shared<FakeControl>()});
      hooks.fill_registry = FillFakeGpuRegistry;
    }
    {
      TestServer server(options, std::move(hooks));
      const auto client = client::Client::Connect(server.tcp());
      ASSERT_TRUE(client.ok());
      const client::Tensor x = ValuesOf(1, 64);
      const auto resident = client->Put(x.ref());
      ASSERT_TRUE(resident.ok()) << resident.status();
      for (int i = 0; i < 3; ++i) {
        client::CallRequest request = Softcap(x);
        request.inputs = {{"x", resident->ref()}};
        (*request.options.mutable_outputs())["y"].mutable_resident();
        const auto kept = client->Call(request);
        ASSERT_TRUE(kept.ok()) << kept.status();
        // A view of the result with strides is taken down in C order.
        request.inputs = {{"x", kept->Resident("y")->ref()}};
        request.inputs[0].second.dtype = DType::kF32;
        request.inputs[0].second.shape = {32, 2};
        request.inputs[0].second.strides = Dims{1, 32};
        ASSERT_TRUE(client->Call(request).ok());
      }
    }
    TestServer sound;
    const Ran ran = Rlk({"replay", path, "--server", sound.tcp()});
    EXPECT_EQ(ran.exit_code, cli::kExitOk) << ran.errors << ran.text;
    EXPECT_EQ(ran.document.at("equal"), 6);
    EXPECT_EQ(ran.document.at("recording").at("tensors"), 2);
  }
}

// Many callers at once: every reply is right, and what is in the file is what was answered.
TEST_F(RecordTest, LoadCostsNoWrongBytesAndKeepsItsBounds) {
  constexpr int kThreads = 4, kEach = 100;
  // Whether the small queue is ever full, nobody can say.
  const struct {
    const char* name;
    int64_t file_bytes, queue_bytes;
    std::optional<bool> all;
    bool some;
  } cases[] = {{"roomy", int64_t{1} << 30, int64_t{64} << 20, true, true},
               {"small file", 40'000, int64_t{64} << 20, false, true},
               {"small queue", int64_t{1} << 30, 5'000, std::nullopt, true},
               {"no queue", int64_t{1} << 30, 1, false, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    server::Options options = Recording(true);
    options.record = dir_.File(c.name);
    options.record_bytes_max = c.file_bytes;
    options.record_queue_bytes_max = c.queue_bytes;
    Counts counts;
    {
      TestServer server(options, {}, server::LogLevel::kError);
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&server, t] {
          const auto client = client::Client::Connect(server.tcp());
          ASSERT_TRUE(client.ok());
          for (int i = 0; i < kEach; ++i) {
            const client::Tensor x = ValuesOf(t * kEach + i, 512);
            client::CallRequest request = Softcap(x);
            const auto result = client->Call(request);
            ASSERT_TRUE(result.ok()) << result.status();
            request.options.set_verification(rlk::v1::VERIFICATION_REFERENCE);
            const auto verified = client->Call(request);
            ASSERT_TRUE(verified.ok()) << verified.status();
            EXPECT_TRUE(verified->report->verification().passed());
            EXPECT_EQ(ComputeDigest(result->Output("y")->view()),
                      ComputeDigest(verified->Output("y")->view()));
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      counts = AwaitCounts(server.metrics(), 2 * kThreads * kEach);
    }
    const auto& [recorded, queue_drops, file_drops] = counts;
    EXPECT_EQ(recorded + queue_drops + file_drops, 2 * kThreads * kEach);
    const bool all = recorded == 2 * kThreads * kEach;
    EXPECT_EQ(all, c.all.value_or(all));
    EXPECT_EQ(recorded > 0, c.some);
    EXPECT_LE(SizeOf(options.record), c.file_bytes);
    TestServer sound;
    const Ran ran = Rlk({"replay", options.record, "--server", sound.tcp()});
    EXPECT_EQ(ran.exit_code, c.some ? cli::kExitOk : cli::kExitRefused) << ran.errors;
    EXPECT_EQ(ran.document.at("equal"), recorded);
    EXPECT_EQ(ran.document.at("recording").at("dropped_queue"), queue_drops);
    EXPECT_EQ(ran.document.at("recording").at("dropped_file"), file_drops);
  }
}

// A disk that is full, or a bound on files, ends the recording: not the calls, and not the server.
// What is counted as recorded is in the file.
TEST_F(RecordTest, AFileThatCannotGrowCostsNoCall) {
  constexpr int kEach = 20;
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {.rlim_cur = 200'000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ServerProcess process({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
                         "--selftest-interval-seconds=0", "--record=" + file_,
                         "--record-tensors=true"});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto client = client::Client::Connect(process.listen());
  ASSERT_TRUE(client.ok());
  for (int64_t i = 0; i < kEach; ++i) {
    const auto result = client->Call(Softcap(ValuesOf(i, 8192)));
    ASSERT_TRUE(result.ok()) << i << result.status();
  }
  const Counts counts = AwaitCounts(process.metrics(), kEach);
  EXPECT_EQ(counts.recorded + counts.file_drops, kEach);
  EXPECT_GT(counts.file_drops, kEach / 2);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_NE(process.Stderr().find("the recording cannot be written"), std::string::npos);
  EXPECT_LE(SizeOf(file_), 200'000);
  EXPECT_EQ(Rlk({"record", file_}).exit_code, cli::kExitUsage) << "it has no end";
  TestServer sound;
  const Ran ran = Rlk({"replay", file_, "--incomplete", "--server", sound.tcp()});
  EXPECT_GE(ran.document.at("equal"), counts.recorded) << ran.text;
  EXPECT_EQ(ran.document.at("equal"), ran.document.at("calls")) << ran.text;
}

// Calls of many threads with the same new tensors: whatever is cut off behind a call, its tensors
// are there.
TEST_F(RecordTest, TensorsStandBeforeTheCallsThatUseThem) {
  {
    TestServer server(Recording(true));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&server] {
        const auto client = client::Client::Connect(server.tcp());
        ASSERT_TRUE(client.ok());
        for (int64_t i = 0; i < 50; ++i) {
          ASSERT_TRUE(client->Call(Softcap(ValuesOf(i, 16384))).ok());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const auto file = cli::RecordingFile::Open(file_, false);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string cut = dir_.File("cut");
  std::ostringstream whole;
  whole << std::ifstream(file_, std::ios::binary).rdbuf();
  for (size_t size = whole.str().size() / 16; size < whole.str().size();
       size += whole.str().size() / 16) {
    std::ofstream(cut, std::ios::binary) << whole.str().substr(0, size);
    EXPECT_EQ(Rlk({"record", cut, "--incomplete"}).document.at("without_tensors"), 0) << size;
  }
}

TEST_F(RecordTest, SaysThatThereIsNothingToReplay) {
  { TestServer server(Recording(true)); }
  TestServer sound;
  const Ran ran = Rlk({"replay", file_, "--server", sound.tcp()});
  EXPECT_EQ(ran.exit_code, cli::kExitRefused);
  EXPECT_NE(ran.errors.find("the recording has none"), std::string::npos) << ran.errors;
}

TEST_F(RecordTest, RefusesAFileThatIsThere) {
  std::ofstream(file_) << "mine";
  const server::Logger logger(server::LogLevel::kError);
  server::Options options = Recording(false);
  for (const std::string& path : {file_, dir_.File("none") + "/file"}) {
    options.record = path;
    const auto server = server::Server::Start(options, &logger, {});
    ASSERT_FALSE(server.ok());
    const auto detail = GetErrorDetail(server.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field, "--record");
    EXPECT_EQ(detail->value, path);
  }
  std::string kept;
  std::ifstream(file_) >> kept;
  EXPECT_EQ(kept, "mine");
}

TEST_F(RecordTest, RefusesTruncatedAndForeignRecordings) {
  {
    TestServer server(Recording(true));
    const auto client = client::Client::Connect(server.tcp());
    for (int64_t i = 0; i < 3; ++i) ASSERT_TRUE(client->Call(Softcap(ValuesOf(i))).ok());
  }
  std::ostringstream whole;
  whole << std::ifstream(file_, std::ios::binary).rdbuf();
  const std::string cut = dir_.File("cut"), foreign = dir_.File("foreign");
  std::ofstream(cut, std::ios::binary) << whole.str().substr(0, whole.str().size() - 100);
  std::ofstream(foreign) << std::string(500, 'a');
  TestServer sound;
  for (const std::string& path : {cut, foreign, dir_.File("none"), dir_.File("")}) {
    for (const char* command : {"record", "replay"}) {
      const Ran ran = Rlk({command, path, "--server", sound.tcp()});
      EXPECT_EQ(ran.exit_code, cli::kExitUsage) << command << " " << path;
      EXPECT_FALSE(ran.errors.empty());
    }
  }
  const Ran rest = Rlk({"replay", cut, "--incomplete", "--server", sound.tcp()});
  EXPECT_EQ(rest.exit_code, cli::kExitOk) << rest.errors;
  EXPECT_GT(rest.document.at("equal"), 0);
  EXPECT_FALSE(rest.document.at("recording").at("complete").get<bool>());
  EXPECT_TRUE(rest.document.at("recording").at("dropped_queue").is_null());
}

TEST_F(RecordTest, SaysWhatTheOtherServerRefuses) {
  {
    TestServer server(Recording(true));
    const auto client = client::Client::Connect(server.tcp());
    ASSERT_TRUE(client->Call(Softcap(ValuesOf(1))).ok());
  }
  TestServer sound;
  const Ran ran = Rlk({"replay", file_, "--server", sound.tcp(), "--backend", "cuda"});
  EXPECT_EQ(ran.exit_code, cli::kExitRefused);
  EXPECT_EQ(ran.document.at("refused").at("BACKEND_UNAVAILABLE"), 1) << ran.text;
  EXPECT_EQ(ran.document.at("first_refused").at("number"), 1);
  const Ran nobody = Rlk({"replay", file_, "--server", "127.0.0.1:1"});
  EXPECT_EQ(nobody.exit_code, cli::kExitUnreachable);
}

}  // namespace
}  // namespace rlk::test
