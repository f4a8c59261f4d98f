// Where in a message an error is, built while descending and spelled only when there is one.
#pragma once

#include <string>

#include "google/protobuf/descriptor.h"

namespace rlk::wire {

struct Path {
  const Path* parent = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
  // Of a repeated field; -1 for none.
  int index = -1;

  // "x.shape", "xs[2].dtype"; empty for the message itself.
  std::string Text() const {
    std::string text = parent == nullptr ? std::string() : parent->Text();
    if (field == nullptr) return text;
    if (!text.empty()) text += '.';
    text += field->name();
    if (index >= 0) text += '[' + std::to_string(index) + ']';
    return text;
  }
};

}  // namespace rlk::wire
