#include "server/tensors/weights_file.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/sessions/random_id.h"
#include "tests/unit/tensors/store_harness.h"

namespace rlk::test {
namespace {

using server::ExpectedTensor;
using server::LoadWeights;
namespace fs = std::filesystem;

std::string Sha256Of(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return server::HexText({reinterpret_cast<const char*>(digest), sizeof(digest)});
}

std::string Safetensors(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

class WeightsFileTest : public testing::Test {
 protected:
  WeightsFileTest() {
    char path[] = "/tmp/rlk-weights-XXXXXX";
    if (mkdtemp(path) == nullptr) abort();
    base_ = path;
    fs::create_directories(base_ / "root/models");
    Write("root/models/a.safetensors", Safetensors(kHeader, data_));
  }
  ~WeightsFileTest() override { fs::remove_all(base_); }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(base_ / name, std::ios::binary) << bytes;
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(base_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<ExpectedTensor> Manifest() const {
    return {{"w", DType::kF32, {2, 2}, Sha256Of(data_.substr(0, 16))},
            {"b", DType::kBF16, {3}, Sha256Of(data_.substr(16, 6))}};
  }
  absl::StatusOr<std::vector<server::TensorInfo>> Load(const std::string& path,
                                                       const std::vector<ExpectedTensor>& manifest,
                                                       const std::string& synthetic = "") {
    return LoadWeights({.root = (base_ / "root").string(),
                        .path = path,
                        .manifest = manifest,
                        .synthetic = synthetic,
                        .device_uuid = h_.host->info().uuid},
                       owner_, *h_.store);
  }
  // Two files: s1 has w, s2 has b; both say that their values are made up.
  std::vector<ExpectedTensor> WriteShards() {
    Write("root/s1.safetensors", Safetensors(kFirst, data_.substr(0, 16)));
    Write("root/s2.safetensors", Safetensors(kSecond, data_.substr(16, 6)));
    auto manifest = Manifest();
    manifest[0].path = "s1.safetensors";
    manifest[1].path = "s2.safetensors";
    return manifest;
  }

  static constexpr char kHeader[] =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  static constexpr char kFirst[] = R"({"__metadata__":{"rlk.synthetic":"seed 7"},)"
                                   R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  static constexpr char kSecond[] = R"({"__metadata__":{"rlk.synthetic":"seed 7"},)"
                                    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}})";
  const std::string data_ = std::string("0123456789abcdef") + "uvwxyz";
  fs::path base_;
  StoreHarness h_;
  std::shared_ptr<TestPrincipal> owner_ = NewPrincipal();
};

TEST_F(WeightsFileTest, LoadsWhatTheManifestNames) {
  const auto loaded = Load("models/a.safetensors", Manifest());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->size(), 2u);
  EXPECT_EQ((*loaded)[0].label, "w");
  EXPECT_EQ((*loaded)[1].shape, Dims({3}));
  EXPECT_EQ((*loaded)[1].dtype, DType::kBF16);
  const auto values = *h_.Get(owner_.get(), (*loaded)[0].handle);
  EXPECT_EQ(std::memcmp(values.data(), data_.data(), 16), 0);
}

TEST_F(WeightsFileTest, RefusesAnyMismatchAndKeepsNothing) {
  struct Case {
    const char* name;
    std::function<void(std::vector<ExpectedTensor>&)> change;
    const char* field;
  } const cases[] = {
      {"a key that is not there", [](auto& m) { m[1].key = "missing"; }, "manifest[missing].key"},
      {"the metadata", [](auto& m) { m[1].key = "__metadata__"; }, "manifest[__metadata__].key"},
      {"another dtype", [](auto& m) { m[1].dtype = DType::kF16; }, "manifest[b].dtype"},
      {"another shape",
       [](auto& m) {
         m[1].shape = {3, 1};
       },
       "manifest[b].shape"},
      {"another digest", [](auto& m) { m[1].sha256 = m[0].sha256; }, "manifest[b].sha256"},
      {"no digest", [](auto& m) { m[1].sha256.clear(); }, "manifest[b].sha256"},
  };
  for (const Case& c : cases) {
    auto manifest = Manifest();
    c.change(manifest);
    const auto refused = Load("models/a.safetensors", manifest);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << c.name;
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kFileMismatch) << c.name;
    EXPECT_EQ(GetErrorDetail(refused.status())->field, c.field);
    EXPECT_EQ(h_.store->usage().tensors, 0) << c.name;
  }
}

TEST_F(WeightsFileTest, LoadsTensorsOfSeveralFilesInTheManifestsOrder) {
  auto manifest = WriteShards();
  std::swap(manifest[0], manifest[1]);
  const auto loaded = Load("", manifest, "seed 7");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->size(), 2u);
  EXPECT_EQ((*loaded)[0].label, "b");
  EXPECT_EQ((*loaded)[1].label, "w");
  EXPECT_EQ((*loaded)[1].synthetic, "seed 7");
  const auto values = *h_.Get(owner_.get(), (*loaded)[1].handle);
  EXPECT_EQ(std::memcmp(values.data(), data_.data(), 16), 0);
  // Some of them from the file of the load.
  manifest[1].path.clear();
  EXPECT_TRUE(Load("s1.safetensors", manifest, "seed 7").ok());
}

TEST_F(WeightsFileTest, WhatTheFilesSayOfTheirValuesMustBeWhatTheLoadSays) {
  const auto manifest = WriteShards();
  for (const std::string synthetic : {"", "seed 8"}) {
    const auto refused = Load("", manifest, synthetic);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kSyntheticWeights) << refused.status();
    EXPECT_EQ(GetErrorDetail(refused.status())->value, "s1.safetensors: made up (seed 7)");
  }
  const auto claimed = Load("models/a.safetensors", Manifest(), "seed 7");
  EXPECT_EQ(ReasonOf(claimed.status()), Reason::kSyntheticWeights);
  EXPECT_EQ(GetErrorDetail(claimed.status())->value, "models/a.safetensors: weights of a model");
  std::string mixed(kSecond);
  mixed.replace(mixed.find("seed 7"), 6, "seed 9");
  Write("root/s2.safetensors", Safetensors(mixed, data_.substr(16, 6)));
  EXPECT_EQ(GetErrorDetail(Load("", manifest, "seed 7").status())->value,
            "s2.safetensors: made up (seed 9)");
  for (const std::string label : {"7", "\"\"", "[\"seed 7\"]"}) {
    std::string odd(kSecond);
    odd.replace(odd.find("\"seed 7\""), 8, label);
    Write("root/s2.safetensors", Safetensors(odd, data_.substr(16, 6)));
    EXPECT_EQ(ReasonOf(Load("", manifest, "seed 7").status()), Reason::kMalformedMessage) << label;
  }
  EXPECT_EQ(h_.store->usage().tensors, 0);
}

// Each wrong in the second file, when the first is good: its name is in the error, and nothing of
// the first stays.
TEST_F(WeightsFileTest, OneBadFileLeavesNothingOfTheOthers) {
  const auto edited = [](const std::string& from, const std::string& to) {
    std::string text(kSecond);
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::string data = data_.substr(16, 6);
  const struct {
    const char* name;
    std::function<void()> spoil;
    Reason reason;
    const char* field;
  } cases[] = {
      {"truncated", [&] { Write("root/s2.safetensors", Safetensors(kSecond, data.substr(0, 5))); },
       Reason::kMalformedMessage, "path"},
      {"swapped", [&] { Write("root/s2.safetensors", Read("root/s1.safetensors")); },
       Reason::kFileMismatch, "manifest[b].key"},
      {"renamed", [&] { fs::remove(base_ / "root/s2.safetensors"); }, Reason::kFilesUnavailable,
       "path"},
      {"another name inside",
       [&] { Write("root/s2.safetensors", Safetensors(edited("\"b\"", "\"B\""), data)); },
       Reason::kFileMismatch, "manifest[b].key"},
      {"retyped", [&] { Write("root/s2.safetensors", Safetensors(edited("BF16", "F16"), data)); },
       Reason::kFileMismatch, "manifest[b].dtype"},
      {"reshaped", [&] { Write("root/s2.safetensors", Safetensors(edited("[3]", "[1,3]"), data)); },
       Reason::kFileMismatch, "manifest[b].shape"},
      {"one bit", [&] { Write("root/s2.safetensors", Safetensors(kSecond, "uvwxyy")); },
       Reason::kFileMismatch, "manifest[b].sha256"},
  };
  for (const auto& c : cases) {
    const auto manifest = WriteShards();
    c.spoil();
    const absl::Status refused = Load("", manifest, "seed 7").status();
    EXPECT_EQ(ReasonOf(refused), c.reason) << c.name << ": " << refused;
    EXPECT_EQ(GetErrorDetail(refused)->field, c.field) << c.name;
    const std::string text(refused.message());
    EXPECT_NE(text.find("s2.safetensors"), std::string::npos) << c.name << ": " << text;
    EXPECT_EQ(h_.store->usage().tensors, 0) << c.name;
    EXPECT_EQ(h_.memory(), 0) << c.name;
  }
}

// Wherever it is told to, a load stops and leaves nothing.
TEST_F(WeightsFileTest, StopsWhereNobodyWaitsAnyMore) {
  const auto manifest = WriteShards();
  int asked = 0, stop_at = 0;
  const auto load = [&] {
    asked = 0;
    return LoadWeights({.root = (base_ / "root").string(),
                        .path = "",
                        .manifest = manifest,
                        .synthetic = "seed 7",
                        .device_uuid = h_.host->info().uuid,
                        .check = [&]() -> absl::Status {
                          return ++asked == stop_at ? absl::CancelledError("gone")
                                                    : absl::OkStatus();
                        }},
                       owner_, *h_.store);
  };
  ASSERT_TRUE(load().ok());
  const int times = asked;
  // Two files, two tensors of one piece each, and the end.
  EXPECT_EQ(times, 5);
  owner_ = NewPrincipal();
  const int64_t before = h_.store->usage().tensors;
  for (stop_at = 1; stop_at <= times; ++stop_at) {
    EXPECT_EQ(load().status().code(), absl::StatusCode::kCancelled) << stop_at;
    EXPECT_EQ(asked, stop_at);
    EXPECT_EQ(h_.store->usage().tensors, before) << stop_at;
  }
}

TEST_F(WeightsFileTest, OpensNothingOutsideItsRoot) {
  Write("secret.safetensors", Safetensors(kHeader, data_));
  fs::create_symlink(base_ / "secret.safetensors", base_ / "root/link.safetensors");
  fs::create_symlink(base_ / "root/models", base_ / "root/alias");
  fs::create_symlink("models/a.safetensors", base_ / "root/inside.safetensors");
  for (const std::string& path :
       {std::string("../secret.safetensors"), std::string("models/../../secret.safetensors"),
        (base_ / "root/models/a.safetensors").string(), std::string("link.safetensors"),
        std::string("inside.safetensors"), std::string("alias/a.safetensors"), std::string(),
        std::string("models"), std::string("nothing"), std::string("/proc/self/root/etc/passwd")}) {
    const auto refused = Load(path, Manifest());
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound) << path;
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kFilesUnavailable) << path;
  }
}

TEST_F(WeightsFileTest, RefusesFilesThatAreNone) {
  const std::string good(kHeader);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::pair<const char*, std::string> cases[] = {
      {"empty", ""},
      {"seven bytes", "1234567"},
      {"a header beyond the file", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + good},
      {"a huge header", std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8)},
      {"no JSON", Safetensors("{", data_)},
      {"a list", Safetensors("[]", data_)},
      {"nested", Safetensors(std::string(100000, '['), data_)},
      {"offsets beyond the data", Safetensors(with("[16,22]", "[17,23]"), data_)},
      {"offsets of another size", Safetensors(with("[16,22]", "[16,21]"), data_)},
      {"offsets in the wrong order", Safetensors(with("[16,22]", "[22,16]"), data_)},
      {"negative offsets", Safetensors(with("[16,22]", "[-1,5]"), data_)},
      {"an offset of 2^64", Safetensors(with("[16,22]", "[18446744073709551600,22]"), data_)},
      {"three offsets", Safetensors(with("[16,22]", "[16,22,23]"), data_)},
      {"a shape that overflows",
       Safetensors(with("[3]", "[3]")
                       .replace(good.find("\"shape\":[3]"), 11, "\"shape\":[9223372036854775807]"),
                   data_)},
      {"cut data", Safetensors(good, data_.substr(0, 20))},
      {"a tensor twice", Safetensors(with("\"b\":", "\"w\":"), data_)},
      {"a key of a tensor twice",
       Safetensors(with("\"shape\":[3]", "\"shape\":[3],\"shape\":[3]"), data_)},
      {"metadata twice", Safetensors(with("\"w\":", "\"__metadata__\":{},\"w\":"), data_)},
  };
  for (const auto& [name, bytes] : cases) {
    Write("root/bad.safetensors", bytes);
    const auto refused = Load("bad.safetensors", Manifest());
    EXPECT_FALSE(refused.ok()) << name;
    const Reason reason = ReasonOf(refused.status());
    EXPECT_TRUE(reason == Reason::kMalformedMessage || reason == Reason::kFileMismatch)
        << name << ": " << refused.status();
    EXPECT_EQ(h_.store->usage().tensors, 0) << name;
  }
}

}  // namespace
}  // namespace rlk::test
