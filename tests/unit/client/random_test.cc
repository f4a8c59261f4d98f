#include "client/cli/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/core/status.h"
#include "kernels/digest/digest.h"

namespace rlk::cli {
namespace {

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return text;
}

TEST(Random, GivesTheStoredBytes) {
  std::ifstream in(RLK_SOURCE_DIR "/tests/golden/random_vectors.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  ASSERT_GE(golden["vectors"].size(), 20u);
  for (const auto& vector : golden["vectors"]) {
    const std::string spec = vector["spec"];
    const auto tensor = MakeRandom(spec);
    ASSERT_TRUE(tensor.ok()) << spec << ": " << tensor.status();
    EXPECT_EQ(std::string(DTypeName(tensor->dtype())), vector["dtype"].get<std::string>()) << spec;
    const Dims& shape = tensor->shape();
    EXPECT_EQ(std::vector<int64_t>(shape.begin(), shape.end()),
              vector["shape"].get<std::vector<int64_t>>())
        << spec;
    const auto bytes = tensor->bytes();
    EXPECT_EQ(Hex(bytes.first(std::min<size_t>(16, bytes.size()))),
              vector["first_bytes"].get<std::string>())
        << spec;
    EXPECT_EQ(ComputeDigest(tensor->view()).Text(), vector["digest"].get<std::string>()) << spec;
  }
}

TEST(Random, RefusesMalformedSpecs) {
  const std::pair<const char*, const char*> cases[] = {
      {"random:", "VALUE"},
      {"random:2", "VALUE"},
      {"random:2:f32", "VALUE"},
      {"random:2:f32:1:2:3", "VALUE"},
      {"random::f32:1", "SHAPE"},
      {"random:2x:f32:1", "SHAPE"},
      {"random:-2:f32:1", "SHAPE"},
      {"random:2X3:f32:1", "SHAPE"},
      {"random:1x1x1x1x1x1x1x1x1:f32:1", "SHAPE"},
      {"random:99999999999:f32:1", "SHAPE"},
      {"random:4294967296x4294967296:f32:1", "SHAPE"},
      {"random:2:float:1", "DTYPE"},
      {"random:2:f32:", "SEED"},
      {"random:2:f32:-1", "SEED"},
      {"random:2:f32:18446744073709551616", "SEED"},
      {"random:2:f32:1:", "SCALE"},
      {"random:2:f32:1:nan", "SCALE"},
      {"random:2:f32:1:inf", "SCALE"},
      {"random:2:i32:1:0", "SCALE"},
      {"random:2:i32:1:2147483649", "SCALE"},
      {"random:2:i64:1:9223372036854775809", "SCALE"},
      {"random:2:i32:1:1.5", "SCALE"},
      {"random:2:u8:1:1", "SCALE"},
      {"random:2:bool:1:1", "SCALE"},
  };
  for (const auto& [spec, part] : cases) {
    const auto tensor = MakeRandom(spec);
    ASSERT_FALSE(tensor.ok()) << spec;
    const auto detail = GetErrorDetail(tensor.status());
    ASSERT_TRUE(detail.has_value()) << spec;
    EXPECT_EQ(detail->field, part) << spec;
    EXPECT_FALSE(detail->allowed.empty()) << spec;
  }
}

}  // namespace
}  // namespace rlk::cli
