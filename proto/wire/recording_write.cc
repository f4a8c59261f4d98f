#include <algorithm>
#include <vector>

#include "kernels/core/status.h"
#include "proto/wire/recording.h"
#include "proto/wire/recording_format.h"

namespace rlk::wire {
namespace {

using namespace recording;  // NOLINT(google-build-using-namespace): internal names

class Body {
 public:
  template <typename T>
  Body& Number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Body& Text(std::string_view text) {
    const auto size = static_cast<uint32_t>(std::min<size_t>(text.size(), kRecordTextBytesMax));
    Number(size);
    text_.append(text.substr(0, size));
    return *this;
  }
  Body& Raw(std::span<const uint8_t> bytes) {
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return *this;
  }
  Body& Shape(const Dims& shape) {
    Number(static_cast<uint32_t>(shape.rank()));
    for (const int64_t size : shape) Number(size);
    return *this;
  }
  std::string_view text() const { return text_; }

 private:
  std::string text_;
};

void AddTensors(const std::vector<RecordedTensor>& tensors, Body& body) {
  body.Number(static_cast<uint32_t>(tensors.size()));
  for (const RecordedTensor& tensor : tensors) {
    body.Text(tensor.name).Number(static_cast<uint32_t>(tensor.dtype)).Shape(tensor.shape);
    body.Raw(tensor.digest.bytes);
  }
}

Body CallBody(const RecordedCall& call) {
  Body body;
  body.Number(call.number).Number(call.time_ns);
  for (const std::string* text :
       {&call.method, &call.contract, &call.backend, &call.kernel, &call.device, &call.trace_id}) {
    body.Text(*text);
  }
  body.Number(static_cast<uint32_t>(call.attributes.size()));
  for (const RecordedAttribute& attribute : call.attributes) {
    body.Text(attribute.name).Number(static_cast<uint32_t>(attribute.kind));
    body.Number(attribute.number).Number(attribute.integer).Text(attribute.text);
  }
  body.Number(static_cast<uint32_t>(call.wanted_outputs.size()));
  for (const std::string& name : call.wanted_outputs) body.Text(name);
  AddTensors(call.inputs, body);
  AddTensors(call.outputs, body);
  return body;
}

Body TensorHead(DType dtype, const Dims& shape, const Digest& digest) {
  Body body;
  body.Number(static_cast<uint32_t>(dtype)).Shape(shape).Raw(digest.bytes);
  return body;
}

int64_t RecordBytes(int64_t body) { return kRecordHeadBytes + body + kChecksumBytes; }

}  // namespace

absl::Status RecordingWriter::Put(std::span<const std::byte> bytes) {
  RLK_RETURN_IF_ERROR(write_(bytes));
  bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status RecordingWriter::Record(uint32_t kind,
                                     std::span<const std::span<const std::byte>> pieces) {
  RecordHead head{kind, 0, 0};
  for (const auto& piece : pieces) head.length += piece.size();
  ChecksumStream checksum(chain_, head);
  RLK_RETURN_IF_ERROR(Put(std::as_bytes(std::span(&head, 1))));
  for (const auto& piece : pieces) {
    checksum.Update(piece);
    RLK_RETURN_IF_ERROR(Put(piece));
  }
  chain_ = checksum.Finish();
  return Put(std::as_bytes(std::span(chain_)));
}

absl::Status RecordingWriter::Start(const RecordingStart& start) {
  RLK_RETURN_IF_ERROR(Put(BytesOf(kMagic)));
  const uint32_t version[2] = {kRecordingVersion, 0};
  RLK_RETURN_IF_ERROR(Put(std::as_bytes(std::span(version))));
  Body body;
  body.Text(start.version).Text(start.provenance_id).Text(start.server_id);
  body.Number(start.time_ns).Number(static_cast<uint32_t>(start.tensors ? 1 : 0));
  const std::span<const std::byte> piece = BytesOf(body.text());
  return Record(kStart, {&piece, 1});
}

absl::Status RecordingWriter::Tensor(DType dtype, const Dims& shape, const Digest& digest,
                                     std::span<const std::span<const std::byte>> pieces) {
  const Body head = TensorHead(dtype, shape, digest);
  std::vector<std::span<const std::byte>> all = {BytesOf(head.text())};
  all.insert(all.end(), pieces.begin(), pieces.end());
  return Record(kTensor, all);
}

absl::Status RecordingWriter::Call(const RecordedCall& call) {
  const Body body = CallBody(call);
  const std::span<const std::byte> piece = BytesOf(body.text());
  return Record(kCall, {&piece, 1});
}

absl::Status RecordingWriter::End(const RecordingEnd& end) {
  Body body;
  body.Number(end.calls).Number(end.dropped_queue).Number(end.dropped_full).Number(end.failed);
  const std::span<const std::byte> piece = BytesOf(body.text());
  return Record(kEnd, {&piece, 1});
}

int64_t TensorRecordBytes(const Dims& shape, int64_t bytes) {
  return RecordBytes(static_cast<int64_t>(TensorHead({}, shape, {}).text().size()) + bytes);
}

int64_t CallRecordBytes(const RecordedCall& call) {
  return RecordBytes(static_cast<int64_t>(CallBody(call).text().size()));
}

int64_t EndRecordBytes() { return RecordBytes(4 * sizeof(uint64_t)); }

}  // namespace rlk::wire
