#include "server/recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/parity/host_tensor.h"

namespace rlk::server {
namespace {

constexpr int64_t kFileBufferBytes = int64_t{256} << 10;
// What a call that waits takes besides the bytes of its records.
constexpr int64_t kItemBytes = 1024;

absl::Status FileError(const std::string& path, const char* what) {
  return InvalidArgument(Reason::kUnknownOption, "--record", path,
                         "a file that is not there, in a folder that may be written", what);
}

std::vector<wire::RecordedAttribute> Attributes(const Call& call) {
  std::vector<wire::RecordedAttribute> attributes;
  for (const Call::GivenAttribute& given : call.attributes) {
    const AttributeSpec& spec = call.method->signature.attributes[static_cast<size_t>(given.spec)];
    wire::RecordedAttribute& attribute = attributes.emplace_back();
    attribute.name = spec.name;
    attribute.kind = spec.kind;
    attribute.number = given.number;
    attribute.integer = given.integer;
    for (const auto& [number, name] : spec.enumerators) {
      if (number == given.integer) attribute.text = name;
    }
  }
  return attributes;
}

wire::RecordedCall Describe(const Call& call, const CallResult& result) {
  const MethodSignature& signature = call.method->signature;
  const CallReport& report = result.report;
  wire::RecordedCall recorded;
  recorded.method = signature.method;
  recorded.contract = report.contract;
  recorded.backend = BackendName(report.backend);
  recorded.kernel = report.kernel;
  recorded.device = report.device.name;
  recorded.trace_id = call.trace_id;
  recorded.attributes = Attributes(call);
  recorded.wanted_outputs = call.options.wanted_outputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorArg& input = call.inputs[i];
    recorded.inputs.push_back({signature.inputs[static_cast<size_t>(input.spec)].name, input.dtype,
                               input.shape, *report.input_digests[i].tensor});
  }
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const OutputTensor& output = result.outputs[i];
    recorded.outputs.push_back({signature.outputs[static_cast<size_t>(output.spec)].name,
                                output.dtype, output.shape, *report.output_digests[i].tensor});
  }
  return recorded;
}

int64_t BytesOf(const wire::RecordedTensor& tensor) {
  return ByteCount(tensor.shape, tensor.dtype);
}

// An own copy of the bytes in C order.
absl::StatusOr<HostBytes> CopyInOrder(const TensorArg& input) {
  const TensorView view{input.dtype, input.shape, input.strides, nullptr};
  if (view.contiguous() && input.data.size == view.bytes()) {
    return CopyBytes(input.data, kHostAlignment);
  }
  RLK_ASSIGN_OR_RETURN(const HostTensor tensor, ToHostTensor(view, input.data));
  return ToHostBytes(tensor);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Make(const RecorderOptions& options,
                                                         wire::RecordingStart start,
                                                         const Logger* logger, OnResult on_result) {
  const int descriptor =
      open(options.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (descriptor < 0) return FileError(options.path, std::strerror(errno));
  std::FILE* const file = fdopen(descriptor, "wb");
  if (file == nullptr) {
    close(descriptor);
    return FileError(options.path, std::strerror(errno));
  }
  std::setvbuf(file, nullptr, _IOFBF, static_cast<size_t>(kFileBufferBytes));
  std::unique_ptr<Recorder> recorder(new Recorder(options, logger, std::move(on_result), file));
  start.tensors = options.tensors;
  start.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  // A reader of the file, or one who finds it after a crash, sees all that was written.
  if (!recorder->writer_.Start(start).ok() || std::fflush(file) != 0) {
    return FileError(options.path, std::strerror(errno));
  }
  recorder->file_bytes_ = recorder->writer_.bytes() + wire::EndRecordBytes();
  if (recorder->file_bytes_ > options.bytes_max) {
    return InvalidArgument(Reason::kUnknownOption, "--record-bytes-max",
                           std::to_string(options.bytes_max),
                           "at least " + std::to_string(recorder->file_bytes_),
                           "not even an empty recording has room");
  }
  recorder->thread_ = std::thread([self = recorder.get()] { self->Work(); });
  return recorder;
}

Recorder::Recorder(const RecorderOptions& options, const Logger* logger, OnResult on_result,
                   std::FILE* file)
    : options_(options),
      logger_(logger),
      on_result_(std::move(on_result)),
      file_(file),
      writer_([file](std::span<const std::byte> bytes) {
        if (std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size()) {
          return absl::OkStatus();
        }
        return absl::DataLossError(std::strerror(errno));
      }) {}

Recorder::~Recorder() {
  bool unused = false;
  {
    const std::lock_guard lock(mutex_);
    unused = !closing_ && number_ == 0;
  }
  Close(std::chrono::steady_clock::time_point::max());
  if (thread_.joinable()) thread_.join();
  std::fclose(file_);
  // A server that did not start leaves nothing that would be in the way of the next.
  if (unused) unlink(options_.path.c_str());
}

bool Recorder::WantsBytes(const Digest& digest, int64_t bytes) {
  if (!options_.tensors) return false;
  const std::lock_guard lock(mutex_);
  return !closing_ && !full_ && !failed_ && !known_.contains(digest.bytes) &&
         queued_bytes_ + bytes <= options_.queue_bytes_max;
}

void Recorder::FindNew(const Call& call, Item& item) const {
  std::set<std::array<uint8_t, 16>> counted;
  for (size_t i = 0; options_.tensors && i < item.call.inputs.size(); ++i) {
    const wire::RecordedTensor& tensor = item.call.inputs[i];
    const bool there = !call.inputs[i].data.pieces.empty() || BytesOf(tensor) == 0;
    if (!there || known_.contains(tensor.digest.bytes)) continue;
    if (counted.insert(tensor.digest.bytes).second) item.tensors.emplace_back(i, HostBytes());
  }
}

void Recorder::Measure(Item& item) {
  item.call_bytes = wire::CallRecordBytes(item.call);
  item.file_bytes = item.call_bytes;
  for (const auto& [index, bytes] : item.tensors) {
    const wire::RecordedTensor& tensor = item.call.inputs[index];
    item.file_bytes += wire::TensorRecordBytes(tensor.shape, BytesOf(tensor));
  }
  item.queue_bytes = item.file_bytes + kItemBytes;
}

bool Recorder::Admit(const Item& item) {
  if (closing_ || full_ || failed_ || item.call_bytes > wire::kRecordBytesMax) {
    Drop(RecordResult::kFileFull);
    return false;
  }
  if (file_bytes_ + item.file_bytes > options_.bytes_max) {
    full_ = true;
    logger_->Warning("the recording is full", {{"path", options_.path}, {"calls", end_.calls}});
    Drop(RecordResult::kFileFull);
    return false;
  }
  if (queued_bytes_ + item.queue_bytes > options_.queue_bytes_max) {
    Drop(RecordResult::kQueueFull);
    return false;
  }
  return true;
}

void Recorder::Drop(RecordResult why, uint64_t calls) {
  (why == RecordResult::kQueueFull ? end_.dropped_queue : end_.dropped_full) += calls;
  for (; on_result_ && calls > 0; --calls) on_result_(why);
}

void Recorder::OnCall(const Call& call, const CallResult* result) {
  if (result == nullptr) {
    const std::lock_guard lock(mutex_);
    ++end_.failed;
    return;
  }
  Item item;
  item.call = Describe(call, *result);
  item.call.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::steady_clock::now() - began_)
                          .count();
  {
    const std::lock_guard lock(mutex_);
    item.call.number = ++number_;
    FindNew(call, item);
    Measure(item);
    if (!Admit(item)) return;
  }
  // Without memory for a copy the call stays in the recording, and replay says that a tensor lacks;
  // the next call may bring it.
  std::erase_if(item.tensors, [&call](auto& tensor) {
    absl::StatusOr<HostBytes> bytes = CopyInOrder(call.inputs[tensor.first]);
    if (bytes.ok()) tensor.second = *std::move(bytes);
    return !bytes.ok();
  });
  const std::lock_guard lock(mutex_);
  // Another call may have brought one meanwhile: it stands before this one in the file.
  std::erase_if(item.tensors, [this, &item](const auto& tensor) {
    return known_.contains(item.call.inputs[tensor.first].digest.bytes);
  });
  Measure(item);
  if (!Admit(item)) return;
  for (const auto& tensor : item.tensors) {
    known_.insert(item.call.inputs[tensor.first].digest.bytes);
  }
  queued_bytes_ += item.queue_bytes;
  file_bytes_ += item.file_bytes;
  queue_.push_back(std::move(item));
  changed_.notify_all();
}

absl::Status Recorder::WriteItem(const Item& item) {
  for (const auto& [index, bytes] : item.tensors) {
    const wire::RecordedTensor& tensor = item.call.inputs[index];
    RLK_RETURN_IF_ERROR(writer_.Tensor(tensor.dtype, tensor.shape, tensor.digest, bytes.pieces));
  }
  return writer_.Call(item.call);
}

void Recorder::Fail(const absl::Status& status) {
  logger_->Error("the recording cannot be written",
                 {{"path", options_.path}, {"error", std::string(status.message())}});
  const std::lock_guard lock(mutex_);
  failed_ = true;
}

// A call counts as recorded when it is in the file. The file is flushed where nothing else waits,
// and for every buffer that filled.
void Recorder::Write(const Item& item, bool last) {
  absl::Status status = WriteItem(item);
  ++unflushed_;
  if (status.ok() && !last && writer_.bytes() - flushed_bytes_ < kFileBufferBytes) return;
  if (status.ok() && std::fflush(file_) != 0) status = absl::DataLossError(std::strerror(errno));
  if (!status.ok()) Fail(status);
  flushed_bytes_ = writer_.bytes();
  const uint64_t calls = std::exchange(unflushed_, 0);
  {
    const std::lock_guard lock(mutex_);
    if (!status.ok()) return Drop(RecordResult::kFileFull, calls);
    end_.calls += calls;
  }
  for (uint64_t i = 0; on_result_ && i < calls; ++i) on_result_(RecordResult::kRecorded);
}

void Recorder::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) break;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const bool last = queue_.empty();
    if (failed_) Drop(RecordResult::kFileFull);
    const bool write = !failed_;
    lock.unlock();
    if (write) Write(item, last);
    const int64_t bytes = item.queue_bytes;
    item = {};
    lock.lock();
    queued_bytes_ -= bytes;
  }
  const wire::RecordingEnd end = end_;
  const bool write = !failed_;
  lock.unlock();
  if (write) WriteEnd(end);
  logger_->Info("recorded", {{"path", options_.path},
                             {"calls", end.calls},
                             {"dropped_queue", end.dropped_queue},
                             {"dropped_file", end.dropped_full},
                             {"bytes", writer_.bytes()}});
  lock.lock();
  ended_ = true;
  changed_.notify_all();
}

void Recorder::WriteEnd(const wire::RecordingEnd& end) {
  absl::Status status = writer_.End(end);
  if (status.ok() && (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0)) {
    status = absl::DataLossError(std::strerror(errno));
  }
  if (!status.ok()) Fail(status);
}

bool Recorder::Close(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
  if (!thread_.joinable()) return true;
  const auto ended = [this] { return ended_; };
  // A wait until the end of time overflows in some clocks.
  if (deadline == std::chrono::steady_clock::time_point::max()) {
    changed_.wait(lock, ended);
  } else if (!changed_.wait_until(lock, deadline, ended)) {
    logger_->Error("the recording was not finished in time",
                   {{"path", options_.path}, {"waiting", static_cast<int64_t>(queue_.size())}});
    return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<Recorder>> MakeRecorder(const Options& options,
                                                       const ServerFacts& facts,
                                                       const Logger* logger, Metrics* metrics) {
  if (options.record.empty()) return nullptr;
  return Recorder::Make({options.record, options.record_tensors, options.record_bytes_max,
                         options.record_queue_bytes_max},
                        {facts.provenance.version, facts.provenance.id, facts.server_id}, logger,
                        [metrics](RecordResult result) { metrics->OnRecord(result); });
}

bool CloseRecorder(Recorder* recorder, std::chrono::steady_clock::time_point deadline) {
  if (recorder == nullptr) return true;
  return recorder->Close(
      std::max(deadline, std::chrono::steady_clock::now() + std::chrono::seconds(1)));
}

}  // namespace rlk::server
