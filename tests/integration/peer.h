// A client of TensorService and SessionService as any language has one: generated stubs on a
// default channel.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rlk/v1/activation.grpc.pb.h"
#include "rlk/v1/session.grpc.pb.h"
#include "rlk/v1/tensor_service.grpc.pb.h"
#include "tests/integration/fixture.h"

namespace rlk::test {

using rlk::v1::DownloadResponse;
using rlk::v1::TensorDescription;
using rlk::v1::TensorHandle;
using rlk::v1::UploadRequest;

inline constexpr size_t kChunk = size_t{1} << 20;

// A client of its own: a default channel and, with a token, a session.
class Peer {
 public:
  explicit Peer(const std::string& target, int64_t lease_ms = 0)
      : channel_(DefaultChannel(target)),
        sessions_(rlk::v1::SessionService::NewStub(channel_)),
        tensors_(rlk::v1::TensorService::NewStub(channel_)),
        operators_(rlk::v1::ActivationService::NewStub(channel_)) {
    grpc::ClientContext context;
    rlk::v1::OpenSessionRequest request;
    request.set_lease_ms(lease_ms);
    EXPECT_TRUE(sessions_->OpenSession(&context, request, &session_).ok());
  }

  std::unique_ptr<grpc::ClientContext> Context() const {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("rlk-session", session_.token());
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(10));
    return context;
  }

  // Sends header, bytes in chunks of at most `chunk`, and a digest where it is not empty.
  grpc::Status Put(const rlk::v1::UploadHeader& header, const std::string& bytes,
                   TensorDescription* tensor, size_t chunk = kChunk,
                   const std::string& digest = "") const {
    const auto context = Context();
    rlk::v1::UploadResponse response;
    const auto writer = tensors_->Upload(context.get(), &response);
    UploadRequest part;
    *part.mutable_header() = header;
    bool open = writer->Write(part);
    for (size_t at = 0; open && at < bytes.size(); at += chunk) {
      part.set_data(bytes.substr(at, chunk));
      open = writer->Write(part);
    }
    if (open && !digest.empty()) {
      part.set_digest(digest);
      writer->Write(part);
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    *tensor = response.tensor();
    return status;
  }

  grpc::Status Get(const TensorHandle& handle, std::string* bytes) const {
    const auto context = Context();
    rlk::v1::DownloadRequest request;
    *request.mutable_handle() = handle;
    const auto reader = tensors_->Download(context.get(), request);
    bytes->clear();
    size_t largest = 0;
    for (DownloadResponse part; reader->Read(&part);) {
      largest = std::max(largest, part.data().size());
      bytes->append(part.data());
    }
    EXPECT_LE(largest, kChunk);
    return reader->Finish();
  }

  grpc::Status Release(const TensorHandle& handle) const {
    rlk::v1::ReleaseTensorsRequest request;
    *request.add_handles() = handle;
    rlk::v1::ReleaseTensorsResponse response;
    return tensors_->ReleaseTensors(Context().get(), request, &response);
  }

  grpc::Status Close() const {
    rlk::v1::CloseSessionResponse response;
    return sessions_->CloseSession(Context().get(), {}, &response);
  }

  rlk::v1::SessionBudget Budget() const {
    rlk::v1::RenewSessionResponse response;
    EXPECT_TRUE(sessions_->RenewSession(Context().get(), {}, &response).ok());
    return response.budget();
  }

  const std::string& token() const { return session_.token(); }
  rlk::v1::TensorService::Stub& tensors() const { return *tensors_; }
  rlk::v1::SessionService::Stub& sessions() const { return *sessions_; }
  rlk::v1::ActivationService::Stub& operators() const { return *operators_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<rlk::v1::SessionService::Stub> sessions_;
  std::unique_ptr<rlk::v1::TensorService::Stub> tensors_;
  std::unique_ptr<rlk::v1::ActivationService::Stub> operators_;
  rlk::v1::OpenSessionResponse session_;
};

inline rlk::v1::UploadHeader Header(rlk::v1::DataType dtype, std::vector<int64_t> shape) {
  rlk::v1::UploadHeader header;
  header.set_dtype(dtype);
  for (const int64_t size : shape) header.add_shape(size);
  return header;
}

inline std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

// Waits, without a bound of its own, until the metric has the value: the test's time-out is the
// bound.
inline void AwaitSeries(const TestServer& server, const std::string& series, double value) {
  while (SeriesValue(Scrape(server.metrics()), series) != value) std::this_thread::yield();
}

}  // namespace rlk::test
