#include "client/cli/load_kinds.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client/cli/numbers.h"
#include "client/cli/random.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

using CallFn = std::function<absl::Status()>;
using client::Arena;
using client::ArenaKind;
using client::ArenaSlot;
using client::Client;

// An input of a call and the random tensor that it is.
struct Input {
  const char* name;
  const char* spec;
};

absl::StatusOr<client::CallRequest> MakeRequest(const char* method,
                                                const std::vector<Input>& inputs) {
  client::CallRequest request{.method = method};
  for (const Input& input : inputs) {
    RLK_ASSIGN_OR_RETURN(const client::Tensor tensor, MakeRandom(input.spec));
    request.inputs.emplace_back(input.name, tensor.ref());
  }
  return request;
}

absl::StatusOr<CallFn> InlineCall(const Client& client, const char* method,
                                  const std::vector<Input>& inputs) {
  RLK_ASSIGN_OR_RETURN(client::CallRequest request, MakeRequest(method, inputs));
  return CallFn([&client, request = std::move(request)] { return client.Call(request).status(); });
}

// Inputs and output stay on the server, the output in place.
absl::StatusOr<CallFn> ResidentCall(const Client& client, const char* method, const char* output,
                                    const char* output_spec, const std::vector<Input>& inputs) {
  client::CallRequest request{.method = method};
  for (const Input& input : inputs) {
    RLK_ASSIGN_OR_RETURN(const client::Tensor tensor, MakeRandom(input.spec));
    RLK_ASSIGN_OR_RETURN(const client::ResidentTensor resident, client.Put(tensor.ref()));
    request.inputs.emplace_back(input.name, resident.ref());
  }
  RLK_ASSIGN_OR_RETURN(const client::Tensor tensor, MakeRandom(output_spec));
  RLK_ASSIGN_OR_RETURN(const client::ResidentTensor into, client.Put(tensor.ref()));
  *(*request.options.mutable_outputs())[output].mutable_resident()->mutable_into() = into.handle;
  return CallFn([&client, request = std::move(request), output]() mutable -> absl::Status {
    RLK_ASSIGN_OR_RETURN(const client::CallResult result, client.Call(request));
    const client::ResidentTensor* written = result.Resident(output);
    if (written == nullptr) return absl::InternalError("the output did not stay on the server");
    // The next call has to name the generation that this one made.
    *(*request.options.mutable_outputs())[output].mutable_resident()->mutable_into() =
        written->handle;
    return absl::OkStatus();
  });
}

// Input and output in slots of memory that the server shares. Both slots go with the call.
absl::StatusOr<CallFn> ArenaCall(const Client& client, ArenaKind in, ArenaKind out,
                                 const char* spec) {
  RLK_ASSIGN_OR_RETURN(const client::Tensor tensor, MakeRandom(spec));
  const auto bytes = static_cast<int64_t>(tensor.bytes().size());
  // Room for both tensors and what their alignment takes, where one arena is for both.
  constexpr int64_t kAlignment = 256;
  RLK_ASSIGN_OR_RETURN(const Arena read, client.OpenArena(in, 2 * (bytes + kAlignment)));
  Arena written = read;
  if (out != in) {
    RLK_ASSIGN_OR_RETURN(written, client.OpenArena(out, bytes + kAlignment));
  }
  RLK_ASSIGN_OR_RETURN(ArenaSlot x, read.Take(bytes));
  RLK_ASSIGN_OR_RETURN(ArenaSlot y, written.Take(bytes));
  // New memory of a GPU is zero, which is as good a logit as any.
  if (in != ArenaKind::kDevice) {
    std::copy(tensor.bytes().begin(), tensor.bytes().end(), x.mutable_bytes().begin());
  }
  client::CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref(tensor.dtype(), tensor.shape())}};
  *(*request.options.mutable_outputs())["y"].mutable_arena() = y.place();
  const auto slots = std::make_shared<std::pair<ArenaSlot, ArenaSlot>>(std::move(x), std::move(y));
  return CallFn([&client, request = std::move(request), slots]() -> absl::Status {
    RLK_ASSIGN_OR_RETURN(const client::CallResult result, client.Call(request));
    if (result.placed.size() == 1) return absl::OkStatus();
    return absl::InternalError("the output is not in its slot");
  });
}

absl::StatusOr<CallFn> Download(const Client& client, const char* spec) {
  RLK_ASSIGN_OR_RETURN(const client::Tensor tensor, MakeRandom(spec));
  RLK_ASSIGN_OR_RETURN(const client::ResidentTensor resident, client.Put(tensor.ref()));
  return CallFn([&client, resident] { return client.Get(resident).status(); });
}

absl::StatusOr<CallFn> Upload(const Client& client, const char* spec) {
  RLK_ASSIGN_OR_RETURN(const client::Tensor tensor, MakeRandom(spec));
  return CallFn([&client, tensor = tensor.ref()]() -> absl::Status {
    RLK_ASSIGN_OR_RETURN(const client::ResidentTensor resident, client.Put(tensor));
    return client.Release({resident});
  });
}

}  // namespace

const std::vector<LoadKind>& LoadKinds() {
  static const std::vector<LoadKind> kinds = {
      {"small", "final_logit_softcap.forward of 128 bytes, inline",
       [](const Client& client) {
         return InlineCall(client, "final_logit_softcap.forward", {{"x", "random:32:f32:1:30"}});
       }},
      {"softcap", "final_logit_softcap.forward of 4x4096 BF16, inline",
       [](const Client& client) {
         return InlineCall(client, "final_logit_softcap.forward",
                           {{"x", "random:4x4096:bf16:1:30"}});
       }},
      {"softcap_backward", "final_logit_softcap.backward of 4x4096 BF16, inline",
       [](const Client& client) {
         return InlineCall(client, "final_logit_softcap.backward",
                           {{"x", "random:4x4096:bf16:1:30"}, {"grad_y", "random:4x4096:bf16:2"}});
       }},
      {"rms_norm", "rms_norm.forward of 8x2048 BF16, inline",
       [](const Client& client) {
         return InlineCall(client, "rms_norm.forward",
                           {{"x", "random:8x2048:bf16:1"}, {"weight", "random:2048:bf16:2"}});
       }},
      {"rms_norm_backward", "rms_norm.backward of 8x2048 BF16, inline",
       [](const Client& client) {
         return InlineCall(client, "rms_norm.backward",
                           {{"x", "random:8x2048:bf16:1"},
                            {"weight", "random:2048:bf16:2"},
                            {"grad_y", "random:8x2048:bf16:3"}});
       }},
      {"det_linear", "det_linear.forward of 4x256 by 256x256 FP32, inline",
       [](const Client& client) {
         return InlineCall(client, "det_linear.forward",
                           {{"x", "random:4x256:f32:1"}, {"weight", "random:256x256:f32:2"}});
       }},
      {"resident", "final_logit_softcap.forward of 64x4096 FP32 that stays on the server, in place",
       [](const Client& client) {
         return ResidentCall(client, "final_logit_softcap.forward", "y", "random:64x4096:f32:2",
                             {{"x", "random:64x4096:f32:1:30"}});
       }},
      {"resident_norm", "rms_norm.forward of 64x2048 BF16 that stays on the server, in place",
       [](const Client& client) {
         return ResidentCall(client, "rms_norm.forward", "y", "random:64x2048:bf16:3",
                             {{"x", "random:64x2048:bf16:1"}, {"weight", "random:2048:bf16:2"}});
       }},
      {"upload", "a stream of 4 MiB to the server, and its release",
       [](const Client& client) { return Upload(client, "random:1024x1024:f32:1"); }},
      {"download", "a stream of 4 MiB from the server, of a tensor that stays there",
       [](const Client& client) { return Download(client, "random:1024x1024:f32:1"); }},
      {"host_arena",
       "final_logit_softcap.forward of 64x4096 FP32 from host memory shared with the server into "
       "such memory; on a Unix socket",
       [](const Client& client) {
         return ArenaCall(client, ArenaKind::kHostInput, ArenaKind::kHostOutput,
                          "random:64x4096:f32:1:30");
       }},
      {"device_arena",
       "final_logit_softcap.forward of 64x4096 FP32 of zeros from memory of a GPU shared with the "
       "server into such memory; on a Unix socket",
       [](const Client& client) {
         return ArenaCall(client, ArenaKind::kDevice, ArenaKind::kDevice,
                          "random:64x4096:f32:1:30");
       }},
  };
  return kinds;
}

absl::StatusOr<std::vector<MixPart>> ParseMix(const std::string& text) {
  std::vector<std::string> names;
  for (const LoadKind& kind : LoadKinds()) names.emplace_back(kind.name);
  const std::string allowed =
      "NAME or NAME=WEIGHT with commas between, each once; weights in [1, 1000]; names: " +
      client::JoinNames(names);
  std::vector<MixPart> mix;
  std::string rest = text + ",";
  for (size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1)) {
    const std::string part = rest.substr(0, comma);
    const size_t equals = part.find('=');
    MixPart parsed;
    for (const LoadKind& kind : LoadKinds()) {
      if (part.substr(0, equals) == kind.name) parsed.kind = &kind;
    }
    for (const MixPart& other : mix) {
      if (other.kind == parsed.kind) parsed.kind = nullptr;
    }
    if (equals != std::string::npos) {
      parsed.weight = ParseInteger<int64_t>(part.substr(equals + 1)).value_or(0);
    }
    if (parsed.kind == nullptr || parsed.weight < 1 || parsed.weight > 1000) {
      return InvalidArgument(Reason::kUnknownOption, "--mix", part, allowed,
                             "the part of the mix is not allowed");
    }
    mix.push_back(parsed);
  }
  return mix;
}

size_t PartOfCall(const std::vector<MixPart>& mix, uint64_t seed, int64_t call) {
  int64_t total = 0;
  for (const MixPart& part : mix) total += part.weight;
  auto at = static_cast<int64_t>(RandomBits(seed, static_cast<uint64_t>(call)) %
                                 static_cast<uint64_t>(total));
  for (size_t i = 0; i < mix.size(); ++i) {
    at -= mix[i].weight;
    if (at < 0) return i;
  }
  return mix.size() - 1;
}

}  // namespace rlk::cli
