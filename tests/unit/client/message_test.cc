// Requests as bytes: what the library sends is decoded with the generated classes.
#include "client/cpp/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "client/cpp/transport.h"
#include "google/protobuf/unknown_field_set.h"
#include "kernels/core/status.h"
#include "rlk/v1/activation.pb.h"

namespace rlk::client {
namespace {

class MessageTest : public testing::Test {
 protected:
  void SetUp() override {
    auto bindings = wire::CompileSignatures(wire::OperatorFiles());
    ASSERT_TRUE(bindings.ok()) << bindings.status();
    bindings_ = *std::move(bindings);
    for (const wire::MethodBinding& binding : bindings_) {
      if (binding.signature.method == "final_logit_softcap.forward") forward_ = &binding;
    }
    ASSERT_NE(forward_, nullptr);
  }

  absl::Status Encode(const CallRequest& request, int64_t limit = kInlineBytesMax) {
    return EncodeRequest(*forward_, request, limit).status();
  }

  std::vector<wire::MethodBinding> bindings_;
  const wire::MethodBinding* forward_ = nullptr;
};

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

CallRequest Request(const void* data, std::initializer_list<int64_t> shape) {
  CallRequest request;
  request.method = "final_logit_softcap.forward";
  request.inputs = {{"x", {.dtype = DType::kBF16, .shape = Dims(shape), .data = data}}};
  return request;
}

TEST_F(MessageTest, SendsWhatTheGeneratedClassesRead) {
  const uint16_t data[6] = {0x7fc1, 2, 3, 4, 5, 6};
  CallRequest request = Request(data, {2, 2});
  request.inputs[0].second.strides = Dims{3, 1};
  request.attributes = {{"softcap", 20.0}, {"output_dtype", DType::kBF16}};
  request.options.set_contract("c");
  request.options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  auto message = EncodeRequest(*forward_, request, kInlineBytesMax);
  ASSERT_TRUE(message.ok()) << message.status();
  rlk::v1::FinalLogitSoftcapForwardRequest decoded;
  ASSERT_TRUE(decoded.ParseFromString(Text(ToByteBuffer(*std::move(message)))));
  EXPECT_EQ(decoded.x().dtype(), rlk::v1::DATA_TYPE_BF16);
  EXPECT_THAT(decoded.x().shape(), testing::ElementsAre(2, 2));
  EXPECT_THAT(decoded.x().strides(), testing::ElementsAre(3, 1));
  // 1 + (2-1)*3 + (2-1)*1 elements.
  EXPECT_EQ(decoded.x().data(), std::string(reinterpret_cast<const char*>(data), 10));
  EXPECT_EQ(decoded.softcap(), 20.0);
  EXPECT_EQ(decoded.output_dtype(), rlk::v1::DATA_TYPE_BF16);
  EXPECT_EQ(decoded.options().contract(), "c");
}

TEST_F(MessageTest, NamesResidentTensorsAndSendsNothingOfThem) {
  CallRequest request = Request(nullptr, {2, 2});
  TensorRef& x = request.inputs[0].second;
  x.strides = Dims{2, 1};
  x.resident.emplace();
  x.resident->set_id("0123456789abcdef");
  x.resident->set_server_id("s");
  x.resident->set_generation(uint64_t{1} << 63);
  x.resident->set_offset(8);
  auto message = EncodeRequest(*forward_, request, kInlineBytesMax);
  ASSERT_TRUE(message.ok()) << message.status();
  rlk::v1::FinalLogitSoftcapForwardRequest decoded;
  ASSERT_TRUE(decoded.ParseFromString(Text(ToByteBuffer(*std::move(message)))));
  EXPECT_EQ(decoded.x().resident().SerializeAsString(), x.resident->SerializeAsString());
  EXPECT_THAT(decoded.x().shape(), testing::ElementsAre(2, 2));
  EXPECT_THAT(decoded.x().strides(), testing::ElementsAre(2, 1));
  // The server knows what it is.
  x = {.resident = x.resident};
  message = EncodeRequest(*forward_, request, kInlineBytesMax);
  ASSERT_TRUE(message.ok()) << message.status();
  ASSERT_TRUE(decoded.ParseFromString(Text(ToByteBuffer(*std::move(message)))));
  EXPECT_EQ(decoded.x().dtype(), rlk::v1::DATA_TYPE_UNSPECIFIED);
  EXPECT_EQ(decoded.x().resident().offset(), 8u);
}

TEST_F(MessageTest, MarksEmptyTensorsAsInline) {
  auto message = EncodeRequest(*forward_, Request(nullptr, {0, 5}), kInlineBytesMax);
  ASSERT_TRUE(message.ok()) << message.status();
  rlk::v1::FinalLogitSoftcapForwardRequest decoded;
  ASSERT_TRUE(decoded.ParseFromString(Text(ToByteBuffer(*std::move(message)))));
  EXPECT_EQ(decoded.x().source_case(), rlk::v1::Tensor::kData);
  EXPECT_FALSE(decoded.has_softcap());
  EXPECT_FALSE(decoded.has_options());
}

TEST_F(MessageTest, KeepsOwnedPayloadsAliveAndCopiesOthers) {
  constexpr int64_t kElements = 100000;
  auto owner = std::make_shared<std::vector<uint16_t>>(kElements, uint16_t{7});
  CallRequest request = Request(owner->data(), {kElements});
  request.inputs[0].second.owner = owner;
  auto owned = EncodeRequest(*forward_, request, kInlineBytesMax);
  ASSERT_TRUE(owned.ok());
  auto buffer = std::make_unique<grpc::ByteBuffer>(ToByteBuffer(*std::move(owned)));
  request.inputs.clear();
  // By reference: the buffer holds the owner and nothing else was copied.
  EXPECT_EQ(owner.use_count(), 2);
  buffer.reset();
  EXPECT_EQ(owner.use_count(), 1);

  CallRequest borrowed = Request(owner->data(), {kElements});
  auto message = EncodeRequest(*forward_, borrowed, kInlineBytesMax);
  ASSERT_TRUE(message.ok());
  const grpc::ByteBuffer copied = ToByteBuffer(*std::move(message));
  std::fill(owner->begin(), owner->end(), uint16_t{9});
  rlk::v1::FinalLogitSoftcapForwardRequest decoded;
  ASSERT_TRUE(decoded.ParseFromString(Text(copied)));
  ASSERT_EQ(decoded.x().data().size(), 2u * kElements);
  uint16_t first;
  std::memcpy(&first, decoded.x().data().data(), 2);
  EXPECT_EQ(first, 7);
}

TEST_F(MessageTest, RefusesLocallyWhatCannotBeSaid) {
  const uint16_t data[4] = {};
  struct Case {
    const char* what;
    std::function<void(CallRequest&)> change;
    Reason reason;
    const char* field;
  };
  const Case cases[] = {
      {"surplus tensor", [](auto& r) { r.inputs[0].first = "z"; }, Reason::kUnexpectedTensor, "z"},
      {"tensor twice", [](auto& r) { r.inputs.push_back(r.inputs[0]); }, Reason::kDuplicateTensor,
       "x"},
      {"no dtype", [](auto& r) { r.inputs[0].second.dtype = DType::kUnspecified; },
       Reason::kDtypeNotAllowed, "x"},
      {"negative size", [](auto& r) { r.inputs[0].second.shape[0] = -1; }, Reason::kShapeMismatch,
       "x"},
      {"overflow",
       [](auto& r) {
         r.inputs[0].second.shape = {int64_t{1} << 62, 4};
       },
       Reason::kShapeMismatch, "x"},
      {"stride rank", [](auto& r) { r.inputs[0].second.strides = Dims{1}; },
       Reason::kInvalidStrides, "x"},
      {"negative stride",
       [](auto& r) {
         r.inputs[0].second.strides = Dims{-2, 1};
       },
       Reason::kInvalidStrides, "x"},
      {"stride overflow",
       [](auto& r) {
         r.inputs[0].second.strides = Dims{INT64_MAX, INT64_MAX};
       },
       Reason::kShapeMismatch, "x"},
      {"no data", [](auto& r) { r.inputs[0].second.data = nullptr; }, Reason::kMissingTensor, "x"},
      {"unknown attribute", [](auto& r) { r.attributes["cap"] = 1.0; }, Reason::kUnknownField,
       "cap"},
      {"attribute type", [](auto& r) { r.attributes["softcap"] = std::string("a"); },
       Reason::kAttributeOutOfRange, "softcap"},
      {"dtype type", [](auto& r) { r.attributes["output_dtype"] = 1.0; },
       Reason::kAttributeOutOfRange, "output_dtype"},
  };
  for (const Case& c : cases) {
    CallRequest request = Request(data, {2, 2});
    ASSERT_TRUE(Encode(request).ok());
    c.change(request);
    const absl::Status status = Encode(request);
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.what << ": " << status;
    const auto detail = GetErrorDetail(status);
    ASSERT_TRUE(detail.has_value()) << c.what;
    EXPECT_EQ(ReasonName(detail->reason), ReasonName(c.reason)) << c.what;
    EXPECT_EQ(detail->field, c.field) << c.what;
  }
}

TEST_F(MessageTest, NamesTheInlineLimit) {
  const uint16_t data[4] = {};
  const auto message = EncodeRequest(*forward_, Request(data, {2, 2}), kInlineBytesMax);
  ASSERT_TRUE(message.ok());
  const auto size = static_cast<int64_t>(Text(ToByteBuffer(*message)).size());
  EXPECT_GT(size, 8);
  EXPECT_TRUE(Encode(Request(data, {2, 2}), size).ok());
  const auto detail = GetErrorDetail(Encode(Request(data, {2, 2}), size - 1));
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kMessageTooLarge);
  EXPECT_EQ(detail->field, "request");
  EXPECT_EQ(detail->value, std::to_string(size) + " bytes");
  EXPECT_THAT(detail->allowed, testing::HasSubstr(std::to_string(size - 1)));
}

TEST_F(MessageTest, DecodesRepliesIntoOwnedTensors) {
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  response.mutable_y()->set_dtype(rlk::v1::DATA_TYPE_F32);
  response.mutable_y()->add_shape(2);
  const float values[] = {1.5f, -2.5f};
  response.mutable_y()->set_data(values, sizeof(values));
  response.mutable_report()->set_backend("cpu");
  const auto decode = [this](const std::string& text) {
    const grpc::Slice slice(text);
    grpc::ByteBuffer buffer(&slice, 1);
    return DecodeReply(*forward_, *FromByteBuffer(&buffer));
  };
  const auto result = decode(response.SerializeAsString());
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_NE(result->Output("y"), nullptr);
  EXPECT_THAT(result->Output("y")->as<float>(), testing::ElementsAre(1.5f, -2.5f));
  EXPECT_EQ(result->Output("z"), nullptr);
  EXPECT_EQ(result->report->backend(), "cpu");

  response.mutable_y()->set_shape(0, int64_t{1} << 40);
  EXPECT_EQ(decode(response.SerializeAsString()).status().code(), absl::StatusCode::kInternal);
  response.mutable_y()->set_shape(0, 2);
  response.mutable_y()->clear_source();
  EXPECT_EQ(decode(response.SerializeAsString()).status().code(), absl::StatusCode::kInternal);
  response.mutable_y()->mutable_arena()->set_generation(9);
  const auto placed = decode(response.SerializeAsString());
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_TRUE(placed->outputs.empty());
  ASSERT_EQ(placed->placed.size(), 1u);
  EXPECT_EQ(placed->placed[0].first, "y");
  EXPECT_EQ(placed->placed[0].second.place.generation(), 9u);
  EXPECT_EQ(placed->placed[0].second.shape, Dims({2}));
  response.mutable_y()->mutable_resident()->set_id("0123456789abcdef");
  response.mutable_y()->mutable_resident()->set_generation(3);
  const auto resident = decode(response.SerializeAsString());
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_TRUE(resident->outputs.empty());
  ASSERT_NE(resident->Resident("y"), nullptr);
  EXPECT_EQ(resident->Resident("y")->handle.id(), "0123456789abcdef");
  EXPECT_EQ(resident->Resident("y")->handle.generation(), 3u);
  EXPECT_EQ(resident->Resident("y")->shape, Dims({2}));
  EXPECT_EQ(resident->Resident("x"), nullptr);
  EXPECT_FALSE(decode("\xff\xff").ok());
}

TEST_F(MessageTest, ReadsRepliesOfANewerServer) {
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  response.mutable_y()->set_dtype(rlk::v1::DATA_TYPE_F32);
  response.mutable_y()->add_shape(1);
  const float value = 1.5f;
  response.mutable_y()->set_data(&value, sizeof(value));
  response.mutable_report()->set_backend("cpu");
  // Field 1000 at both levels, as a varint and as text.
  constexpr int kUnknown = 1000;
  auto* report = response.mutable_report();
  report->GetReflection()->MutableUnknownFields(report)->AddVarint(kUnknown, 7);
  response.GetReflection()->MutableUnknownFields(&response)->AddLengthDelimited(kUnknown, "later");
  const grpc::Slice slice(response.SerializeAsString());
  grpc::ByteBuffer buffer(&slice, 1);
  const auto result = DecodeReply(*forward_, *FromByteBuffer(&buffer));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_NE(result->Output("y"), nullptr);
  EXPECT_THAT(result->Output("y")->as<float>(), testing::ElementsAre(1.5f));
  EXPECT_EQ(result->report->backend(), "cpu");
}

TEST_F(MessageTest, ReadsRepliesInPiecesOfAnySize) {
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  response.mutable_y()->set_dtype(rlk::v1::DATA_TYPE_F32);
  response.mutable_y()->add_shape(3);
  const float values[] = {1.5f, -2.5f, 0.25f};
  response.mutable_y()->set_data(values, sizeof(values));
  response.mutable_report()->set_contract(std::string(200, 'c'));
  const std::string text = response.SerializeAsString();
  for (size_t size = 1; size <= text.size(); ++size) {
    std::vector<grpc::Slice> slices;
    for (size_t i = 0; i < text.size(); i += size) slices.emplace_back(text.substr(i, size));
    grpc::ByteBuffer buffer(slices.data(), slices.size());
    const auto result = DecodeReply(*forward_, *FromByteBuffer(&buffer));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->Output("y")->as<float>(), testing::ElementsAreArray(values));
    EXPECT_EQ(result->report->contract(), response.report().contract());
  }
}

TEST_F(MessageTest, RefusesMalformedReplies) {
  using namespace std::string_literals;
  const struct {
    const char* name;
    std::string bytes;
  } cases[] = {
      {"a cut tag", "\xff"s},
      {"field number 0", "\x02\x00"s},
      {"a cut length", "\x0a"s},
      {"a length beyond the reply", "\x0a\x05\x08\x01"s},
      {"a payload beyond its tensor", "\x0a\x04\x08\x01\x22\x09"s + std::string(9, 'x')},
      {"a cut number", "\x09\x00\x00"s},
      {"a group", "\x0b\x0c"s},
      {"a malformed tensor", "\x0a\x02\x12\x05"s},
      {"a report beyond the reply", "\xa2\x06\x05\x0a"s},
  };
  for (const auto& [name, bytes] : cases) {
    const grpc::Slice slice(bytes);
    grpc::ByteBuffer buffer(&slice, 1);
    const auto result = DecodeReply(*forward_, *FromByteBuffer(&buffer));
    const auto detail = GetErrorDetail(result.status());
    ASSERT_TRUE(detail.has_value()) << name << ": " << result.status();
    EXPECT_EQ(detail->reason, Reason::kMalformedMessage) << name;
  }
}

// The report is read when it is looked at, by any number of threads.
TEST_F(MessageTest, SaysOfAReportThatItIsMalformed) {
  using namespace std::string_literals;
  for (const std::string& bytes : {"\xa2\x06\x02\x0a\x09"s, "\xa2\x06\x03\x0a\x01\xff"s}) {
    const grpc::Slice slice(bytes);
    grpc::ByteBuffer buffer(&slice, 1);
    const auto result = DecodeReply(*forward_, *FromByteBuffer(&buffer));
    ASSERT_TRUE(result.ok()) << result.status();
    const auto detail = GetErrorDetail(result->report.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->reason, Reason::kMalformedMessage);
    EXPECT_EQ(detail->field, "report");
    EXPECT_EQ(result->report->ByteSizeLong(), 0u);
  }
  EXPECT_TRUE(Report().status().ok());
  EXPECT_EQ(Report()->contract(), "");
}

TEST_F(MessageTest, SharesOneReportAmongCopiesAndThreads) {
  rlk::v1::CallReport message;
  message.set_contract(std::string(100, 'c'));
  const Report report(message.SerializeAsString());
  std::vector<const rlk::v1::CallReport*> seen(8);
  {
    std::vector<std::jthread> threads;
    for (auto& place : seen) {
      threads.emplace_back([copy = report, &place] {
        if (copy->contract().size() == 100 && copy.status().ok()) place = &*copy;
      });
    }
  }
  for (const auto* place : seen) EXPECT_EQ(place, &*report);
}

}  // namespace
}  // namespace rlk::client
