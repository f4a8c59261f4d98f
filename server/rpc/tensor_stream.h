// The streams of TensorService, as reactors over raw bytes. Each belongs to a session: it counts as
// one of its calls, keeps its lease alive while bytes move, and is cancelled when the session ends.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/rpc/incoming_call.h"
#include "server/rpc/tensor_service.h"

namespace rlk::server {

// The reactors delete themselves.
grpc::ServerReadReactor<grpc::ByteBuffer>* NewUpload(const TensorServiceContext& service,
                                                     const IncomingCall& call,
                                                     grpc::ByteBuffer* reply);
grpc::ServerWriteReactor<grpc::ByteBuffer>* NewDownload(const TensorServiceContext& service,
                                                        const IncomingCall& call,
                                                        const grpc::ByteBuffer& request);

}  // namespace rlk::server
