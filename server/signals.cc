#include "server/signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace rlk::server {
namespace {

constexpr std::chrono::milliseconds kSameEnd{50};

sigset_t TerminationSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// Async-signal-safe; the convention of shells for "ended by a signal".
void ExitNow(int signal) { _exit(128 + signal); }

}  // namespace

Signals::Signals() {
  const sigset_t set = TerminationSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // A file that may not grow (RLIMIT_FSIZE) is an error of its write, not the end of the server.
  signal(SIGXFSZ, SIG_IGN);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  event_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || event_fd_ < 0) abort();
}

Signals::~Signals() {
  close(signal_fd_);
  close(event_fd_);
}

Signals::Event Signals::Wait() {
  pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {event_fd_, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      abort();
    }
    if (fds[0].revents != 0 && Take()) return Event::kTerminate;
    if (fds[1].revents != 0) return Event::kDeviceLost;
  }
}

void Signals::NotifyDeviceLost() {
  const uint64_t one = 1;
  (void)!write(event_fd_, &one, sizeof(one));
}

bool Signals::device_lost() const {
  pollfd event = {event_fd_, POLLIN, 0};
  return poll(&event, 1, 0) > 0;
}

bool Signals::Take() {
  signalfd_siginfo info;
  return read(signal_fd_, &info, sizeof(info)) == sizeof(info);
}

void Signals::ExitAtNextSignal() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + kSameEnd;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd more = {signal_fd_, POLLIN, 0};
    const int polled = poll(&more, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (polled > 0) Take();
    if (polled <= 0 && left <= 0) break;
  }
  struct sigaction action = {};
  action.sa_handler = ExitNow;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  const sigset_t set = TerminationSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace rlk::server
