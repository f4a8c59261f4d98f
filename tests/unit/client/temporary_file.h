// A file of a test, gone with it.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace rlk::cli {

class TemporaryFile {
 public:
  // `suffix` decides how the file is read.
  explicit TemporaryFile(const std::string& suffix, const std::string& bytes = "") {
    std::string name = "/tmp/rlk-test-XXXXXX";
    const int descriptor = mkstemp(name.data());
    if (descriptor >= 0) close(descriptor);
    base_ = name;
    path_ = name + suffix;
    Write(bytes);
  }
  ~TemporaryFile() {
    std::remove(path_.c_str());
    std::remove(base_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string Read() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string base_, path_;
};

}  // namespace rlk::cli
