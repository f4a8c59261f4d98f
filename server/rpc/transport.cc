#include "server/rpc/transport.h"

#include <grpcpp/resource_quota.h>

#include <algorithm>

namespace rlk::server {
namespace {

// HTTP/2 has no larger window.
constexpr int64_t kWindowMax = (int64_t{1} << 31) - 1;

}  // namespace

void ConfigureTransport(const Transport& transport, grpc::ServerBuilder& builder) {
  const Limits& limits = transport.limits;
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits.message_bytes_max));
  builder.SetMaxSendMessageSize(-1);
  // A second server on the port is an error and does not share it silently.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(limits.streams_per_connection_max));
  // Tensors do not shrink, and a compressed message could grow past every bound.
  builder.AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(transport.keepalive_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(transport.keepalive_timeout_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Until TLS and HTTP/2 have greeted, no keepalive asks.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(transport.keepalive_timeout_ms));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
  // A client may run ahead of the reader by one chunk. What gRPC would grow the window to by
  // itself, it holds for each of many uploads at once.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
      static_cast<int>(std::min<int64_t>(limits.chunk_bytes_max, kWindowMax)));
  // What gRPC may buffer for all connections: the queue's bytes, and room for what is being
  // received and sent meanwhile.
  grpc::ResourceQuota quota("rlk");
  const int64_t room = std::max<int64_t>(64 * limits.message_bytes_max, int64_t{64} << 20);
  quota.Resize(static_cast<size_t>(limits.queue_bytes_max + room));
  builder.SetResourceQuota(quota);
}

}  // namespace rlk::server
