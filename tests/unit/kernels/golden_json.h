// Reads a JSON file of tests/golden.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace rlk::test {

inline google::protobuf::Struct LoadGolden(const std::string& name) {
  std::ifstream file(std::string(RLK_SOURCE_DIR) + "/tests/golden/" + name);
  std::stringstream text;
  text << file.rdbuf();
  google::protobuf::Struct json;
  const auto status = google::protobuf::util::JsonStringToMessage(text.str(), &json);
  EXPECT_TRUE(file.good() && status.ok()) << name << ": " << status.ToString();
  return json;
}

inline uint64_t Hex64(const std::string& text) { return std::stoull(text, nullptr, 16); }

}  // namespace rlk::test
