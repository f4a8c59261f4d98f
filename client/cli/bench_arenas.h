// The part of `rlk bench transport` that concerns arenas.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/render.h"
#include "client/cpp/client.h"
#include "rlk/v1/tensor_service.grpc.pb.h"

namespace rlk::cli {

// Medians in seconds; 0 where a way does not apply or the server has no room for it.
struct ArenaRow {
  int64_t bytes = 0;
  // An empty unary call of a generated stub, by turns with calls in place on the device arena, and
  // with calls on the host arenas.
  double empty_call = 0, host_empty_call = 0;
  // Wall less kernel, and of it the parts in which the server's GPU moves bytes by itself.
  double host_call = 0, host_in = 0, host_out = 0;
  // Wall less kernel: in place, on a snapshot, and on a snapshot with digests of both tensors.
  double device_live = 0, device_snapshot = 0, device_digests = 0;

  // What the call costs beside moving its bytes.
  double host_transport() const { return host_call - host_in - host_out; }
};

// Which arenas the server offers, by its capabilities.
struct ArenaWays {
  bool host = false, device = false;
  std::string host_reason, device_reason;
};
absl::StatusOr<ArenaWays> OfferedArenas(const client::Client& client);

// Reads x from one slot and writes y into another; each way for about `seconds`. `empty` answers
// every call at once.
absl::StatusOr<ArenaRow> BenchArenas(const client::Client& client,
                                     rlk::v1::TensorService::Stub& empty, const ArenaWays& ways,
                                     int64_t bytes, double seconds);

Json ArenaJson(const ArenaRow& row);
std::string ArenaText(const ArenaWays& ways, const std::vector<ArenaRow>& rows);

}  // namespace rlk::cli
