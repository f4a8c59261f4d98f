// What a call of 128 bytes costs apart from gRPC, part by part: the client's message, its decoding
// in the server, the engine, the reply, its decoding in the client. `rlk bench rpc` measures whole
// calls; here the instructions of one part can be counted (valgrind --tool=callgrind).
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/message.h"
#include "kernels/builtin.h"
#include "proto/wire/call_codec.h"
#include "proto/wire/signatures.h"
#include "server/engine/engine.h"
#include "server/engine/host_device.h"
#include "server/metrics/metrics.h"

namespace rlk {
namespace {

void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

std::string Flat(const wire::OutputBytes& message) {
  std::string bytes;
  for (const wire::OutputPiece& piece : message) {
    bytes += piece.text;
    bytes.append(reinterpret_cast<const char*>(piece.payload.data()), piece.payload.size());
  }
  return bytes;
}

wire::InputBytes Whole(const std::string& bytes) {
  return {{std::as_bytes(std::span(bytes.data(), bytes.size()))}, nullptr};
}

// A server without its transport, and a request for it.
class Setup {
 public:
  Setup() {
    auto bindings = wire::CompileSignatures(wire::OperatorFiles());
    CheckOk(bindings.status());
    bindings_ = *std::move(bindings);
    BuiltinOptions options;
    options.cuda_reason = "this build has no CUDA backend";
    RegisterBuiltin(options, registry_);
    std::vector<MethodSignature> signatures;
    for (const wire::MethodBinding& binding : bindings_) signatures.push_back(binding.signature);
    CheckOk(registry_.Bind(std::move(signatures)));
    std::vector<std::unique_ptr<server::Device>> devices;
    devices.push_back(server::MakeHostDevice({}));
    const std::vector<DeviceInfo> infos = {devices[0]->info()};
    metrics_ = std::make_unique<server::Metrics>(registry_, infos, server::BuildLabels());
    engine_ = std::make_unique<server::Engine>(registry_, server::EngineOptions(),
                                               server::ToleranceContract::Builtin(),
                                               std::move(devices), metrics_.get(), nullptr);
    CheckOk(engine_->Start());
    method_ = registry_.Find("final_logit_softcap.forward");
    for (const wire::MethodBinding& binding : bindings_) {
      if (binding.signature.method == method_->decl.method) binding_ = &binding;
    }
    request_.method = method_->decl.method;
    request_.inputs = {{"x", {.dtype = DType::kF32, .shape = {32}, .data = values_.data()}}};
    rlk::v1::ArenaRef place;
    place.set_arena("0123456789abcdef");
    place.set_generation(7);
    in_arena_.method = method_->decl.method;
    in_arena_.inputs = {{"x", {.dtype = DType::kF32, .shape = {32}, .arena = place}}};
    place.set_offset(4096);
    *(*in_arena_.options.mutable_outputs())["y"].mutable_arena() = place;
    in_arena_.options.set_input_capture(rlk::v1::INPUT_CAPTURE_LIVE);
  }

  wire::OutputBytes Request() const { return Request(request_); }
  // Of tensors that lie in an arena. Nothing here has one, so that the call is not run.
  wire::OutputBytes RequestInArena() const { return Request(in_arena_); }
  wire::OutputBytes Request(const client::CallRequest& request) const {
    auto message = client::EncodeRequest(*binding_, request, client::kInlineBytesMax);
    CheckOk(message.status());
    return *std::move(message);
  }
  Call Decode(const std::string& bytes) const {
    auto call = wire::DecodeCall(*method_, binding_->descriptor->input_type(), Whole(bytes), {});
    CheckOk(call.status());
    return *std::move(call);
  }
  CallResult Run(Call call) const {
    CallResult done;
    engine_->Submit(std::move(call), [&done](absl::StatusOr<CallResult> result) {
      CheckOk(result.status());
      done = *std::move(result);
    });
    return done;
  }
  wire::OutputBytes Reply(const CallResult& result) const {
    return wire::EncodeResult(result, binding_->descriptor->output_type(), "0123456789abcdef");
  }
  client::CallResult DecodeReply(const std::string& bytes) const {
    auto result = client::DecodeReply(*binding_, Whole(bytes));
    CheckOk(result.status());
    return *std::move(result);
  }

 private:
  std::vector<float> values_ = std::vector<float>(32, 1.5F);
  std::vector<wire::MethodBinding> bindings_;
  Registry registry_;
  std::unique_ptr<server::Metrics> metrics_;
  std::unique_ptr<server::Engine> engine_;
  const Method* method_ = nullptr;
  const wire::MethodBinding* binding_ = nullptr;
  client::CallRequest request_, in_arena_;
};

const Setup& Shared() {
  static const Setup& setup = *new Setup;
  return setup;
}

void ClientRequest(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Shared().Request());
}
BENCHMARK(ClientRequest);

void ClientRequestInArena(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Shared().RequestInArena());
}
BENCHMARK(ClientRequestInArena);

void ServerDecodeInArena(benchmark::State& state) {
  const std::string request = Flat(Shared().RequestInArena());
  for (auto _ : state) benchmark::DoNotOptimize(Shared().Decode(request));
}
BENCHMARK(ServerDecodeInArena);

void ServerDecode(benchmark::State& state) {
  const std::string request = Flat(Shared().Request());
  for (auto _ : state) benchmark::DoNotOptimize(Shared().Decode(request));
}
BENCHMARK(ServerDecode);

void ServerEngine(benchmark::State& state) {
  const std::string request = Flat(Shared().Request());
  const Call call = Shared().Decode(request);
  for (auto _ : state) benchmark::DoNotOptimize(Shared().Run(call));
}
BENCHMARK(ServerEngine);

void ServerReply(benchmark::State& state) {
  const std::string request = Flat(Shared().Request());
  const CallResult result = Shared().Run(Shared().Decode(request));
  for (auto _ : state) benchmark::DoNotOptimize(Shared().Reply(result));
}
BENCHMARK(ServerReply);

void ClientReply(benchmark::State& state) {
  const std::string request = Flat(Shared().Request());
  const std::string reply = Flat(Shared().Reply(Shared().Run(Shared().Decode(request))));
  for (auto _ : state) benchmark::DoNotOptimize(Shared().DecodeReply(reply));
}
BENCHMARK(ClientReply);

}  // namespace
}  // namespace rlk
