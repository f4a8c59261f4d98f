#include "server/engine/tolerance.h"

#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

std::string ContractText() {
  std::ifstream file(RLK_SOURCE_DIR "/server/engine/tolerance_contract.json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ToleranceContract, BuiltinHoldsTheValues) {
  struct Row {
    OpClass op_class;
    DType dtype;
    bool gradient;
    double atol, rtol;
  };
  const Row kRows[] = {
      {OpClass::kElementwise, DType::kF32, false, 1e-5, 1e-5},
      {OpClass::kElementwise, DType::kBF16, false, 2e-2, 1.6e-2},
      {OpClass::kElementwise, DType::kF16, false, 1e-3, 1e-3},
      {OpClass::kElementwise, DType::kF32, true, 1e-5, 1e-5},
      {OpClass::kElementwise, DType::kBF16, true, 2e-2, 1.6e-2},
      {OpClass::kElementwise, DType::kF16, true, 1e-3, 1e-3},
      {OpClass::kReduction, DType::kF32, false, 1e-4, 1e-4},
      {OpClass::kReduction, DType::kBF16, false, 5e-2, 2e-2},
      {OpClass::kReduction, DType::kBF16, true, 1e-1, 2e-2},
      {OpClass::kReduction, DType::kF16, true, 1e-3, 1e-3},
      {OpClass::kLogprob, DType::kF32, false, 1e-5, 0},
      {OpClass::kLogprob, DType::kBF16, false, 6e-2, 0},
      {OpClass::kLogprob, DType::kBF16, true, 5e-2, 0},
      {OpClass::kLogprob, DType::kF16, false, 5e-3, 0},
      {OpClass::kAttention, DType::kF32, true, 1e-4, 1e-4},
      {OpClass::kAttention, DType::kBF16, true, 5e-2, 2e-2},
  };
  for (const Row& row : kRows) {
    const auto cell = ToleranceContract::Builtin().Accuracy(row.op_class, row.dtype, row.gradient);
    ASSERT_TRUE(cell.ok());
    EXPECT_EQ(cell->atol, row.atol);
    EXPECT_EQ(cell->rtol, row.rtol);
  }
}

TEST(ToleranceContract, HasNoCellForF64OrIntegers) {
  for (DType dtype : {DType::kF64, DType::kI32, DType::kBool, DType::kUnspecified}) {
    const auto cell = ToleranceContract::Builtin().Accuracy(OpClass::kElementwise, dtype, false);
    EXPECT_EQ(cell.status().code(), absl::StatusCode::kNotFound);
  }
}

// The hash was computed by another program: Python's json.dumps(sort_keys=True,
// separators=(",", ":")) and hashlib.sha256.
TEST(ToleranceContract, HashIsThatOfTheCanonicalForm) {
  EXPECT_EQ(ToleranceContract::Builtin().version(), "ws1-c1-v2");
  EXPECT_EQ(ToleranceContract::Builtin().sha256(),
            "41b25097e205e85d41a85937cc885f99e267b00c9a258a84564f1d523ab9e10e");
}

TEST(ToleranceContract, HashFollowsValuesAndNotLayout) {
  const std::string text = ContractText();
  const auto spaced = ToleranceContract::Parse("\n  " + text + "  \n");
  ASSERT_TRUE(spaced.ok());
  EXPECT_EQ(spaced->sha256(), ToleranceContract::Builtin().sha256());
  const auto changed = ToleranceContract::Parse(Replace(text, "0.016", "0.017"));
  ASSERT_TRUE(changed.ok());
  EXPECT_NE(changed->sha256(), ToleranceContract::Builtin().sha256());
}

TEST(ToleranceContract, RefusesWhatIsNotOne) {
  const std::string text = ContractText();
  struct Case {
    const char* what;
    std::string text;
    const char* names;
  };
  const Case kCases[] = {
      {"no JSON", "{", "document"},
      {"an array", "[]", "document"},
      {"no version", Replace(text, "\"version\"", "\"versionn\""), "version"},
      {"empty version", Replace(text, "\"ws1-c1-v2\"", "\"\""), "version"},
      {"a judgment is absent", Replace(text, "gradient_accuracy", "gradient"), "gradient"},
      {"a class is absent", Replace(text, "\"reduction\"", "\"reductions\""), "reduction"},
      {"a dtype is absent", Replace(text, "\"float16\": {", "\"float8\": {"), "float"},
      {"a bound is negative", Replace(text, "\"atol\": 0.02", "\"atol\": -0.02"), "atol"},
      {"a bound is text", Replace(text, "\"atol\": 0.02", "\"atol\": \"0.02\""), "atol"},
      {"a bound is absent", Replace(text, "\"atol\": 0.02,", ""), "atol"},
      {"an unknown bound", Replace(text, "\"atol\": 0.02,", "\"atol\": 0.02, \"btol\": 0,"),
       "btol"},
      {"a key twice", Replace(text, "\"atol\": 0.02,", "\"atol\": 0.02, \"atol\": 0.5,"), "atol"},
      {"an invariance above 0", Replace(text, "\"atol\": 0,", "\"atol\": 1e-9,"), "invariance"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    const auto parsed = ToleranceContract::Parse(c.text);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(GetErrorDetail(parsed.status())->field, testing::HasSubstr(c.names));
  }
}

}  // namespace
}  // namespace rlk::server
