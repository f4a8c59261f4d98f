// What must hold for every input of the codec, shared by the libFuzzer targets and the replay.
// A broken invariant aborts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/wire/bytes.h"

namespace rlk::fuzz {

// Cuts `bytes` into pieces of 0 to 40 bytes that `seed` decides; 0 leaves one piece.
wire::InputBytes Cut(std::string_view bytes, uint8_t seed);

// Byte 0 picks the message type, byte 1 where the pieces are cut, the rest is the message.
inline constexpr size_t kHeaderBytes = 2;

// Split agrees with itself however the bytes are cut, agrees with protobuf's own parser, and what
// Join makes of the parts splits into the same parts and joins into the same bytes.
void CheckSplit(std::span<const uint8_t> input);

// DecodeChunk gives the bytes that protobuf would read, however they are cut, or refuses.
void CheckChunk(std::span<const uint8_t> input);

// DecodeCall refuses with a reason, or gives a call whose layouts and payloads agree.
void CheckCall(std::span<const uint8_t> input);

// Valid inputs of all, from which mutation starts.
std::vector<std::string> Seeds();

// How many inputs of this process were accepted, so that a run shows that it got past the door.
int64_t AcceptedInputs();

}  // namespace rlk::fuzz
