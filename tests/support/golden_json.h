// Reads a JSON file of tests/golden, in the source tree or in a bundle.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rlk::test {

// tests/golden of the source tree; elsewhere RLK_GOLDEN_DIR names it.
inline std::string GoldenFolder() {
  const char* folder = std::getenv("RLK_GOLDEN_DIR");
  if (folder != nullptr) return folder;
#if defined(RLK_SOURCE_DIR)
  return RLK_SOURCE_DIR "/tests/golden";
#else
  return "tests/golden";
#endif
}

// Null for what cannot be read or is not JSON.
inline nlohmann::json ReadJson(const std::string& path) {
  std::ifstream stream(path);
  nlohmann::json value = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? nlohmann::json() : value;
}

// tests/golden/<file>. Fails the test, and gives null, where it cannot be read.
inline nlohmann::json LoadGolden(const std::string& file) {
  const std::string path = GoldenFolder() + "/" + file;
  nlohmann::json value = ReadJson(path);
  if (value.is_null()) ADD_FAILURE() << path << " cannot be read; RLK_GOLDEN_DIR names its folder";
  return value;
}

inline uint64_t Hex64(const std::string& text) { return std::stoull(text, nullptr, 16); }

}  // namespace rlk::test
