#include "server/recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/parity/host_tensor.h"

namespace rlk::server {
namespace {

constexpr size_t kFileBufferBytes = size_t{256} << 10;

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
  return ElementCount(tensor.shape) * DTypeSize(tensor.dtype);
}

// Bytes in C order that stay when the call is gone. Inline bytes have an owner; those of a tensor
// that stays on the server may be written next.
absl::StatusOr<HostBytes> KeepBytes(const TensorArg& input) {
  const TensorView view{input.dtype, input.shape, input.strides, nullptr};
  const bool whole = view.contiguous() && input.data.size == view.bytes();
  if (whole && input.memory == nullptr && input.data.owner != nullptr) return input.data;
  if (whole) return CopyBytes(input.data, kHostAlignment);
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
  std::setvbuf(file, nullptr, _IOFBF, kFileBufferBytes);
  std::unique_ptr<Recorder> recorder(new Recorder(options, logger, std::move(on_result), file));
  start.tensors = options.tensors;
  start.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  if (!recorder->writer_.Start(start).ok()) return FileError(options.path, std::strerror(errno));
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
    unused = !closing_ && end_.calls == 0;
  }
  Close();
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

bool Recorder::Reserve(int64_t bytes) {
  if (queued_bytes_ + bytes > options_.queue_bytes_max) return false;
  queued_bytes_ += bytes;
  file_bytes_ += bytes;
  return true;
}

void Recorder::Drop(RecordResult why) {
  ++(why == RecordResult::kQueueFull ? end_.dropped_queue : end_.dropped_full);
  if (on_result_) on_result_(why);
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
  item.bytes = wire::CallRecordBytes(item.call);
  const bool fits = item.bytes <= wire::kRecordBytesMax;
  std::vector<size_t> fresh;
  {
    const std::lock_guard lock(mutex_);
    item.call.number = ++number_;
    if (closing_ || full_ || failed_ || !fits) return Drop(RecordResult::kFileFull);
    std::set<std::array<uint8_t, 16>> counted;
    for (size_t i = 0; options_.tensors && i < item.call.inputs.size(); ++i) {
      const wire::RecordedTensor& tensor = item.call.inputs[i];
      const bool there = !call.inputs[i].data.pieces.empty() || BytesOf(tensor) == 0;
      if (!there || known_.contains(tensor.digest.bytes)) continue;
      if (!counted.insert(tensor.digest.bytes).second) continue;
      fresh.push_back(i);
      item.bytes += wire::TensorRecordBytes(tensor.shape, BytesOf(tensor));
    }
    if (file_bytes_ + item.bytes > options_.bytes_max) {
      full_ = true;
      logger_->Warning("the recording is full", {{"path", options_.path}, {"calls", end_.calls}});
      return Drop(RecordResult::kFileFull);
    }
    if (!Reserve(item.bytes)) return Drop(RecordResult::kQueueFull);
    // From here on they count as written: a call with the same tensor need not bring it again.
    for (const size_t i : fresh) known_.insert(item.call.inputs[i].digest.bytes);
    ++end_.calls;
    ++under_way_;
  }
  for (const size_t i : fresh) {
    absl::StatusOr<HostBytes> bytes = KeepBytes(call.inputs[i]);
    if (bytes.ok()) {
      item.tensors.emplace_back(i, *std::move(bytes));
      continue;
    }
    // Without memory for it the call stays in the recording, and replay says that a tensor lacks;
    // the next call may bring it.
    const std::lock_guard lock(mutex_);
    known_.erase(item.call.inputs[i].digest.bytes);
  }
  if (on_result_) on_result_(RecordResult::kRecorded);
  const std::lock_guard lock(mutex_);
  --under_way_;
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

void Recorder::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (queue_.empty() && !failed_) {
      lock.unlock();
      // A reader of the file, or one who finds it after a crash, sees all that was written.
      if (std::fflush(file_) != 0) Fail(absl::DataLossError(std::strerror(errno)));
      lock.lock();
    }
    changed_.wait(lock, [this] { return (closing_ && under_way_ == 0) || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const bool write = !failed_;
    lock.unlock();
    if (write) {
      if (absl::Status status = WriteItem(item); !status.ok()) Fail(status);
    }
    const int64_t bytes = item.bytes;
    item = {};
    lock.lock();
    queued_bytes_ -= bytes;
  }
}

void Recorder::Close() {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  wire::RecordingEnd end;
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    end = end_;
    failed = failed_;
  }
  if (!failed) {
    absl::Status status = writer_.End(end);
    if (status.ok() && (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0)) {
      status = absl::DataLossError(std::strerror(errno));
    }
    if (!status.ok()) Fail(status);
  }
  logger_->Info("recorded", {{"path", options_.path},
                             {"calls", end.calls},
                             {"dropped_queue", end.dropped_queue},
                             {"dropped_file", end.dropped_full},
                             {"bytes", writer_.bytes()}});
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

}  // namespace rlk::server
