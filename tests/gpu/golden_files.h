// Stored digests, found beside the program in a bundle or in the source tree.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rlk::gpu_test {

// The text under `key`, at any depth, in tests/golden/<file>; fails the test where there is none.
// RLK_GOLDEN_DIR names the folder.
inline std::string StoredDigest(const std::string& file, const std::string& key) {
  const char* folder = std::getenv("RLK_GOLDEN_DIR");
  const std::string path = std::string(folder == nullptr ? "tests/golden" : folder) + "/" + file;
  std::ifstream stream(path);
  if (!stream) {
    ADD_FAILURE() << path << " is missing; RLK_GOLDEN_DIR names its folder";
    return {};
  }
  const nlohmann::json root = nlohmann::json::parse(stream);
  for (const auto& [pointer, value] : root.flatten().items()) {
    const bool named = pointer == "/" + key || pointer.ends_with("/" + key) ||
                       pointer.find("/" + key + "/") != std::string::npos;
    if (named && value.is_string()) return value.get<std::string>();
  }
  ADD_FAILURE() << path << " has no digest for " << key;
  return {};
}

}  // namespace rlk::gpu_test
