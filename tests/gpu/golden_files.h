// Stored digests, found in a bundle or in the source tree.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rlk::gpu_test {

// tests/golden/<file>; RLK_GOLDEN_DIR names the folder. Fails the test, and gives null, where it
// cannot be read.
inline nlohmann::json LoadGolden(const std::string& file) {
  const char* folder = std::getenv("RLK_GOLDEN_DIR");
  const std::string path = std::string(folder == nullptr ? "tests/golden" : folder) + "/" + file;
  std::ifstream stream(path);
  nlohmann::json value = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!value.is_discarded()) return value;
  ADD_FAILURE() << path << " cannot be read; RLK_GOLDEN_DIR names its folder";
  return {};
}

}  // namespace rlk::gpu_test
