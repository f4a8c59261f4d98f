#include "client/cpp/stream.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "client/cpp/status_map.h"
#include "client/cpp/transport.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"
#include "proto/wire/chunk.h"

namespace rlk::client {
namespace {

constexpr char kUploadPath[] = "/rlk.v1.TensorService/Upload";
constexpr char kDownloadPath[] = "/rlk.v1.TensorService/Download";
constexpr int64_t kChunkBytes = int64_t{1} << 20;

grpc::ByteBuffer Serialized(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// One stream, polled by the calling thread.
class Stream {
 public:
  Stream(grpc::GenericStub& stub, grpc::ClientContext& context, const char* path)
      : context_(context), call_(stub.PrepareCall(&context, path, &queue_)) {
    call_->StartCall(nullptr);
    started_ = Wait();
  }

  ~Stream() {
    if (!finished_) {
      context_.TryCancel();
      (void)Finish();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // False when the stream is over; Finish says why.
  bool Write(const grpc::ByteBuffer& message) {
    if (!started_) return false;
    call_->Write(message, nullptr);
    return Wait();
  }
  bool WritesDone() {
    if (!started_) return false;
    call_->WritesDone(nullptr);
    return Wait();
  }
  bool Read(grpc::ByteBuffer* message) {
    if (!started_) return false;
    call_->Read(message, nullptr);
    return Wait();
  }
  absl::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    finished_ = true;
    if (!Wait()) return absl::InternalError("the stream's completion queue ended early");
    return FromGrpc(status);
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext& context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool started_ = false;
  bool finished_ = false;
};

absl::Status Contradiction(const char* what) {
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, "stream", {}, {}},
                   std::string("the reply contradicts itself: ") + what);
}

// The whole tensor's bytes; false when the server ended the stream.
bool SendData(Stream& stream, const TensorRef& source, int64_t bytes, const PutOptions& options,
              std::optional<DigestStream>& digest) {
  const auto* const data = static_cast<const std::byte*>(source.data);
  for (int64_t at = 0; at < bytes;) {
    const std::span<const std::byte> part(data + at,
                                          static_cast<size_t>(std::min(kChunkBytes, bytes - at)));
    HostBytes payload;
    payload.size = static_cast<int64_t>(part.size());
    payload.pieces.push_back(part);
    payload.owner = source.owner;
    if (digest) digest->Update(part);
    if (!stream.Write(
            ToByteBuffer(wire::EncodeChunk(rlk::v1::UploadRequest::kDataFieldNumber, payload)))) {
      return false;
    }
    at += payload.size;
    if (options.progress) options.progress(at, bytes);
  }
  if (!digest) return true;
  rlk::v1::UploadRequest last;
  last.set_digest(digest->Finish().Text());
  return stream.Write(Serialized(last));
}

}  // namespace

absl::StatusOr<ResidentTensor> UploadStream(grpc::GenericStub& stub, grpc::ClientContext& context,
                                            const rlk::v1::UploadHeader& header,
                                            const TensorRef& source, int64_t bytes,
                                            const PutOptions& options) {
  Stream stream(stub, context, kUploadPath);
  rlk::v1::UploadRequest first;
  *first.mutable_header() = header;
  std::optional<DigestStream> digest;
  if (options.verify) digest.emplace(source.dtype, source.shape);
  grpc::ByteBuffer reply;
  const bool answered = stream.Write(Serialized(first)) &&
                        SendData(stream, source, bytes, options, digest) && stream.WritesDone() &&
                        stream.Read(&reply);
  RLK_RETURN_IF_ERROR(stream.Finish());
  if (!answered) return Contradiction("the upload has no answer");
  RLK_ASSIGN_OR_RETURN(const wire::InputBytes message, FromByteBuffer(&reply));
  std::string text;
  for (const auto& piece : message.pieces) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  rlk::v1::UploadResponse response;
  if (!response.ParseFromString(text)) return Contradiction("the upload's answer is malformed");
  return FromDescription(response.tensor());
}

namespace {

// Takes the messages of a download in their order.
class Receiver {
 public:
  Receiver(std::function<absl::StatusOr<std::span<std::byte>>(const ResidentTensor&)> place,
           const GetOptions& options, bool whole)
      : place_(std::move(place)), options_(options), whole_(whole) {}

  absl::Status Take(grpc::ByteBuffer* message) {
    RLK_ASSIGN_OR_RETURN(const wire::InputBytes bytes, FromByteBuffer(message));
    RLK_ASSIGN_OR_RETURN(const std::optional<HostBytes> data,
                         wire::DecodeChunk(rlk::v1::DownloadResponse::kDataFieldNumber, bytes));
    if (!data) return TakeDescription(bytes);
    if (!tensor_ || static_cast<size_t>(data->size) > left_.size()) {
      return Contradiction("there is more data than the tensor has");
    }
    for (const auto& piece : data->pieces) {
      if (piece.empty()) continue;
      std::memcpy(left_.data(), piece.data(), piece.size());
      if (digest_) digest_->Update(left_.first(piece.size()));
      left_ = left_.subspan(piece.size());
    }
    if (options_.progress) {
      options_.progress(total_ - static_cast<int64_t>(left_.size()), total_);
    }
    return absl::OkStatus();
  }

  absl::Status End() {
    if (!tensor_ || !left_.empty()) return Contradiction("the data ended early");
    if (!digest_) return absl::OkStatus();
    const std::string found = digest_->Finish().Text();
    if (found == tensor_->digest) return absl::OkStatus();
    return MakeError(absl::StatusCode::kDataLoss,
                     {Reason::kVerificationFailed, "digest", found, tensor_->digest},
                     "the bytes that arrived have another digest");
  }

 private:
  absl::Status TakeDescription(const wire::InputBytes& bytes) {
    std::string text;
    for (const auto& piece : bytes.pieces) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    rlk::v1::DownloadResponse response;
    if (tensor_ || !response.ParseFromString(text) || !response.has_tensor()) {
      return Contradiction("the description is malformed");
    }
    tensor_ = FromDescription(response.tensor());
    RLK_ASSIGN_OR_RETURN(left_, place_(*tensor_));
    total_ = static_cast<int64_t>(left_.size());
    if (options_.verify && whole_ && !tensor_->digest.empty()) {
      digest_.emplace(tensor_->dtype, tensor_->shape);
    }
    return absl::OkStatus();
  }

  const std::function<absl::StatusOr<std::span<std::byte>>(const ResidentTensor&)> place_;
  const GetOptions& options_;
  const bool whole_;
  std::optional<ResidentTensor> tensor_;
  std::span<std::byte> left_;
  int64_t total_ = 0;
  std::optional<DigestStream> digest_;
};

}  // namespace

absl::Status DownloadStream(
    grpc::GenericStub& stub, grpc::ClientContext& context, const rlk::v1::DownloadRequest& request,
    const std::function<absl::StatusOr<std::span<std::byte>>(const ResidentTensor&)>& place,
    const GetOptions& options) {
  Stream stream(stub, context, kDownloadPath);
  Receiver receiver(place, options, request.bytes() == 0 && request.handle().offset() == 0);
  if (stream.Write(Serialized(request)) && stream.WritesDone()) {
    for (grpc::ByteBuffer message; stream.Read(&message); message.Clear()) {
      RLK_RETURN_IF_ERROR(receiver.Take(&message));
    }
  }
  RLK_RETURN_IF_ERROR(stream.Finish());
  return receiver.End();
}

}  // namespace rlk::client
