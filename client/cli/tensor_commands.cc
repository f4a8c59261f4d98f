// rlk put, get, ls, rm, session: tensors that stay on the server.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/npy.h"
#include "client/cli/render.h"
#include "client/cli/safetensors.h"
#include "client/cli/value.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr int64_t kLeaseSecondsMax = 86'400'000;

// A line on stderr that moves along with the bytes; nothing where nobody watches.
client::Progress ShowProgress(const char* what) {
  if (isatty(STDERR_FILENO) == 0) return nullptr;
  const auto begin = std::chrono::steady_clock::now();
  return [what, begin, shown = begin](int64_t done, int64_t total) mutable {
    const auto now = std::chrono::steady_clock::now();
    constexpr auto kInterval = std::chrono::milliseconds(100);
    const bool last = done == total;
    if (total < (int64_t{16} << 20) || (!last && now - shown < kInterval)) return;
    shown = now;
    const double seconds = std::chrono::duration<double>(now - begin).count();
    std::fprintf(stderr, "\r%s %.0f%% of %.1f MiB, %.0f MB/s%s", what,
                 100.0 * static_cast<double>(done) / static_cast<double>(total),
                 static_cast<double>(total) / (1 << 20), static_cast<double>(done) / seconds * 1e-6,
                 last ? "\n" : "");
  };
}

absl::Status NeedSession(const Args& args) {
  if (!SessionToken(args).empty()) return absl::OkStatus();
  return InvalidArgument(Reason::kUnknownOption, "--session", "", "a token of rlk session open",
                         "tensors live in a session: name it, or set RLK_SESSION");
}

Json TensorJson(const client::ResidentTensor& tensor) {
  return {{"handle", HandleText(tensor.handle)},
          {"generation", tensor.handle.generation()},
          {"dtype", std::string(DTypeName(tensor.dtype))},
          {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
          {"bytes", tensor.bytes},
          {"digest", tensor.digest},
          {"device_uuid", tensor.device_uuid},
          {"label", tensor.label},
          {"lease_ms", tensor.lease_ms},
          {"poisoned", tensor.poisoned}};
}

std::string TensorTable(const std::vector<client::ResidentTensor>& tensors) {
  Table table({"handle", "dtype", "shape", "bytes", "device", "generation", "label", "digest"});
  for (const client::ResidentTensor& tensor : tensors) {
    table.Add({HandleText(tensor.handle), std::string(DTypeName(tensor.dtype)),
               ShapeText(tensor.shape), std::to_string(tensor.bytes), tensor.device_uuid,
               std::to_string(tensor.handle.generation()) + (tensor.poisoned ? " poisoned" : ""),
               tensor.label, tensor.digest});
  }
  return table.Text();
}

// The seconds of an option, 0 where it is not given.
absl::StatusOr<std::chrono::milliseconds> Lease(const Args& args, const char* option) {
  RLK_ASSIGN_OR_RETURN(const int64_t seconds, args.GetInteger(option, 0, 1, kLeaseSecondsMax));
  return std::chrono::milliseconds(seconds * 1000);
}

absl::StatusOr<std::vector<client::ResidentTensor>> ParseHandles(const Args& args) {
  std::vector<client::ResidentTensor> tensors;
  for (const std::string& word : args.positional()) {
    RLK_ASSIGN_OR_RETURN(rlk::v1::TensorHandle handle, ParseHandle(word));
    tensors.push_back({.handle = std::move(handle)});
  }
  return tensors;
}

}  // namespace

Outcome RunPut(const Args& args) {
  if (args.positional().size() != 1) {
    return UsageError(absl::InvalidArgumentError("rlk put takes one VALUE"));
  }
  if (absl::Status status = NeedSession(args); !status.ok()) return UsageError(status);
  const auto tensor = LoadTensor(args.positional()[0]);
  if (!tensor.ok()) return UsageError(tensor.status());
  const auto lease = Lease(args, "--lease");
  if (!lease.ok()) return UsageError(lease.status());
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto put = client->Put(tensor->ref(), {.device_uuid = args.Get("--device"),
                                               .label = args.Get("--label", args.positional()[0]),
                                               .lease = *lease,
                                               .reuse = args.Has("--reuse"),
                                               .progress = ShowProgress("put")});
  if (!put.ok()) return CallError(put.status());
  Outcome outcome;
  outcome.json = Dump(TensorJson(*put));
  outcome.text = HandleText(put->handle) + "\n";
  return outcome;
}

Outcome RunGet(const Args& args) {
  const std::string out = args.Get("--out");
  const bool npy = out.ends_with(".npy");
  if (args.positional().size() != 1 || (!npy && !out.ends_with(".safetensors"))) {
    return UsageError(absl::InvalidArgumentError(
        "rlk get takes one HANDLE, and --out FILE.npy or FILE.safetensors"));
  }
  if (absl::Status status = NeedSession(args); !status.ok()) return UsageError(status);
  const auto tensors = ParseHandles(args);
  if (!tensors.ok()) return UsageError(tensors.status());
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto info = client->Describe((*tensors)[0].handle);
  if (!info.ok()) return CallError(info.status());
  const auto tensor = client->Get(*info, {.progress = ShowProgress("get")});
  if (!tensor.ok()) return CallError(tensor.status());
  const std::string key = info->label.empty() ? "tensor" : info->label;
  const absl::Status written =
      npy ? WriteNpy(out, *tensor) : WriteSafetensors(out, {{key, &*tensor}});
  if (!written.ok()) return UsageError(written);
  Outcome outcome;
  outcome.json = Dump(TensorJson(*info));
  outcome.text = TensorTable({*info}) + "wrote " + out + "\n";
  return outcome;
}

Outcome RunLs(const Args& args) {
  if (!args.positional().empty()) {
    return UsageError(absl::InvalidArgumentError("rlk ls takes no argument"));
  }
  if (absl::Status status = NeedSession(args); !status.ok()) return UsageError(status);
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto tensors = client->ListTensors();
  if (!tensors.ok()) return CallError(tensors.status());
  Json json = Json::array();
  for (const client::ResidentTensor& tensor : *tensors) json.push_back(TensorJson(tensor));
  Outcome outcome;
  outcome.json = Dump({{"tensors", std::move(json)}});
  outcome.text = TensorTable(*tensors);
  return outcome;
}

Outcome RunRm(const Args& args) {
  if (args.positional().empty()) {
    return UsageError(absl::InvalidArgumentError("rlk rm takes the HANDLEs to release"));
  }
  if (absl::Status status = NeedSession(args); !status.ok()) return UsageError(status);
  const auto tensors = ParseHandles(args);
  if (!tensors.ok()) return UsageError(tensors.status());
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  if (absl::Status status = client->Release(*tensors); !status.ok()) return CallError(status);
  Outcome outcome;
  outcome.json = Dump({{"released", tensors->size()}});
  return outcome;
}

Outcome RunSession(const Args& args) {
  const std::string verb = args.positional().size() == 1 ? args.positional()[0] : "";
  if (verb != "open" && verb != "close" && verb != "renew") {
    return UsageError(InvalidArgument(Reason::kUnknownOption, "VERB", verb, "open, renew, close",
                                      "rlk session takes one verb"));
  }
  const auto lease = Lease(args, "--ttl");
  if (!lease.ok()) return UsageError(lease.status());
  if (verb != "open") {
    if (absl::Status status = NeedSession(args); !status.ok()) return UsageError(status);
  }
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  Outcome outcome;
  if (verb == "close") {
    if (absl::Status status = client->CloseSession(); !status.ok()) return CallError(status);
    outcome.json = Dump({{"closed", true}});
    return outcome;
  }
  const auto session = verb == "open" ? client->OpenSession(*lease) : client->RenewSession(*lease);
  if (!session.ok()) return CallError(session.status());
  outcome.json = Dump({{"token", session->token}, {"lease_ms", session->lease.count()}});
  outcome.text = session->token + "\n";
  return outcome;
}

}  // namespace rlk::cli
