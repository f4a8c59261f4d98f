// Every bound, by name. Flags, GetInfo and error texts use these names.
#pragma once

#include <cstdint>

#include "kernels/core/tensor_view.h"

namespace rlk {

struct Limits {
  int64_t rank_max = kMaxRank;
  int64_t tensors_per_call_max = 64;
  // Payload of one call, inputs and outputs together.
  int64_t call_bytes_max = int64_t{4} << 30;
  // A request message as a whole, framing included, so that a payload of exactly this size does
  // not fit; of a reply its tensors and row digests, which are known before the launch.
  int64_t inline_bytes_max = int64_t{2} << 20;
  // Of a request message without its tensors' elements: every byte of it is looked at.
  int64_t header_bytes_max = int64_t{64} << 10;
  // Receive cap of the transport; what is above inline_bytes_max but below this gets rlk's error.
  int64_t message_bytes_max = int64_t{4} << 20;
  int64_t queue_calls_max = 1024;
  int64_t queue_bytes_max = int64_t{256} << 20;
  int64_t attribute_text_bytes_max = 256;
  // REFERENCE verification runs on a bounded CPU pool.
  int64_t reference_elements_max = int64_t{1} << 20;
  int64_t connections_max = 4096;
  int64_t streams_per_connection_max = 256;
  int64_t device_bytes_max = int64_t{1} << 30;
  int64_t sessions_max = 1024;
  int64_t session_lease_ms = 60'000;
  int64_t session_lease_ms_max = 86'400'000;
  int64_t session_calls_max = 1024;
  int64_t session_tensors_max = 4096;
  int64_t session_resident_bytes_max = int64_t{4} << 30;
  int64_t resident_bytes_max = int64_t{4} << 30;
  // Of all sessions of one account, where the file of --tokens says nothing else.
  int64_t account_sessions_max = 1024;
  int64_t account_tensors_max = 65536;
  int64_t account_resident_bytes_max = int64_t{4} << 30;
  // Memory that is shared with sessions of this host.
  int64_t session_arenas_max = 16;
  int64_t session_arena_bytes_max = int64_t{4} << 30;
  int64_t arena_bytes_max = int64_t{4} << 30;
  int64_t arena_slots_max = 4096;
  // One message of a stream.
  int64_t chunk_bytes_max = int64_t{1} << 20;
  // Read and written by all calls of one CheckParity or CheckInvariance.
  int64_t parity_work_bytes_max = int64_t{64} << 30;
  int64_t parity_peer_ms_max = 30'000;
};

}  // namespace rlk
