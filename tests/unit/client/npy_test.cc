#include "client/cli/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/client/temporary_file.h"

namespace rlk::cli {
namespace {

std::string File(int version, const std::string& header, const std::string& data) {
  std::string bytes = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    bytes.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  }
  return bytes + header + data;
}

std::string Header(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

TEST(Npy, ReadsEveryTypeAndVersion) {
  struct Case {
    const char* descr;
    DType dtype;
  };
  const Case cases[] = {{"<f4", DType::kF32},      {"<f2", DType::kF16},  {"<f8", DType::kF64},
                        {"<i4", DType::kI32},      {"<i8", DType::kI64},  {"|u1", DType::kU8},
                        {"|b1", DType::kBool},     {"<V2", DType::kBF16}, {"|V2", DType::kBF16},
                        {"bfloat16", DType::kBF16}};
  for (const Case& c : cases) {
    for (int version : {1, 2, 3}) {
      const std::string data(static_cast<size_t>(6 * DTypeSize(c.dtype)), '\x01');
      const TemporaryFile file(".npy", File(version, Header(c.descr, "False", "(2, 3)"), data));
      const auto tensor = ReadNpy(file.path());
      ASSERT_TRUE(tensor.ok()) << c.descr << ": " << tensor.status();
      EXPECT_EQ(tensor->dtype(), c.dtype);
      EXPECT_EQ(tensor->shape(), (Dims{2, 3}));
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor->bytes().data()),
                            tensor->bytes().size()),
                data);
    }
  }
}

TEST(Npy, PutsFortranOrderIntoCOrder) {
  // a[i][j][k] = 100 i + 10 j + k, shape (2, 3, 2), first index fastest.
  std::string data;
  for (int k = 0; k < 2; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) data.push_back(static_cast<char>(100 * i + 10 * j + k));
    }
  }
  const TemporaryFile file(".npy", File(1, Header("|u1", "True", "(2, 3, 2)"), data));
  const auto tensor = ReadNpy(file.path());
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->as<uint8_t>(),
              testing::ElementsAre(0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121));
}

TEST(Npy, TakesScalarAndEmpty) {
  const TemporaryFile scalar(".npy", File(1, Header("<f4", "False", "()"), "abcd"));
  EXPECT_EQ(ReadNpy(scalar.path())->shape(), Dims());
  for (const char* order : {"False", "True"}) {
    const TemporaryFile empty(".npy", File(1, Header("<f4", order, "(0, 5)"), ""));
    const auto tensor = ReadNpy(empty.path());
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->shape(), (Dims{0, 5}));
  }
}

TEST(Npy, WritesWhatItReads) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {3}, {2, 3}, {0, 4}, {1, 1, 2, 1, 1, 2, 1, 2}}) {
    auto tensor = client::Tensor::Allocate(DType::kBF16, shape);
    ASSERT_TRUE(tensor.ok());
    uint16_t next = 0x7fc1;  // a NaN with a payload
    for (uint16_t& value : tensor->mutable_as<uint16_t>()) value = next++;
    const TemporaryFile file(".npy");
    ASSERT_TRUE(WriteNpy(file.path(), *tensor).ok());
    const std::string bytes = file.Read();
    EXPECT_EQ((bytes.size() - tensor->bytes().size()) % 64, 0u);
    const auto read = ReadNpy(file.path());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->shape(), tensor->shape());
    EXPECT_THAT(read->as<uint16_t>(), testing::ElementsAreArray(tensor->as<uint16_t>()));
  }
}

TEST(Npy, RefusesHostileFiles) {
  struct Case {
    std::string bytes;
    const char* expected;
  };
  const std::string good = Header("<f4", "False", "(1,)");
  const Case cases[] = {
      {"", "too short"},
      {"\x93NUMPY", "too short"},
      {"not numpy at all", "not a .npy"},
      {File(4, good, "abcd"), "format version 4"},
      {File(1, good, "abc"), "3 bytes of data"},
      {File(1, good, "abcde"), "5 bytes of data"},
      {File(1, Header(">f4", "False", "(1,)"), "abcd"), "not supported"},
      {File(1, Header("<c8", "False", "(1,)"), "abcdabcd"), "not supported"},
      {File(1, Header("|O", "False", "(1,)"), "abcdabcd"), "not supported"},
      {File(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "abcd"),
       "descr is not"},
      {File(1, Header("<f4", "Maybe", "(1,)"), "abcd"), "fortran_order"},
      {File(1, Header("<f4", "False", "(-1,)"), "abcd"), "shape is not"},
      {File(1, Header("<f4", "False", "(1)"), "abcd"), "shape is not"},
      {File(1, Header("<f4", "False", "(99999999999999999999,)"), "abcd"), "shape is not"},
      {File(1, Header("<f4", "False", "(4611686018427387904, 4)"), ""), "more than 2^63"},
      {File(1, Header("<f4", "False", "(9223372036854775807,)"), ""), "more than 2^63"},
      {File(1, Header("<f4", "False", "(1,1,1,1,1,1,1,1,1)"), "abcd"), "rank 9"},
      {File(1, "{'descr': '<f4', 'fortran_order': False}", "abcd"), "missing"},
      {File(1, "{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", "abcd"), "twice"},
      {File(1, good + "x", "abcd"), "behind the header"},
      {File(1, "{'descr': '<f4", "abcd"), "descr is not"},
      {File(1, "", "abcd"), "not a dictionary"},
      {std::string("\x93NUMPY\x01\x00\xff\xff{}", 12), "does not fit"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14), "does not fit"},
  };
  for (const Case& c : cases) {
    const TemporaryFile file(".npy", c.bytes);
    const auto tensor = ReadNpy(file.path());
    ASSERT_FALSE(tensor.ok()) << c.expected;
    EXPECT_THAT(std::string(tensor.status().message()), testing::HasSubstr(c.expected));
    EXPECT_THAT(std::string(tensor.status().message()), testing::HasSubstr(file.path()));
  }
  EXPECT_EQ(ReadNpy("/nonexistent/x.npy").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadNpy("/tmp").ok());
}

}  // namespace
}  // namespace rlk::cli
