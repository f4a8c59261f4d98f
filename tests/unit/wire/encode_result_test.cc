#include "gmock/gmock.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/wire/call_codec.h"
#include "proto/wire/codec.h"
#include "rlk/v1/activation.pb.h"
#include "test_messages.pb.h"
#include "tests/unit/wire/wire_testing.h"

namespace rlk::wire {
namespace {

using rlk::v1::FinalLogitSoftcapForwardResponse;

// Every field of the engine's report, with a value of its own.
CallResult ExampleResult(const Method& method, const std::string& payload) {
  CallResult result;
  result.method = &method;
  OutputTensor output;
  output.dtype = DType::kBF16;
  output.shape = Dims({2, 3});
  output.data = AsHostBytes(payload);
  output.data.owner = std::make_shared<int>(1);
  result.outputs.push_back(output);
  CallReport& report = result.report;
  report.contract = "final_logit_softcap/portable-v1";
  report.backend = Backend::kCpu;
  report.kernel = "softcap_forward_cpu";
  report.device = {DeviceKind::kCuda, 1, "H200", "GPU-2", 90, 132, 7};
  report.claim = ClaimLevel::kL3Portable;
  report.rejected.push_back({Backend::kCudaSm90, "k90", "too small"});
  report.fallback = FallbackRecord{Backend::kCuda, "known answers"};
  report.attributes = {{AttributeKind::kF32, 20, 0},
                       {AttributeKind::kDType, 0, static_cast<int64_t>(DType::kBF16)}};
  Digest digest;
  digest.bytes[0] = 0xab;
  report.input_digests.push_back({"x", digest, {}});
  report.output_digests.push_back({"y", std::nullopt, {digest, Digest{}}});
  report.verification.kind = Verification::kReference;
  report.verification.passed = true;
  report.verification.outputs.push_back({"y", true, 6, 1, 0, 0.5, 0.25, 1e-3, 1e-2});
  report.phases = {1, 2, 3, 4, 5};
  report.input_capture = InputCapture::kSnapshot;
  report.transports = {"inline"};
  return result;
}

constexpr char kReport[] = R"(contract: "final_logit_softcap/portable-v1"
backend: "cpu"
kernel: "softcap_forward_cpu"
device {
  kind: "cuda"
  ordinal: 1
  name: "H200"
  uuid: "GPU-2"
}
claim: CLAIM_LEVEL_L3_PORTABLE
rejected {
  backend: "cuda_sm90"
  kernel: "k90"
  reason: "too small"
}
fallback {
  from_backend: "cuda"
  reason: "known answers"
}
attributes {
  key: "output_dtype"
  value {
    dtype: DATA_TYPE_BF16
  }
}
attributes {
  key: "softcap"
  value {
    number: 20
  }
}
input_digests {
  name: "x"
  digest: "xxh3-tree4k-v1:ab000000000000000000000000000000"
}
output_digests {
  name: "y"
  rows: "\253\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000"
}
verification {
  verification: VERIFICATION_REFERENCE
  passed: true
  outputs {
    name: "y"
    passed: true
    compared_elements: 6
    mismatched_elements: 1
    max_abs_error: 0.5
    max_rel_error: 0.25
    atol: 0.001
    rtol: 0.01
  }
  tolerance_contract_version: "v"
  tolerance_contract_sha256: "sha"
}
phases {
  receive_ns: 1
  queue_ns: 2
  stage_in_ns: 3
  kernel_ns: 4
  stage_out_ns: 5
}
input_capture: INPUT_CAPTURE_SNAPSHOT
provenance_id: "id"
transports: "inline"
)";

// As protobuf writes it when asked to be deterministic.
template <typename Reply>
std::string Rewritten(const std::string& bytes) {
  Reply reply;
  EXPECT_TRUE(reply.ParseFromString(bytes));
  std::string again;
  google::protobuf::io::StringOutputStream stream(&again);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  EXPECT_TRUE(reply.SerializeToCodedStream(&coded));
  coded.Trim();
  return again;
}

TEST(EncodeResult, NamesOutputsThatStayOnTheServer) {
  const auto methods = BindMethods(OperatorFiles());
  CallResult result = ExampleResult(*methods[0], "0123456789ab");
  result.outputs[0].resident = TensorHandle{"0123456789abcdef", "s", 7, 0};
  result.report.moved_to_resident = {"y"};
  FinalLogitSoftcapForwardResponse reply;
  ASSERT_TRUE(reply.ParseFromString(
      Flatten(EncodeResult(result, FinalLogitSoftcapForwardResponse::descriptor(), "id"))));
  EXPECT_EQ(reply.y().resident().id(), "0123456789abcdef");
  EXPECT_EQ(reply.y().resident().server_id(), "s");
  EXPECT_EQ(reply.y().resident().generation(), 7u);
  EXPECT_EQ(reply.y().dtype(), rlk::v1::DATA_TYPE_BF16);
  EXPECT_EQ(reply.y().shape_size(), 2);
  EXPECT_EQ(reply.report().moved_to_resident(0), "y");
}

TEST(EncodeResult, WritesTheBytesThatProtobufWrites) {
  const auto methods = BindMethods(OperatorFiles());
  const std::string payloads[] = {"0123456789ab", "", std::string(300, 'p')};
  const std::string id(200, 'i');
  const ReportContext context{id, "v", "sha"};
  for (const std::string& payload : payloads) {
    for (int variant = 0; variant < 4; ++variant) {
      CallResult result = ExampleResult(*methods[0], payload);
      result.outputs[0].shape = payload.empty() ? Dims({0, 1 << 20}) : Dims();
      CallReport& report = result.report;
      if (variant >= 1) report.attributes[0].number = 0;
      if (variant >= 1) report.device.ordinal = -1;
      if (variant >= 1) report.rejected.push_back({});
      if (variant >= 2) report.phases = {0, int64_t{1} << 40, 0, -1, 0};
      if (variant >= 2) report.transports = {"inline", "", std::string(130, 't')};
      if (variant == 3) report = CallReport{};
      const std::string bytes =
          Flatten(EncodeResult(result, FinalLogitSoftcapForwardResponse::descriptor(), context));
      EXPECT_EQ(bytes, Rewritten<FinalLogitSoftcapForwardResponse>(bytes))
          << "variant " << variant << ", payload of " << payload.size();
    }
  }
}

TEST(EncodeResult, ReportHoldsEveryField) {
  const auto methods = BindMethods(OperatorFiles());
  const std::string payload = "0123456789ab";
  const CallResult result = ExampleResult(*methods[0], payload);
  EXPECT_EQ(ReportToProto(result, ReportContext{"id", "v", "sha"}).DebugString(), kReport);
}

TEST(EncodeResult, ReportLeavesOutWhatDidNotHappen) {
  const auto methods = BindMethods(OperatorFiles());
  CallResult result;
  result.method = methods[0].get();
  result.report.input_capture = InputCapture::kUnspecified;
  const rlk::v1::CallReport report = ReportToProto(result, "id");
  EXPECT_FALSE(report.has_fallback());
  EXPECT_FALSE(report.has_verification());
  EXPECT_EQ(report.claim(), rlk::v1::CLAIM_LEVEL_UNSPECIFIED);
  EXPECT_EQ(report.device().kind(), "cpu");
}

TEST(EncodeResult, ReplyReferencesThePayloadAndPutsTheReportLast) {
  const auto methods = BindMethods(OperatorFiles());
  const std::string payload = "0123456789ab";
  const CallResult result = ExampleResult(*methods[0], payload);
  const auto* type = FinalLogitSoftcapForwardResponse::descriptor();
  const OutputBytes pieces = EncodeResult(result, type, ReportContext{"id", "v", "sha"});
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1].payload.data(), reinterpret_cast<const std::byte*>(payload.data()));
  EXPECT_EQ(pieces[1].owner, result.outputs[0].data.owner);
  FinalLogitSoftcapForwardResponse reply;
  ASSERT_TRUE(reply.ParseFromString(Flatten(pieces)));
  EXPECT_EQ(reply.y().dtype(), rlk::v1::DATA_TYPE_BF16);
  EXPECT_THAT(reply.y().shape(), testing::ElementsAre(2, 3));
  EXPECT_EQ(reply.y().strides_size(), 0);
  EXPECT_EQ(reply.y().data(), payload);
  EXPECT_EQ(reply.report().DebugString(), kReport);
  EXPECT_EQ(Flatten(EncodeResult(result, type, ReportContext{"id", "v", "sha"})), Flatten(pieces));
  // Its own codec reads it back.
  const std::string bytes = Flatten(pieces);
  EXPECT_TRUE(Split(type, Pieces(bytes, 3), 64).ok());
}

TEST(EncodeResult, RepeatedOutputsAndEnumAttributes) {
  const auto methods = BindMethods({rlk::test::Everything::descriptor()->file()});
  CallResult result;
  result.method = methods[0].get();
  const std::string payloads[] = {"aa", "", "bbbb"};
  for (int i = 0; i < 3; ++i) {
    OutputTensor output;
    output.dtype = DType::kU8;
    output.shape = Dims({static_cast<int64_t>(payloads[i].size())});
    output.data = AsHostBytes(payloads[i]);
    result.outputs.push_back(output);
  }
  result.report.attributes = {{AttributeKind::kF64, 1e-6, 0},
                              {AttributeKind::kI64, 0, 128},
                              {AttributeKind::kBool, 0, 1},
                              {AttributeKind::kEnum, 0, -2},
                              {AttributeKind::kDType, 0, 1}};
  const std::string bytes =
      Flatten(EncodeResult(result, rlk::test::GatherAllForwardResponse::descriptor(), "id"));
  rlk::test::GatherAllForwardResponse reply;
  ASSERT_TRUE(reply.ParseFromString(bytes));
  EXPECT_EQ(bytes, Rewritten<rlk::test::GatherAllForwardResponse>(bytes));
  ASSERT_EQ(reply.rows_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reply.rows(i).data(), payloads[i]);
  EXPECT_TRUE(reply.rows(1).has_data());
  EXPECT_FALSE(reply.has_lse());
  const auto& attributes = reply.report().attributes();
  EXPECT_EQ(attributes.at("eps").number(), 1e-6);
  EXPECT_EQ(attributes.at("rows_before").integer(), 128);
  EXPECT_TRUE(attributes.at("causal").boolean());
  EXPECT_EQ(attributes.at("color").enumerator(), "negative");
  EXPECT_EQ(attributes.at("output_dtype").dtype(), rlk::v1::DATA_TYPE_F32);
}

}  // namespace
}  // namespace rlk::wire
