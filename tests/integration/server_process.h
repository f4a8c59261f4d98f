// The real rlk-server, or the one with a faulty device, as a child process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "google/protobuf/struct.pb.h"

namespace rlk::test {

class ServerProcess {
 public:
  enum class Program { kServer, kFaultyServer };
  // What the program finds as its standard descriptors: what this class reads and writes; nothing
  // at all; the same, but for a stdout that takes nothing.
  enum class Standard { kOurs, kNone, kFullStdout };

  // Starts the program and reads the first line of its stdout, or nothing where it ended first, or
  // has no stdout of ours.
  explicit ServerProcess(const std::vector<std::string>& arguments,
                         Program program = Program::kServer, Standard standard = Standard::kOurs);
  // Kills it if it is still there.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& first_line() const { return first_line_; }
  // The first line as JSON; empty where it is none.
  const google::protobuf::Struct& line() const { return line_; }
  std::string listen() const;
  std::string metrics() const;
  pid_t pid() const { return pid_; }

  void Signal(int signal) const;
  // Gives the faulty server a command (faulty_server.cc) and waits until it obeyed.
  void Command(const std::string& command) const;
  // Resident memory now.
  int64_t rss_bytes() const;
  // Waits for the end: the exit code, or 128 + signal.
  int Wait();
  // Its stderr so far.
  std::string Stderr() const;

 private:
  pid_t pid_ = -1;
  int stdin_fd_ = -1;
  int stdout_fd_ = -1;
  int stderr_fd_ = -1;
  int exit_code_ = -1;
  std::string first_line_;
  google::protobuf::Struct line_;
};

}  // namespace rlk::test
