// The file of a recording: what is written is read, and nothing else is.
#include "proto/wire/recording.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "proto/wire/recording_format.h"

namespace rlk::wire {
namespace {

class Memory final : public RecordingSource {
 public:
  explicit Memory(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
    // A reader that asks for what is not there, or for all of a hostile length, is wrong.
    EXPECT_GE(offset, 0);
    EXPECT_LE(offset + static_cast<int64_t>(out.size()), size());
    if (offset < 0 || offset + static_cast<int64_t>(out.size()) > size()) {
      return absl::InternalError("read outside of the file");
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  const std::string bytes_;
};

absl::Status Append(std::string& file, std::span<const std::byte> bytes) {
  file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return absl::OkStatus();
}

const std::vector<float> kValues = {1, 2, 3, 4, 5, 6};

RecordedTensor Tensor(const std::string& name, const std::vector<float>& values) {
  const Dims shape{2, static_cast<int64_t>(values.size()) / 2};
  return {name, DType::kF32, shape,
          ComputeDigest(TensorView{DType::kF32, shape, ContiguousStrides(shape), values.data()})};
}

RecordedCall SomeCall(uint64_t number) {
  RecordedCall call;
  call.number = number;
  call.time_ns = 1000 * static_cast<int64_t>(number);
  call.method = "rms_norm.forward";
  call.contract = "rms_norm/leftfold-v1";
  call.backend = "cpu";
  call.kernel = "k";
  call.device = "a device";
  call.trace_id = std::string(32, 'a');
  call.attributes = {{"eps", AttributeKind::kF32, 1e-6, 0, ""},
                     {"activation", AttributeKind::kEnum, 0, 2, "silu"}};
  call.wanted_outputs = {"y"};
  call.inputs = {Tensor("x", kValues)};
  call.outputs = {Tensor("y", {2, 4, 6, 8, 10, 12})};
  return call;
}

struct Written {
  std::string bytes;
  // Where each record begins, and the end.
  std::vector<size_t> records;
};

Written Write(uint64_t calls, const std::string& server_id = "s") {
  Written file;
  RecordingWriter writer([&file](auto bytes) { return Append(file.bytes, bytes); });
  const auto mark = [&] { file.records.push_back(file.bytes.size()); };
  EXPECT_TRUE(writer.Start({"0.1.0", std::string(32, 'b'), server_id, 5, true}).ok());
  file.records.push_back(recording::kFileHeadBytes);
  mark();
  const RecordedTensor x = Tensor("x", kValues);
  const auto bytes = std::as_bytes(std::span(kValues));
  const std::span<const std::byte> pieces[] = {bytes.first(5), bytes.subspan(5)};
  EXPECT_TRUE(writer.Tensor(x.dtype, x.shape, x.digest, pieces).ok());
  EXPECT_EQ(file.bytes.size() - file.records.back(),
            static_cast<size_t>(TensorRecordBytes(x.shape, 24)));
  for (uint64_t i = 1; i <= calls; ++i) {
    mark();
    EXPECT_TRUE(writer.Call(SomeCall(i)).ok());
    EXPECT_EQ(file.bytes.size() - file.records.back(),
              static_cast<size_t>(CallRecordBytes(SomeCall(i))));
  }
  mark();
  EXPECT_TRUE(writer.End({calls, 7, 8, 9}).ok());
  EXPECT_EQ(file.bytes.size() - file.records.back(), static_cast<size_t>(EndRecordBytes()));
  mark();
  EXPECT_EQ(writer.bytes(), static_cast<int64_t>(file.bytes.size()));
  return file;
}

absl::Status OpenStatus(const std::string& bytes, bool incomplete = false) {
  const Memory source(bytes);
  return RecordingReader::Open(&source, incomplete).status();
}

void ExpectRefused(const std::string& bytes, const std::string& what, bool incomplete = false) {
  const absl::Status status = OpenStatus(bytes, incomplete);
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what << ": " << status;
  const auto detail = GetErrorDetail(status);
  ASSERT_TRUE(detail.has_value()) << what;
  EXPECT_EQ(detail->reason, Reason::kFileMismatch) << what;
  EXPECT_FALSE(detail->value.empty()) << what;
  EXPECT_FALSE(detail->allowed.empty()) << what;
}

// A record with a right checksum, whatever it says.
std::string RawRecord(uint32_t kind, const std::string& body, recording::Checksum& chain) {
  const recording::RecordHead head{kind, 0, body.size()};
  recording::ChecksumStream checksum(chain, head);
  checksum.Update(recording::BytesOf(body));
  chain = checksum.Finish();
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + body +
         std::string(reinterpret_cast<const char*>(chain.data()), chain.size());
}

// The records of a file, each as its kind and body.
std::vector<std::pair<uint32_t, std::string>> Bodies(const Written& file) {
  std::vector<std::pair<uint32_t, std::string>> bodies;
  for (size_t i = 0; i + 1 < file.records.size(); ++i) {
    recording::RecordHead head;
    std::memcpy(&head, file.bytes.data() + file.records[i], sizeof(head));
    bodies.emplace_back(head.kind, file.bytes.substr(file.records[i] + sizeof(head), head.length));
  }
  return bodies;
}

std::string Assemble(const std::vector<std::pair<uint32_t, std::string>>& bodies) {
  std::string file = Write(0).bytes.substr(0, recording::kFileHeadBytes);
  recording::Checksum chain = {};
  for (const auto& [kind, body] : bodies) file += RawRecord(kind, body, chain);
  return file;
}

TEST(Recording, ReadsWhatWasWritten) {
  const Memory source(Write(3).bytes);
  auto reader = RecordingReader::Open(&source, false);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->start().version, "0.1.0");
  EXPECT_EQ(reader->start().server_id, "s");
  EXPECT_EQ(reader->start().time_ns, 5);
  EXPECT_TRUE(reader->start().tensors);
  ASSERT_TRUE(reader->end().has_value());
  EXPECT_EQ(reader->end()->dropped_queue, 7u);
  EXPECT_EQ(reader->end()->dropped_full, 8u);
  EXPECT_EQ(reader->end()->failed, 9u);
  EXPECT_EQ(reader->calls(), 3);
  EXPECT_EQ(reader->tensors(), 1);
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto call = reader->Next();
    ASSERT_TRUE(call.ok() && call->has_value()) << call.status();
    const RecordedCall want = SomeCall(i);
    EXPECT_EQ((*call)->number, want.number);
    EXPECT_EQ((*call)->time_ns, want.time_ns);
    EXPECT_EQ((*call)->method, want.method);
    EXPECT_EQ((*call)->contract, want.contract);
    EXPECT_EQ((*call)->kernel, want.kernel);
    EXPECT_EQ((*call)->device, want.device);
    EXPECT_EQ((*call)->trace_id, want.trace_id);
    ASSERT_EQ((*call)->attributes.size(), 2u);
    EXPECT_EQ((*call)->attributes[0].number, 1e-6);
    EXPECT_EQ((*call)->attributes[1].kind, AttributeKind::kEnum);
    EXPECT_EQ((*call)->attributes[1].text, "silu");
    EXPECT_EQ((*call)->wanted_outputs, want.wanted_outputs);
    ASSERT_EQ((*call)->inputs.size(), 1u);
    EXPECT_EQ((*call)->inputs[0].shape, want.inputs[0].shape);
    EXPECT_TRUE(reader->Has((*call)->inputs[0]));
    EXPECT_FALSE(reader->Has((*call)->outputs[0]));
    std::vector<float> values(6);
    const absl::Status read =
        reader->Read((*call)->inputs[0], std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(read.ok()) << read;
    EXPECT_EQ(values, kValues);
    EXPECT_EQ((*call)->outputs[0].digest, want.outputs[0].digest);
  }
  const auto last = reader->Next();
  ASSERT_TRUE(last.ok());
  EXPECT_FALSE(last->has_value());
}

// So that nobody makes room for a size that a call only claims.
TEST(Recording, HasNoTensorOfAnotherSizeUnderTheSameDigest) {
  const Memory source(Write(1).bytes);
  const auto reader = RecordingReader::Open(&source, false);
  ASSERT_TRUE(reader.ok()) << reader.status();
  RecordedTensor x = Tensor("x", kValues);
  EXPECT_TRUE(reader->Has(x));
  x.shape = {int64_t{1} << 50};
  EXPECT_FALSE(reader->Has(x));
  x.shape = {2, 3};
  x.dtype = DType::kF64;
  EXPECT_FALSE(reader->Has(x));
  std::vector<std::byte> bytes(48);
  EXPECT_FALSE(reader->Read(x, bytes).ok());
}

TEST(Recording, RefusesEveryTruncation) {
  const Written file = Write(2);
  for (size_t size = 0; size < file.bytes.size(); ++size) {
    ExpectRefused(file.bytes.substr(0, size), "cut at " + std::to_string(size));
  }
}

TEST(Recording, ReadsWholeRecordsOfATruncatedFileWhereAllowed) {
  const Written file = Write(2);
  for (size_t size = 0; size < file.bytes.size(); ++size) {
    const std::string cut = file.bytes.substr(0, size);
    // Without its start it is no recording.
    if (size < file.records[1]) {
      ExpectRefused(cut, "cut at " + std::to_string(size), /*incomplete=*/true);
      continue;
    }
    const Memory source(cut);
    const auto reader = RecordingReader::Open(&source, true);
    ASSERT_TRUE(reader.ok()) << size << ": " << reader.status();
    int64_t calls = 0;
    for (size_t i = 2; i < 4; ++i) calls += file.records[i + 1] <= size ? 1 : 0;
    EXPECT_EQ(reader->calls(), calls) << size;
    EXPECT_FALSE(reader->end().has_value());
  }
}

TEST(Recording, RefusesEveryChangedByte) {
  const std::string bytes = Write(2).bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    ExpectRefused(changed, "byte " + std::to_string(i));
  }
}

TEST(Recording, RefusesRecordsThatAreLostMovedOrOfAnotherFile) {
  const Written file = Write(3), other = Write(3, "t");
  const auto record = [](const Written& from, size_t i) {
    return from.bytes.substr(from.records[i], from.records[i + 1] - from.records[i]);
  };
  const std::string head = file.bytes.substr(0, recording::kFileHeadBytes);
  ExpectRefused(head + record(file, 0) + record(file, 2) + record(file, 3) + record(file, 4) +
                    record(file, 5),
                "lost");
  ExpectRefused(head + record(file, 0) + record(file, 1) + record(file, 3) + record(file, 2) +
                    record(file, 4) + record(file, 5),
                "moved");
  ExpectRefused(head + record(file, 0) + record(other, 1) + record(file, 2) + record(file, 3) +
                    record(file, 4) + record(file, 5),
                "of another file");
  ExpectRefused(file.bytes + record(file, 5), "twice the end");
  ExpectRefused(file.bytes + "x", "bytes behind the end");
  ExpectRefused(file.bytes + file.bytes, "two files");
}

TEST(Recording, RefusesForeignFiles) {
  for (const std::string& bytes :
       {std::string(), std::string("RLK"), std::string(1000, '\0'), std::string(1000, '\xff'),
        std::string("{\"calls\": []}                          ")}) {
    ExpectRefused(bytes, "foreign");
    ExpectRefused(bytes, "foreign", /*incomplete=*/true);
  }
  std::string version = Write(1).bytes;
  version[8] = 2;
  ExpectRefused(version, "version 2");
  EXPECT_EQ(GetErrorDetail(OpenStatus(version))->value, "version 2");
}

// Right checksums around bodies that lie: about counts, sizes and what follows.
TEST(Recording, RefusesBodiesThatContradictThemselves) {
  const auto good = Bodies(Write(1));
  ASSERT_TRUE(OpenStatus(Assemble(good)).ok());
  for (size_t record = 0; record < good.size(); ++record) {
    const std::string& body = good[record].second;
    for (size_t size = 0; size < body.size(); ++size) {
      auto bodies = good;
      bodies[record].second = body.substr(0, size);
      ExpectRefused(Assemble(bodies),
                    "record " + std::to_string(record) + " of " + std::to_string(size) + " bytes");
    }
    auto bodies = good;
    bodies[record].second += '\0';
    ExpectRefused(Assemble(bodies), "record " + std::to_string(record) + " and a byte");
  }
  auto bodies = good;
  std::swap(bodies[0], bodies[1]);
  ExpectRefused(Assemble(bodies), "no start first");
  bodies = good;
  bodies.insert(bodies.begin(), good[0]);
  ExpectRefused(Assemble(bodies), "two starts");
  bodies = good;
  bodies.erase(bodies.begin() + 2);
  ExpectRefused(Assemble(bodies), "an end that counts more calls");
}

TEST(Recording, RefusesAttributesOfADtypeThatThereIsNot) {
  for (const int64_t dtype : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{kDTypeCount - 1},
                              int64_t{kDTypeCount}, int64_t{257}, int64_t{1} << 40}) {
    std::string bytes;
    RecordingWriter writer([&bytes](auto more) { return Append(bytes, more); });
    RecordedCall call = SomeCall(1);
    call.attributes = {{"output_dtype", AttributeKind::kDType, 0, dtype, ""}};
    ASSERT_TRUE(writer.Start({"0.1.0", "p", "s", 5, false}).ok());
    ASSERT_TRUE(writer.Call(call).ok());
    ASSERT_TRUE(writer.End({1, 0, 0, 0}).ok());
    EXPECT_EQ(OpenStatus(bytes).ok(), dtype >= 1 && dtype < kDTypeCount) << dtype;
  }
}

// Whatever the bytes of a body are, the reader ends, stays in the file and gives no tensor whose
// digest is not that of its bytes.
TEST(Recording, SurvivesRandomBodiesWithRightChecksums) {
  constexpr int kRounds = 20'000;
  std::mt19937 random(13);
  const auto good = Bodies(Write(2));
  for (int round = 0; round < kRounds; ++round) {
    auto bodies = good;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      std::string& body = bodies[random() % bodies.size()].second;
      if (body.empty()) continue;
      const size_t at = random() % body.size();
      const uint32_t values[] = {0, 1, 0x7fffffff, 0xffffffff, static_cast<uint32_t>(random())};
      const uint32_t value = values[random() % 5];
      std::memcpy(body.data() + at, &value, std::min<size_t>(sizeof(value), body.size() - at));
    }
    const Memory source(Assemble(bodies));
    auto reader = RecordingReader::Open(&source, round % 2 == 0);
    if (!reader.ok()) continue;
    for (;;) {
      const auto call = reader->Next();
      ASSERT_TRUE(call.ok()) << call.status();
      if (!call->has_value()) break;
      for (const RecordedTensor& input : (*call)->inputs) {
        if (!reader->Has(input) || ElementCount(input.shape) > 64) continue;
        std::vector<std::byte> bytes(static_cast<size_t>(ByteCount(input.shape, input.dtype)));
        if (!reader->Read(input, bytes).ok()) continue;
        EXPECT_EQ(ComputeDigest(TensorView{input.dtype, input.shape, ContiguousStrides(input.shape),
                                           bytes.data()}),
                  input.digest);
      }
    }
  }
}

// A length that no file has costs nothing.
TEST(Recording, RefusesHostileLengths) {
  const std::string start = Write(0).bytes.substr(0, Write(0).records[1]);
  for (const uint32_t kind : {2u, 3u, 4u, 0u, 9u}) {
    for (const uint64_t length : {uint64_t{1} << 20, uint64_t{1} << 40, uint64_t{1} << 63,
                                  ~uint64_t{0}, ~uint64_t{0} - 31}) {
      const recording::RecordHead head{kind, 0, length};
      ExpectRefused(start + std::string(reinterpret_cast<const char*>(&head), sizeof(head)) +
                        std::string(64, 'x'),
                    std::to_string(kind) + " of " + std::to_string(length));
    }
  }
}

}  // namespace
}  // namespace rlk::wire
