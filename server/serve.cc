#include "server/serve.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "server/log/log.h"
#include "server/options.h"
#include "server/provenance.h"
#include "server/rpc/grpc_log.h"
#include "server/signals.h"

namespace rlk::server {
namespace {

constexpr double kDeviceLostDrainSeconds = 5;

// Whoever starts a program may leave it without standard descriptors. The next files and sockets
// would get their numbers, and what is printed or logged would go into them.
void OpenStandardDescriptors() {
  int descriptor = 0;
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

// False, and errno, where standard output does not take it.
[[nodiscard]] bool PrintLine(const std::string& text) {
  return std::fputs((text + "\n").c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

// gRPC takes a block of up to 4 MiB for each read and frees it soon. Left to itself, malloc maps
// such blocks and gives them back each time, and the page faults cost three times what the copies
// do.
void KeepReadBlocks() {
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
}

// The standard library throws where a thread or memory cannot be had.
absl::StatusOr<std::unique_ptr<Server>> StartServer(const Options& options, const Logger* logger,
                                                    ServerHooks hooks) {
  try {
    return Server::Start(options, logger, std::move(hooks));
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(std::string("threads or memory ran out: ") + error.what());
  }
}

int Serve(const Options& options, ServerHooks hooks) {
  KeepReadBlocks();
  // Before any thread exists, so that the signals reach nobody else.
  Signals signals;
  // Static: gRPC may log until the process is gone.
  static const Logger logger(options.log_level);
  RouteGrpcLog(&logger);
  hooks.on_device_lost = [&signals] { signals.NotifyDeviceLost(); };
  auto server = StartServer(options, &logger, std::move(hooks));
  if (!server.ok()) {
    logger.Error("cannot start", {{"reason", std::string(server.status().message())}});
    return kStartFailed;
  }
  const std::string addresses = (*server)->addresses().Json();
  if (!PrintLine(addresses)) {
    logger.Warning("standard output does not take the first line",
                   {{"reason", strerror(errno)}, {"addresses", addresses}});
  }

  const Signals::Event event = signals.Wait();
  signals.ExitAtNextSignal();
  if (event == Signals::Event::kDeviceLost) {
    (*server)->Drain(0, std::min(options.drain_seconds, kDeviceLostDrainSeconds));
    // What belongs to a dead context is leaked: freeing it may hang.
    _exit(kDeviceLost);
  }
  logger.Info("draining", {{"delay_seconds", options.drain_delay_seconds},
                           {"drain_seconds", options.drain_seconds}});
  const bool finished = (*server)->Drain(options.drain_delay_seconds, options.drain_seconds);
  // Lost meanwhile: see above.
  if (signals.device_lost()) _exit(kDeviceLost);
  // The server is left as it is. Nothing outside of the process is in its hands any more, and the
  // end of gRPC's library waits up to ten seconds for a poller that the write of a large reply
  // leaves behind. Calls that did not finish may still run, and must not see the end of statics.
  if (!finished) _exit(kDrained);
  std::exit(kDrained);
}

}  // namespace

int RunServer(const std::vector<std::string>& arguments, ServerHooks hooks) {
  OpenStandardDescriptors();
  const absl::StatusOr<Options> options = ParseOptions(arguments);
  if (!options.ok()) {
    std::fprintf(stderr, "rlk-server: %s\n", std::string(options.status().message()).c_str());
    return kWrongFlags;
  }
  switch (options->action) {
    case Options::Action::kHelp:
      return PrintLine(OptionsHelp()) ? kDrained : kStartFailed;
    case Options::Action::kVersion:
      return PrintLine(VersionText()) ? kDrained : kStartFailed;
    case Options::Action::kServe:
      break;
  }
  return Serve(*options, std::move(hooks));
}

}  // namespace rlk::server
