// What GetInfo says beyond the engine, as plain data.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rlk::server {

// The record that results refer to. Unknown facts are absent.
struct Provenance {
  std::string id;
  std::string version;
  std::optional<std::string> git_commit;
  std::optional<bool> git_dirty;
  std::string compiler, compile_flags;
  std::vector<std::string> cuda_architectures;
  std::optional<std::string> cuda_runtime, cuda_driver;
  // "NAME, compute capability 9.0, 132 multiprocessors"; GetInfo shows these among the devices.
  std::vector<std::string> gpus;
  std::string tolerance_contract_version, tolerance_contract_sha256;
  std::string cpu_isa;
};

// Why arenas cannot be opened; empty where they can.
struct SharingFacts {
  std::string host_arena, device_arena;
};

struct ServerFacts {
  // 32 hex digits, new at every start.
  std::string server_id;
  Provenance provenance;
};

}  // namespace rlk::server
