// Where a side of a check computes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "server/engine/engine.h"
#include "server/parity/check_context.h"
#include "server/parity/host_tensor.h"

namespace rlk::server {

// How a side's calls run.
struct SideOptions {
  std::string backend = {};
  // Each method takes the one that it has; none: its default.
  std::vector<std::string> contracts = {};
  std::string device_uuid = {};
  bool allow_fallback = false;
  bool digests = false;
};

// What one call of a side gave.
struct MethodRun {
  const Method* method = nullptr;
  std::vector<ValueOutput> outputs;
  // Of this server.
  std::optional<CallReport> report;
  // Of another server: a serialized rlk.v1.CallReport.
  std::string remote_report;
};

// Thread-safe.
class CallRunner {
 public:
  virtual ~CallRunner() = default;
  // Runs the call and waits. Outputs are filled with `fill` before the launch where the side is of
  // this process.
  virtual absl::StatusOr<MethodRun> Run(const ValueCall& call, std::byte fill,
                                        CheckContext& context) = 0;
};

// The contract that a side takes for a method; empty for its default.
std::string ContractFor(const Method& method, const std::vector<std::string>& contracts);
// INVALID_ARGUMENT (kUnknownContract) for a contract that none of the methods has.
absl::Status CheckContracts(const std::vector<std::string>& contracts,
                            const std::vector<const Method*>& methods);

// Of this server's engine. A claim is not asked for: what is claimed is what is checked, and the
// report says it.
class EngineRunner final : public CallRunner {
 public:
  // `engine` is not owned.
  EngineRunner(Engine* engine, SideOptions options)
      : engine_(engine), options_(std::move(options)) {}

  absl::StatusOr<MethodRun> Run(const ValueCall& call, std::byte fill,
                                CheckContext& context) override;

 private:
  Engine* const engine_;
  const SideOptions options_;
};

}  // namespace rlk::server
