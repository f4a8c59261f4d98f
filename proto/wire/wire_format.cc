#include "proto/wire/wire_format.h"

#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {

using google::protobuf::FieldDescriptor;

WireType FieldWireType(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
      return WireType::kFixed64;
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
      return WireType::kFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      return WireType::kBytes;
    case FieldDescriptor::TYPE_GROUP:
      return WireType::kGroupStart;
    default:
      return WireType::kVarint;
  }
}

bool IsTensor(const google::protobuf::Descriptor* descriptor) {
  return descriptor == rlk::v1::Tensor::descriptor();
}

}  // namespace rlk::wire
