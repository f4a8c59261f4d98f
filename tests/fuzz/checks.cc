#include "tests/fuzz/checks.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "kernels/core/status.h"
#include "proto/wire/call_codec.h"
#include "proto/wire/call_parts.h"
#include "proto/wire/chunk.h"
#include "proto/wire/codec.h"
#include "proto/wire/signatures.h"
#include "rlk/v1/activation.pb.h"
#include "rlk/v1/tensor_service.pb.h"
#include "test_messages.pb.h"

namespace rlk::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;
using wire::InputBytes;
using wire::OutputBytes;
using wire::Payload;
using wire::SplitMessage;

std::atomic<int64_t> accepted = 0;

constexpr int64_t kTensorsMax = 8;

std::string Flatten(const HostBytes& bytes) {
  std::string flat;
  for (const auto& piece : bytes.pieces) {
    flat.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  GOOGLE_CHECK_EQ(static_cast<int64_t>(flat.size()), bytes.size);
  return flat;
}

std::string Flatten(const OutputBytes& pieces) {
  std::string flat;
  for (const auto& piece : pieces) {
    GOOGLE_CHECK(piece.text.empty() || piece.payload.empty());
    flat.append(piece.text);
    flat.append(reinterpret_cast<const char*>(piece.payload.data()), piece.payload.size());
  }
  return flat;
}

std::string Serialize(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializePartialToCodedStream(&coded);
  }
  return bytes;
}

void ExpectSame(const SplitMessage& a, const SplitMessage& b) {
  GOOGLE_CHECK_EQ(Serialize(*a.message), Serialize(*b.message));
  GOOGLE_CHECK_EQ(a.payloads.size(), b.payloads.size());
  for (size_t i = 0; i < a.payloads.size(); ++i) {
    const Payload& one = a.payloads[i];
    bool found = false;
    for (const Payload& other : b.payloads) {
      if (one.field_number != other.field_number || one.index != other.index) continue;
      GOOGLE_CHECK_EQ(Flatten(one.bytes), Flatten(other.bytes));
      found = true;
    }
    GOOGLE_CHECK(found);
  }
}

void ExpectReason(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  GOOGLE_CHECK(detail.has_value()) << std::string(status.message());
  GOOGLE_CHECK(detail->reason != Reason::kUnknown && detail->reason != Reason::kInternal)
      << std::string(status.message());
  GOOGLE_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
}

const std::vector<const Descriptor*>& MessageTypes() {
  static const auto& types = *new std::vector<const Descriptor*>{
      rlk::v1::FinalLogitSoftcapForwardRequest::descriptor(),
      rlk::v1::FinalLogitSoftcapBackwardRequest::descriptor(),
      rlk::v1::FinalLogitSoftcapForwardResponse::descriptor(),
      rlk::v1::FinalLogitSoftcapBackwardResponse::descriptor(),
      rlk::test::Everything::descriptor(),
      rlk::test::GatherAllForwardRequest::descriptor(),
  };
  return types;
}

struct BoundMethod {
  std::unique_ptr<Method> method;
  const Descriptor* request = nullptr;
};

const std::vector<BoundMethod>& Methods() {
  static const auto& methods = *[] {
    auto* result = new std::vector<BoundMethod>;
    auto files = wire::OperatorFiles();
    files.push_back(rlk::test::GatherAllForwardRequest::descriptor()->file());
    auto bindings = wire::CompileSignatures(files);
    GOOGLE_CHECK(bindings.ok()) << std::string(bindings.status().message());
    for (auto& binding : *bindings) {
      auto method = std::make_unique<Method>();
      method->signature = std::move(binding.signature);
      result->push_back({std::move(method), binding.descriptor->input_type()});
    }
    return result;
  }();
  return methods;
}

void CheckInput(const TensorArg& input, const MethodSignature& signature) {
  GOOGLE_CHECK_LT(static_cast<size_t>(input.spec), signature.inputs.size());
  // Only a resident tensor may be taken without saying what it is.
  const bool whole = input.source == TensorSource::kResident && input.dtype == DType::kUnspecified;
  GOOGLE_CHECK(whole ? input.shape.rank() == 0 : DTypeSize(input.dtype) > 0);
  GOOGLE_CHECK_EQ(input.shape.rank(), input.strides.rank());
  int64_t span = 1;
  for (int i = 0; i < input.shape.rank(); ++i) {
    GOOGLE_CHECK_GE(input.shape[i], 0);
    GOOGLE_CHECK_GE(input.strides[i], 0);
    if (input.shape[i] == 0) span = 0;
  }
  // Neither may overflow, whatever the input: the sanitizer watches.
  ElementCount(input.shape);
  IsContiguous(input.shape, input.strides);
  for (int i = 0; span > 0 && i < input.shape.rank(); ++i) {
    span += (input.shape[i] - 1) * input.strides[i];
  }
  if (input.source == TensorSource::kInline) {
    GOOGLE_CHECK_EQ(input.data.size, span * DTypeSize(input.dtype));
    Flatten(input.data);
  }
}

void ExpectSame(const ArenaSlot& a, const ArenaSlot& b) {
  GOOGLE_CHECK(a.arena == b.arena && a.generation == b.generation && a.offset == b.offset);
}

void ExpectSame(const TensorHandle& a, const TensorHandle& b) {
  GOOGLE_CHECK(a.id == b.id && a.server_id == b.server_id);
  GOOGLE_CHECK(a.generation == b.generation && a.offset == b.offset);
}

void ExpectSame(const CallOptions& a, const CallOptions& b) {
  GOOGLE_CHECK(a.contract == b.contract && a.backend == b.backend);
  GOOGLE_CHECK(a.device_uuid == b.device_uuid && a.allow_fallback == b.allow_fallback);
  GOOGLE_CHECK(a.minimum_claim == b.minimum_claim && a.wanted_outputs == b.wanted_outputs);
  GOOGLE_CHECK(a.digest_tensors == b.digest_tensors && a.digest_rows == b.digest_rows);
  GOOGLE_CHECK(a.input_capture == b.input_capture && a.verification == b.verification);
  GOOGLE_CHECK_EQ(a.outputs.size(), b.outputs.size());
  for (const auto& [name, placement] : a.outputs) {
    const Placement& other = b.outputs.at(name);
    GOOGLE_CHECK(other.kind == placement.kind);
    GOOGLE_CHECK(other.into.has_value() == placement.into.has_value());
    ExpectSame(other.arena, placement.arena);
    if (other.into) ExpectSame(*other.into, *placement.into);
  }
}

// The call that the short way makes of a request is the one that the general way makes of it.
void ExpectSame(const Call& a, const Call& b) {
  GOOGLE_CHECK(a.method == b.method && a.message_bytes == b.message_bytes);
  GOOGLE_CHECK_EQ(a.inputs.size(), b.inputs.size());
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const TensorArg &one = a.inputs[i], &other = b.inputs[i];
    GOOGLE_CHECK(one.spec == other.spec && one.dtype == other.dtype && one.shape == other.shape);
    GOOGLE_CHECK(one.strides == other.strides && one.source == other.source);
    ExpectSame(one.resident, other.resident);
    ExpectSame(one.arena, other.arena);
    GOOGLE_CHECK_EQ(Flatten(one.data), Flatten(other.data));
  }
  GOOGLE_CHECK_EQ(a.attributes.size(), b.attributes.size());
  for (size_t i = 0; i < a.attributes.size(); ++i) {
    const auto &one = a.attributes[i], &other = b.attributes[i];
    GOOGLE_CHECK(one.spec == other.spec && one.integer == other.integer);
    GOOGLE_CHECK_EQ(std::memcmp(&one.number, &other.number, sizeof(one.number)), 0);
  }
  ExpectSame(a.options, b.options);
}

template <typename M>
std::string Seed(size_t type, const M& message) {
  std::string seed{static_cast<char>(type), 0};
  return seed.append(message.SerializeAsString());
}

rlk::v1::Tensor MakeTensor(rlk::v1::DataType dtype, std::vector<int64_t> shape, size_t bytes) {
  rlk::v1::Tensor tensor;
  tensor.set_dtype(dtype);
  for (const int64_t size : shape) tensor.add_shape(size);
  tensor.set_data(std::string(bytes, '\x3c'));
  return tensor;
}

}  // namespace

InputBytes Cut(std::string_view bytes, uint8_t seed) {
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  InputBytes input;
  if (seed == 0) {
    input.pieces.emplace_back(data, bytes.size());
    return input;
  }
  std::minstd_rand random(seed);
  const auto piece_max = static_cast<uint32_t>(seed % 41);
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min<size_t>(random() % (piece_max + 1), bytes.size() - at);
    input.pieces.emplace_back(data + at, size);
    at += size;
    if (piece_max == 0) {
      input.pieces.emplace_back(data + at, bytes.size() - at);
      break;
    }
  }
  return input;
}

void CheckSplit(std::span<const uint8_t> input) {
  if (input.size() < kHeaderBytes) return;
  const Descriptor* type = MessageTypes()[input[0] % MessageTypes().size()];
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()) + kHeaderBytes,
                               input.size() - kHeaderBytes);
  const auto whole = wire::Split(type, Cut(bytes, 0), kTensorsMax);
  const auto cut = wire::Split(type, Cut(bytes, input[1]), kTensorsMax);
  GOOGLE_CHECK_EQ(whole.ok(), cut.ok());
  if (!whole.ok()) {
    GOOGLE_CHECK(whole.status() == cut.status()) << std::string(cut.status().message());
    ExpectReason(whole.status());
    return;
  }
  accepted.fetch_add(1, std::memory_order_relaxed);
  ExpectSame(*whole, *cut);

  // protobuf reads the same message, and keeps nothing as unknown.
  std::unique_ptr<Message> parsed(whole->message->New());
  GOOGLE_CHECK(parsed->ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())));
  const std::string joined = Flatten(wire::Join(*cut->message, cut->payloads));
  GOOGLE_CHECK_EQ(joined, Serialize(*parsed));

  const auto again = wire::Split(type, Cut(joined, input[1]), kTensorsMax);
  GOOGLE_CHECK(again.ok()) << std::string(again.status().message());
  ExpectSame(*whole, *again);
  GOOGLE_CHECK_EQ(joined, Flatten(wire::Join(*again->message, again->payloads)));
}

void CheckChunk(std::span<const uint8_t> input) {
  if (input.size() < kHeaderBytes) return;
  constexpr int kField = rlk::v1::UploadRequest::kDataFieldNumber;
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()) + kHeaderBytes,
                               input.size() - kHeaderBytes);
  const google::protobuf::LogSilencer quiet;  // of text that is no UTF-8
  rlk::v1::UploadRequest parsed;
  const bool parses = parsed.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  const auto whole = wire::DecodeChunk(kField, Cut(bytes, 0));
  const auto cut = wire::DecodeChunk(kField, Cut(bytes, input[1]));
  GOOGLE_CHECK_EQ(whole.ok(), cut.ok());
  // What protobuf itself would have sent is taken.
  const bool plain = parses && parsed.has_data() &&
                     parsed.GetReflection()->GetUnknownFields(parsed).empty() &&
                     parsed.SerializeAsString() == bytes;
  if (!whole.ok()) {
    GOOGLE_CHECK(whole.status() == cut.status()) << std::string(cut.status().message());
    GOOGLE_CHECK(!plain);
    return ExpectReason(whole.status());
  }
  GOOGLE_CHECK_EQ(whole->has_value(), cut->has_value());
  if (!whole->has_value()) {
    GOOGLE_CHECK(!plain);
    return;
  }
  accepted.fetch_add(1, std::memory_order_relaxed);
  // protobuf reads the same bytes, and nothing else.
  const std::string data = Flatten(**whole);
  GOOGLE_CHECK_EQ(data, Flatten(**cut));
  GOOGLE_CHECK(parses && parsed.has_data());
  GOOGLE_CHECK_EQ(data, parsed.data());
  GOOGLE_CHECK_EQ(Flatten(wire::EncodeChunk(kField, **cut)), parsed.SerializeAsString());
}

void CheckCall(std::span<const uint8_t> input) {
  if (input.size() < kHeaderBytes) return;
  const BoundMethod& bound = Methods()[input[0] % Methods().size()];
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()) + kHeaderBytes,
                               input.size() - kHeaderBytes);
  Limits limits;
  limits.inline_bytes_max = 4096;
  limits.attribute_text_bytes_max = 32;
  const auto call = wire::DecodeCall(*bound.method, bound.request, Cut(bytes, input[1]), limits);
  if (!call.ok()) return ExpectReason(call.status());
  const auto any = wire::DecodeAnyCall(*bound.method, bound.request, Cut(bytes, 0), limits);
  GOOGLE_CHECK(any.ok()) << std::string(any.status().message());
  ExpectSame(*call, *any);
  accepted.fetch_add(1, std::memory_order_relaxed);
  const MethodSignature& signature = bound.method->signature;
  int32_t last = 0;
  for (const TensorArg& tensor : call->inputs) {
    GOOGLE_CHECK_LE(last, tensor.spec);
    last = tensor.spec;
    CheckInput(tensor, signature);
  }
  for (const auto& attribute : call->attributes) {
    GOOGLE_CHECK_LT(static_cast<size_t>(attribute.spec), signature.attributes.size());
  }
  GOOGLE_CHECK_EQ(call->message_bytes, static_cast<int64_t>(bytes.size()));
}

std::vector<std::string> Seeds() {
  rlk::v1::FinalLogitSoftcapForwardRequest forward;
  *forward.mutable_x() = MakeTensor(rlk::v1::DATA_TYPE_F32, {2, 3}, 24);
  forward.set_softcap(20);
  forward.set_output_dtype(rlk::v1::DATA_TYPE_F32);
  rlk::v1::CallOptions& options = *forward.mutable_options();
  options.set_contract("c");
  options.set_mode(rlk::v1::MODE_AUTO);
  options.set_minimum_claim(rlk::v1::CLAIM_LEVEL_L3_PORTABLE);
  options.add_digests(rlk::v1::DIGEST_SCOPE_ROWS);
  options.add_wanted_outputs(std::string("y"));
  (*options.mutable_outputs())["y"].mutable_arena()->set_offset(8);
  options.set_verification(rlk::v1::VERIFICATION_REPEAT);

  rlk::v1::FinalLogitSoftcapBackwardRequest backward;
  *backward.mutable_x() = MakeTensor(rlk::v1::DATA_TYPE_BF16, {2, 3}, 22);
  backward.mutable_x()->add_strides(8);
  backward.mutable_x()->add_strides(1);
  *backward.mutable_grad_y() = MakeTensor(rlk::v1::DATA_TYPE_F32, {2, 3}, 24);
  backward.mutable_grad_y()->mutable_resident()->set_server_id("s");

  rlk::test::Everything everything;
  *everything.mutable_x() = MakeTensor(rlk::v1::DATA_TYPE_U8, {0}, 0);
  *everything.add_many() = MakeTensor(rlk::v1::DATA_TYPE_U8, {3}, 3);
  *everything.add_many() = MakeTensor(rlk::v1::DATA_TYPE_U8, {}, 1);
  *everything.mutable_last() = MakeTensor(rlk::v1::DATA_TYPE_BOOL, {1, 1}, 1);
  rlk::test::Nested& nested = *everything.mutable_nested();
  nested.set_small(-1);
  nested.set_text("\xc3\xa9\xf0\x9f\x98\x80");
  nested.add_colors(rlk::test::COLOR_NEGATIVE);
  nested.add_fixed(7);
  nested.add_unpacked(-3);
  (*nested.mutable_counts())["k"] = 1;
  (*nested.mutable_flags())[true] = 2;
  (*nested.mutable_fixed_keys())[5] = rlk::test::COLOR_RED;
  (*nested.mutable_children())[-4].set_word("w");
  everything.add_list()->mutable_child()->mutable_any()->set_value("any");

  rlk::test::GatherAllForwardRequest gather;
  *gather.mutable_index() = MakeTensor(rlk::v1::DATA_TYPE_I64, {2}, 16);
  *gather.add_parts() = MakeTensor(rlk::v1::DATA_TYPE_BF16, {2, 2, 1}, 8);
  gather.set_causal(true);
  gather.set_color(rlk::test::COLOR_RED);
  gather.set_rows_before(128);
  rlk::v1::UploadRequest chunk, empty;
  chunk.set_data("the bytes of a chunk, in some pieces");
  empty.set_data("");

  rlk::v1::FinalLogitSoftcapForwardRequest placed = forward;
  placed.mutable_x()->mutable_arena()->set_arena("an arena");
  placed.mutable_x()->mutable_arena()->set_generation(300);
  rlk::v1::TensorHandle& into =
      *(*placed.mutable_options()->mutable_outputs())["y"].mutable_resident()->mutable_into();
  into.set_id("0123456789abcdef");
  into.set_server_id("s");
  into.set_generation(1);
  into.set_offset(24);
  placed.mutable_options()->set_backend("cpu");
  placed.mutable_options()->set_device_uuid("GPU-1");
  placed.mutable_options()->set_input_capture(rlk::v1::INPUT_CAPTURE_LIVE);
  return {Seed(0, forward), Seed(1, backward), Seed(4, everything), Seed(5, gather),
          Seed(2, gather),  Seed(3, chunk),    Seed(0, empty),      Seed(0, placed)};
}

int64_t AcceptedInputs() { return accepted.load(std::memory_order_relaxed); }

}  // namespace rlk::fuzz
