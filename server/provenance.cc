#include "server/provenance.h"

#include <openssl/evp.h>

#include <array>
#include <sstream>

#include "kernels/core/cpu_features.h"
#include "server/build_info.h"

namespace rlk::server {
namespace {

std::string RecordText(const Provenance& record) {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    text += std::string(name) + "=" + value + "\n";
  };
  add("version", record.version);
  if (record.git_commit) add("git_commit", *record.git_commit);
  if (record.git_dirty) add("git_dirty", *record.git_dirty ? "true" : "false");
  add("compiler", record.compiler);
  add("compile_flags", record.compile_flags);
  for (const std::string& name : record.cuda_architectures) add("cuda_architecture", name);
  if (record.cuda_runtime) add("cuda_runtime", *record.cuda_runtime);
  if (record.cuda_driver) add("cuda_driver", *record.cuda_driver);
  for (const std::string& gpu : record.gpus) add("gpu", gpu);
  add("tolerance_contract_version", record.tolerance_contract_version);
  add("tolerance_contract_sha256", record.tolerance_contract_sha256);
  add("cpu_isa", record.cpu_isa);
  return text;
}

std::string ShortHash(const std::string& bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr size_t kBytes = 16;
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash = {};
  EVP_Digest(bytes.data(), bytes.size(), hash.data(), nullptr, EVP_sha256(), nullptr);
  std::string text;
  for (size_t i = 0; i < kBytes; ++i) text += {kHex[hash[i] >> 4], kHex[hash[i] & 15]};
  return text;
}

std::string GpuText(const DeviceInfo& info) {
  return info.name + ", compute capability " + std::to_string(info.compute_capability / 10) + "." +
         std::to_string(info.compute_capability % 10) + ", " +
         std::to_string(info.multiprocessors) + " multiprocessors";
}

}  // namespace

Provenance MakeProvenance(const CudaProbe& probe, const std::vector<DeviceInfo>& devices,
                          const ToleranceContract& tolerance) {
  Provenance record;
  record.version = kVersion;
  if (kGitCommit != nullptr) record.git_commit = kGitCommit;
  if (kGitDirty >= 0) record.git_dirty = kGitDirty != 0;
  record.compiler = kCompiler;
  record.compile_flags = kCompileFlags;
  std::istringstream architectures(kCudaArchitectures);
  for (std::string name; std::getline(architectures, name, ',');) {
    if (!name.empty()) record.cuda_architectures.push_back(name);
  }
  if (!probe.runtime_version.empty()) record.cuda_runtime = probe.runtime_version;
  if (!probe.driver_version.empty()) record.cuda_driver = probe.driver_version;
  for (const DeviceInfo& info : devices) {
    if (info.kind == DeviceKind::kCuda) record.gpus.push_back(GpuText(info));
  }
  record.tolerance_contract_version = tolerance.version();
  record.tolerance_contract_sha256 = tolerance.sha256();
  record.cpu_isa = std::string(IsaName(BestIsa()));
  record.id = ShortHash(RecordText(record));
  return record;
}

std::string VersionText() {
  std::string text = std::string("rlk-server ") + kVersion;
  if (kGitCommit == nullptr) return text + " (commit unknown)";
  text += std::string(" (commit ") + kGitCommit;
  if (kGitDirty != 0) text += kGitDirty > 0 ? ", dirty" : ", state unknown";
  return text + ")";
}

}  // namespace rlk::server
