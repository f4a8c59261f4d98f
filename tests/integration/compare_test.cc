// ParityService.Compare over gRPC: inline and resident tensors, digests, refusals.
#include <cstring>
#include <functional>

#include "kernels/digest/digest.h"
#include "rlk/v1/parity.grpc.pb.h"
#include "tests/integration/peer.h"

namespace rlk::test {
namespace {

using rlk::v1::CompareRequest;
using rlk::v1::CompareResponse;
using rlk::v1::Comparison;

rlk::v1::Tensor Inline(rlk::v1::DataType dtype, std::vector<int64_t> shape, std::string bytes) {
  rlk::v1::Tensor tensor;
  tensor.set_dtype(dtype);
  for (const int64_t size : shape) tensor.add_shape(size);
  tensor.set_data(std::move(bytes));
  return tensor;
}

rlk::v1::Tensor Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  return Inline(rlk::v1::DATA_TYPE_F32, std::move(shape), BytesOf(values));
}

class CompareTest : public testing::Test {
 protected:
  CompareTest()
      : peer_(server_.tcp()),
        stub_(rlk::v1::ParityService::NewStub(DefaultChannel(server_.tcp()))) {}

  grpc::Status Compare(const CompareRequest& request, Comparison* comparison,
                       bool session = true) const {
    const auto context = session ? peer_.Context() : std::make_unique<grpc::ClientContext>();
    CompareResponse response;
    const grpc::Status status = stub_->Compare(context.get(), request, &response);
    *comparison = response.comparison();
    return status;
  }

  TestServer server_;
  Peer peer_;
  std::unique_ptr<rlk::v1::ParityService::Stub> stub_;
};

TEST_F(CompareTest, FindsTheOneElementThatDiffersWithItsBits) {
  CompareRequest request;
  *request.mutable_left() = Floats({2, 3}, {1, 2, 3, 4, 5.5f, 6});
  *request.mutable_right() = Floats({2, 3}, {1, 2, 3, 4, 5.0f, 6});
  request.mutable_options()->add_axes("token");
  request.mutable_options()->add_axes("channel");
  Comparison comparison;
  const grpc::Status status = Compare(request, &comparison, /*session=*/false);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(comparison.passed());
  EXPECT_EQ(comparison.judgment(), rlk::v1::JUDGMENT_PARITY);
  EXPECT_EQ(comparison.difference(), rlk::v1::DIFFERENCE_BITS);
  EXPECT_EQ(comparison.counts().compared(), 6);
  EXPECT_EQ(comparison.counts().mismatched(), 1);
  const auto& first = comparison.first_mismatch();
  EXPECT_EQ(first.flat_index(), 4);
  ASSERT_EQ(first.coordinates_size(), 2);
  EXPECT_EQ(first.coordinates(0).axis(), "token");
  EXPECT_EQ(first.coordinates(0).index(), 1);
  EXPECT_EQ(first.coordinates(1).axis(), "channel");
  EXPECT_EQ(first.coordinates(1).index(), 1);
  EXPECT_EQ(first.left_bits(), "40b00000");
  EXPECT_EQ(first.right_bits(), "40a00000");
  EXPECT_EQ(first.left_value(), 5.5);
  EXPECT_EQ(comparison.rows().mismatched(), 1);
  EXPECT_EQ(comparison.rows().worst(0).row(), 1);
  EXPECT_EQ(comparison.ulp().max(), 1 << 20);
  EXPECT_EQ(comparison.magnitude().max_abs(), 0.5);
  EXPECT_NE(comparison.left().digest(), comparison.right().digest());
}

TEST_F(CompareTest, ResidentTensorsAreComparedByHandleAndViewsByOffset) {
  std::vector<float> values(1 << 20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1013) * 0.25f;
  const auto header = Header(rlk::v1::DATA_TYPE_F32, {1024, 1024});
  TensorDescription left, right;
  ASSERT_TRUE(peer_.Put(header, BytesOf(values), &left).ok());
  values[777 * 1024 + 5] += 0.25f;
  ASSERT_TRUE(peer_.Put(header, BytesOf(values), &right).ok());
  CompareRequest request;
  *request.mutable_left()->mutable_resident() = left.handle();
  *request.mutable_right()->mutable_resident() = right.handle();
  Comparison comparison;
  grpc::Status status = Compare(request, &comparison);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(comparison.first_mismatch().flat_index(), 777 * 1024 + 5);
  EXPECT_EQ(comparison.rows().rows(), 1024);
  EXPECT_EQ(comparison.rows().first(), 777);
  EXPECT_EQ(comparison.left().digest(), left.digest());

  // Row 777 alone.
  for (auto* tensor : {request.mutable_left(), request.mutable_right()}) {
    tensor->set_dtype(rlk::v1::DATA_TYPE_F32);
    tensor->add_shape(1024);
    tensor->mutable_resident()->set_offset(777 * 4096);
  }
  status = Compare(request, &comparison);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(comparison.first_mismatch().flat_index(), 5);
  EXPECT_EQ(comparison.counts().compared(), 1024);
}

TEST_F(CompareTest, ADigestGivesNoHistogram) {
  CompareRequest request;
  *request.mutable_left() = *request.mutable_right() = Floats({3}, {1, 2, 3});
  Comparison comparison;
  ASSERT_TRUE(Compare(request, &comparison).ok());
  ASSERT_GT(comparison.ulp().buckets_size(), 0);
  EXPECT_EQ(comparison.ulp().buckets(0).elements(), 3);
  const std::string digest = comparison.left().digest();
  request.clear_right();
  for (const std::string& right : {digest, digest.substr(0, digest.size() - 4) + "0000"}) {
    request.set_right_digest(right);
    ASSERT_TRUE(Compare(request, &comparison).ok());
    EXPECT_EQ(comparison.passed(), right == digest);
    EXPECT_EQ(comparison.ulp().buckets_size(), 0);
    EXPECT_EQ(comparison.right().dtype(),
              right == digest ? rlk::v1::DATA_TYPE_F32 : rlk::v1::DATA_TYPE_UNSPECIFIED);
  }
  request.clear_right_digest();
  *request.mutable_right() = Floats({3, 1}, {1, 2, 3});
  ASSERT_TRUE(Compare(request, &comparison).ok());
  EXPECT_EQ(comparison.ulp().buckets_size(), 0);
}

TEST_F(CompareTest, AViewBeginsAtAnElement) {
  TensorDescription tensor;
  const std::string bytes = BytesOf(std::vector<float>(8));
  ASSERT_TRUE(peer_.Put(Header(rlk::v1::DATA_TYPE_F32, {8}), bytes, &tensor).ok());
  rlk::v1::Tensor view;
  view.set_dtype(rlk::v1::DATA_TYPE_F32);
  view.add_shape(2);
  *view.mutable_resident() = tensor.handle();
  view.mutable_resident()->set_offset(6);
  CompareRequest request;
  *request.mutable_left() = *request.mutable_right() = view;
  Comparison comparison;
  ErrorFacts facts = FactsOf(Compare(request, &comparison));
  EXPECT_EQ(facts.reason, "MISALIGNED");
  EXPECT_EQ(facts.metadata["field"], "left");
  rlk::v1::DigestTensorRequest digest;
  *digest.mutable_tensor() = view;
  rlk::v1::DigestTensorResponse response;
  facts = FactsOf(stub_->DigestTensor(peer_.Context().get(), digest, &response));
  EXPECT_EQ(facts.reason, "MISALIGNED");
}

TEST_F(CompareTest, AToleranceIsARowOfTheContractAndNeverExcusesInvariance) {
  CompareRequest request;
  *request.mutable_left() = Floats({2}, {1.000001f, 2});
  *request.mutable_right() = Floats({2}, {1, 2});
  auto* options = request.mutable_options();
  options->mutable_tolerance()->set_op_class(rlk::v1::OP_CLASS_ELEMENTWISE);
  Comparison comparison;
  for (const auto judgment : {rlk::v1::JUDGMENT_ACCURACY, rlk::v1::JUDGMENT_PARITY}) {
    options->set_judgment(judgment);
    ASSERT_TRUE(Compare(request, &comparison).ok());
    EXPECT_TRUE(comparison.passed());
    EXPECT_EQ(comparison.difference(), rlk::v1::DIFFERENCE_BITS);
    EXPECT_EQ(comparison.rule().row(), "forward_accuracy/elementwise/float32");
    EXPECT_LT(comparison.rule().worst_excess(), 0);
  }
  options->set_judgment(rlk::v1::JUDGMENT_INVARIANCE);
  grpc::Status status = Compare(request, &comparison);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FactsOf(status).metadata["field"], "options.tolerance");
  options->clear_tolerance();
  ASSERT_TRUE(Compare(request, &comparison).ok());
  EXPECT_FALSE(comparison.passed());
}

TEST_F(CompareTest, RefusesWhatIsNoComparison) {
  const rlk::v1::Tensor tensor = Floats({2}, {1, 2});
  struct Case {
    const char* name;
    std::function<void(CompareRequest&)> set;
    const char* reason;
    const char* field;
  } const cases[] = {
      {"no left", [](auto& r) { r.clear_left(); }, "MISSING_TENSOR", "left"},
      {"no right", [](auto& r) { r.clear_right(); }, "MISSING_TENSOR", "right"},
      {"two rights", [](auto& r) { r.set_right_digest("x"); }, "MISSING_TENSOR", "right"},
      {"a digest that is none",
       [](auto& r) {
         r.clear_right();
         r.set_right_digest("xxh3-tree4k-v1:12");
       },
       "MALFORMED_MESSAGE", "right_digest"},
      {"accuracy without a row",
       [](auto& r) { r.mutable_options()->set_judgment(rlk::v1::JUDGMENT_ACCURACY); },
       "UNKNOWN_OPTION", "options.tolerance"},
      {"a row without a class", [](auto& r) { r.mutable_options()->mutable_tolerance(); },
       "UNKNOWN_OPTION", "options.tolerance.op_class"},
      {"axes of another rank",
       [](auto& r) {
         r.mutable_options()->add_axes("a");
         r.mutable_options()->add_axes("b");
       },
       "SHAPE_MISMATCH", "options.axes"},
      {"a floor below 0", [](auto& r) { r.mutable_options()->set_relative_floor(-1); },
       "ATTRIBUTE_OUT_OF_RANGE", "options.relative_floor"},
      {"too many rows", [](auto& r) { r.mutable_options()->set_rows_max(65); }, "LIMIT_EXCEEDED",
       "options.rows_max"},
      {"short data", [](auto& r) { r.mutable_left()->mutable_data()->pop_back(); },
       "PAYLOAD_SIZE_MISMATCH", "left.data"},
      {"an unknown handle", [](auto& r) { r.mutable_right()->mutable_resident()->set_id("?"); },
       "TENSOR_NOT_FOUND", "right"},
  };
  for (const Case& c : cases) {
    CompareRequest request;
    *request.mutable_left() = *request.mutable_right() = tensor;
    c.set(request);
    Comparison comparison;
    const grpc::Status status = Compare(request, &comparison);
    EXPECT_FALSE(status.ok()) << c.name;
    ErrorFacts facts = FactsOf(status);
    EXPECT_EQ(facts.reason, c.reason) << c.name << ": " << status.error_message();
    EXPECT_EQ(facts.metadata["field"], c.field) << c.name;
  }
}

TEST_F(CompareTest, CountsWhatItFound) {
  CompareRequest request;
  *request.mutable_left() = Floats({3}, {1, 2, 3});
  *request.mutable_right() = Floats({3}, {1, 2, 4});
  Comparison comparison;
  ASSERT_TRUE(Compare(request, &comparison).ok());
  *request.mutable_right() = request.left();
  ASSERT_TRUE(Compare(request, &comparison).ok());
  EXPECT_TRUE(comparison.passed());
  EXPECT_EQ(comparison.triage().triage_class(), rlk::v1::TRIAGE_CLASS_NONE);
  const std::string text = Scrape(server_.metrics());
  EXPECT_EQ(SeriesValue(text, "rlk_parity_checks_total{judgment=\"parity\",result=\"fail\"}"), 1);
  EXPECT_EQ(SeriesValue(text, "rlk_parity_checks_total{judgment=\"parity\",result=\"pass\"}"), 1);
  EXPECT_EQ(SeriesValue(text, "rlk_parity_mismatch_elements_total{judgment=\"parity\"}"), 1);
}

TEST_F(CompareTest, PoliciesAreComparedWithTheNamesOfTrainers) {
  rlk::v1::ComparePolicyRequest request;
  *request.mutable_rollout() = Floats({2, 2}, {-1, -2, -0.5f, -3});
  *request.mutable_trainer() = Floats({2, 2}, {-1, -2.25f, -0.5f, -3});
  *request.mutable_mask() = Inline(rlk::v1::DATA_TYPE_BOOL, {2, 2}, std::string("\1\1\1\0", 4));
  request.mutable_options()->set_execution_dtype(rlk::v1::DATA_TYPE_BF16);
  rlk::v1::ComparePolicyResponse response;
  grpc::Status status = stub_->ComparePolicy(peer_.Context().get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto& comparison = response.comparison();
  EXPECT_EQ(comparison.tokens(), 3);
  EXPECT_EQ(comparison.masked(), 1);
  EXPECT_EQ(comparison.difference().max_abs(), 0.25);
  EXPECT_FALSE(comparison.chain().passed());
  ASSERT_EQ(comparison.worst_size(), 1);
  EXPECT_EQ(comparison.worst(0).flat_index(), 1);
  EXPECT_EQ(comparison.metrics().at("sampling/sampling_logp_difference/max"), 0.25);
  EXPECT_EQ(comparison.metrics().at("rollout_corr/k3_kl"), comparison.kl().k3());

  request.mutable_options()->mutable_rollout_support()->set_top_p(1.5);
  status = stub_->ComparePolicy(peer_.Context().get(), request, &response);
  EXPECT_EQ(FactsOf(status).metadata["field"], "options.rollout_support.top_p");
  request.mutable_options()->mutable_rollout_support()->clear_top_p();
  request.mutable_options()->mutable_trainer_support()->set_softcap_applications(-1);
  status = stub_->ComparePolicy(peer_.Context().get(), request, &response);
  EXPECT_EQ(FactsOf(status).metadata["field"], "options.trainer_support.softcap_applications");
}

TEST_F(CompareTest, DigestsComeInPages) {
  constexpr int64_t kRows = 70000;
  std::vector<uint8_t> values(2 * kRows);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 7 + i / 256);
  TensorDescription tensor;
  ASSERT_TRUE(peer_.Put(Header(rlk::v1::DATA_TYPE_U8, {kRows, 2}), BytesOf(values), &tensor).ok());
  const std::vector<Digest> expected =
      ComputeRowDigests({DType::kU8, {kRows, 2}, {2, 1}, values.data()});
  rlk::v1::DigestTensorRequest request;
  *request.mutable_tensor()->mutable_resident() = tensor.handle();
  request.set_rows_max(65536);
  std::string rows;
  for (int page = 0; page < 2; ++page) {
    rlk::v1::DigestTensorResponse response;
    const grpc::Status status = stub_->DigestTensor(peer_.Context().get(), request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.digest(), page == 0 ? tensor.digest() : "");
    EXPECT_EQ(response.rows(), kRows);
    rows += response.row_digests();
    request.set_first_row(65536);
    request.set_without_tensor_digest(true);
  }
  ASSERT_EQ(rows.size(), static_cast<size_t>(16 * kRows));
  for (size_t row = 0; row < expected.size(); ++row) {
    ASSERT_EQ(std::memcmp(rows.data() + 16 * row, expected[row].bytes.data(), 16), 0) << row;
  }
  request.set_rows_max(65537);
  rlk::v1::DigestTensorResponse response;
  EXPECT_EQ(FactsOf(stub_->DigestTensor(peer_.Context().get(), request, &response)).reason,
            "LIMIT_EXCEEDED");
  request.set_rows_max(1);
  request.set_first_row(kRows + 1);
  EXPECT_EQ(FactsOf(stub_->DigestTensor(peer_.Context().get(), request, &response)).reason,
            "INDEX_OUT_OF_RANGE");
}

}  // namespace
}  // namespace rlk::test
