#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"
#include "proto/wire/recording.h"
#include "proto/wire/recording_format.h"

namespace rlk::wire {
namespace {

using namespace recording;  // NOLINT(google-build-using-namespace): internal names

constexpr int64_t kBlockBytes = int64_t{1} << 20;
// dtype, rank, sizes, digest.
constexpr int64_t kTensorHeadBytesMax = 4 + 4 + 8 * kMaxRank + 16;

absl::Status Wrong(int64_t offset, std::string_view found, std::string_view allowed) {
  return InvalidArgument(Reason::kFileMismatch, "recording[" + std::to_string(offset) + "]", found,
                         allowed, "this is not a whole recording of this version");
}

// Takes values off a record. After the first that is not there nothing is, and ok() is false.
class Taker {
 public:
  explicit Taker(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && text_.empty(); }
  size_t left() const { return text_.size(); }

  template <typename T>
  T Number() {
    T value = {};
    const std::string_view bytes = Take(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::string Text() {
    const auto size = Number<uint32_t>();
    if (size > kRecordTextBytesMax) ok_ = false;
    return std::string(Take(ok_ ? size : 0));
  }
  // Every entry takes bytes, so that a count alone allocates nothing.
  uint32_t Count() {
    const auto count = Number<uint32_t>();
    if (count > kRecordListMax || count > text_.size()) ok_ = false;
    return ok_ ? count : 0;
  }
  template <typename Enum>
  Enum Enumerator(uint32_t end) {
    const auto number = Number<uint32_t>();
    if (number >= end) ok_ = false;
    return static_cast<Enum>(ok_ ? number : 0);
  }
  DType Type() {
    const auto dtype = Enumerator<DType>(kDTypeCount);
    if (dtype == DType::kUnspecified) ok_ = false;
    return dtype;
  }
  Dims Shape() {
    const auto rank = Number<uint32_t>();
    if (rank > kMaxRank) ok_ = false;
    Dims shape;
    for (uint32_t i = 0; ok_ && i < rank; ++i) {
      const auto size = Number<int64_t>();
      if (size < 0) ok_ = false;
      shape.push_back(size);
    }
    // Of every dtype.
    const std::optional<int64_t> elements = CheckedProduct(shape.span());
    if (!elements || !CheckedMul(*elements, 8)) ok_ = false;
    return ok_ ? shape : Dims{0};
  }
  Digest Hash() {
    Digest digest;
    const std::string_view bytes = Take(digest.bytes.size());
    if (ok_) std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
    return digest;
  }

 private:
  std::string_view Take(size_t size) {
    if (!ok_ || size > text_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = text_.substr(0, size);
    text_.remove_prefix(size);
    return taken;
  }

  std::string_view text_;
  bool ok_ = true;
};

std::vector<RecordedTensor> TakeTensors(Taker& taker) {
  std::vector<RecordedTensor> tensors;
  for (uint32_t i = taker.Count(); taker.ok() && i > 0; --i) {
    RecordedTensor& tensor = tensors.emplace_back();
    tensor.name = taker.Text();
    tensor.dtype = taker.Type();
    tensor.shape = taker.Shape();
    tensor.digest = taker.Hash();
  }
  return tensors;
}

std::optional<RecordedCall> TakeCall(std::string_view text) {
  Taker taker(text);
  RecordedCall call;
  call.number = taker.Number<uint64_t>();
  call.time_ns = taker.Number<int64_t>();
  for (std::string* field :
       {&call.method, &call.contract, &call.backend, &call.kernel, &call.device, &call.trace_id}) {
    *field = taker.Text();
  }
  for (uint32_t i = taker.Count(); taker.ok() && i > 0; --i) {
    RecordedAttribute& attribute = call.attributes.emplace_back();
    attribute.name = taker.Text();
    attribute.kind =
        taker.Enumerator<AttributeKind>(static_cast<uint32_t>(AttributeKind::kEnum) + 1);
    attribute.number = taker.Number<double>();
    attribute.integer = taker.Number<int64_t>();
    attribute.text = taker.Text();
    const bool dtype = attribute.kind == AttributeKind::kDType;
    if (dtype && (attribute.integer < 1 || attribute.integer >= kDTypeCount)) return std::nullopt;
  }
  for (uint32_t i = taker.Count(); taker.ok() && i > 0; --i) {
    call.wanted_outputs.push_back(taker.Text());
  }
  call.inputs = TakeTensors(taker);
  call.outputs = TakeTensors(taker);
  if (!taker.done()) return std::nullopt;
  return call;
}

std::optional<RecordingStart> TakeStart(std::string_view text) {
  Taker taker(text);
  RecordingStart start;
  start.version = taker.Text();
  start.provenance_id = taker.Text();
  start.server_id = taker.Text();
  start.time_ns = taker.Number<int64_t>();
  const auto tensors = taker.Number<uint32_t>();
  start.tensors = tensors == 1;
  if (!taker.done() || tensors > 1) return std::nullopt;
  return start;
}

std::optional<RecordingEnd> TakeEnd(std::string_view text) {
  Taker taker(text);
  RecordingEnd end;
  for (uint64_t* field : {&end.calls, &end.dropped_queue, &end.dropped_full, &end.failed}) {
    *field = taker.Number<uint64_t>();
  }
  if (!taker.done()) return std::nullopt;
  return end;
}

}  // namespace

absl::StatusOr<RecordingReader> RecordingReader::Open(const RecordingSource* source,
                                                      bool incomplete) {
  RecordingReader reader(source);
  RLK_RETURN_IF_ERROR(reader.Scan(incomplete));
  return reader;
}

absl::Status RecordingReader::Scan(bool incomplete) {
  char head[kFileHeadBytes] = {};
  if (source_->size() < kFileHeadBytes) return Wrong(0, "a short file", "a recording of rlk");
  RLK_RETURN_IF_ERROR(source_->ReadAt(0, std::as_writable_bytes(std::span(head))));
  if (std::string_view(head, kMagic.size()) != kMagic) {
    return Wrong(0, "another kind of file", "a recording of rlk");
  }
  uint32_t version[2];
  std::memcpy(version, head + kMagic.size(), sizeof(version));
  if (version[0] != kRecordingVersion || version[1] != 0) {
    return Wrong(8, "version " + std::to_string(version[0]),
                 "version " + std::to_string(kRecordingVersion));
  }
  Checksum chain = {};
  valid_ = kFileHeadBytes;
  while (valid_ < source_->size()) {
    if (end_) return Wrong(valid_, "bytes behind the end", "nothing");
    const absl::StatusOr<Head> record = ReadHead(valid_);
    if (!record.ok()) {
      // Only the end of the file excuses a record that is not there.
      const bool cut = record.status().code() == absl::StatusCode::kOutOfRange;
      if (!cut) return record.status();
      if (incomplete && records_ > 0) break;
      return Wrong(valid_, "the end of the file", "a whole record");
    }
    RLK_RETURN_IF_ERROR(CheckRecord(*record, chain));
    RLK_RETURN_IF_ERROR(ScanRecord(*record));
    valid_ = record->body + record->length + kChecksumBytes;
  }
  if (records_ == 0) return Wrong(valid_, "the end of the file", "the start of the recording");
  if (!end_ && !incomplete) {
    return Wrong(valid_, "the end of the file",
                 "the recording's end: it was cut off, or its server still writes it");
  }
  if (end_ && end_->calls != static_cast<uint64_t>(calls_)) {
    return Wrong(valid_, std::to_string(calls_) + " calls", std::to_string(end_->calls));
  }
  next_ = kFileHeadBytes;
  return absl::OkStatus();
}

// OUT_OF_RANGE where the file ends in the record.
absl::StatusOr<RecordingReader::Head> RecordingReader::ReadHead(int64_t offset) const {
  const int64_t left = source_->size() - offset;
  if (left < kRecordHeadBytes) return absl::OutOfRangeError("head");
  RecordHead head;
  RLK_RETURN_IF_ERROR(source_->ReadAt(offset, std::as_writable_bytes(std::span(&head, 1))));
  if (head.kind < kStart || head.kind > kEnd || head.zero != 0) {
    return Wrong(offset, "a record of kind " + std::to_string(head.kind), "kinds 1 to 4");
  }
  if (head.kind != kTensor && head.length > kRecordBytesMax) {
    return Wrong(offset, std::to_string(head.length) + " bytes",
                 "at most " + std::to_string(kRecordBytesMax));
  }
  const int64_t room = left - kRecordHeadBytes - kChecksumBytes;
  if (room < 0 || head.length > static_cast<uint64_t>(room)) return absl::OutOfRangeError("body");
  return Head{head.kind, offset + kRecordHeadBytes, static_cast<int64_t>(head.length)};
}

absl::Status RecordingReader::CheckRecord(const Head& head, Checksum& chain) const {
  ChecksumStream checksum(chain, {head.kind, 0, static_cast<uint64_t>(head.length)});
  std::vector<std::byte> block(static_cast<size_t>(std::min(head.length, kBlockBytes)));
  for (int64_t at = 0; at < head.length; at += kBlockBytes) {
    const std::span<std::byte> part(block.data(),
                                    static_cast<size_t>(std::min(head.length - at, kBlockBytes)));
    RLK_RETURN_IF_ERROR(source_->ReadAt(head.body + at, part));
    checksum.Update(part);
  }
  Checksum stored;
  RLK_RETURN_IF_ERROR(
      source_->ReadAt(head.body + head.length, std::as_writable_bytes(std::span(stored))));
  chain = checksum.Finish();
  if (stored != chain) {
    return Wrong(head.body - kRecordHeadBytes, "a record with another checksum",
                 "the checksum of its bytes and of the records before it");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RecordingReader::Body(const Head& head) const {
  std::string body(static_cast<size_t>(head.length), '\0');
  RLK_RETURN_IF_ERROR(source_->ReadAt(head.body, std::as_writable_bytes(std::span(body))));
  return body;
}

absl::Status RecordingReader::ScanRecord(const Head& head) {
  const int64_t offset = head.body - kRecordHeadBytes;
  if ((head.kind == kStart) != (records_++ == 0)) {
    return Wrong(offset, "a record of kind " + std::to_string(head.kind),
                 "the start, first and once");
  }
  if (head.kind == kTensor) return IndexTensor(head);
  RLK_ASSIGN_OR_RETURN(const std::string body, Body(head));
  if (head.kind == kStart) {
    std::optional<RecordingStart> start = TakeStart(body);
    if (!start) return Wrong(offset, "a start that contradicts itself", "a start");
    start_ = *std::move(start);
  } else if (head.kind == kEnd) {
    end_ = TakeEnd(body);
    if (!end_) return Wrong(offset, "an end that contradicts itself", "an end");
  } else {
    if (!TakeCall(body)) return Wrong(offset, "a call that contradicts itself", "a call");
    ++calls_;
  }
  return absl::OkStatus();
}

absl::Status RecordingReader::IndexTensor(const Head& head) {
  std::string text(static_cast<size_t>(std::min(head.length, kTensorHeadBytesMax)), '\0');
  RLK_RETURN_IF_ERROR(source_->ReadAt(head.body, std::as_writable_bytes(std::span(text))));
  Taker taker(text);
  const DType dtype = taker.Type();
  const Dims shape = taker.Shape();
  const Digest digest = taker.Hash();
  const auto taken = static_cast<int64_t>(text.size() - taker.left());
  if (!taker.ok() || ByteCount(shape, dtype) != head.length - taken) {
    return Wrong(head.body - kRecordHeadBytes, "a tensor that contradicts itself", "a tensor");
  }
  tensors_[digest.bytes] = {head.body + taken, head.length - taken};
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RecordedCall>> RecordingReader::Next() {
  while (next_ < valid_) {
    absl::StatusOr<Head> head = ReadHead(next_);
    if (!head.ok()) return Wrong(next_, "a file that changed", "the file that was checked");
    next_ = head->body + head->length + kChecksumBytes;
    if (head->kind != kCall) continue;
    RLK_ASSIGN_OR_RETURN(const std::string body, Body(*head));
    std::optional<RecordedCall> call = TakeCall(body);
    if (!call) return Wrong(head->body, "a file that changed", "the file that was checked");
    return call;
  }
  return std::optional<RecordedCall>();
}

bool RecordingReader::Has(const RecordedTensor& tensor) const {
  const auto found = tensors_.find(tensor.digest.bytes);
  return found != tensors_.end() && found->second.bytes == ByteCount(tensor.shape, tensor.dtype);
}

absl::Status RecordingReader::Read(const RecordedTensor& tensor, std::span<std::byte> out) const {
  const auto found = tensors_.find(tensor.digest.bytes);
  if (!Has(tensor) || found->second.bytes != static_cast<int64_t>(out.size())) {
    return Wrong(0, "no bytes of " + tensor.name, "a tensor of the recording");
  }
  RLK_RETURN_IF_ERROR(source_->ReadAt(found->second.offset, out));
  const TensorView view{tensor.dtype, tensor.shape, ContiguousStrides(tensor.shape), out.data()};
  if (ComputeDigest(view) == tensor.digest) return absl::OkStatus();
  return Wrong(found->second.offset, "bytes of another tensor", tensor.digest.Text());
}

}  // namespace rlk::wire
