// The server as one object: registry, devices, engine, services, listeners. `main` and the
// integration tests use it alike.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/registry.h"
#include "server/engine/device.h"
#include "server/log/log.h"
#include "server/options.h"

namespace rlk::server {

struct Addresses {
  // HOST:PORT with the ports in use.
  std::vector<std::string> listen;
  // Empty where there is none.
  std::string unix_path, side_path, metrics, health;
  std::string server_id;

  // The first line of stdout:
  // {"listen":[...],"unix":...,"side":...,"metrics":...,"health":...,"server_id":...,"pid":...}.
  std::string Json() const;
};

struct ServerHooks {
  // Called once, from any thread, when no healthy device is left; health is NOT_SERVING by then.
  std::function<void()> on_device_lost;
  // Tests: takes the place of the host device and of the CUDA devices.
  std::vector<std::unique_ptr<Device>> devices;
  // Tests: declares the operators and the states of the backends, in place of FillRegistry.
  std::function<void(Registry&)> fill_registry;
};

class Server {
 public:
  // Returns when it serves. Errors name the flag at fault; INTERNAL where the proto and the
  // registry disagree. `logger` outlives the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options, const Logger* logger,
                                                       ServerHooks hooks);
  // Drains with no patience.
  ~Server();

  const Addresses& addresses() const;

  // NOT_SERVING at once; after the delay, or the loss of the last device, new calls get UNAVAILABLE
  // (kDraining) and those in flight have `drain_seconds` to finish. Shortly before the end of that,
  // calls that still wait for a device and checks get UNAVAILABLE (kDraining) too. True when no
  // call is left and the recording, if there is one, is finished. After it nothing listens any
  // more.
  bool Drain(double delay_seconds, double drain_seconds);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlk::server
