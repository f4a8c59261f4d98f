#include "tests/fuzz/path_check.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "google/protobuf/message.h"
#include "kernels/builtin.h"
#include "kernels/core/status.h"
#include "proto/wire/call_codec.h"
#include "proto/wire/signatures.h"
#include "rlk/v1/activation.pb.h"
#include "server/engine/engine.h"
#include "server/engine/host_device.h"
#include "tests/fuzz/checks.h"

namespace rlk::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;

std::atomic<int64_t> computed = 0;

struct Served {
  const Method* method = nullptr;
  const Descriptor* request = nullptr;
  const Descriptor* response = nullptr;
};

// The server's engine with small limits, so that a mutated shape does not ask for gigabytes, nor,
// with strides of 0, for the work of that many elements.
struct Path {
  Path() {
    RegisterBuiltin({}, registry);
    auto bindings = wire::CompileSignatures(wire::OperatorFiles());
    GOOGLE_CHECK(bindings.ok()) << std::string(bindings.status().message());
    std::vector<std::pair<std::string, const google::protobuf::MethodDescriptor*>> descriptors;
    std::vector<MethodSignature> signatures;
    for (auto& binding : *bindings) {
      descriptors.emplace_back(binding.signature.rpc, binding.descriptor);
      signatures.push_back(std::move(binding.signature));
    }
    GOOGLE_CHECK(registry.Bind(std::move(signatures)).ok());
    for (const auto& [rpc, descriptor] : descriptors) {
      served.push_back(
          {registry.FindRpc(rpc), descriptor->input_type(), descriptor->output_type()});
    }
    options.limits.call_bytes_max = 256 << 10;
    options.limits.inline_bytes_max = 64 << 10;
    options.limits.reference_elements_max = 4096;
    options.lanes = 1;
    std::vector<std::unique_ptr<server::Device>> devices;
    devices.push_back(server::MakeHostDevice({.threads = 1, .poison_outputs = true}));
    engine =
        std::make_unique<server::Engine>(registry, options, server::ToleranceContract::Builtin(),
                                         std::move(devices), nullptr, nullptr);
    GOOGLE_CHECK(engine->Start().ok());
  }

  Registry registry;
  server::EngineOptions options;
  std::vector<Served> served;
  std::unique_ptr<server::Engine> engine;
};

Path& ThePath() {
  static Path& path = *new Path;
  return path;
}

void ExpectReason(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  GOOGLE_CHECK(detail.has_value()) << std::string(status.message());
  GOOGLE_CHECK(detail->reason != Reason::kUnknown && detail->reason != Reason::kInternal)
      << std::string(status.message());
  GOOGLE_CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
               status.code() == absl::StatusCode::kFailedPrecondition)
      << status.ToString();
}

absl::StatusOr<CallResult> Run(const Served& served, std::string_view bytes, uint8_t seed) {
  Path& path = ThePath();
  // The pieces refer to a copy that lives as long as the call.
  auto owner = std::make_shared<const std::string>(bytes);
  wire::InputBytes input = Cut(*owner, seed);
  input.owner = owner;
  auto call = wire::DecodeCall(*served.method, served.request, input, path.options.limits);
  if (!call.ok()) return call.status();
  call->received = std::chrono::steady_clock::now();
  std::promise<absl::StatusOr<CallResult>> promise;
  path.engine->Submit(*std::move(call), [&promise](absl::StatusOr<CallResult> result) {
    promise.set_value(std::move(result));
  });
  return promise.get_future().get();
}

std::string Flatten(const HostBytes& bytes) {
  std::string flat;
  for (const auto& piece : bytes.pieces) {
    flat.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  GOOGLE_CHECK_EQ(static_cast<int64_t>(flat.size()), bytes.size);
  return flat;
}

void CheckReply(const CallResult& result, const Descriptor* type) {
  std::string reply;
  for (const auto& piece : wire::EncodeResult(result, type, "provenance")) {
    reply.append(piece.text);
    reply.append(reinterpret_cast<const char*>(piece.payload.data()), piece.payload.size());
  }
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
  GOOGLE_CHECK(message->ParseFromString(reply));
  GOOGLE_CHECK(message->GetReflection()->GetUnknownFields(*message).empty());
}

template <typename M>
std::string Seed(size_t method, const M& message) {
  std::string seed{static_cast<char>(method), 0};
  return seed.append(message.SerializeAsString());
}

}  // namespace

void CheckPath(std::span<const uint8_t> input) {
  if (input.size() < kHeaderBytes) return;
  const std::vector<Served>& all = ThePath().served;
  const Served& served = all[input[0] % all.size()];
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()) + kHeaderBytes,
                               input.size() - kHeaderBytes);
  const auto whole = Run(served, bytes, 0);
  const auto cut = Run(served, bytes, input[1]);
  GOOGLE_CHECK_EQ(whole.ok(), cut.ok());
  if (!whole.ok()) {
    GOOGLE_CHECK(whole.status() == cut.status()) << cut.status().ToString();
    return ExpectReason(whole.status());
  }
  computed.fetch_add(1, std::memory_order_relaxed);
  GOOGLE_CHECK_EQ(whole->outputs.size(), cut->outputs.size());
  for (size_t i = 0; i < whole->outputs.size(); ++i) {
    const OutputTensor& output = whole->outputs[i];
    GOOGLE_CHECK_EQ(output.data.size, ByteCount(output.shape, output.dtype));
    GOOGLE_CHECK(Flatten(output.data) == Flatten(cut->outputs[i].data));
  }
  CheckReply(*whole, served.response);
}

std::vector<std::string> PathSeeds() {
  rlk::v1::FinalLogitSoftcapForwardRequest forward;
  forward.mutable_x()->set_dtype(rlk::v1::DATA_TYPE_F32);
  forward.mutable_x()->add_shape(2);
  forward.mutable_x()->add_shape(3);
  forward.mutable_x()->set_data(std::string(24, '\x3c'));
  forward.set_softcap(20);
  std::vector<std::string> seeds = {Seed(0, forward)};
  rlk::v1::CallOptions& options = *forward.mutable_options();
  options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  options.add_digests(rlk::v1::DIGEST_SCOPE_ROWS);
  options.set_verification(rlk::v1::VERIFICATION_REPEAT);
  seeds.push_back(Seed(0, forward));
  options.set_verification(rlk::v1::VERIFICATION_REFERENCE);
  options.set_mode(rlk::v1::MODE_AUTO);
  seeds.push_back(Seed(0, forward));
  rlk::v1::FinalLogitSoftcapBackwardRequest backward;
  *backward.mutable_x() = forward.x();
  backward.mutable_x()->set_dtype(rlk::v1::DATA_TYPE_BF16);
  backward.mutable_x()->add_strides(8);
  backward.mutable_x()->add_strides(1);
  backward.mutable_x()->set_data(std::string(22, '\x3c'));
  *backward.mutable_grad_y() = forward.x();
  seeds.push_back(Seed(1, backward));
  return seeds;
}

int64_t ComputedInputs() { return computed.load(std::memory_order_relaxed); }

}  // namespace rlk::fuzz
