#include "client/cli/command.h"
#include "client/cli/render.h"
#include "rlk/v1/server.pb.h"

namespace rlk::cli {
namespace {

std::vector<std::string> DTypes(const google::protobuf::RepeatedField<int>& dtypes,
                                const std::string& same_dtype_as) {
  std::vector<std::string> names;
  for (int dtype : dtypes) names.push_back(DTypeText(static_cast<rlk::v1::DataType>(dtype)));
  if (!same_dtype_as.empty()) names.push_back("dtype of " + same_dtype_as);
  return names;
}

template <typename Tensors>
Json TensorsJson(const Tensors& tensors) {
  Json json = Json::array();
  for (const rlk::v1::TensorInfo& tensor : tensors) {
    const rlk::v1::TensorOptions& options = tensor.options();
    Json entry = {{"name", tensor.name()},
                  {"dtypes", DTypes(options.dtypes(), options.same_dtype_as())},
                  {"dims", options.dims()}};
    if (!options.dtype_attribute().empty()) entry["dtype_attribute"] = options.dtype_attribute();
    if (options.optional()) entry["optional"] = true;
    if (options.on_request()) entry["on_request"] = true;
    if (options.contiguous()) entry["contiguous"] = true;
    if (options.alignment() != 0) entry["alignment"] = options.alignment();
    if (options.max_count() != 0) entry["max_count"] = options.max_count();
    json.push_back(std::move(entry));
  }
  return json;
}

Json AttributeJson(const rlk::v1::AttributeInfo& attribute) {
  const rlk::v1::AttributeOptions& options = attribute.options();
  Json json = {{"name", attribute.name()}, {"type", attribute.type()}};
  if (options.has_default_value()) json["default"] = NumberJson(options.default_value());
  if (options.has_default_integer()) json["default"] = options.default_integer();
  if (!options.default_enum().empty()) json["default"] = options.default_enum();
  if (options.default_same_dtype()) json["default"] = "dtype of " + options.same_dtype_as();
  if (options.finite()) json["finite"] = true;
  if (options.has_greater_than()) json["greater_than"] = options.greater_than();
  if (options.has_at_least()) json["at_least"] = options.at_least();
  if (options.has_less_than()) json["less_than"] = options.less_than();
  if (options.has_at_most()) json["at_most"] = options.at_most();
  if (options.multiple_of() != 0) json["multiple_of"] = options.multiple_of();
  const auto dtypes = DTypes(options.dtypes(), options.same_dtype_as());
  if (!dtypes.empty()) json["dtypes"] = dtypes;
  return json;
}

Json MethodJson(const rlk::v1::MethodInfo& method) {
  Json contracts = Json::array(), attributes = Json::array();
  for (const auto& contract : method.contracts()) {
    Json variants = Json::array();
    for (const auto& variant : contract.variants()) {
      variants.push_back({{"backend", variant.backend()},
                          {"kernel", variant.kernel()},
                          {"available", variant.available()},
                          {"reason", variant.reason()},
                          {"claim", ClaimText(variant.claim())}});
    }
    contracts.push_back({{"id", contract.id()},
                         {"arithmetic", contract.arithmetic()},
                         {"variants", std::move(variants)}});
  }
  for (const auto& attribute : method.attributes()) attributes.push_back(AttributeJson(attribute));
  return {{"method", method.method()},
          {"rpc", method.rpc()},
          {"direction", EnumText(rlk::v1::Direction_descriptor(), method.direction())},
          {"op_class", EnumText(rlk::v1::OpClass_descriptor(), method.op_class())},
          {"contracts", std::move(contracts)},
          {"inputs", TensorsJson(method.inputs())},
          {"attributes", std::move(attributes)},
          {"outputs", TensorsJson(method.outputs())}};
}

// "x: F32, F16, BF16, dims [...]", one line a tensor or attribute, for one operator's page.
std::string DetailText(const Json& method) {
  Table table({"  kind", "name", "what"});
  const auto add = [&table, &method](const char* list, const char* kind) {
    for (const Json& entry : method[list]) {
      std::string what;
      for (const auto& [key, value] : entry.items()) {
        if (key == "name" || (key == "dtypes" && value.empty())) continue;
        const std::string text = value.is_string() ? value.get<std::string>()
                                 : value.is_array()
                                     ? client::JoinNames(value.get<std::vector<std::string>>())
                                     : value.dump();
        what += (what.empty() ? "" : "; ") + key + " " + text;
      }
      table.Add({std::string("  ") + kind, entry["name"].get<std::string>(), what});
    }
  };
  add("inputs", "input");
  add("attributes", "attribute");
  add("outputs", "output");
  return table.Text();
}

std::string OpsText(const rlk::v1::ListOperatorsResponse& response, bool details) {
  Table table({"method", "contract", "claim", "backend", "kernel", "state"});
  std::string pages;
  for (const auto& method : response.methods()) {
    bool first = true;
    for (const auto& contract : method.contracts()) {
      const std::string id = contract.id() + (first ? " (default)" : "");
      first = false;
      for (const auto& variant : contract.variants()) {
        table.Add({method.method(), id, ClaimText(variant.claim()), variant.backend(),
                   variant.kernel(),
                   variant.available() ? "available" : "not available: " + variant.reason()});
      }
      if (details) pages += "\n" + contract.id() + "\n  " + contract.arithmetic() + "\n";
    }
    if (details) pages += "\n" + method.method() + "\n" + DetailText(MethodJson(method));
  }
  return table.Text() + pages;
}

}  // namespace

Outcome RunOps(const Args& args) {
  if (args.positional().size() > 1) {
    return UsageError(absl::InvalidArgumentError("rlk ops takes one OPERATOR at most"));
  }
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const std::string operator_name = args.positional().empty() ? "" : args.positional()[0];
  const auto response = client->ListOperators(operator_name);
  if (!response.ok()) return CallError(response.status());
  Json methods = Json::array();
  for (const auto& method : response->methods()) methods.push_back(MethodJson(method));
  Outcome outcome;
  outcome.json = Dump({{"methods", std::move(methods)}});
  outcome.text = OpsText(*response, !operator_name.empty());
  return outcome;
}

}  // namespace rlk::cli
