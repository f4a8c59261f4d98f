// What the typed calls of operators share.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/tensor.h"

namespace rlk::client {

// A request of a method with the options of its arguments; inputs and attributes are still to come.
template <typename Args>
CallRequest NewRequest(std::string method, const Args& args) {
  CallRequest request;
  request.method = std::move(method);
  request.options = args.options;
  request.timeout = args.timeout;
  return request;
}

inline void AddInput(const char* name, const std::optional<TensorRef>& tensor,
                     CallRequest& request) {
  if (tensor) request.inputs.emplace_back(name, *tensor);
}

template <typename Value>
void AddAttribute(const char* name, const std::optional<Value>& value, CallRequest& request) {
  if (value) request.attributes[name] = *value;
}

// The output of that name, if it was wanted; the result loses it.
inline std::optional<Tensor> TakeOutput(const char* name, CallResult& result) {
  for (auto& [output, tensor] : result.outputs) {
    if (output == name) return std::move(tensor);
  }
  return std::nullopt;
}

}  // namespace rlk::client
