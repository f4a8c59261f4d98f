// The server's program with a GPU whose faults come from stdin, one command a line, each answered
// with "ok" on stdout:
//
//   fail POINT N sticky|once    the N-th arrival from now at a FakePoint (its number) fails
//   lose                        a sticky error that no call meets
//   hold                        nothing that was enqueued gets done
//   release
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "server/serve.h"
#include "tests/support/fake_gpu.h"

namespace rlk::test {
namespace {

void Obey(const std::string& line, FakeControl& control) {
  std::istringstream words(line);
  std::string verb, kind;
  int point = 0;
  int64_t nth = 0;
  words >> verb;
  if (verb == "fail" && words >> point >> nth >> kind) {
    const auto at = static_cast<FakePoint>(point);
    control.FailAt(at, control.arrivals(at) + nth, kind == "sticky");
  } else if (verb == "lose") {
    control.Lose();
  } else if (verb == "hold") {
    control.Hold();
  } else if (verb == "release") {
    control.Release();
  } else {
    std::abort();
  }
  std::puts("ok");
  std::fflush(stdout);
}

int Main(const std::vector<std::string>& arguments) {
  // As the server does later: the thread below must not take the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto control = std::make_shared<FakeControl>();
  std::thread([control] {
    for (std::string line; std::getline(std::cin, line);) Obey(line, *control);
  }).detach();
  server::ServerHooks hooks;
  hooks.devices = MakeFakeGpus({control});
  hooks.fill_registry = FillFakeGpuRegistry;
  return server::RunServer(arguments, std::move(hooks));
}

}  // namespace
}  // namespace rlk::test

int main(int argc, char** argv) {
  return rlk::test::Main(std::vector<std::string>(argv + 1, argv + argc));
}
