#include <algorithm>
#include <memory>
#include <random>

#include "gmock/gmock.h"
#include "proto/wire/codec.h"
#include "rlk/v1/activation.pb.h"
#include "test_messages.pb.h"
#include "tests/unit/wire/wire_testing.h"

namespace rlk::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int64_t kTensorsMax = 64;

rlk::v1::Tensor MakeTensor(rlk::v1::DataType dtype, std::vector<int64_t> shape, std::string data) {
  rlk::v1::Tensor tensor;
  tensor.set_dtype(dtype);
  for (const int64_t size : shape) tensor.add_shape(size);
  tensor.set_data(std::move(data));
  return tensor;
}

rlk::test::Everything Example() {
  rlk::test::Everything message;
  *message.mutable_x() = MakeTensor(rlk::v1::DATA_TYPE_F32, {2, 3}, "abcdefghijklmnopqrstuvwx");
  *message.add_many() = MakeTensor(rlk::v1::DATA_TYPE_U8, {0}, "");
  message.add_many()->mutable_resident()->set_generation(300);
  *message.add_many() = MakeTensor(rlk::v1::DATA_TYPE_U8, {3}, "123");
  message.mutable_nested()->set_text("text");
  message.mutable_nested()->add_colors(rlk::test::COLOR_NEGATIVE);
  (*message.mutable_nested()->mutable_counts())["a"] = 1;
  (*message.mutable_nested()->mutable_counts())["b"] = -1;
  message.set_plain(-1);
  *message.mutable_last() = MakeTensor(rlk::v1::DATA_TYPE_BOOL, {1}, std::string(1, '\x01'));
  return message;
}

const google::protobuf::Descriptor* Type() { return rlk::test::Everything::descriptor(); }

TEST(Split, GivesTheSameForEveryPieceSize) {
  const std::string bytes = Example().SerializeAsString();
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const auto split = Split(Type(), Pieces(bytes, piece), kTensorsMax);
    ASSERT_TRUE(split.ok()) << split.status() << " with pieces of " << piece;
    EXPECT_EQ(split->message_bytes, static_cast<int64_t>(bytes.size()));
    ASSERT_EQ(split->payloads.size(), 4u);
    EXPECT_EQ(Flatten(split->payloads[0].bytes), "abcdefghijklmnopqrstuvwx");
    EXPECT_EQ(split->payloads[1].bytes.size, 0);
    EXPECT_EQ(Flatten(split->payloads[2].bytes), "123");
    EXPECT_EQ(split->payloads[2].field_number, 2);
    EXPECT_EQ(split->payloads[2].index, 2);
    EXPECT_EQ(split->payloads[3].field_number, 2000);
    rlk::test::Everything rest = Example();
    rest.mutable_x()->set_data("");
    rest.mutable_many(2)->set_data("");
    rest.mutable_last()->set_data("");
    EXPECT_EQ(split->message->SerializeAsString().size(), rest.SerializeAsString().size());
    EXPECT_EQ(split->message->DebugString(), rest.DebugString());
    EXPECT_EQ(Flatten(Join(*split->message, split->payloads)).size(), bytes.size());
  }
}

TEST(Split, ReferencesPayloadsInsteadOfCopying) {
  const std::string bytes = Example().SerializeAsString();
  InputBytes input = Pieces(bytes, 16);
  input.pieces.insert(input.pieces.begin() + 1, std::span<const std::byte>());
  const auto owner = std::make_shared<int>(7);
  input.owner = owner;
  const auto split = Split(Type(), input, kTensorsMax);
  ASSERT_TRUE(split.ok()) << split.status();
  for (const Payload& payload : split->payloads) {
    EXPECT_EQ(payload.bytes.owner, owner);
    for (const auto& piece : payload.bytes.pieces) {
      const auto* at = reinterpret_cast<const char*>(piece.data());
      EXPECT_GE(at, bytes.data());
      EXPECT_LE(at + piece.size(), bytes.data() + bytes.size());
    }
  }
  for (const OutputPiece& piece : Join(*split->message, split->payloads)) {
    if (piece.payload.empty()) continue;
    EXPECT_EQ(piece.owner, owner);
  }
}

TEST(Split, TakesAnEmptyMessage) {
  const auto split = Split(Type(), InputBytes{}, kTensorsMax);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->message->ByteSizeLong(), 0u);
}

TEST(Split, TakesLegalSpellingsThatAreLongerThanNeeded) {
  using std::string_literals::operator""s;
  // Tag 1 in two bytes, length in three, tag of data in five, plain's value in ten.
  const std::string tensor = "\x08\x87\x80\x00\xa2\x80\x80\x80\x00\x81\x00z"s;
  const std::string bytes = "\x8a\x00"s + std::string(1, static_cast<char>(0x80 | tensor.size())) +
                            "\x80\x00"s + tensor + "\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s;
  const auto split = Split(Type(), Pieces(bytes), kTensorsMax);
  ASSERT_TRUE(split.ok()) << split.status();
  const auto& message = static_cast<const rlk::test::Everything&>(*split->message);
  EXPECT_EQ(message.x().dtype(), rlk::v1::DATA_TYPE_U8);
  EXPECT_EQ(message.plain(), -1);
  ASSERT_EQ(split->payloads.size(), 1u);
  EXPECT_EQ(Flatten(split->payloads[0].bytes), "z");
}

struct RefusedCase {
  std::string name;
  std::string bytes;
  ExpectedError error;
};

std::string Deep(int levels) {
  std::string bytes;
  for (int i = 0; i < levels; ++i) bytes = BytesField(10, bytes);
  return BytesField(3, bytes);
}

std::string DeepPath(int levels) {
  std::string path = "nested";
  for (int i = 0; i < levels; ++i) path += ".child";
  return path;
}

std::vector<RefusedCase> RefusedCases() {
  using std::string_literals::operator""s;
  // Errors cut a field at 128 bytes.
  static const auto& deep = *new std::string(DeepPath(kNestingMax).substr(0, 125) + "...");
  const auto in_x = [](const std::string& inner) { return BytesField(1, inner); };
  const auto in_nested = [](const std::string& inner) { return BytesField(3, inner); };
  const auto entry = [](const std::string& key) { return BytesField(11, BytesField(1, key)); };
  constexpr auto kMalformed = Reason::kMalformedMessage;
  return {
      {"CutTag", "\x80"s, {kMalformed, ""}},
      {"TagOfSixBytes", "\x88\x80\x80\x80\x80\x00\x01"s, {kMalformed, ""}},
      {"TagBeyond32Bits", "\x88\x80\x80\x80\x7f\x01"s, {kMalformed, ""}},
      {"FieldNumberZero", "\x00\x01"s, {kMalformed, ""}},
      {"WireType6", "\x0e"s, {kMalformed, ""}},
      {"GroupStart", "\x0b\x0c"s, {kMalformed, "x"}},
      {"GroupEnd", "\x0c"s, {kMalformed, "x"}},
      {"GroupInTensor", in_x("\x0b\x0c"s), {kMalformed, "x"}},
      {"GroupDeeper", in_nested(BytesField(10, "\x0b\x0c"s)), {kMalformed, "nested.child.small"}},
      {"LengthBeyondMessage", "\x0a\x05\x08\x01"s, {kMalformed, "x"}},
      {"LengthHuge", "\x0a\xff\xff\xff\xff\x0f"s, {kMalformed, "x"}},
      {"DataBeyondTensor", in_x("\x22\x05z"s) + "zzzzzzzz"s, {kMalformed, "x.data"}},
      {"VarintBeyondTensor", in_x("\x08\x80"s) + "\x28\x01"s, {kMalformed, "x"}},
      {"VarintOfElevenBytes", "\x28"s + std::string(10, '\x80') + "\x00"s, {kMalformed, "plain"}},
      {"VarintBeyond64Bits", "\x28"s + std::string(9, '\xff') + "\x02"s, {kMalformed, "plain"}},
      {"NestedLengthBeyond", in_nested("\x52\x7f"s), {kMalformed, "nested.child"}},
      {"NestedTagCut", in_nested("\x80"s), {kMalformed, "nested"}},
      {"CutFixed32", in_nested("\xad\x01\x00\x00"s), {kMalformed, "nested.single"}},
      {"CutPackedFixed", in_nested(BytesField(9, "abcde")), {kMalformed, "nested.fixed[0]"}},
      {"CutPackedVarint", in_nested(BytesField(7, "\x80"s)), {kMalformed, "nested.colors[0]"}},
      {"UnknownField", VarintField(77, 1), {Reason::kUnknownField, "77"}},
      {"UnknownFieldInTensor", in_x(VarintField(9, 1)), {Reason::kUnknownField, "x.9"}},
      {"UnknownFieldInHandle",
       in_x(BytesField(5, VarintField(9, 1))),
       {Reason::kUnknownField, "x.resident.9"}},
      {"UnknownFieldInRepeated",
       BytesField(4, "") + BytesField(4, VarintField(99, 1)),
       {Reason::kUnknownField, "list[1].99"}},
      {"UnknownFieldInMapEntry",
       in_nested(BytesField(11, VarintField(3, 1))),
       {Reason::kUnknownField, "nested.counts.3"}},
      {"UnknownFieldDeep",
       in_nested(BytesField(10, BytesField(10, BytesField(99, "")))),
       {Reason::kUnknownField, "nested.child.child.99"}},
      {"TensorAsVarint", VarintField(1, 1), {kMalformed, "x"}},
      {"DtypeAsBytes", in_x(BytesField(1, "a")), {kMalformed, "x.dtype"}},
      {"DataAsVarint", in_x(VarintField(4, 1)), {kMalformed, "x.data"}},
      {"TextAsVarint", in_nested(VarintField(5, 1)), {kMalformed, "nested.text"}},
      {"DoublesAsVarint", in_nested(VarintField(8, 1)), {kMalformed, "nested.doubles[0]"}},
      {"TensorTwice", in_x("") + in_x(""), {Reason::kDuplicateTensor, "x"}},
      {"TensorTwiceApart",
       in_x("\x22\x01z"s) + VarintField(5, 1) + in_x("\x22\x01z"s),
       {Reason::kDuplicateTensor, "x"}},
      {"DataTwice", in_x("\x22\x01z\x22\x01y"s), {Reason::kDuplicateTensor, "x.data"}},
      {"DataAndHandle",
       in_x("\x22\x01z"s + BytesField(5, "")),
       {Reason::kDuplicateTensor, "x.resident"}},
      {"ArenaAndData", in_x(BytesField(6, "") + "\x22\x00"s), {Reason::kDuplicateTensor, "x.data"}},
      {"DtypeTwice", in_x(VarintField(1, 1) + VarintField(1, 1)), {kMalformed, "x.dtype"}},
      {"PlainTwice", VarintField(5, 1) + VarintField(5, 1), {kMalformed, "plain"}},
      {"MessageTwice", in_nested("") + in_nested(""), {kMalformed, "nested"}},
      {"OneofTwice",
       in_nested(VarintField(13, 1) + BytesField(14, "a")),
       {kMalformed, "nested.word"}},
      {"MapKeyTwice",
       in_nested(entry("k") + entry("j") + entry("k")),
       {kMalformed, "nested.counts"}},
      {"MapKeyTwiceByDefault",
       in_nested(BytesField(12, "") + BytesField(12, VarintField(1, 0))),
       {kMalformed, "nested.children"}},
      {"MapKeyTwiceAsBool",
       in_nested(BytesField(18, VarintField(1, 1)) + BytesField(18, VarintField(1, 2))),
       {kMalformed, "nested.flags"}},
      {"MapKeyTwiceFixed",
       in_nested(BytesField(19, "") + BytesField(19, "\x0d\x00\x00\x00\x00"s)),
       {kMalformed, "nested.fixed_keys"}},
      {"MapKeyTwiceNegative",
       in_nested(BytesField(12, VarintField(1, ~uint64_t{0})) +
                 BytesField(12, VarintField(1, 0xffffffff))),
       {kMalformed, "nested.children"}},
      {"UnknownDtype", in_x(VarintField(1, 9)), {Reason::kUnknownEnumValue, "x.dtype"}},
      {"EnumBeyond32Bits",
       in_x(VarintField(1, (uint64_t{1} << 32) + 1)),
       {Reason::kUnknownEnumValue, "x.dtype"}},
      {"NegativeEnum",
       in_nested(VarintField(6, ~uint64_t{0})),
       {Reason::kUnknownEnumValue, "nested.color"}},
      {"PackedEnum",
       in_nested(BytesField(7, "\x01\x05")),
       {Reason::kUnknownEnumValue, "nested.colors[0]"}},
      {"UnpackedEnum",
       in_nested(VarintField(7, 1) + VarintField(7, 5)),
       {Reason::kUnknownEnumValue, "nested.colors[1]"}},
      {"EnumInMap",
       in_nested(BytesField(19, VarintField(2, 5))),
       {Reason::kUnknownEnumValue, "nested.fixed_keys.value"}},
      {"Int32TooLarge", in_nested(VarintField(1, uint64_t{1} << 32)), {kMalformed, "nested.small"}},
      {"Uint32TooLarge",
       in_nested(VarintField(2, uint64_t{1} << 32)),
       {kMalformed, "nested.natural"}},
      {"TextNotUtf8", in_nested(BytesField(5, "\xc3")), {kMalformed, "nested.text"}},
      {"TextOverlong", in_nested(BytesField(5, "\xc0\x80")), {kMalformed, "nested.text"}},
      {"TextSurrogate", in_nested(BytesField(5, "\xed\xa0\x80")), {kMalformed, "nested.text"}},
      {"TextTooHigh", in_nested(BytesField(5, "\xf4\x90\x80\x80")), {kMalformed, "nested.text"}},
      {"MapKeyNotUtf8", in_nested(entry("\xff")), {kMalformed, "nested.counts.key"}},
      {"TooDeep", Deep(kNestingMax), {Reason::kLimitExceeded, deep}},
  };
}

class SplitRefuses : public testing::TestWithParam<RefusedCase> {};

TEST_P(SplitRefuses, WithReasonAndField) {
  const RefusedCase& param = GetParam();
  for (const size_t piece : {size_t{0}, size_t{1}, size_t{3}}) {
    const auto split = Split(Type(), Pieces(param.bytes, piece), kTensorsMax);
    ASSERT_FALSE(split.ok());
    ExpectError(split.status(), param.error);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, SplitRefuses, testing::ValuesIn(RefusedCases()),
                         [](const auto& info) { return info.param.name; });

TEST(Split, TakesTheDeepestAllowedNesting) {
  const std::string bytes = Deep(kNestingMax - 1);
  EXPECT_TRUE(Split(Type(), Pieces(bytes), kTensorsMax).ok());
}

TEST(Split, LeavesAnyAlone) {
  const std::string bytes = BytesField(3, BytesField(15, BytesField(2, "\xff\xff\xff")));
  EXPECT_TRUE(Split(Type(), Pieces(bytes), kTensorsMax).ok());
}

TEST(Split, EveryPrefixIsRefusedOrASmallerMessage) {
  const std::string bytes = Example().SerializeAsString();
  int refused = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string prefix = bytes.substr(0, size);
    rlk::test::Everything parsed;
    const bool ok = Split(Type(), Pieces(prefix, 5), kTensorsMax).ok();
    EXPECT_EQ(ok, parsed.ParseFromString(prefix)) << "prefix of " << size;
    refused += ok ? 0 : 1;
  }
  EXPECT_GT(refused, 50);
}

TEST(Split, BoundsTheNumberOfTensors) {
  std::string bytes = BytesField(1, "");
  for (int i = 0; i < 3; ++i) bytes += BytesField(2, "");
  EXPECT_TRUE(Split(Type(), Pieces(bytes), 4).ok());
  const auto refused = Split(Type(), Pieces(bytes), 3);
  ASSERT_FALSE(refused.ok());
  ExpectError(refused.status(), {Reason::kLimitExceeded, "many"});
  EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("tensors_per_call_max"));
}

TEST(Split, ErrorNamesValueAndAllowedSet) {
  const auto field = Split(Type(), Pieces(BytesField(1, VarintField(9, 1))), kTensorsMax);
  const std::string enum_bytes = BytesField(1, VarintField(1, 9));
  const auto value = Split(Type(), Pieces(enum_bytes), kTensorsMax);
  const auto unknown_field = GetErrorDetail(field.status());
  EXPECT_EQ(unknown_field->allowed, "dtype, shape, strides, data, resident, arena");
  const auto unknown_value = GetErrorDetail(value.status());
  EXPECT_EQ(unknown_value->value, "9");
  EXPECT_THAT(unknown_value->allowed, testing::HasSubstr("DATA_TYPE_BF16, DATA_TYPE_F64"));
}

// Fills any message; tensors at the top get their data as payloads.
class Filler {
 public:
  explicit Filler(uint64_t seed) : random_(seed) {}

  void Fill(Message* message, int depth, std::vector<Payload>* payloads) {
    const Reflection& reflection = *message->GetReflection();
    const auto& type = *message->GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor* field = type.field(i);
      if (random_() % 3 == 0) continue;
      if (field->real_containing_oneof() != nullptr &&
          reflection.HasOneof(*message, field->real_containing_oneof())) {
        continue;
      }
      const int count = field->is_repeated() ? static_cast<int>(random_() % 4) : 1;
      for (int j = 0; j < count && !field->is_map(); ++j) {
        FillField(message, field, j, depth, payloads);
      }
      if (field->is_map() && kMaps) FillMap(message, field, depth);
    }
  }

 private:
#if defined(__SANITIZE_THREAD__)
  // A map has members more then, of which the distribution's libprotobuf does not know.
  static constexpr bool kMaps = false;
#else
  static constexpr bool kMaps = true;
#endif

  // Keys 0, 1, ... are distinct whatever the key's type is.
  void FillMap(Message* message, const FieldDescriptor* field, int depth) {
    for (int j = 0; j < 2; ++j) {
      if (field->message_type()->map_value()->type() == FieldDescriptor::TYPE_MESSAGE &&
          depth >= 3) {
        return;
      }
      Message* entry = message->GetReflection()->AddMessage(message, field);
      const FieldDescriptor* key = entry->GetDescriptor()->map_key();
      const Reflection& reflection = *entry->GetReflection();
      switch (key->cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING:
          reflection.SetString(entry, key, std::string(static_cast<size_t>(j), 'k'));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          reflection.SetBool(entry, key, j != 0);
          break;
        case FieldDescriptor::CPPTYPE_INT32:
          reflection.SetInt32(entry, key, -j);
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          reflection.SetUInt32(entry, key, static_cast<uint32_t>(j));
          break;
        default:
          reflection.SetUInt64(entry, key, static_cast<uint64_t>(j));
          break;
      }
      FillField(entry, entry->GetDescriptor()->map_value(), 0, depth, nullptr);
    }
  }

  void FillField(Message* message, const FieldDescriptor* field, int index, int depth,
                 std::vector<Payload>* payloads) {
    const Reflection& r = *message->GetReflection();
    const bool add = field->is_repeated();
    const uint64_t value = random_() >> (random_() % 64);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        add ? r.AddInt32(message, field, static_cast<int32_t>(value))
            : r.SetInt32(message, field, static_cast<int32_t>(value));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        add ? r.AddInt64(message, field, static_cast<int64_t>(value))
            : r.SetInt64(message, field, static_cast<int64_t>(value));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        add ? r.AddUInt32(message, field, static_cast<uint32_t>(value))
            : r.SetUInt32(message, field, static_cast<uint32_t>(value));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        add ? r.AddUInt64(message, field, value) : r.SetUInt64(message, field, value);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        add ? r.AddDouble(message, field, static_cast<double>(value))
            : r.SetDouble(message, field, static_cast<double>(value));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        r.SetFloat(message, field, static_cast<float>(value));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        r.SetBool(message, field, value % 2 == 0);
        break;
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* type = field->enum_type();
        const auto* chosen = type->value(static_cast<int>(value % type->value_count()));
        add ? r.AddEnum(message, field, chosen) : r.SetEnum(message, field, chosen);
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string text(value % 40, static_cast<char>('a' + value % 26));
        if (payloads != nullptr || !IsTensor(message->GetDescriptor())) {
          add ? r.AddString(message, field, text) : r.SetString(message, field, text);
        }
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        if (depth >= 4) break;
        Message* nested = add ? r.AddMessage(message, field) : r.MutableMessage(message, field);
        Fill(nested, depth + 1, payloads);
        if (depth == 0 && IsTensorField(field)) TakeData(nested, *field, index, payloads);
        break;
      }
    }
  }

  // Moves a filled tensor's data into a payload of up to three pieces.
  void TakeData(Message* message, const FieldDescriptor& field, int index,
                std::vector<Payload>* payloads) {
    auto& tensor = static_cast<rlk::v1::Tensor&>(*message);
    if (!tensor.has_data()) return;
    auto text = std::make_shared<std::string>(tensor.data());
    tensor.set_data("");
    Payload payload{field.number(), index, {}};
    const std::span<const std::byte> all = std::as_bytes(std::span<const char>(*text));
    const size_t first = all.empty() ? 0 : random_() % all.size();
    payload.bytes.pieces = {all.subspan(0, first), all.subspan(first)};
    payload.bytes.size = static_cast<int64_t>(all.size());
    payload.bytes.owner = text;
    payloads->push_back(std::move(payload));
  }

  std::mt19937_64 random_;
};

TEST(Join, SplitGivesBackRandomMessages) {
  size_t payloads_seen = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    rlk::test::Everything message;
    std::vector<Payload> payloads;
    Filler(seed).Fill(&message, 0, &payloads);
    payloads_seen += payloads.size();
    const std::string bytes = Flatten(Join(message, payloads));

    // What any protobuf reads is the message with its data.
    rlk::test::Everything parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));

    const auto split = Split(Type(), Pieces(bytes, 1 + seed % 50), kTensorsMax);
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_EQ(split->message->DebugString(), message.DebugString());
    ASSERT_EQ(split->payloads.size(), payloads.size());
    for (size_t i = 0; i < payloads.size(); ++i) {
      EXPECT_EQ(split->payloads[i].field_number, payloads[i].field_number);
      EXPECT_EQ(split->payloads[i].index, payloads[i].index);
      EXPECT_EQ(Flatten(split->payloads[i].bytes), Flatten(payloads[i].bytes));
    }
    EXPECT_EQ(Flatten(Join(*split->message, split->payloads)), bytes);
  }
  EXPECT_GT(payloads_seen, 1000u);
}

TEST(Join, KeepsDataThatTheMessageHoldsItself) {
  const rlk::test::Everything message = Example();
  rlk::test::Everything parsed;
  ASSERT_TRUE(parsed.ParseFromString(Flatten(wire::Join(message, std::vector<Payload>()))));
  EXPECT_EQ(parsed.DebugString(), message.DebugString());
}

TEST(JoinDeathTest, AbortsOnAPayloadThatNoTensorTakes) {
  rlk::test::Everything message;
  EXPECT_DEATH(Join(message, {{1, 0, AsHostBytes("a")}}), "payload");
  message.mutable_x()->mutable_resident();
  EXPECT_DEATH(Join(message, {{1, 0, AsHostBytes("a")}}), "source is not data");
  message.mutable_x()->set_data("mine");
  EXPECT_DEATH(Join(message, {{1, 0, AsHostBytes("a")}}), "data of its own");
}

}  // namespace
}  // namespace rlk::wire
