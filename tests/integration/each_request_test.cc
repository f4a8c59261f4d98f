// Each request of each operator, made from its compiled signature and made wrong once in each
// place: a method that is added is covered as it is.
#include <cmath>
#include <functional>
#include <limits>

#include "google/protobuf/message.h"
#include "kernels/core/status.h"
#include "proto/wire/signatures.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int64_t kSize = 16;

struct Wrong {
  std::string name;
  std::function<void(Message&)> change;
  std::string field;
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
};

const FieldDescriptor* Field(const Message& message, const std::string& name) {
  return message.GetDescriptor()->FindFieldByName(name);
}

rlk::v1::Tensor& TensorOf(Message& message, const std::string& name) {
  const FieldDescriptor* field = Field(message, name);
  return static_cast<rlk::v1::Tensor&>(*message.GetReflection()->MutableMessage(&message, field));
}

rlk::v1::CallOptions& OptionsOf(Message& message) {
  const FieldDescriptor* field =
      message.GetDescriptor()->FindFieldByNumber(wire::kOptionsFieldNumber);
  return static_cast<rlk::v1::CallOptions&>(
      *message.GetReflection()->MutableMessage(&message, field));
}

DType InputDType(const MethodSignature& signature, const TensorSpec& spec) {
  if (!spec.dtypes.empty()) return spec.dtypes[0];
  return InputDType(signature, signature.inputs[static_cast<size_t>(spec.same_dtype_as)]);
}

// Zeros, with one size for every letter.
void FillTensor(const MethodSignature& signature, const TensorSpec& spec, Message& message) {
  rlk::v1::Tensor& tensor = TensorOf(message, spec.name);
  const DType dtype = InputDType(signature, spec);
  tensor.set_dtype(static_cast<rlk::v1::DataType>(dtype));
  int64_t elements = 1;
  const auto add = [&](int64_t size) {
    tensor.add_shape(size);
    elements *= size;
  };
  if (spec.dims.leading) add(2);
  for (const DimPattern& dim : spec.dims.dims) {
    add(dim.letter != 0 ? dim.factor * kSize : dim.factor);
  }
  tensor.set_data(std::string(static_cast<size_t>(elements * DTypeSize(dtype)), '\0'));
}

std::unique_ptr<Message> GoodRequest(const wire::MethodBinding& binding) {
  const auto* factory = google::protobuf::MessageFactory::generated_factory();
  std::unique_ptr<Message> message(const_cast<google::protobuf::MessageFactory*>(factory)
                                       ->GetPrototype(binding.descriptor->input_type())
                                       ->New());
  for (const TensorSpec& spec : binding.signature.inputs) {
    // Of several gradients that are optional one at least has to be there.
    const bool gradient = spec.name.rfind("grad_", 0) == 0;
    if (!spec.optional || gradient) FillTensor(binding.signature, spec, *message);
  }
  return message;
}

void AddTensorCases(const TensorSpec& spec, std::vector<Wrong>& cases) {
  const std::string& name = spec.name;
  const auto add = [&](const char* what, std::function<void(rlk::v1::Tensor&)> change,
                       grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT) {
    cases.push_back({name + ": " + what,
                     [name, change = std::move(change)](Message& m) { change(TensorOf(m, name)); },
                     name, code});
  };
  cases.push_back({name + ": missing",
                   [name](Message& m) { m.GetReflection()->ClearField(&m, Field(m, name)); },
                   name});
  add("no source", [](auto& t) { t.clear_source(); });
  add("no dtype", [](auto& t) { t.clear_dtype(); });
  add("BOOL", [](auto& t) { t.set_dtype(rlk::v1::DATA_TYPE_BOOL); });
  add("unknown dtype", [](auto& t) { t.set_dtype(static_cast<rlk::v1::DataType>(99)); });
  add("rank 9", [](auto& t) {
    while (t.shape_size() < 9) t.add_shape(1);
  });
  if (!spec.dims.leading) add("another rank", [](auto& t) { t.add_shape(1); });
  add("a negative size", [](auto& t) { t.set_shape(0, -1); });
  add("beyond 64 bits", [](auto& t) { t.set_shape(0, std::numeric_limits<int64_t>::max()); });
  add("too few strides", [](auto& t) {
    t.add_strides(1);
    t.add_shape(1);
  });
  add("a negative stride", [](auto& t) {
    for (int i = 0; i < t.shape_size(); ++i) t.add_strides(-1);
  });
  add("a byte short", [](auto& t) { t.mutable_data()->pop_back(); });
  add("a byte long", [](auto& t) { t.mutable_data()->push_back('\0'); });
  add(
      "a tensor in an arena, without a session",
      [](auto& t) { t.mutable_arena()->set_arena(std::string(16, 'a')); },
      grpc::StatusCode::UNAUTHENTICATED);
  add(
      "a tensor that stays, without a session",
      [](auto& t) { t.mutable_resident()->set_id(std::string(16, 'a')); },
      grpc::StatusCode::UNAUTHENTICATED);
}

void AddAttributeCases(const AttributeSpec& spec, std::vector<Wrong>& cases) {
  const std::string& name = spec.name;
  const auto number = [&](double value) {
    cases.push_back(
        {name + " = " + std::to_string(value),
         [name, value](Message& m) { m.GetReflection()->SetDouble(&m, Field(m, name), value); },
         name});
  };
  const auto integer = [&](int64_t value) {
    cases.push_back({name + " = " + std::to_string(value),
                     [name, value](Message& m) {
                       const FieldDescriptor* field = Field(m, name);
                       if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
                         m.GetReflection()->SetEnumValue(&m, field, static_cast<int>(value));
                       } else {
                         m.GetReflection()->SetInt64(&m, field, value);
                       }
                     },
                     name});
  };
  switch (spec.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      if (spec.finite) {
        for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) number(value);
        if (spec.kind == AttributeKind::kF32) number(1e39);
      }
      if (spec.greater_than) number(*spec.greater_than);
      if (spec.at_least) number(*spec.at_least * (*spec.at_least > 0 ? 0.5 : 2) - 1e-30);
      break;
    case AttributeKind::kI64:
      if (spec.at_least) integer(static_cast<int64_t>(*spec.at_least) - 1);
      if (spec.at_most) integer(static_cast<int64_t>(*spec.at_most) + 1);
      if (spec.multiple_of > 1) integer(spec.multiple_of + 1);
      break;
    case AttributeKind::kDType:
      for (const int64_t value : {static_cast<int64_t>(rlk::v1::DATA_TYPE_BOOL), int64_t{99}}) {
        integer(value);
      }
      break;
    case AttributeKind::kEnum:
      integer(99);
      break;
    case AttributeKind::kBool:
      break;
  }
}

void AddOptionCases(std::vector<Wrong>& cases) {
  const auto add = [&](const char* field, std::function<void(rlk::v1::CallOptions&)> change) {
    cases.push_back({field, [change = std::move(change)](Message& m) { change(OptionsOf(m)); },
                     std::string("options.") + field});
  };
  add("contract", [](auto& o) { o.set_contract("no-such-contract/v0"); });
  add("backend", [](auto& o) { o.set_backend("abacus"); });
  add("mode", [](auto& o) { o.set_mode(static_cast<rlk::v1::Mode>(77)); });
  add("minimum_claim", [](auto& o) { o.set_minimum_claim(static_cast<rlk::v1::ClaimLevel>(77)); });
  add("outputs", [](auto& o) { (*o.mutable_outputs())["no_such_output"].mutable_inline_(); });
  add("digests", [](auto& o) { o.add_digests(static_cast<rlk::v1::DigestScope>(77)); });
  add("input_capture",
      [](auto& o) { o.set_input_capture(static_cast<rlk::v1::InputCapture>(77)); });
  add("verification", [](auto& o) { o.set_verification(static_cast<rlk::v1::Verification>(77)); });
  add("wanted_outputs", [](auto& o) { o.add_wanted_outputs("no_such_output"); });
}

void ExpectRefused(const grpc::Status& status, const Wrong& wrong) {
  EXPECT_EQ(status.error_code(), wrong.code) << wrong.name << ": " << status.error_message();
  const ErrorFacts facts = FactsOf(status);
  EXPECT_EQ(facts.domain, "rlk") << wrong.name;
  EXPECT_NE(facts.reason, ReasonName(Reason::kInternal)) << wrong.name;
  const auto field = facts.metadata.find("field");
  ASSERT_NE(field, facts.metadata.end()) << wrong.name;
  EXPECT_EQ(field->second.rfind(wrong.field, 0), 0u) << wrong.name << ": " << field->second;
  EXPECT_NE(facts.metadata.at("allowed"), "") << wrong.name;
}

// A field that no request has, a tensor twice, and a message that is cut.
void ExpectBytesRefused(const std::shared_ptr<grpc::Channel>& channel, const std::string& rpc,
                        const std::string& good) {
  const std::string cases[] = {good + std::string("\xa0\x1f\x01", 3), good + good,
                               good.substr(0, good.size() - 1)};
  for (const std::string& bytes : cases) {
    const grpc::Status status = CallRaw(channel, rpc, bytes).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(FactsOf(status).domain, "rlk");
  }
}

TEST(EachRequestTest, IsRefusedWhereverItIsWrongOnce) {
  const TestServer server;
  const auto channel = DefaultChannel(server.tcp());
  const auto bindings = wire::CompileSignatures(wire::OperatorFiles());
  ASSERT_TRUE(bindings.ok()) << bindings.status();
  size_t refused = 0;
  for (const wire::MethodBinding& binding : *bindings) {
    const MethodSignature& signature = binding.signature;
    SCOPED_TRACE(signature.method);
    const std::unique_ptr<Message> good = GoodRequest(binding);
    const std::string bytes = good->SerializeAsString();
    const grpc::Status status = CallRaw(channel, signature.rpc, bytes).status;
    ASSERT_TRUE(status.ok()) << status.error_message();
    std::vector<Wrong> cases;
    for (const TensorSpec& spec : signature.inputs) {
      if (!spec.optional) AddTensorCases(spec, cases);
    }
    for (const AttributeSpec& spec : signature.attributes) AddAttributeCases(spec, cases);
    AddOptionCases(cases);
    for (const Wrong& wrong : cases) {
      std::unique_ptr<Message> request(good->New());
      request->CopyFrom(*good);
      wrong.change(*request);
      ExpectRefused(CallRaw(channel, signature.rpc, request->SerializeAsString()).status, wrong);
    }
    ExpectBytesRefused(channel, signature.rpc, bytes);
    refused += cases.size() + 3;
    EXPECT_TRUE(CallRaw(channel, signature.rpc, bytes).status.ok()) << "the server does not go on";
  }
  printf("%zu methods, %zu wrong requests refused\n", bindings->size(), refused);
}

}  // namespace
}  // namespace rlk::test
