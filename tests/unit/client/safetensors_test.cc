#include "client/cli/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/client/temporary_file.h"

namespace rlk::cli {
namespace {

std::string File(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return bytes + header + data;
}

TEST(Safetensors, ReadsTensorsByKey) {
  const TemporaryFile file(
      ".safetensors",
      File(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]},)"
           R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
           R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[5,5]},)"
           R"("q":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[5,6]}}  )",
           "ABxyz!"));
  const auto b = ReadSafetensors(file.path(), "b");
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_THAT(b->as<uint8_t>(), testing::ElementsAre('x', 'y', 'z'));
  const auto a = ReadSafetensors(file.path(), "a");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->dtype(), DType::kBF16);
  EXPECT_EQ(a->shape(), Dims());
  EXPECT_EQ(ReadSafetensors(file.path(), "e")->shape(), (Dims{0, 5}));
  EXPECT_THAT(std::string(ReadSafetensors(file.path(), "q").status().message()),
              testing::HasSubstr("F8_E4M3"));
  const auto missing = ReadSafetensors(file.path(), "c");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), testing::HasSubstr("a, b, e"));
}

TEST(Safetensors, WritesWhatItReads) {
  auto x = client::Tensor::Allocate(DType::kU8, std::vector<int64_t>{3});
  auto y = client::Tensor::Allocate(DType::kF64, std::vector<int64_t>{2, 2});
  auto z = client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{0});
  for (uint8_t& value : x->mutable_as<uint8_t>()) value = 7;
  for (double& value : y->mutable_as<double>()) value = -0.5;
  const TemporaryFile file(".safetensors");
  const std::string odd = "name \"with\"\nodd \xc3\xa9";
  ASSERT_TRUE(WriteSafetensors(file.path(), {{odd, &*x}, {"y", &*y}, {"z", &*z}}).ok());
  const std::string bytes = file.Read();
  const auto entries = ListSafetensors(file.path());
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0].begin % 8, 0);
  EXPECT_THAT(ReadSafetensors(file.path(), odd)->as<uint8_t>(), testing::ElementsAre(7, 7, 7));
  EXPECT_THAT(ReadSafetensors(file.path(), "y")->as<double>(), testing::Each(-0.5));
  // The same tensors in another order give the same file.
  ASSERT_TRUE(WriteSafetensors(file.path(), {{"z", &*z}, {"y", &*y}, {odd, &*x}}).ok());
  EXPECT_EQ(file.Read(), bytes);
  EXPECT_FALSE(WriteSafetensors(file.path(), {{"y", &*y}, {"y", &*y}}).ok());
  EXPECT_FALSE(WriteSafetensors(file.path(), {{"__metadata__", &*y}}).ok());
  EXPECT_FALSE(WriteSafetensors("/nonexistent/x.safetensors", {{"y", &*y}}).ok());
}

std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}}";
}

// Work must not grow with the square of the keys: it would not end within the test's time.
TEST(Safetensors, ReadsVeryManyKeys) {
  constexpr int kKeys = 400'000;
  std::string header = "{";
  for (int i = 0; i < kKeys; ++i) {
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  const TemporaryFile file(".safetensors", File(header + "}", ""));
  const auto entries = ListSafetensors(file.path());
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ(entries->size(), size_t{kKeys});
}

TEST(Safetensors, RefusesHostileFiles) {
  const std::string good = One("U8", "[2]", "[0,2]");
  struct Case {
    std::string bytes;
    const char* expected;
  };
  const Case cases[] = {
      {"", "too short"},
      {"1234567", "too short"},
      {std::string(8, '\xff'), "not possible"},
      {std::string("\x00\x00\x00\x00\x00\x00\x00\x80{}", 10), "not possible"},
      {std::string("\x03\x00\x00\x00\x00\x00\x00\x00{}", 10), "not possible"},
      {std::string(8, '\0'), "does not begin"},
      {File(" {}", ""), "does not begin"},
      {File("[]", ""), "does not begin"},
      {File("{", ""), "not JSON"},
      {File("{}x", ""), "not JSON"},
      {File(std::string("{\"a\":\"\xff\"}"), ""), "not JSON"},
      {File("{\"a\":" + std::string(100000, '['), ""), "nested too deep"},
      {File("{}", "x"), "behind the last"},
      {File(good, "ab c"), "behind the last"},
      {File(good, "a"), "out of range"},
      {File("{\"a\":1}", ""), "must have"},
      {File(R"({"a":{"dtype":"U8","shape":[0]}})", ""), "must have"},
      {File(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", ""), "must have"},
      {File(R"({"__metadata__":{"a":1}})", ""), "__metadata__"},
      {File(R"({"__metadata__":[]})", ""), "__metadata__"},
      {File(One("F7", "[2]", "[0,2]"), "ab"), "not known"},
      {File(One("U8", "2", "[0,2]"), "ab"), "shape is not"},
      {File(One("U8", "[1,1,1,1,1,1,1,1,2]", "[0,2]"), "ab"), "at most 8"},
      {File(One("U8", "[-2]", "[0,2]"), "ab"), "a size is not"},
      {File(One("U8", "[2.0]", "[0,2]"), "ab"), "a size is not"},
      {File(One("U8", "[18446744073709551615]", "[0,2]"), "ab"), "a size is not"},
      {File(One("F64", "[2305843009213693952]", "[0,2]"), "ab"), "more than 2^63"},
      {File(One("U8", "[4294967296,4294967296]", "[0,0]"), ""), "more than 2^63"},
      {File(One("U8", "[3]", "[0,2]"), "ab"), "span 2 bytes"},
      {File(One("U8", "[2]", "[0,2,2]"), "ab"), "[begin, end]"},
      {File(One("U8", "[2]", "[2,0]"), "ab"), "out of range"},
      {File(One("U8", "[2]", "[-2,0]"), "ab"), "out of range"},
      {File(One("U8", "[2]", "[18446744073709551614,18446744073709551615]"), "ab"), "out of range"},
      {File(One("U8", "[1]", "[1,2]"), "ab"), "hole"},
      {File(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
            R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            "abc"),
       "overlap"},
      {File(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
            R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
            "ab"),
       "a is given twice"},
      {File(R"({"a":{"dtype":"F32","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "ab"),
       "dtype is given twice"},
      {File(R"({"__metadata__":{"k":"1","k":"2"}})", ""), "k is given twice"},
  };
  for (const Case& c : cases) {
    const TemporaryFile file(".safetensors", c.bytes);
    const auto entries = ListSafetensors(file.path());
    ASSERT_FALSE(entries.ok()) << c.expected << " " << c.bytes.substr(0, 80);
    EXPECT_THAT(std::string(entries.status().message()), testing::HasSubstr(c.expected));
  }
  const TemporaryFile file(".safetensors", File(good, "ab"));
  EXPECT_TRUE(ListSafetensors(file.path()).ok());
}

}  // namespace
}  // namespace rlk::cli
