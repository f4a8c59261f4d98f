#include "tests/integration/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "google/protobuf/util/json_util.h"

namespace rlk::test {

ServerProcess::ServerProcess(const std::vector<std::string>& arguments, Program program,
                             Standard standard) {
  int in[2], out[2];
  // stderr goes to anonymous memory: of a pipe that nobody reads, lines would be lost.
  stderr_fd_ = memfd_create("stderr", MFD_CLOEXEC);
  if (stderr_fd_ < 0 || pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) abort();
  std::vector<std::string> words = {program == Program::kServer ? RLK_SERVER_BINARY
                                                                : RLK_FAULTY_SERVER_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) abort();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(stderr_fd_, STDERR_FILENO);
    if (standard == Standard::kFullStdout) dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
    for (int fd = STDIN_FILENO; standard == Standard::kNone && fd <= STDERR_FILENO; ++fd) close(fd);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  stdin_fd_ = in[1];
  stdout_fd_ = out[0];
  for (char c; read(stdout_fd_, &c, 1) == 1 && c != '\n';) first_line_.push_back(c);
  (void)google::protobuf::util::JsonStringToMessage(first_line_, &line_);
}

ServerProcess::~ServerProcess() {
  if (exit_code_ < 0) {
    kill(pid_, SIGKILL);
    Wait();
  }
  close(stdin_fd_);
  close(stdout_fd_);
  close(stderr_fd_);
}

std::string ServerProcess::listen() const {
  return line_.fields().at("listen").list_value().values(0).string_value();
}

std::string ServerProcess::metrics() const { return line_.fields().at("metrics").string_value(); }

void ServerProcess::Command(const std::string& command) const {
  const std::string line = command + "\n";
  if (write(stdin_fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) abort();
  for (char c; read(stdout_fd_, &c, 1) == 1 && c != '\n';) {
  }
}

int64_t ServerProcess::rss_bytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void ServerProcess::Signal(int signal) const { kill(pid_, signal); }

int ServerProcess::Wait() {
  if (exit_code_ >= 0) return exit_code_;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

std::string ServerProcess::Stderr() const {
  std::string text;
  char buffer[4096];
  off_t offset = 0;
  for (ssize_t got; (got = pread(stderr_fd_, buffer, sizeof(buffer), offset)) > 0; offset += got) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace rlk::test
