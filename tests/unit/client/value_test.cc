#include "client/cli/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/core/status.h"
#include "tests/unit/client/temporary_file.h"

namespace rlk::cli {
namespace {

AttributeSpec Spec(AttributeKind kind) {
  AttributeSpec spec;
  spec.name = "a";
  spec.kind = kind;
  spec.enumerators = {{1, "silu"}, {2, "sigmoid"}};
  return spec;
}

TEST(Value, LeavesTheRangeOfNumbersToTheServer) {
  const std::pair<const char*, double> cases[] = {
      {"20", 20},        {"-0", -0.0},      {"1e-46", 1e-46},    {"1e39", 1e39},
      {"0x1.8p3", 12.0}, {"inf", INFINITY}, {"-inf", -INFINITY}, {"4.9e-324", 4.9e-324},
  };
  for (const auto& [text, expected] : cases) {
    const auto value = ParseAttribute(Spec(AttributeKind::kF32), text);
    ASSERT_TRUE(value.ok()) << text << ": " << value.status();
    EXPECT_EQ(std::get<double>(*value), expected) << text;
    EXPECT_EQ(std::signbit(std::get<double>(*value)), std::signbit(expected)) << text;
  }
  EXPECT_TRUE(std::isnan(std::get<double>(*ParseAttribute(Spec(AttributeKind::kF32), "nan"))));
}

TEST(Value, ReadsOtherKindsByName) {
  EXPECT_EQ(std::get<int64_t>(*ParseAttribute(Spec(AttributeKind::kI64), "-7")), -7);
  EXPECT_TRUE(std::get<bool>(*ParseAttribute(Spec(AttributeKind::kBool), "true")));
  EXPECT_FALSE(std::get<bool>(*ParseAttribute(Spec(AttributeKind::kBool), "0")));
  EXPECT_EQ(std::get<DType>(*ParseAttribute(Spec(AttributeKind::kDType), "bf16")), DType::kBF16);
  EXPECT_EQ(std::get<DType>(*ParseAttribute(Spec(AttributeKind::kDType), "F32")), DType::kF32);
  EXPECT_EQ(std::get<std::string>(*ParseAttribute(Spec(AttributeKind::kEnum), "SiLU")), "silu");
}

TEST(Value, NamesWhatIsAllowed) {
  const std::tuple<AttributeKind, const char*, const char*> cases[] = {
      {AttributeKind::kF32, "", "number"},
      {AttributeKind::kF32, "1,5", "number"},
      {AttributeKind::kF32, " 1", "number"},
      {AttributeKind::kF32, "1 ", "number"},
      {AttributeKind::kF64, "1e400", "number"},
      {AttributeKind::kF64, "1e-400", "number"},
      {AttributeKind::kI64, "1.0", "integer"},
      {AttributeKind::kI64, "9223372036854775808", "int"},
      {AttributeKind::kBool, "yes", "true, false"},
      {AttributeKind::kDType, "f23", "f32, f16"},
      {AttributeKind::kEnum, "relu", "silu, sigmoid"},
  };
  for (const auto& [kind, text, allowed] : cases) {
    const auto value = ParseAttribute(Spec(kind), text);
    ASSERT_FALSE(value.ok()) << text;
    const auto detail = GetErrorDetail(value.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field, "a");
    EXPECT_EQ(detail->value, text);
    EXPECT_THAT(detail->allowed, testing::HasSubstr(allowed));
  }
}

TEST(Value, SplitsAtTheFirstEquals) {
  EXPECT_EQ(SplitNameValue("x=a=b")->second, "a=b");
  EXPECT_EQ(SplitNameValue("x=")->second, "");
  for (const char* text : {"", "x", "=1"}) EXPECT_FALSE(SplitNameValue(text).ok()) << text;
}

TEST(Value, LoadsTensorsByForm) {
  EXPECT_EQ(LoadTensor("random:2x3:bf16:1")->shape(), (Dims{2, 3}));
  const auto scalar = LoadTensor("-2.5");
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(scalar->shape(), Dims());
  EXPECT_EQ(scalar->as<float>()[0], -2.5f);
  for (const char* text : {"", "x.bin", "abc", "/nonexistent.npy", "/nonexistent.safetensors#x"}) {
    EXPECT_FALSE(LoadTensor(text).ok()) << text;
  }
}

TEST(Value, WantsAKeyOnlyWhereItIsNeeded) {
  const std::string one = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const std::string two = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                          R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";
  const auto file = [](const std::string& header, const std::string& data) {
    return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + data;
  };
  const TemporaryFile single(".safetensors", file(one, "x"));
  EXPECT_TRUE(LoadTensor(single.path()).ok());
  const TemporaryFile pair(".safetensors", file(two, "xy"));
  EXPECT_TRUE(LoadTensor(pair.path() + "#b").ok());
  EXPECT_THAT(std::string(LoadTensor(pair.path()).status().message()), testing::HasSubstr("a, b"));
  EXPECT_EQ(LoadTensor(pair.path() + "#c").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace rlk::cli
