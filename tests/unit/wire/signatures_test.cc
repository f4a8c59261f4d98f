#include "proto/wire/signatures.h"

#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/compiler/parser.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/wire/compile_parts.h"
#include "proto/wire/dims.h"
#include "test_messages.pb.h"
#include "tests/unit/wire/wire_testing.h"

namespace rlk::wire {
namespace {

using testing::HasSubstr;

constexpr char kRegenerate[] =
    "\nIf the change of the API is meant, build rlk_dump_api, run `rlk_dump_api tests/golden` and "
    "commit the files with the reason.";

std::string ReadGolden(const std::string& name) {
  std::ifstream file(std::string(RLK_SOURCE_DIR) + "/tests/golden/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << "tests/golden/" << name << " is missing";
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Baseline, SignaturesAreUnchanged) {
  const auto bindings = CompileSignatures(OperatorFiles());
  ASSERT_TRUE(bindings.ok()) << bindings.status();
  EXPECT_EQ(DumpSignatures(*bindings), ReadGolden("signatures.txt")) << kRegenerate;
}

// File by file, and rlk's own only: descriptor.proto is the protobuf installation's.
TEST(Baseline, ApiIsUnchanged) {
  const auto files = [](const std::string& bytes) {
    google::protobuf::FileDescriptorSet set;
    EXPECT_TRUE(set.ParseFromString(bytes));
    std::map<std::string, std::string> result;
    for (const auto& file : set.file()) {
      if (file.name().rfind("rlk/", 0) == 0) result[file.name()] = file.DebugString();
    }
    return result;
  };
  const auto now = files(SerializeApi());
  const auto baseline = files(ReadGolden("api.binpb"));
  ASSERT_GE(now.size(), 5u);
  for (const auto& [name, text] : now) {
    const auto found = baseline.find(name);
    ASSERT_NE(found, baseline.end()) << name << " is not in the baseline" << kRegenerate;
    EXPECT_EQ(text, found->second) << name << " differs from tests/golden/api.binpb" << kRegenerate;
  }
  EXPECT_EQ(now.size(), baseline.size()) << "a file is gone" << kRegenerate;
}

TEST(Signatures, HoldWhatTheOptionsSay) {
  const auto bindings = CompileSignatures({rlk::test::Everything::descriptor()->file()});
  ASSERT_TRUE(bindings.ok()) << bindings.status();
  EXPECT_EQ(DumpSignatures(*bindings),
            "gather_all.forward /rlk.test.TestService/GatherAllForward forward reduction\n"
            "  input index = 1 [...,N] dtypes=I64,I32\n"
            "  input parts = 2 [N,2*H,64] dtypes=F32,BF16 repeated max_count=3\n"
            "  input bias = 3 [H] dtypes=F32 same_dtype_as=index optional contiguous alignment=16\n"
            "  attribute eps = 4 f64 default=9.9999999999999995e-07 >=0 <1\n"
            "  attribute rows_before = 5 i64 default=0 >=0 multiple_of=128\n"
            "  attribute causal = 6 bool default=1\n"
            "  attribute color = 7 enum default=1 red=1 negative=-2\n"
            "  attribute output_dtype = 8 dtype default=F32 dtypes=F32,BF16\n"
            "  output rows = 1 [N,H] dtype_attribute=output_dtype repeated max_count=3\n"
            "  output lse = 2 [...] dtypes=F32 on_request\n");
  const MethodSignature& signature = (*bindings)[0].signature;
  const DimsPattern& dims = signature.inputs[1].dims;
  ASSERT_EQ(dims.dims.size(), 3u);
  EXPECT_FALSE(dims.leading);
  EXPECT_EQ(dims.dims[1].factor, 2);
  EXPECT_EQ(dims.dims[1].letter, 'H');
  EXPECT_EQ(dims.dims[2].factor, 64);
  EXPECT_EQ(dims.dims[2].letter, 0);
}

TEST(Dims, GrammarIsStrict) {
  for (const char* good : {"", "...", "1", "T", "2*T", "...,T", "...,3*H,64", "A,B,C,D,E,F,G,H",
                           "T,num_channels", "k2"}) {
    EXPECT_TRUE(ParseDims(good).ok()) << good;
  }
  for (const char* bad :
       {" ",       "T ",  "T, H", "T,",          ",T",         ",",
        "T,,H",    "..",  "....", "T,...",       "...,...",    "0",
        "01",      "-1",  "+1",   "1*T",         "0*T",        "2*",
        "*T",      "T*2", "2*TH", "TH",          "2*3",        "2**T",
        "1.5",     "_",   "?",    "99999999999", "2147483648", "A,B,C,D,E,F,G,H,I",
        "Ab",      "aB",  "a-b",  "2*ab",        "_a",         "2a",
        "\xc3\xa9"}) {
    EXPECT_FALSE(ParseDims(bad).ok()) << bad;
  }
}

TEST(Names, CamelAndSnakeCase) {
  EXPECT_EQ(CamelCase("final_logit_softcap"), "FinalLogitSoftcap");
  EXPECT_EQ(CamelCase("adaln_projection_3mod"), "AdalnProjection3mod");
  EXPECT_EQ(SnakeCase("BackwardInput"), "backward_input");
}

// A valid service, of which each case changes one place.
constexpr char kGood[] = R"(
syntax = "proto3";
package bad;
import "rlk/v1/call.proto";
import "rlk/v1/contract.proto";
import "rlk/v1/tensor.proto";
enum Kind { KIND_UNSPECIFIED = 0; KIND_SUM = 1; KIND_MEAN = 2; }
service S {
  rpc NormForward(Q) returns (R) {
    option (rlk.v1.method) = { operator: "norm" direction: DIRECTION_FORWARD op_class: OP_CLASS_REDUCTION };
  }
}
message Q {
  rlk.v1.Tensor x = 1 [(rlk.v1.tensor) = { dtypes: [DATA_TYPE_F32, DATA_TYPE_BF16] dims: "...,C" }];
  rlk.v1.Tensor w = 2 [(rlk.v1.tensor) = { same_dtype_as: "x" dims: "C" }];
  rlk.v1.Tensor bias = 3 [(rlk.v1.tensor) = { dtypes: DATA_TYPE_F32 dims: "C" optional: true }];
  optional double eps = 4 [(rlk.v1.attribute) = { default_value: 0.5 greater_than: 0 at_most: 1 }];
  optional int64 n = 5 [(rlk.v1.attribute) = { default_integer: 4 at_least: 0 multiple_of: 2 }];
  optional bool flag = 6 [(rlk.v1.attribute) = { default_bool: false }];
  optional Kind kind = 7 [(rlk.v1.attribute) = { default_enum: "KIND_SUM" }];
  optional rlk.v1.DataType out = 8 [(rlk.v1.attribute) = { dtypes: DATA_TYPE_F32 same_dtype_as: "x" }];
  rlk.v1.CallOptions options = 100;
}
message R {
  rlk.v1.Tensor y = 1 [(rlk.v1.tensor) = { dtype_attribute: "out" dims: "...,C" }];
  rlk.v1.CallReport report = 100;
}
)";

// Compiles the text of a .proto file.
absl::Status CompileText(const std::string& text) {
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  google::protobuf::io::Tokenizer tokenizer(&stream, nullptr);
  google::protobuf::FileDescriptorProto file;
  google::protobuf::compiler::Parser parser;
  EXPECT_TRUE(parser.Parse(&tokenizer, &file)) << text;
  file.set_name("bad.proto");
  google::protobuf::DescriptorPool pool(google::protobuf::DescriptorPool::generated_pool());
  const auto* descriptor = pool.BuildFile(file);
  EXPECT_NE(descriptor, nullptr) << text;
  if (descriptor == nullptr) return absl::UnknownError("does not build");
  return CompileSignatures({descriptor}).status();
}

struct BadCase {
  std::string name;
  std::string from, to;
  std::string error;
};

std::vector<BadCase> BadCases() {
  return {
      {"NoMethodOption", "option (rlk.v1.method) =", "option deprecated = true; //",
       "bad.S.NormForward: has no rlk.v1.method"},
      {"OperatorNotInName", "operator: \"norm\"", "operator: \"softcap\"", "Softcap"},
      {"OperatorNotSnake", "operator: \"norm\"", "operator: \"Norm\"", "not snake_case"},
      {"NoMethodName", "rpc NormForward", "rpc Norm", "bad.S.Norm"},
      {"MethodNotCamel", "rpc NormForward", "rpc Normforward", "does not follow"},
      {"MethodUnderscore", "rpc NormForward", "rpc NormFor_ward", "does not follow"},
      {"NoDirection", "direction: DIRECTION_FORWARD", "", "direction"},
      {"NoOpClass", "op_class: OP_CLASS_REDUCTION", "", "op_class"},
      {"Streams", "returns (R)", "returns (stream R)", "stream"},
      {"Twice", "service S {",
       "service T { rpc NormForward(Q) returns (R) { option (rlk.v1.method) = { operator: \"norm\" "
       "direction: DIRECTION_FORWARD op_class: OP_CLASS_REDUCTION }; } } service S {",
       "\"norm.forward\" is declared twice"},
      {"NoOptions", "rlk.v1.CallOptions options = 100;", "", "bad.Q: needs the field"},
      {"OptionsElsewhere", "options = 100", "options = 99", "bad.Q: needs the field"},
      {"OptionsRenamed", "CallOptions options", "CallOptions opts", "bad.Q: needs the field"},
      {"OptionsOfAnotherType", "rlk.v1.CallOptions options", "rlk.v1.CallReport options",
       "bad.Q: needs the field"},
      {"NoReport", "rlk.v1.CallReport report = 100;", "", "bad.R: needs the field"},
      {"PlainField", "optional bool flag", "string text = 50; optional bool flag",
       "bad.Q.text: needs either"},
      {"TensorWithoutOption", "optional bool flag", "rlk.v1.Tensor z = 50; optional bool flag",
       "bad.Q.z: needs either"},
      {"BothOptions", "optional: true }", "optional: true }, (rlk.v1.attribute) = {}",
       "bad.Q.bias: needs either"},
      {"TensorOptionOnText", "rlk.v1.Tensor w = 2", "string w = 2", "is no rlk.v1.Tensor"},
      {"AttributeInResponse", "rlk.v1.CallReport report",
       "optional double d = 9 [(rlk.v1.attribute) = {}]; rlk.v1.CallReport report", "bad.R.d"},
      {"NoOutput",
       "rlk.v1.Tensor y = 1 [(rlk.v1.tensor) = { dtype_attribute: \"out\" dims: \"...,C\" }];", "",
       "has no output"},
      {"InputWithoutDtype", "same_dtype_as: \"x\" dims: \"C\"", "dims: \"C\"", "bad.Q.w"},
      {"DtypeUnspecified", "dtypes: [DATA_TYPE_F32,", "dtypes: [DATA_TYPE_UNSPECIFIED,", "bad.Q.x"},
      {"DtypeTwice", "DATA_TYPE_F32, DATA_TYPE_BF16", "DATA_TYPE_F32, DATA_TYPE_F32", "twice"},
      {"SameAsNothing", "{ same_dtype_as: \"x\"", "{ same_dtype_as: \"q\"",
       "\"q\", which is no input"},
      {"SameAsAttribute", "{ same_dtype_as: \"x\"", "{ same_dtype_as: \"eps\"",
       "which is no input"},
      {"SameAsOptional", "{ same_dtype_as: \"x\"", "{ same_dtype_as: \"bias\"",
       "optional or repeated"},
      {"SameAsItself", "{ same_dtype_as: \"x\"", "{ same_dtype_as: \"w\"", "circle"},
      {"SameAsCircle", "[DATA_TYPE_F32, DATA_TYPE_BF16]", "DATA_TYPE_F32 same_dtype_as: \"w\"",
       "circle"},
      {"DimsBad", "dims: \"...,C\" }];\n  rlk.v1.Tensor w",
       "dims: \"C,...\" }];\n  rlk.v1.Tensor w", "bad.Q.x: dims entry \"...\""},
      {"DtypeAttributeOnInput", "optional: true }", "dtype_attribute: \"out\" }", "outputs only"},
      {"OnRequestOnInput", "optional: true }", "on_request: true }", "outputs only"},
      {"MaxCountOnSingular", "optional: true }", "max_count: 3 }", "bad.Q.bias: max_count"},
      {"RepeatedWithoutMaxCount", "rlk.v1.Tensor bias", "repeated rlk.v1.Tensor bias",
       "needs max_count"},
      {"AlignmentThree", "optional: true }", "alignment: 3 }", "power of two"},
      {"OutputWithoutDtype", "dtype_attribute: \"out\"", "",
       "bad.R.y: an output needs exactly one"},
      {"OutputWithTwoRules", "dtype_attribute: \"out\"",
       "dtype_attribute: \"out\" same_dtype_as: \"x\"", "exactly one"},
      {"OutputWithTwoDtypes", "dtype_attribute: \"out\"", "dtypes: [DATA_TYPE_F32, DATA_TYPE_F16]",
       "exactly one"},
      {"OutputOfUnknownAttribute", "dtype_attribute: \"out\"", "dtype_attribute: \"no\"",
       "no DataType attribute"},
      {"OutputOfNumber", "dtype_attribute: \"out\"", "dtype_attribute: \"eps\"",
       "no DataType attribute"},
      {"OutputContiguous", "dtype_attribute: \"out\"", "dtype_attribute: \"out\" contiguous: true",
       "contiguous"},
      {"OutputLetterUnbound", "dtype_attribute: \"out\" dims: \"...,C\"",
       "dtype_attribute: \"out\" dims: \"...,D\"", "no input gives the size D"},
      {"OutputLeadingUnbound", "BF16] dims: \"...,C\"", "BF16] dims: \"C\"", "leading shape"},
      {"AttributeNotOptional", "optional double eps", "double eps", "declared optional"},
      {"AttributeRepeated", "optional double eps", "repeated double eps", "declared optional"},
      {"AttributeOfFloat", "optional double eps", "optional float eps", "cannot be of type float"},
      {"ArithmeticInteger", "{ default_value: 0.5",
       "{ arithmetic: DATA_TYPE_I32 default_value: 0.5", "arithmetic is F32 or F64"},
      {"DefaultOutOfRange", "default_value: 0.5", "default_value: 2", "out of range"},
      {"DefaultUnderflows", "default_value: 0.5", "default_value: 1e-46", "out of range"},
      {"DefaultOverflows", "default_value: 0.5 greater_than: 0 at_most: 1",
       "default_value: 1e39 finite: true", "out of range"},
      {"TwoLowerBounds", "greater_than: 0 at_most", "greater_than: 0 at_least: 0 at_most",
       "greater_than and at_least"},
      {"EmptyRange", "greater_than: 0 at_most: 1", "greater_than: 1 at_most: 1", "empty"},
      {"BoundInfinite", "greater_than: 0 at_most: 1", "greater_than: 0 at_most: inf", "not finite"},
      {"IntegerBoundFraction", "at_least: 0 multiple_of", "at_least: 0.5 multiple_of",
       "not an integer"},
      {"IntegerDefaultNotMultiple", "default_integer: 4", "default_integer: 3", "out of range"},
      {"IntegerDefaultOnNumber", "default_value: 0.5", "default_integer: 1", "says nothing"},
      {"NumberDefaultOnInteger", "default_integer: 4", "default_value: 4", "says nothing"},
      {"RangeOnBool", "default_bool: false", "at_least: 0", "says nothing"},
      {"EnumDefaultUnknown", "\"KIND_SUM\"", "\"KIND_MAX\"", "is no value of bad.Kind"},
      {"EnumDefaultUnspecified", "\"KIND_SUM\"", "\"KIND_UNSPECIFIED\"", "is no value"},
      {"EnumWithoutPrefix", "KIND_MEAN", "MEAN", "begin with KIND_"},
      {"DefaultSameDtypeOfNothing",
       "{ dtypes: DATA_TYPE_F32 same_dtype_as: \"x\" }];\n  rlk.v1.CallOp",
       "{ dtypes: DATA_TYPE_F32 default_same_dtype: true }];\n  rlk.v1.CallOp",
       "default_same_dtype needs same_dtype_as"},
      {"DefaultSameDtypeOnBool", "default_bool: false", "default_same_dtype: true", "says nothing"},
      {"DimsNameNoAttribute", "dtype_attribute: \"out\" dims: \"...,C\"",
       "dtype_attribute: \"out\" dims: \"...,nothing\"", "is no int64 attribute"},
      {"DimsNameANumber", "dtype_attribute: \"out\" dims: \"...,C\"",
       "dtype_attribute: \"out\" dims: \"...,eps\"", "is no int64 attribute"},
      {"DimsOfAnInputNameAnAttribute", "same_dtype_as: \"x\" dims: \"C\"",
       "same_dtype_as: \"x\" dims: \"kind\"", "outputs only"},
      {"DtypeAttributeWithoutDtypes",
       "dtypes: DATA_TYPE_F32 same_dtype_as: \"x\" }];\n  rlk.v1.CallOp", "}];\n  rlk.v1.CallOp",
       "needs dtypes or same_dtype_as"},
  };
}

TEST(Signatures, TheGoodTextCompiles) {
  const absl::Status status = CompileText(kGood);
  EXPECT_TRUE(status.ok()) << status;
}

class RefusesApi : public testing::TestWithParam<BadCase> {};

TEST_P(RefusesApi, NamingWhatIsWrong) {
  const BadCase& param = GetParam();
  const std::string good = kGood;
  ASSERT_NE(good.find(param.from), std::string::npos) << "the case changes nothing";
  std::string text = good;
  text.replace(text.find(param.from), param.from.size(), param.to);
  const absl::Status status = CompileText(text);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(param.error));
}

INSTANTIATE_TEST_SUITE_P(Table, RefusesApi, testing::ValuesIn(BadCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rlk::wire
