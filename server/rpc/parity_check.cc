#include "server/rpc/parity_check.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "proto/wire/call_parts.h"
#include "server/parity/check_invariance.h"
#include "server/parity/check_parity.h"
#include "server/rpc/invocation.h"
#include "server/rpc/parity_check_messages.h"
#include "server/rpc/server_service.h"

namespace rlk::server {
namespace {

// One check on its way: what both kinds share.
class CheckRun {
 public:
  CheckRun(const ParityCheckContext& context, const std::shared_ptr<Session>& session,
           const Interrupt& interrupt)
      : context_(context),
        reader_(*context.engine, context.store, session),
        check_(interrupt, limits().parity_work_bytes_max) {}

  absl::Status Decode(const rlk::v1::Invocation& invocation, bool has_gradients,
                      const rlk::v1::GradientOptions& gradients) {
    RLK_ASSIGN_OR_RETURN(invocation_, reader_.Read(invocation));
    methods_ = {invocation_.call.method};
    gradients_ = has_gradients;
    if (!has_gradients) return absl::OkStatus();
    gradient_ = FromProto(gradients);
    RLK_ASSIGN_OR_RETURN(gradient_.given, reader_.Read("gradients.given", gradients.given()));
    RLK_ASSIGN_OR_RETURN(const auto backwards, BackwardMethods(registry(), *methods_.front()));
    methods_.insert(methods_.end(), backwards.begin(), backwards.end());
    for (const auto& [name, tensor] : gradient_.given) RLK_RETURN_IF_ERROR(CheckGiven(name));
    return absl::OkStatus();
  }

  // Where a side names nothing, the invocation's options say it.
  absl::StatusOr<SideOptions> Options(const std::string& backend,
                                      const google::protobuf::RepeatedPtrField<std::string>& named,
                                      const std::string& device_uuid, rlk::v1::Mode mode,
                                      bool digests) const {
    const CallOptions& own = invocation_.options;
    SideOptions options;
    options.backend = backend.empty() ? own.backend : backend;
    options.contracts = {named.begin(), named.end()};
    if (options.contracts.empty() && !own.contract.empty()) options.contracts = {own.contract};
    options.device_uuid = device_uuid.empty() ? own.device_uuid : device_uuid;
    options.allow_fallback =
        mode == rlk::v1::MODE_UNSPECIFIED ? own.allow_fallback : mode == rlk::v1::MODE_AUTO;
    options.digests = digests;
    for (const std::string& contract : options.contracts) {
      RLK_RETURN_IF_ERROR(wire::CheckText("contracts", contract, limits()));
    }
    RLK_RETURN_IF_ERROR(wire::CheckText("backend", options.backend, limits()));
    RLK_RETURN_IF_ERROR(wire::CheckText("device_uuid", options.device_uuid, limits()));
    RLK_RETURN_IF_ERROR(CheckContracts(options.contracts, methods_));
    return options;
  }

  const Limits& limits() const { return context_.engine->options().limits; }
  const Registry& registry() const { return context_.engine->registry(); }
  const ParityCheckContext& context() const { return context_; }
  const ValueReader& reader() const { return reader_; }
  const ValueCall& call() const { return invocation_.call; }
  bool gradients() const { return gradients_; }
  const GradientOptions& gradient() const { return gradient_; }
  CheckContext& check() { return check_; }
  ReportFacts report_facts() const { return {&context_.facts, &context_.engine->tolerance()}; }

 private:
  absl::Status CheckGiven(const std::string& name) const {
    std::string allowed;
    for (const Method* method : methods_) {
      if (FindInput(method->signature, name) >= 0 && name.rfind("grad_", 0) == 0) {
        return absl::OkStatus();
      }
      for (const TensorSpec& spec : method->signature.inputs) {
        if (spec.name.rfind("grad_", 0) != 0) continue;
        absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", spec.name);
      }
    }
    return InvalidArgument(Reason::kUnexpectedTensor, absl::StrCat("gradients.given.", name),
                           "a tensor", allowed, "no backward method takes this gradient");
  }

  const ParityCheckContext& context_;
  const ValueReader reader_;
  CheckContext check_;
  DecodedInvocation invocation_;
  std::vector<const Method*> methods_;
  bool gradients_ = false;
  GradientOptions gradient_;
};

struct BuiltSide {
  ParitySide side;
  std::unique_ptr<CallRunner> runner;
  rlk::v1::SideReport report;
};

// Provided tensors stand alone: what says where and how a side computes would be passed over.
absl::Status CheckProvidedAlone(const rlk::v1::ParitySide& side) {
  const auto refuse = [](const char* field, const std::string& value) {
    return InvalidArgument(Reason::kUnknownOption, field, value, "none beside provided tensors",
                           "a side computes, or is provided, not both");
  };
  if (!side.server().empty()) return refuse("server", side.server());
  if (!side.backend().empty()) return refuse("backend", side.backend());
  if (side.contracts_size() > 0) return refuse("contracts", side.contracts(0));
  if (!side.device_uuid().empty()) return refuse("device_uuid", side.device_uuid());
  if (side.mode() != rlk::v1::MODE_UNSPECIFIED) {
    return refuse("mode", rlk::v1::Mode_Name(side.mode()));
  }
  return absl::OkStatus();
}

absl::StatusOr<BuiltSide> BuildSide(CheckRun& run, const rlk::v1::ParitySide& side) {
  BuiltSide built;
  if (side.provided_size() > 0) {
    RLK_RETURN_IF_ERROR(CheckProvidedAlone(side));
    RLK_ASSIGN_OR_RETURN(built.side.provided, run.reader().Read("provided", side.provided()));
    built.report.set_where("provided");
    return built;
  }
  RLK_ASSIGN_OR_RETURN(SideOptions options,
                       run.Options(side.backend(), side.contracts(), side.device_uuid(),
                                   side.mode(), /*digests=*/true));
  built.side.golden = options.backend == BackendName(Backend::kGolden);
  if (side.server().empty()) {
    const ServerFacts& facts = run.context().facts;
    built.runner = std::make_unique<EngineRunner>(run.context().engine, std::move(options));
    built.report.set_where("this server");
    built.report.set_server_id(facts.server_id);
    FillProvenance(facts.provenance, *built.report.mutable_provenance());
  } else {
    RLK_RETURN_IF_ERROR(wire::CheckText("server", side.server(), run.limits()));
    RLK_ASSIGN_OR_RETURN(const auto channel, run.context().peers->ChannelTo(side.server()));
    auto peer =
        std::make_unique<PeerRunner>(side.server(), channel, std::move(options), run.limits());
    RLK_ASSIGN_OR_RETURN(rlk::v1::GetInfoResponse info, peer->GetInfo(run.check()));
    built.report.set_where(side.server());
    built.report.set_server_id(info.server_id());
    *built.report.mutable_provenance() = std::move(*info.mutable_provenance());
    built.side.local = false;
    built.runner = std::move(peer);
  }
  built.side.runner = built.runner.get();
  return built;
}

absl::StatusOr<BuiltSide> NamedSide(CheckRun& run, const char* name,
                                    const rlk::v1::ParitySide& side) {
  absl::StatusOr<BuiltSide> built = BuildSide(run, side);
  if (!built.ok()) return OfSide(name, built.status());
  return built;
}

absl::StatusOr<Judgment> JudgmentOf(rlk::v1::Judgment judgment) {
  return judgment == rlk::v1::JUDGMENT_UNSPECIFIED ? Judgment::kParity
                                                   : static_cast<Judgment>(judgment);
}

}  // namespace

absl::StatusOr<rlk::v1::CheckParityResponse> RunCheckParity(
    const ParityCheckContext& context, const std::shared_ptr<Session>& session,
    const rlk::v1::CheckParityRequest& request, const Interrupt& interrupt) {
  CheckRun run(context, session, interrupt);
  RLK_RETURN_IF_ERROR(
      run.Decode(request.invocation(), request.has_gradients(), request.gradients()));
  RLK_ASSIGN_OR_RETURN(BuiltSide left, NamedSide(run, "left", request.left()));
  RLK_ASSIGN_OR_RETURN(BuiltSide right, NamedSide(run, "right", request.right()));
  ParityQuery query;
  query.call = run.call();
  query.left = std::move(left.side);
  query.right = std::move(right.side);
  RLK_ASSIGN_OR_RETURN(query.judgment, JudgmentOf(request.judgment()));
  query.gradients = run.gradients();
  query.gradient = run.gradient();
  RLK_ASSIGN_OR_RETURN(
      const ParityResult result,
      CheckParity(run.registry(), context.engine->tolerance(), query, run.check()));
  rlk::v1::CheckParityResponse response;
  *response.mutable_left() = std::move(left.report);
  *response.mutable_right() = std::move(right.report);
  FillParity(result, run.report_facts(), response);
  response.set_calls(run.check().calls());
  response.set_work_bytes(run.check().work_bytes());
  if (context.on_comparison) {
    for (const OutputVerdict& verdict : result.outputs) context.on_comparison(verdict.comparison);
  }
  return response;
}

absl::StatusOr<rlk::v1::CheckInvarianceResponse> RunCheckInvariance(
    const ParityCheckContext& context, const std::shared_ptr<Session>& session,
    const rlk::v1::CheckInvarianceRequest& request, const Interrupt& interrupt) {
  CheckRun run(context, session, interrupt);
  RLK_RETURN_IF_ERROR(
      run.Decode(request.invocation(), request.has_gradients(), request.gradients()));
  RLK_ASSIGN_OR_RETURN(InvarianceOptions options, FromProto(request));
  options.gradients = run.gradients();
  options.gradient = run.gradient();
  RLK_ASSIGN_OR_RETURN(SideOptions side,
                       run.Options({}, request.contracts(), {}, rlk::v1::MODE_UNSPECIFIED, false));
  EngineRunner runner(context.engine, std::move(side));
  RLK_ASSIGN_OR_RETURN(const InvarianceResult result,
                       CheckInvariance(run.registry(), runner, run.call(), options, run.check()));
  rlk::v1::CheckInvarianceResponse response;
  rlk::v1::SideReport& report = *response.mutable_side();
  report.set_where("this server");
  report.set_server_id(context.facts.server_id);
  FillProvenance(context.facts.provenance, *report.mutable_provenance());
  FillInvariance(result, run.report_facts(), response);
  response.set_calls(run.check().calls());
  response.set_work_bytes(run.check().work_bytes());
  if (context.on_comparison) {
    for (const AxisResult& axis : result.axes) {
      if (axis.difference) context.on_comparison(axis.difference->comparison);
    }
  }
  return response;
}

}  // namespace rlk::server
