// Walks the fields of a message inside a message.
#pragma once

#include <cstdint>

#include "proto/wire/piece_reader.h"
#include "proto/wire/wire_format.h"

namespace rlk::wire {

// From the message's length on: `field` reads one field, of the tag that it is given, and returns
// false to give up. False then, and where the bytes are no message.
template <typename Field>
bool ReadFields(PieceReader& reader, Field field) {
  int64_t length = 0;
  if (!ReadLength(reader, &length)) return false;
  const int64_t rest = reader.Enter(length);
  while (reader.remaining() > 0) {
    uint32_t tag = 0;
    if (!ReadTag(reader, &tag) || !field(tag)) return false;
  }
  reader.Leave(rest);
  return true;
}

}  // namespace rlk::wire
