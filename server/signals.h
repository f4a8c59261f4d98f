// SIGTERM and SIGINT as something to wait for.
#pragma once

namespace rlk::server {

// Blocks the signals in the calling thread and thus in every thread it starts later: make it first.
// The first signal asks for a drain; the second ends the process at once with 128 + signal. SIGPIPE
// is ignored. One per process.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  enum class Event { kTerminate, kDeviceLost };

  // Waits for the first event.
  Event Wait();
  // From any thread.
  void NotifyDeviceLost();

  // From now on a signal ends the process at once.
  void ExitAtNextSignal();

 private:
  int signal_fd_ = -1;
  int event_fd_ = -1;
};

}  // namespace rlk::server
