// SIGTERM and SIGINT as something to wait for.
#pragma once

namespace rlk::server {

// Blocks the signals in the calling thread and thus in every thread it starts later: make it first.
// The first signal asks for a drain; a second one ends the process at once with 128 + signal, but
// not within the first 50 ms: one end may come as several signals (GNU timeout signals its child
// and then the group that the child is in, a terminal its foreground group and a wrapper its
// child). SIGPIPE is ignored. One per process.
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

  // Whether somebody has notified.
  bool device_lost() const;

  // Takes what belongs to the signal that Wait returned. From then on a signal ends the process at
  // once.
  void ExitAtNextSignal();

 private:
  // The signal that lies there.
  bool Take();

  int signal_fd_ = -1;
  int event_fd_ = -1;
};

}  // namespace rlk::server
