// The file of a recording: calls of a server and the digests of their tensors, and the tensors'
// bytes where they were asked for.
//
//   magic "\x89RLKREC\n", version u32, 0 u32, then records:
//   kind u32, 0 u32, length u64, `length` bytes, checksum of 16 bytes
//
// All numbers are little-endian. The checksum is the tensor digest (kernels/digest/digest.h), as of
// U8 values, of the checksum before it (of zeros before the first), kind, length and bytes: a
// record that is changed, lost, moved or of another file is found. A recording begins with START,
// has TENSOR records in front of the first CALL that uses them, and ends with END; without END it
// was cut off.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/dtype.h"
#include "kernels/core/tensor_view.h"
#include "kernels/digest/digest.h"
#include "kernels/registry/signature.h"

namespace rlk::wire {

inline constexpr uint32_t kRecordingVersion = 1;
// Of every record but TENSOR.
inline constexpr int64_t kRecordBytesMax = int64_t{1} << 20;
// Of a text in a record, and of entries in a list.
inline constexpr uint32_t kRecordTextBytesMax = 4096;
inline constexpr uint32_t kRecordListMax = 4096;

struct RecordingStart {
  std::string version, provenance_id, server_id;
  // Nanoseconds since the Unix epoch.
  int64_t time_ns = 0;
  // Tensors were asked for.
  bool tensors = false;
};

struct RecordedTensor {
  // That of the signature. Tensors of a repeated input follow each other under one name.
  std::string name;
  DType dtype = DType::kUnspecified;
  Dims shape;
  Digest digest;
};

// As the caller gave it.
struct RecordedAttribute {
  std::string name;
  AttributeKind kind = AttributeKind::kF32;
  double number = 0;
  int64_t integer = 0;
  // kEnum: the enumerator's name.
  std::string text;
};

// One that succeeded.
struct RecordedCall {
  // From 1, among the calls that the recorder was shown: gaps are calls that it dropped.
  uint64_t number = 0;
  // Nanoseconds since the start.
  int64_t time_ns = 0;
  std::string method, contract, backend, kernel, device, trace_id;
  std::vector<RecordedAttribute> attributes;
  std::vector<std::string> wanted_outputs;
  std::vector<RecordedTensor> inputs, outputs;
};

struct RecordingEnd {
  uint64_t calls = 0;
  // Calls that the recording lacks: the queue was full, the file was full.
  uint64_t dropped_queue = 0, dropped_full = 0;
  // Calls that ended with an error: they have no bits.
  uint64_t failed = 0;
};

// Writes records one behind the other. Not thread-safe.
class RecordingWriter {
 public:
  using Write = std::function<absl::Status(std::span<const std::byte>)>;
  explicit RecordingWriter(Write write) : write_(std::move(write)) {}

  absl::Status Start(const RecordingStart& start);
  // `pieces` are the logical bytes in C order.
  absl::Status Tensor(DType dtype, const Dims& shape, const Digest& digest,
                      std::span<const std::span<const std::byte>> pieces);
  absl::Status Call(const RecordedCall& call);
  absl::Status End(const RecordingEnd& end);

  // Written so far.
  int64_t bytes() const { return bytes_; }

 private:
  absl::Status Record(uint32_t kind, std::span<const std::span<const std::byte>> pieces);
  absl::Status Put(std::span<const std::byte> bytes);

  const Write write_;
  std::array<uint8_t, 16> chain_ = {};
  int64_t bytes_ = 0;
};

// Bytes that a record takes in the file.
int64_t TensorRecordBytes(const Dims& shape, int64_t bytes);
int64_t CallRecordBytes(const RecordedCall& call);
int64_t EndRecordBytes();

// Where a recording is read from.
class RecordingSource {
 public:
  virtual ~RecordingSource() = default;
  virtual int64_t size() const = 0;
  virtual absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const = 0;
};

// Reads a recording that nobody can be trusted to have written well: no allocation is larger than
// kRecordBytesMax and the file itself together allow. Not thread-safe.
class RecordingReader {
 public:
  // Reads all of it and checks every record. INVALID_ARGUMENT (kFileMismatch), with the offset, for
  // a file of another kind or version, a wrong checksum or length, a record that contradicts
  // itself, bytes behind END, and, unless `incomplete` is allowed, a file without END; whole
  // records before the place where it was cut off are then read.
  static absl::StatusOr<RecordingReader> Open(const RecordingSource* source, bool incomplete);

  const RecordingStart& start() const { return start_; }
  // Absent where the recording was cut off.
  const std::optional<RecordingEnd>& end() const { return end_; }
  int64_t calls() const { return calls_; }
  int64_t tensors() const { return static_cast<int64_t>(tensors_.size()); }

  // The next call in the order of the file; nothing after the last.
  absl::StatusOr<std::optional<RecordedCall>> Next();

  // A tensor with this digest and of this size.
  bool Has(const RecordedTensor& tensor) const;
  // `out` has the tensor's size. Looks at the digest.
  absl::Status Read(const RecordedTensor& tensor, std::span<std::byte> out) const;

 private:
  struct Head {
    uint32_t kind = 0;
    int64_t body = 0, length = 0;
  };
  struct Place {
    int64_t offset = 0, bytes = 0;
  };

  explicit RecordingReader(const RecordingSource* source) : source_(source) {}
  absl::Status Scan(bool incomplete);
  absl::Status ScanRecord(const Head& head);
  absl::StatusOr<Head> ReadHead(int64_t offset) const;
  absl::Status CheckRecord(const Head& head, std::array<uint8_t, 16>& chain) const;
  absl::Status IndexTensor(const Head& head);
  absl::StatusOr<std::string> Body(const Head& head) const;

  const RecordingSource* source_;
  RecordingStart start_;
  std::optional<RecordingEnd> end_;
  std::map<std::array<uint8_t, 16>, Place> tensors_;
  int64_t calls_ = 0, records_ = 0;
  // Behind the last whole record, and of the next to read.
  int64_t valid_ = 0, next_ = 0;
};

}  // namespace rlk::wire
