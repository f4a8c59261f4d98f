// The client library against a running server. The first argument is the server's TCP address, the
// second its Unix socket (unix:/path); cli_test.py starts the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <thread>

#include "client/cpp/client.h"
#include "client/cpp/det_linear.h"
#include "client/cpp/final_logit_softcap.h"
#include "client/cpp/rms_norm.h"
#include "client/cpp/timestep.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"

namespace rlk::client {
namespace {

std::vector<std::string>& Addresses() {
  static std::vector<std::string> addresses;
  return addresses;
}

Tensor Ramp(std::vector<int64_t> shape) {
  Tensor tensor = *Tensor::Allocate(DType::kF32, shape);
  float next = -50;
  for (float& value : tensor.mutable_as<float>()) value = next += 0.37f;
  return tensor;
}

class ClientServerTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto client = Client::Connect(Addresses()[static_cast<size_t>(GetParam())]);
    ASSERT_TRUE(client.ok()) << client.status();
    client_.emplace(*std::move(client));
  }
  const Client& client() const { return *client_; }

 private:
  std::optional<Client> client_;
};

TEST_P(ClientServerTest, TypedAndGenericCallsGiveTheSameBits) {
  const Tensor x = Ramp({3, 7});
  const auto typed = FinalLogitSoftcapForward(client(), {.x = x.ref(), .softcap = 20.0});
  ASSERT_TRUE(typed.ok()) << typed.status();
  CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref()}};
  request.attributes = {{"softcap", int64_t{20}}};
  request.options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  const auto generic = client().Call(request);
  ASSERT_TRUE(generic.ok()) << generic.status();
  const Tensor* y = generic->Output("y");
  ASSERT_NE(y, nullptr);
  EXPECT_EQ(y->shape(), x.shape());
  EXPECT_EQ(ComputeDigest(y->view()), ComputeDigest(typed->y.view()));
  ASSERT_EQ(generic->report->output_digests_size(), 1);
  EXPECT_EQ(generic->report->output_digests(0).digest(), ComputeDigest(y->view()).Text());
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double expected = 20 * std::tanh(static_cast<double>(x.as<float>()[i]) / 20);
    EXPECT_NEAR(y->as<float>()[i], expected, 1e-5 * std::fabs(expected));
  }
}

// Inline, and above what a message takes: those lie on the server for the call alone.
TEST_P(ClientServerTest, ComparesTensorsOfAnySize) {
  for (const int64_t columns : {5, 400000}) {
    const Tensor x = Ramp({3, columns});
    Tensor y = Ramp({3, columns});
    auto comparison = client().Compare({.left = x.ref(), .right = y.ref()});
    ASSERT_TRUE(comparison.ok()) << comparison.status();
    EXPECT_TRUE(comparison->passed());
    EXPECT_EQ(comparison->counts().compared(), 3 * columns);
    const std::string digest = ComputeDigest(x.view()).Text();
    EXPECT_EQ(comparison->left().digest(), digest);
    y.mutable_as<float>()[static_cast<size_t>(2 * columns + 1)] += 1;
    comparison = client().Compare({.left = x.ref(), .right = y.ref()});
    ASSERT_TRUE(comparison.ok()) << comparison.status();
    EXPECT_FALSE(comparison->passed());
    EXPECT_EQ(comparison->first_mismatch().flat_index(), 2 * columns + 1);
    EXPECT_TRUE(client().Compare({.left = x.ref(), .right_digest = digest})->passed());
    EXPECT_FALSE(client().Compare({.left = y.ref(), .right_digest = digest})->passed());
    const auto digests = client().Digest({.tensor = x.ref(), .rows = true});
    ASSERT_TRUE(digests.ok()) << digests.status();
    EXPECT_EQ(digests->digest, digest);
    EXPECT_EQ(digests->shape, x.shape());
    std::string rows;
    for (const rlk::Digest& row : ComputeRowDigests(x.view())) {
      rows.append(row.bytes.begin(), row.bytes.end());
    }
    EXPECT_EQ(digests->row_digests, rows);
    const auto left = client().ListTensors();
    EXPECT_TRUE(!left.ok() || left->empty());
  }
  const Tensor x = Ramp({2, 3});
  const auto policy = client().ComparePolicy({.rollout = x.ref(), .trainer = x.ref()});
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_TRUE(policy->chain().passed());
  EXPECT_EQ(policy->sequences(), 2);
}

TEST_P(ClientServerTest, NormsGiveWhatIsWanted) {
  const Tensor x = Ramp({4, 9}), weight = Ramp({9}), gate = Ramp({4, 9});
  RmsNormForwardArgs forward{.x = x.ref(), .weight = weight.ref(), .weight_offset = 1.0};
  forward.options.add_wanted_outputs("rstd");
  const auto plain = RmsNormForward(client(), forward);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->y.has_value());
  ASSERT_TRUE(plain->rstd.has_value());
  EXPECT_EQ(plain->rstd->shape(), Dims({4}));
  forward.gate = gate.ref();
  forward.activation = "sigmoid";
  const auto gated = RmsNormGatedForward(client(), forward);
  ASSERT_TRUE(gated.ok()) << gated.status();
  EXPECT_EQ(ComputeDigest(gated->rstd->view()), ComputeDigest(plain->rstd->view()));
  // The plain operator has no gate.
  EXPECT_EQ(RmsNormForward(client(), forward).status().code(), absl::StatusCode::kInvalidArgument);

  RmsNormBackwardArgs backward{.x = x.ref(), .weight = weight.ref(), .grad_y = gate.ref()};
  backward.rstd = plain->rstd->ref();
  const auto gradients = Qwen3NextRmsNormBackward(client(), backward);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(gradients->grad_x->shape(), x.shape());
  EXPECT_EQ(gradients->grad_weight->shape(), weight.shape());
  EXPECT_FALSE(gradients->grad_gate.has_value() || gradients->dweight_acc.has_value());
}

TEST_P(ClientServerTest, LinearLayersGiveWhatIsWanted) {
  const Tensor x = Ramp({3, 8}), w = Ramp({5, 8}), b = Ramp({5}), dy = Ramp({3, 5});
  DetLinearForwardArgs forward{.x = x.ref(), .weight = w.ref(), .bias = b.ref()};
  forward.activation = "silu";
  forward.options.add_wanted_outputs("pre");
  const auto pre = DetLinearForward(client(), forward);
  ASSERT_TRUE(pre.ok()) << pre.status();
  EXPECT_FALSE(pre->y.has_value());
  ASSERT_TRUE(pre->pre.has_value());
  EXPECT_EQ(pre->pre->shape(), Dims({3, 5}));

  DetLinearBackwardInputArgs input{.grad_y = dy.ref(), .weight = w.ref()};
  input.activation = "silu";
  // The activation's slope needs what it was given.
  EXPECT_EQ(DetLinearBackwardInput(client(), input).status().code(),
            absl::StatusCode::kInvalidArgument);
  input.pre = pre->pre->ref();
  const auto grad_x = DetLinearBackwardInput(client(), input);
  ASSERT_TRUE(grad_x.ok()) << grad_x.status();
  EXPECT_EQ(grad_x->grad_x->shape(), x.shape());

  DetLinearBackwardWeightArgs weight{.grad_y = dy.ref(), .x = x.ref()};
  for (const char* name : {"dweight_acc", "dbias_acc"}) weight.options.add_wanted_outputs(name);
  const auto first = DetLinearBackwardWeight(client(), weight);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->grad_weight.has_value());
  weight.dweight_acc_in = first->dweight_acc->ref();
  weight.dbias_acc_in = first->dbias_acc->ref();
  weight.rows_before = 3;
  const auto second = DetLinearBackwardWeight(client(), weight);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->dbias_acc->shape(), b.shape());
  EXPECT_NE(ComputeDigest(second->dweight_acc->view()), ComputeDigest(first->dweight_acc->view()));
}

TEST_P(ClientServerTest, AContractIsChosenByItsIdAndItsChoicesAreReported) {
  Tensor x = *Tensor::Allocate(DType::kBF16, std::vector<int64_t>{2, 16384});
  Tensor w = *Tensor::Allocate(DType::kBF16, std::vector<int64_t>{3, 16384});
  for (Tensor* tensor : {&x, &w}) {
    uint16_t next = 0x3f00;
    for (uint16_t& bits : tensor->mutable_as<uint16_t>()) {
      next = static_cast<uint16_t>(next * 5 % 0x1ff + 0x3e00);
      bits = next;
    }
  }
  DetLinearForwardArgs args{.x = x.ref(), .weight = w.ref()};
  args.output_dtype = DType::kF32;
  args.options.set_contract("det_linear/bf16-k128-v1");
  const auto chosen = DetLinearForward(client(), args);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->report->contract(), args.options.contract());
  EXPECT_EQ(chosen->report->attributes().at("fold_parts").integer(), 4);
  args.fold_parts = 4;
  const auto asked = DetLinearForward(client(), args);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(ComputeDigest(asked->y->view()), ComputeDigest(chosen->y->view()));
}

TEST_P(ClientServerTest, TimestepsAreEmbeddedAndConditionTheMlp) {
  Tensor t = *Tensor::Allocate(DType::kF32, std::vector<int64_t>{2});
  t.mutable_as<float>()[0] = 0.25f;
  t.mutable_as<float>()[1] = 1;
  const auto embedding =
      TimestepSinusoidH3Forward(client(), {.timestep = t.ref(), .num_channels = 8});
  ASSERT_TRUE(embedding.ok()) << embedding.status();
  EXPECT_EQ(embedding->embedding->shape(), Dims({2, 8}));
  const Tensor w1 = Ramp({4, 8}), b1 = Ramp({4}), w2 = Ramp({3, 4}), b2 = Ramp({3});
  const TensorRef x = embedding->embedding->ref();
  const auto y = TimestepMlpFp32Forward(
      client(), {.x = x, .w1 = w1.ref(), .b1 = b1.ref(), .w2 = w2.ref(), .b2 = b2.ref()});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->y->shape(), Dims({2, 3}));
  EXPECT_FALSE(y->pre.has_value());
  const auto gradients = TimestepMlpFp32Backward(
      client(), {.x = x, .w1 = w1.ref(), .b1 = b1.ref(), .w2 = w2.ref(), .grad_y = y->y->ref()});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(gradients->grad_w1->shape(), w1.shape());
  EXPECT_EQ(gradients->grad_b2->shape(), b2.shape());
  const auto through = TimestepSinusoidH3Backward(
      client(),
      {.grad_embedding = gradients->grad_x->ref(), .embedding = x, .timestep_dtype = DType::kF16});
  ASSERT_TRUE(through.ok()) << through.status();
  EXPECT_EQ(through->grad_timestep->shape(), t.shape());
  EXPECT_EQ(through->grad_timestep->dtype(), DType::kF16);
  t.mutable_as<float>()[0] = 250;
  EXPECT_EQ(TimestepSinusoidH3Forward(client(), {.timestep = t.ref()}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(ClientServerTest, BackwardTakesStridedViews) {
  const Tensor x = Ramp({4, 6});
  Tensor transposed = *Tensor::Allocate(DType::kF32, std::vector<int64_t>{6, 4});
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 4; ++j) {
      transposed.mutable_as<float>()[i * 4 + j] = x.as<float>()[j * 6 + i];
    }
  }
  TensorRef view = x.ref();
  view.shape = {6, 4};
  view.strides = Dims{1, 6};
  const auto strided = FinalLogitSoftcapBackward(client(), {.x = view, .grad_y = view});
  ASSERT_TRUE(strided.ok()) << strided.status();
  const auto contiguous =
      FinalLogitSoftcapBackward(client(), {.x = transposed.ref(), .grad_y = transposed.ref()});
  ASSERT_TRUE(contiguous.ok()) << contiguous.status();
  EXPECT_EQ(ComputeDigest(strided->grad_x.view()), ComputeDigest(contiguous->grad_x.view()));
}

TEST_P(ClientServerTest, LargePayloadsTravelByReference) {
  const Tensor x = Ramp({512, 512});  // 1 MiB
  const auto owned = FinalLogitSoftcapForward(client(), {.x = x.ref()});
  ASSERT_TRUE(owned.ok()) << owned.status();
  TensorRef borrowed = x.ref();
  borrowed.owner = nullptr;
  const auto copied = FinalLogitSoftcapForward(client(), {.x = borrowed});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(ComputeDigest(owned->y.view()), ComputeDigest(copied->y.view()));
}

TEST_P(ClientServerTest, EmptyAndScalarTensors) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0}, {3, 0, 2}}) {
    const Tensor x = Ramp(shape);
    const auto result = FinalLogitSoftcapForward(client(), {.x = x.ref()});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->y.shape(), x.shape());
  }
}

TEST_P(ClientServerTest, RestoresTheServersErrors) {
  const Tensor x = Ramp({2});
  for (double softcap : {0.0, -1.0, 1e-46, 1e39, std::nan(""), HUGE_VAL}) {
    const auto result = FinalLogitSoftcapForward(client(), {.x = x.ref(), .softcap = softcap});
    ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << softcap;
    const auto detail = GetErrorDetail(result.status());
    ASSERT_TRUE(detail.has_value()) << result.status();
    EXPECT_EQ(detail->reason, Reason::kAttributeOutOfRange);
    EXPECT_EQ(detail->field, "softcap");
    EXPECT_FALSE(detail->allowed.empty());
    // The field is named once, not once by each side.
    const std::string message(result.status().message());
    EXPECT_EQ(message.find("softcap: "), message.rfind("softcap: ")) << message;
  }
}

TEST_P(ClientServerTest, RunsManyCallsAtOnce) {
  const Tensor x = Ramp({33});
  const auto expected = FinalLogitSoftcapForward(client(), {.x = x.ref()});
  ASSERT_TRUE(expected.ok());
  const Digest digest = ComputeDigest(expected->y.view());
  CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref()}};
  std::vector<PendingCall> pending;
  for (int i = 0; i < 64; ++i) pending.push_back(client().CallAsync(request));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) {
        const auto result = client().Call(request);
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(ComputeDigest(result->Output("y")->view()), digest);
      }
    });
  }
  for (PendingCall& call : pending) {
    const auto result = call.Get();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(ComputeDigest(result->Output("y")->view()), digest);
  }
}

TEST_P(ClientServerTest, CallbacksAndAbandonedCalls) {
  const Tensor x = Ramp({5});
  CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref()}};
  // Shared: the other thread may still be inside set_value when the status is here.
  const auto done = std::make_shared<std::promise<absl::Status>>();
  client().CallThen(request, [done](auto result) { done->set_value(result.status()); });
  EXPECT_TRUE(done->get_future().get().ok());
  for (int i = 0; i < 20; ++i) client().CallAsync(request);  // dropped at once
  PendingCall cancelled = client().CallAsync(request);
  cancelled.Cancel();
  const absl::StatusCode code = cancelled.Get().status().code();
  EXPECT_TRUE(code == absl::StatusCode::kCancelled || code == absl::StatusCode::kOk);
  request.method = "no.such";
  EXPECT_EQ(GetErrorDetail(client().CallAsync(request).Get().status())->reason,
            Reason::kUnknownOperator);
}

TEST_P(ClientServerTest, AClientMayGoBeforeItsCallsEnd) {
  const Tensor x = Ramp({5});
  CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref()}};
  for (int round = 0; round < 20; ++round) {
    auto own = Client::Connect(Addresses()[static_cast<size_t>(GetParam())]);
    ASSERT_TRUE(own.ok()) << own.status();
    const auto going = std::make_shared<Client>(*std::move(own));
    std::vector<std::future<absl::StatusCode>> ends;
    for (int call = 0; call < 4; ++call) {
      const auto end = std::make_shared<std::promise<absl::StatusCode>>();
      ends.push_back(end->get_future());
      // The last to run of these destroys the client.
      going->CallThen(request,
                      [end, going](auto result) { end->set_value(result.status().code()); });
    }
    going->CallAsync(request);
    PendingCall kept = going->CallAsync(request);
    for (auto& end : ends) EXPECT_EQ(end.get(), absl::StatusCode::kOk);
    EXPECT_TRUE(kept.Get().ok());
  }
}

TEST_P(ClientServerTest, DeadlinesThatPassedAreErrors) {
  const Tensor x = Ramp({5});
  const auto result =
      FinalLogitSoftcapForward(client(), {.x = x.ref(), .timeout = std::chrono::milliseconds(-1)});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(ClientServerTest, DescribesTheServer) {
  const auto info = client().GetInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->server_id().empty());
  const auto operators = client().ListOperators("final_logit_softcap");
  ASSERT_TRUE(operators.ok()) << operators.status();
  EXPECT_EQ(operators->methods_size(), 2);
  EXPECT_EQ(client().ListOperators("nope").status().code(), absl::StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Transports, ClientServerTest, testing::Values(0, 1),
                         [](const auto& info) { return info.param == 0 ? "Tcp" : "Unix"; });

TEST(Connect, SaysWhatIsWrong) {
  for (const char* address :
       {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "unix:"}) {
    const auto client = Client::Connect(address);
    EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
  const auto nobody = Client::Connect("unix:/nonexistent/socket");
  EXPECT_EQ(nobody.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nobody.status().message()),
              testing::HasSubstr("unix:/nonexistent/socket"));
}

}  // namespace
}  // namespace rlk::client

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "give the server's TCP address and its unix:/path\n");
    return 2;
  }
  rlk::client::Addresses() = {argv[1], argv[2]};
  return RUN_ALL_TESTS();
}
