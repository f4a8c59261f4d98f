// Takes down the calls of a server in a file (proto/wire/recording.h) on a thread of its own.
//
// Callers wait for nothing of it: what the queue or the file has no room for is dropped and
// counted.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/wire/recording.h"
#include "server/engine/recorder.h"
#include "server/log/log.h"
#include "server/metrics/metrics.h"
#include "server/options.h"
#include "server/rpc/server_facts.h"

namespace rlk::server {

struct RecorderOptions {
  std::string path;
  // The bytes of inputs too: calls can then be replayed.
  bool tensors = false;
  // Of the file, its end included.
  int64_t bytes_max = int64_t{1} << 30;
  // Of what waits to be written.
  int64_t queue_bytes_max = int64_t{64} << 20;
};

class Recorder final : public CallRecorder {
 public:
  using OnResult = std::function<void(RecordResult)>;

  // Makes the file, readable by its owner alone. INVALID_ARGUMENT naming --record where it is there
  // already or cannot be made, and removes it again where it is destroyed unused and not closed.
  // `logger` outlives the recorder. `on_result` may be null.
  static absl::StatusOr<std::unique_ptr<Recorder>> Make(const RecorderOptions& options,
                                                        wire::RecordingStart start,
                                                        const Logger* logger, OnResult on_result);
  ~Recorder() override;

  bool WantsBytes(const Digest& digest, int64_t bytes) override;
  void OnCall(const Call& call, const CallResult* result) override;

  // Writes what waits, and the end; calls after it are not recorded. False where that took until
  // `deadline`: it goes on, and the destructor waits for it. Idempotent.
  bool Close(std::chrono::steady_clock::time_point deadline);

 private:
  struct Item {
    wire::RecordedCall call;
    // Those of call.inputs that are new, with copies of their bytes in C order: a message that
    // lives as long as one of its tensors is larger than that.
    std::vector<std::pair<size_t, HostBytes>> tensors;
    int64_t call_bytes = 0;   // of its own record
    int64_t file_bytes = 0;   // of all its records
    int64_t queue_bytes = 0;  // while it waits
  };

  Recorder(const RecorderOptions& options, const Logger* logger, OnResult on_result,
           std::FILE* file);
  // Under mutex_. Names the inputs that the file lacks, without their bytes.
  void FindNew(const Call& call, Item& item) const;
  static void Measure(Item& item);
  // Under mutex_. Whether there is room for it; it is counted as dropped where there is none.
  bool Admit(const Item& item);
  void Drop(RecordResult why, uint64_t calls = 1);
  void Work();
  absl::Status WriteItem(const Item& item);
  void Write(const Item& item, bool last);
  void WriteEnd(const wire::RecordingEnd& end);
  void Fail(const absl::Status& status);

  const RecorderOptions options_;
  const Logger* const logger_;
  const OnResult on_result_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::FILE* file_;
  wire::RecordingWriter writer_;
  // Of the thread: calls written since the file was last flushed, and where that was.
  uint64_t unflushed_ = 0;
  int64_t flushed_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;                     // guarded by mutex_
  std::set<std::array<uint8_t, 16>> known_;    // guarded by mutex_; digests in file or queue
  int64_t queued_bytes_ = 0, file_bytes_ = 0;  // guarded by mutex_; the latter with all that waits
  uint64_t number_ = 0;                        // guarded by mutex_
  wire::RecordingEnd end_;                     // guarded by mutex_
  bool full_ = false, failed_ = false;         // guarded by mutex_
  bool closing_ = false, ended_ = false;       // guarded by mutex_
  std::thread thread_;
};

// That of the flags: null where there is none. `metrics` outlives it.
absl::StatusOr<std::unique_ptr<Recorder>> MakeRecorder(const Options& options,
                                                       const ServerFacts& facts,
                                                       const Logger* logger, Metrics* metrics);

// Closes it, if there is one, by the deadline of a drain, or a second from now: a disk that hangs
// does not keep a server whose calls are done. False where it is not finished.
bool CloseRecorder(Recorder* recorder, std::chrono::steady_clock::time_point deadline);

}  // namespace rlk::server
