// The calls of a recording, made again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/file.h"
#include "client/cpp/client.h"
#include "proto/wire/recording.h"

namespace rlk::cli {

// A recording in a file.
class RecordingFile {
 public:
  // The errors of RecordingReader::Open, and those of the file.
  static absl::StatusOr<std::unique_ptr<RecordingFile>> Open(const std::string& path,
                                                             bool incomplete);

  wire::RecordingReader& reader() { return *reader_; }

 private:
  class Source final : public wire::RecordingSource {
   public:
    explicit Source(InputFile file) : file_(std::move(file)) {}
    int64_t size() const override { return file_.size(); }
    absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
      return file_.ReadAt(offset, out);
    }

   private:
    InputFile file_;
  };

  explicit RecordingFile(InputFile file) : source_(std::move(file)) {}

  Source source_;
  std::optional<wire::RecordingReader> reader_;
};

struct ReplayOptions {
  // Of calls that another backend could have made; empty: what the server selects. Those of
  // golden and of witnesses are made on the backend that they were recorded on.
  std::string backend;
  // Stop at the first call whose bits differ.
  bool stop = false;
};

// An output with other bits.
struct OutputDifference {
  std::string name;
  // Empty where the output is not there.
  std::string recorded, replayed;
};

struct CallDifference {
  wire::RecordedCall call;
  // Of the replay.
  std::string backend, kernel, device, provenance_id;
  std::vector<OutputDifference> outputs;
};

struct ReplayResult {
  int64_t calls = 0, equal = 0, different = 0;
  // Calls that were not made: an input's bytes are not in the recording.
  int64_t without_tensors = 0;
  // Calls that the server, or this command, refused: by reason.
  std::map<std::string, int64_t> refused;
  std::optional<CallDifference> first_different;
  std::optional<std::pair<wire::RecordedCall, absl::Status>> first_refused;

  int64_t refused_calls() const;
};

// Whether the bytes of all inputs are in the recording, so that the call can be made.
bool HasInputs(const wire::RecordingReader& recording, const wire::RecordedCall& call);

// Makes every call that can be made under the contract that it was recorded under, and compares the
// digests of the bytes that come back. An error where no server answers, or the file changed.
absl::StatusOr<ReplayResult> Replay(const client::Client& client, wire::RecordingReader& recording,
                                    const ReplayOptions& options);

}  // namespace rlk::cli
