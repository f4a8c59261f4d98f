// The whole way of a request but the transport: bytes -> DecodeCall -> engine on the host device ->
// EncodeResult -> bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rlk::fuzz {

// Byte 0 picks the method, byte 1 where the pieces are cut, the rest is the request. It is refused
// with a reason, or answered with a reply that protobuf reads, whose outputs are as long as their
// shapes say and do not depend on how the request was cut.
void CheckPath(std::span<const uint8_t> input);

// Valid inputs.
std::vector<std::string> PathSeeds();

// How many inputs were computed.
int64_t ComputedInputs();

}  // namespace rlk::fuzz
