// Replays the corpus, and mutations of it, through the fuzz targets' checks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/path_check.h"

namespace rlk::fuzz {
namespace {

using Check = void (*)(std::span<const uint8_t>);

void Feed(Check check, const std::string& input) {
  check({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
}

// Sorted, so that a seed means the same everywhere.
std::vector<std::string> Corpus() {
  std::vector<std::filesystem::path> paths;
  const auto folder = std::filesystem::path(RLK_SOURCE_DIR) / "tests/fuzz/corpus";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs = Seeds();
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

std::string Mutate(const std::vector<std::string>& corpus, std::mt19937_64& random) {
  std::string input = corpus[random() % corpus.size()];
  for (uint64_t steps = 1 + random() % 4; steps > 0; --steps) {
    const size_t at = input.empty() ? 0 : random() % input.size();
    switch (random() % 7) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(random());
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << (random() % 8)));
        break;
      case 2:
        input.insert(at, 1, static_cast<char>(random()));
        break;
      case 3:
        input.erase(at, 1 + random() % 4);
        break;
      case 4:
        input.resize(at);
        break;
      case 5:  // a part of the input again
        input.insert(at, input.substr(random() % (input.size() + 1), random() % 32));
        break;
      default: {  // a part of another input
        const std::string& other = corpus[random() % corpus.size()];
        input.insert(at, other.substr(random() % (other.size() + 1), random() % 64));
        break;
      }
    }
  }
  return input;
}

int64_t Iterations() {
  const char* full = std::getenv("RLK_TEST_FULL");
  return full != nullptr && std::string(full) == "1" ? 10'000'000 : 100'000;
}

class Replay : public testing::TestWithParam<std::pair<const char*, Check>> {};

TEST_P(Replay, CorpusHolds) {
  const auto corpus = Corpus();
  ASSERT_GT(corpus.size(), Seeds().size()) << "the corpus folder is empty";
  for (const std::string& input : corpus) Feed(GetParam().second, input);
}

TEST_P(Replay, EverySeedIsAcceptedWhereItBelongs) {
  const int64_t before = AcceptedInputs();
  for (const std::string& input : Seeds()) Feed(GetParam().second, input);
  EXPECT_GE(AcceptedInputs() - before, 2);
}

TEST_P(Replay, MutationsHold) {
  constexpr uint64_t kSeed = 20240131;
  const auto corpus = Corpus();
  const int64_t before = AcceptedInputs();
  const int64_t iterations = Iterations();
  std::mt19937_64 random(kSeed);
  for (int64_t i = 0; i < iterations; ++i) Feed(GetParam().second, Mutate(corpus, random));
  const int64_t accepted = AcceptedInputs() - before;
  printf("seed %llu: %lld inputs, %lld accepted\n", static_cast<unsigned long long>(kSeed),
         static_cast<long long>(iterations), static_cast<long long>(accepted));
  // Mutations that are all refused would test the door alone.
  EXPECT_GT(accepted, iterations / 200);
}

TEST(ReplayPath, CorpusAndMutationsHoldAndSomeAreComputed) {
  constexpr uint64_t kSeed = 20240604;
  std::vector<std::string> corpus = PathSeeds();
  for (const std::string& input : corpus) Feed(&CheckPath, input);
  EXPECT_EQ(ComputedInputs(), static_cast<int64_t>(corpus.size())) << "every seed is valid";
  for (std::string& input : Corpus()) corpus.push_back(std::move(input));
  for (const std::string& input : corpus) Feed(&CheckPath, input);
  // Each input is a call or two.
  const int64_t iterations = Iterations() / 5;
  std::mt19937_64 random(kSeed);
  for (int64_t i = 0; i < iterations; ++i) Feed(&CheckPath, Mutate(corpus, random));
  printf("seed %llu: %lld inputs, %lld computed\n", static_cast<unsigned long long>(kSeed),
         static_cast<long long>(iterations), static_cast<long long>(ComputedInputs()));
  EXPECT_GT(ComputedInputs(), iterations / 100);
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay,
                         testing::Values(std::pair{"Split", &CheckSplit},
                                         std::pair{"Chunk", &CheckChunk},
                                         std::pair{"Call", &CheckCall}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace rlk::fuzz
