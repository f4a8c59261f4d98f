#include "proto/wire/signatures.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/core/status.h"
#include "proto/wire/compile_parts.h"
#include "rlk/v1/call.pb.h"
#include "rlk/v1/contract.pb.h"

namespace rlk::wire {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MethodDescriptor;

absl::Status BadApi(std::string_view full_name, std::string_view what) {
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kInternal, std::string(full_name), "", "", 0}, what);
}

std::string CamelCase(std::string_view snake) {
  std::string camel;
  bool upper = true;
  for (const char c : snake) {
    if (c != '_') camel += upper ? absl::ascii_toupper(static_cast<unsigned char>(c)) : c;
    upper = c == '_';
  }
  return camel;
}

std::string SnakeCase(std::string_view camel) {
  std::string snake;
  for (const char c : camel) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isupper(byte) && !snake.empty()) snake += '_';
    snake += absl::ascii_tolower(byte);
  }
  return snake;
}

namespace {

bool IsSnakeCase(std::string_view name) {
  if (name.empty() || !absl::ascii_islower(static_cast<unsigned char>(name[0]))) return false;
  char last = 0;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (!absl::ascii_islower(byte) && !absl::ascii_isdigit(byte) && c != '_') return false;
    if (c == '_' && last == '_') return false;
    last = c;
  }
  return last != '_';
}

std::vector<const FieldDescriptor*> FieldsByNumber(const Descriptor& message) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < message.field_count(); ++i) fields.push_back(message.field(i));
  std::sort(fields.begin(), fields.end(), [](const FieldDescriptor* a, const FieldDescriptor* b) {
    return a->number() < b->number();
  });
  return fields;
}

// The field under `number` that every request or response has, of the given type and name.
absl::Status CheckCommonField(const Descriptor& message, int number, const Descriptor* type,
                              std::string_view name) {
  const FieldDescriptor* field = message.FindFieldByNumber(number);
  if (field == nullptr || field->name() != name || field->is_repeated() ||
      field->type() != FieldDescriptor::TYPE_MESSAGE || field->message_type() != type ||
      field->real_containing_oneof() != nullptr) {
    return BadApi(message.full_name(), absl::StrCat("needs the field ", type->full_name(), " ",
                                                    std::string(name), " = ", number));
  }
  return absl::OkStatus();
}

// Names and classification: what rlk.v1.method and the RPC's name say.
absl::Status CompileName(const MethodDescriptor& method, MethodSignature* signature) {
  if (!method.options().HasExtension(rlk::v1::method)) {
    return BadApi(method.full_name(), "has no rlk.v1.method option");
  }
  const rlk::v1::MethodOptions& options = method.options().GetExtension(rlk::v1::method);
  const std::string& name = options.operator_();
  if (!IsSnakeCase(name)) {
    return BadApi(method.full_name(), absl::StrCat("operator \"", name, "\" is not snake_case"));
  }
  const std::string prefix = CamelCase(name);
  if (!absl::StartsWith(method.name(), prefix) || method.name().size() == prefix.size()) {
    return BadApi(method.full_name(),
                  absl::StrCat("the RPC's name is not ", prefix, " and the method's name"));
  }
  const std::string rest = method.name().substr(prefix.size());
  const std::string snake = SnakeCase(rest);
  if (!IsSnakeCase(snake) || CamelCase(snake) != rest) {
    return BadApi(method.full_name(),
                  absl::StrCat("the RPC's name does not follow from operator \"", name, "\""));
  }
  if (method.client_streaming() || method.server_streaming()) {
    return BadApi(method.full_name(), "operator methods do not stream");
  }
  if (!rlk::v1::Direction_IsValid(options.direction()) ||
      options.direction() == rlk::v1::DIRECTION_UNSPECIFIED) {
    return BadApi(method.full_name(), "direction is missing or unknown");
  }
  if (!rlk::v1::OpClass_IsValid(options.op_class()) ||
      options.op_class() == rlk::v1::OP_CLASS_UNSPECIFIED) {
    return BadApi(method.full_name(), "op_class is missing or unknown");
  }
  signature->operator_name = name;
  signature->method = absl::StrCat(name, ".", snake);
  signature->rpc = absl::StrCat("/", method.service()->full_name(), "/", method.name());
  signature->direction = static_cast<Direction>(options.direction());
  signature->op_class = static_cast<OpClass>(options.op_class());
  return absl::OkStatus();
}

absl::Status CompileRequest(const Descriptor& request, MethodSignature* signature) {
  RLK_RETURN_IF_ERROR(CheckCommonField(request, kOptionsFieldNumber,
                                       rlk::v1::CallOptions::descriptor(), "options"));
  for (const FieldDescriptor* field : FieldsByNumber(request)) {
    if (field->number() == kOptionsFieldNumber) continue;
    const bool tensor = field->options().HasExtension(rlk::v1::tensor);
    const bool attribute = field->options().HasExtension(rlk::v1::attribute);
    if (tensor == attribute) {
      return BadApi(field->full_name(), "needs either rlk.v1.tensor or rlk.v1.attribute");
    }
    if (tensor) {
      RLK_ASSIGN_OR_RETURN(TensorSpec spec, CompileTensor(*field, Role::kInput));
      signature->inputs.push_back(std::move(spec));
    } else {
      RLK_ASSIGN_OR_RETURN(AttributeSpec spec, CompileAttribute(*field));
      signature->attributes.push_back(std::move(spec));
    }
  }
  return absl::OkStatus();
}

absl::Status CompileResponse(const Descriptor& response, MethodSignature* signature) {
  RLK_RETURN_IF_ERROR(
      CheckCommonField(response, kReportFieldNumber, rlk::v1::CallReport::descriptor(), "report"));
  for (const FieldDescriptor* field : FieldsByNumber(response)) {
    if (field->number() == kReportFieldNumber) continue;
    if (!field->options().HasExtension(rlk::v1::tensor) ||
        field->options().HasExtension(rlk::v1::attribute)) {
      return BadApi(field->full_name(), "an output needs rlk.v1.tensor and nothing else");
    }
    RLK_ASSIGN_OR_RETURN(TensorSpec spec, CompileTensor(*field, Role::kOutput));
    signature->outputs.push_back(std::move(spec));
  }
  if (signature->outputs.empty()) return BadApi(response.full_name(), "has no output");
  return absl::OkStatus();
}

absl::Status Link(const MethodDescriptor& method, MethodSignature* signature) {
  const auto& request = *method.input_type();
  for (AttributeSpec& spec : signature->attributes) {
    RLK_RETURN_IF_ERROR(
        LinkAttribute(*request.FindFieldByNumber(spec.field_number), *signature, &spec));
  }
  for (TensorSpec& spec : signature->inputs) {
    RLK_RETURN_IF_ERROR(
        LinkTensor(*request.FindFieldByNumber(spec.field_number), Role::kInput, *signature, &spec));
  }
  for (TensorSpec& spec : signature->outputs) {
    RLK_RETURN_IF_ERROR(LinkTensor(*method.output_type()->FindFieldByNumber(spec.field_number),
                                   Role::kOutput, *signature, &spec));
  }
  return CheckTensors(method, *signature);
}

absl::StatusOr<MethodSignature> CompileMethod(const MethodDescriptor& method) {
  MethodSignature signature;
  RLK_RETURN_IF_ERROR(CompileName(method, &signature));
  RLK_RETURN_IF_ERROR(CompileRequest(*method.input_type(), &signature));
  RLK_RETURN_IF_ERROR(CompileResponse(*method.output_type(), &signature));
  RLK_RETURN_IF_ERROR(Link(method, &signature));
  return signature;
}

}  // namespace

absl::StatusOr<std::vector<MethodBinding>> CompileSignatures(
    const std::vector<const google::protobuf::FileDescriptor*>& files) {
  std::vector<MethodBinding> bindings;
  std::set<std::string> methods;
  for (const auto* file : files) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const MethodDescriptor* method = file->service(i)->method(j);
        RLK_ASSIGN_OR_RETURN(MethodSignature signature, CompileMethod(*method));
        if (!methods.insert(signature.method).second) {
          return BadApi(method->full_name(),
                        absl::StrCat("\"", signature.method, "\" is declared twice"));
        }
        bindings.push_back({method, std::move(signature)});
      }
    }
  }
  return bindings;
}

}  // namespace rlk::wire
