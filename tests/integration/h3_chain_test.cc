// The chain of MiniMax-H3's timestep conditioning on made-up weights: agreement with the reference,
// planted faults, weights that are not what their manifest says.
#include "client/cpp/h3_chain.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/weights_prepare.h"
#include "client/cpp/adaln.h"
#include "client/cpp/timestep.h"
#include "kernels/core/status.h"
#include "tests/integration/fixture.h"
#include "tests/integration/h3_faults.h"
#include "tests/support/fake_gpu.h"

namespace rlk::test {
namespace {

using client::H3CheckOptions;
using client::H3Report;
using client::H3Verdict;

constexpr client::H3Sizes kSizes = {.channels = 32, .hidden = 48, .embedding = 24, .width = 8};
constexpr char kLastFile[] = "model-00003-of-00003.safetensors";

class H3ChainTest : public testing::Test {
 protected:
  H3ChainTest() {
    Planted().method.clear();
    const absl::Status written =
        cli::WriteSyntheticH3(dir_.File("weights"), {.sizes = kSizes, .seed = 7});
    EXPECT_TRUE(written.ok()) << written;
    const auto manifest = cli::PrepareH3Weights(dir_.File("weights"), {});
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    manifest_ = *manifest;
    check_.run.backward = true;
    check_.load.folder = "weights";
  }

  void Start(server::ServerHooks hooks = {}) {
    server::Options options = TestOptions();
    options.weights_root = dir_.File("");
    client_.reset();
    server_.emplace(options, std::move(hooks));
    client_.emplace(*client::Client::Connect(server_->tcp(), {.own_connection = true}));
  }
  void StartFaulty() {
    server::ServerHooks hooks;
    hooks.fill_registry = FillFaulty;
    Start(std::move(hooks));
  }
  H3Report Check() {
    auto report = client::CheckH3Chain(*client_, manifest_, check_);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : H3Report();
  }
  void ExpectNothingStays() {
    EXPECT_EQ(client_->ListTensors()->size(), 0u);
    // A call's own hold on a tensor may end a little after its reply.
    while (SeriesValue(Scrape(server_->metrics()), "rlk_resident_bytes") != 0) {
      std::this_thread::yield();
    }
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(dir_.File("weights/" + name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(dir_.File("weights/" + name), std::ios::binary | std::ios::trunc) << bytes;
  }

  TempDir dir_;
  rlk::v1::WeightsManifest manifest_;
  H3CheckOptions check_;
  std::optional<TestServer> server_;
  std::optional<client::Client> client_;
};

TEST_F(H3ChainTest, AgreesWithTheReferenceForEveryT) {
  Start();
  const H3Report report = Check();
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.synthetic, "seed 7");
  EXPECT_EQ(report.sizes, kSizes);
  ASSERT_EQ(report.counts.size(), 4u);
  for (const auto& count : report.counts) {
    ASSERT_EQ(count.stages.size(), 6u);
    EXPECT_TRUE(count.stages[0].same_inputs);
    for (const auto& stage : count.stages) {
      EXPECT_EQ(stage.verdict, H3Verdict::kPassed) << stage.stage;
      EXPECT_EQ(stage.checked.report.backend(), "cpu");
      EXPECT_EQ(stage.reference.report.backend(), "golden");
      for (const auto& output : stage.outputs) {
        EXPECT_GT(output.chain.counts().compared(), 0) << output.name;
        EXPECT_EQ(output.chain.judgment(), rlk::v1::JUDGMENT_ACCURACY);
        EXPECT_FALSE(output.chain.rule().bitwise());
      }
    }
    // What the files say of their values is in the report of each call that used them.
    EXPECT_EQ(count.stages[1].checked.report.synthetic_inputs_size(), 4);
    EXPECT_EQ(count.stages[2].checked.report.synthetic_inputs(0), "weight");
    EXPECT_EQ(count.stages[0].checked.report.synthetic_inputs_size(), 0);
  }
  // embedding, temb, pre, six views, grad_temb, grad_embedding, grad_timestep, for T = 1, 2, 3.
  EXPECT_EQ(report.rows_compared, 12 * (1 + 2 + 3));
  // 1 + 2 + 6 + 3 + 5 + 1 outputs, four times.
  EXPECT_EQ(report.digests_compared, 4 * 18);
  ExpectNothingStays();
}

TEST_F(H3ChainTest, OfABackendThatGivesTheSameBitsEveryBitIsCompared) {
  Start();
  check_.reference = "cpu";
  const H3Report report = Check();
  EXPECT_TRUE(report.passed());
  for (const auto& stage : report.counts.back().stages) {
    EXPECT_TRUE(stage.same_inputs) << stage.stage;
    for (const auto& output : stage.outputs) EXPECT_EQ(output.chain.counts().mismatched(), 0);
  }
}

// Each fault in each stage: that stage is named and no earlier one, and what follows has, at most,
// inherited it.
TEST_F(H3ChainTest, NamesTheStageOfAPlantedFault) {
  StartFaulty();
  check_.counts = {1, 3};
  ASSERT_TRUE(Check().passed()) << "without a fault";
  for (const Fault fault :
       {Fault::kOneElement, Fault::kLastOutput, Fault::kUnwritten, Fault::kNan}) {
    for (size_t at = 0; at < 6; ++at) {
      Planted().method = client::H3Stages()[at].method;
      Planted().fault = fault;
      const std::string stage = client::H3Stages()[at].name;
      const H3Report report = Check();
      ASSERT_TRUE(report.first.has_value()) << stage << ", fault " << static_cast<int>(fault);
      EXPECT_EQ(report.first->stage, stage) << "fault " << static_cast<int>(fault);
      EXPECT_EQ(report.first->verdict, H3Verdict::kInjected) << stage;
      for (const auto& count : report.counts) {
        for (size_t i = 0; i < 6; ++i) {
          const H3Verdict verdict = count.stages[i].verdict;
          const bool expected = i < at    ? verdict == H3Verdict::kPassed
                                : i == at ? verdict == H3Verdict::kInjected
                                          : verdict != H3Verdict::kInjected;
          EXPECT_TRUE(expected) << stage << ": " << count.stages[i].stage;
        }
      }
    }
  }
  ExpectNothingStays();
}

TEST_F(H3ChainTest, WhatAFaultyStageFeedsIsInherited) {
  StartFaulty();
  check_.counts = {2};
  Planted().method = "timestep_mlp_fp32.forward";
  Planted().fault = Fault::kOneElement;
  const H3Report report = Check();
  const auto& stages = report.counts[0].stages;
  EXPECT_EQ(stages[1].verdict, H3Verdict::kInjected);
  EXPECT_EQ(stages[2].verdict, H3Verdict::kInherited);
  EXPECT_FALSE(stages[2].same_inputs);
  EXPECT_FALSE(stages[2].outputs[0].chain.passed());
  EXPECT_TRUE(stages[2].outputs[0].alone.passed());
}

// One ULP is inside every tolerance: the rows of other T tell.
TEST_F(H3ChainTest, NamesTheStageWhoseRowsDependOnT) {
  StartFaulty();
  for (size_t at = 0; at < 6; ++at) {
    Planted().method = client::H3Stages()[at].method;
    Planted().fault = Fault::kByRows;
    const std::string stage = client::H3Stages()[at].name;
    const H3Report report = Check();
    EXPECT_FALSE(report.passed()) << stage;
    ASSERT_FALSE(report.rows_that_differ.empty()) << stage;
    EXPECT_EQ(report.rows_that_differ[0].find(stage + " "), 0u) << report.rows_that_differ[0];
    EXPECT_NE(report.rows_that_differ[0].find("T = 1: timestep 0"), std::string::npos);
  }
}

// The chain, the stage on the reference's inputs, the chain through the client.
TEST_F(H3ChainTest, NamesTheStageThatDiffersThroughTheClient) {
  StartFaulty();
  check_.counts = {2};
  for (size_t at = 1; at < 6; ++at) {
    Planted().method = client::H3Stages()[at].method;
    Planted().fault = Fault::kThirdLaunch;
    Planted().launches = 0;
    const std::string stage = client::H3Stages()[at].name;
    const H3Report report = Check();
    EXPECT_FALSE(report.passed()) << stage;
    EXPECT_FALSE(report.first.has_value()) << stage;
    ASSERT_FALSE(report.through_client_differs.empty()) << stage;
    EXPECT_EQ(report.through_client_differs[0].find(stage + " "), 0u);
  }
}

TEST_F(H3ChainTest, RunsOnAGpuBesideAReferenceOnTheHost) {
  server::ServerHooks hooks;
  hooks.devices = MakeFakeGpus({std::make_shared<FakeControl>()});
  hooks.fill_registry = FillGpu;
  Start(std::move(hooks));
  check_.counts = {1, 2};
  const H3Report report = Check();
  EXPECT_TRUE(report.passed());
  for (const auto& stage : report.counts.back().stages) {
    EXPECT_EQ(stage.checked.report.backend(), "cuda") << stage.stage;
    EXPECT_EQ(stage.reference.report.backend(), "golden") << stage.stage;
  }
  check_.reference = "cpu";
  EXPECT_TRUE(Check().passed());
  check_.reference = "golden";
  check_.run.backend = "cpu";
  EXPECT_TRUE(Check().passed());
  ExpectNothingStays();
}

// The same chain from typed calls alone, nothing of it resident: whole-chain bytes are equal.
TEST_F(H3ChainTest, StageByStageFromAClientTheBytesAreTheSameForEveryT) {
  Start();
  const auto weights = client::LoadH3Weights(*client_, manifest_, {.folder = "weights"});
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::map<std::string, client::Tensor> local;
  for (const auto& role : client::H3Roles(kSizes)) {
    local[role.name] = *client_->Get(weights->Role(role.name));
  }
  const float values[4] = {0.125f, 0.75f, 0, 1};
  std::string whole;  // gate_msa of four timesteps
  for (int64_t count = 4; count >= 1; --count) {
    const client::TensorRef timesteps{.dtype = DType::kF32, .shape = {count}, .data = values};
    const auto run = client::RunH3Chain(*client_, *weights, timesteps);
    ASSERT_TRUE(run.ok()) << run.status();
    const auto sinusoid = client::TimestepSinusoidH3Forward(
        *client_, {.timestep = timesteps, .num_channels = kSizes.channels});
    ASSERT_TRUE(sinusoid.ok()) << sinusoid.status();
    const auto mlp = client::TimestepMlpFp32Forward(*client_, {.x = sinusoid->embedding->ref(),
                                                               .w1 = local["w1"].ref(),
                                                               .b1 = local["b1"].ref(),
                                                               .w2 = local["w2"].ref(),
                                                               .b2 = local["b2"].ref()});
    ASSERT_TRUE(mlp.ok()) << mlp.status();
    const auto views = client::AdalnProjection3modForward(
        *client_,
        {.temb = mlp->y->ref(), .weight = local["weight"].ref(), .bias = local["bias"].ref()});
    ASSERT_TRUE(views.ok()) << views.status();
    const auto bytes = [](const client::Tensor& tensor) {
      return std::string(reinterpret_cast<const char*>(tensor.bytes().data()),
                         tensor.bytes().size());
    };
    const std::pair<const char*, const client::Tensor*> pairs[] = {
        {"embedding", &*sinusoid->embedding}, {"temb", &*mlp->y},
        {"shift_msa", &*views->shift_msa},    {"scale_msa", &*views->scale_msa},
        {"gate_msa", &*views->gate_msa},      {"shift_mlp", &*views->shift_mlp},
        {"scale_mlp", &*views->scale_mlp},    {"gate_mlp", &*views->gate_mlp}};
    for (const auto& [name, mine] : pairs) {
      const auto theirs = client_->Get(run->tensors.at(name));
      ASSERT_TRUE(theirs.ok()) << theirs.status();
      EXPECT_EQ(bytes(*theirs), bytes(*mine)) << name << ", T = " << count;
    }
    const std::string gate = bytes(*views->gate_msa);
    if (count == 4) whole = gate;
    EXPECT_EQ(gate, whole.substr(0, gate.size())) << "T = " << count;
    for (const auto& [name, tensor] : run->tensors) {
      EXPECT_TRUE(client_->Release({tensor}).ok()) << name;
    }
  }
}

TEST_F(H3ChainTest, AFailedStageLeavesNothing) {
  Start();
  const auto weights = client::LoadH3Weights(*client_, manifest_, {.folder = "weights"});
  ASSERT_TRUE(weights.ok()) << weights.status();
  const float values[2] = {0.5f, 2};  // outside [0, 1]
  const client::TensorRef timesteps{.dtype = DType::kF32, .shape = {2}, .data = values};
  const auto refused = client::RunH3Chain(*client_, *weights, timesteps);
  EXPECT_EQ(GetErrorDetail(refused.status())->reason, Reason::kValueOutOfRange);
  EXPECT_TRUE(client_->Release(weights->tensors).ok());
  check_.timesteps = {0.5f, 2};
  EXPECT_FALSE(client::CheckH3Chain(*client_, manifest_, check_).ok());
  ExpectNothingStays();
}

TEST_F(H3ChainTest, AStageNeedsThoseBeforeIt) {
  Start();
  const struct {
    std::vector<std::string> stages;
    const char* allowed;  // null: taken
  } cases[] = {
      {{"sinusoid"}, nullptr},
      {{"mlp", "sinusoid"}, nullptr},
      {{"sinusoid", "mlp", "projection", "projection_backward"}, nullptr},
      {{"mlp"}, "sinusoid, mlp"},
      {{"sinusoid", "projection"}, "sinusoid, mlp, projection"},
      {{"projection_backward"}, "sinusoid, mlp, projection, projection_backward"},
      {{"norm"}, "sinusoid, mlp, projection, projection_backward, mlp_backward, sinusoid_backward"},
  };
  check_.run.backward = false;
  check_.counts = {2};
  for (const auto& c : cases) {
    check_.run.stages = c.stages;
    const auto report = client::CheckH3Chain(*client_, manifest_, check_);
    if (c.allowed == nullptr) {
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_TRUE(report->passed());
      EXPECT_EQ(report->counts[0].stages.size(), c.stages.size());
    } else {
      EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(GetErrorDetail(report.status())->field, "stages");
      EXPECT_EQ(GetErrorDetail(report.status())->allowed, c.allowed);
    }
  }
}

// What became of the files after the manifest was made.
TEST_F(H3ChainTest, RefusesWeightsByNameAndKeepsNothing) {
  Start();
  const std::string last = Read(kLastFile), middle = Read("model-00002-of-00003.safetensors");
  const auto edited = [&last](const std::string& from, const std::string& to) {
    std::string bytes = last;
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  std::string flipped = last;
  flipped.back() ^= 1;
  const struct {
    const char* name;
    std::string bytes;
    Reason reason;
    const char* told;
  } cases[] = {
      {"truncated", last.substr(0, last.size() - 1), Reason::kMalformedMessage, kLastFile},
      {"swapped with another", middle, Reason::kFileMismatch, "adaln_proj.linear"},
      {"a tensor renamed", edited("linear.bias", "linear.bios"), Reason::kFileMismatch,
       "transformer_blocks.0.adaln_proj.linear.bias"},
      {"retyped", edited("\"BF16\"", "\"F16\" "), Reason::kFileMismatch, ".dtype"},
      {"one bit of the last", flipped, Reason::kFileMismatch, ".sha256"},
      {"the label taken off", edited("rlk.synthetic", "rlk.synthetik"), Reason::kSyntheticWeights,
       kLastFile},
      {"the file renamed", "", Reason::kFilesUnavailable, kLastFile},
  };
  for (const auto& c : cases) {
    if (c.bytes.empty()) {
      std::filesystem::remove(dir_.File(std::string("weights/") + kLastFile));
    } else {
      Write(kLastFile, c.bytes);
    }
    const auto refused = client::CheckH3Chain(*client_, manifest_, check_);
    ASSERT_FALSE(refused.ok()) << c.name;
    EXPECT_EQ(GetErrorDetail(refused.status())->reason, c.reason) << refused.status();
    EXPECT_NE(refused.status().ToString().find(c.told), std::string::npos)
        << c.name << ": " << refused.status();
    ExpectNothingStays();
  }
  Write(kLastFile, last);
  check_.counts = {1};
  EXPECT_TRUE(Check().passed());
}

TEST_F(H3ChainTest, EvidenceAboutTheModelRefusesMadeUpWeights) {
  Start();
  check_.real_weights = true;
  const auto refused = client::CheckH3Chain(*client_, manifest_, check_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(refused.status())->reason, Reason::kSyntheticWeights);
  // A manifest that hides it does not get far: the files say it too.
  std::vector<client::ExpectedTensor> expected;
  for (const auto& entry : manifest_.tensors()) {
    expected.push_back(
        {entry.tensor().key(), static_cast<DType>(entry.tensor().dtype()),
         Dims(std::span<const int64_t>(entry.tensor().shape().data(),
                                       static_cast<size_t>(entry.tensor().shape_size()))),
         entry.tensor().sha256(), "weights/" + entry.tensor().path()});
  }
  const auto hidden = client_->Load("", expected);
  EXPECT_EQ(hidden.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(hidden.status())->reason, Reason::kSyntheticWeights);
  ExpectNothingStays();
  const auto told = client_->Load("", expected, {.synthetic = "seed 7"});
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ((*told)[0].synthetic, "seed 7");
}

}  // namespace
}  // namespace rlk::test
