"""rlk.torch.replace on norms that are written here, and the modules. Skipped without torch."""

import copy
import io
import pickle

import pytest

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.utils.checkpoint  # noqa: E402

import rlk.torch  # noqa: E402
from norm_modules import (  # noqa: E402
    MAPPED,
    REFUSED,
    BiasedRMSNorm,
    BiaslessLayerNorm,
    DtypeEpsRMSNorm,
    GatedCastRMSNorm,
    GemmaLikeRMSNorm,
    HiddenRMSNorm,
    LlamaLikeRMSNorm,
    OlmoLikeRMSNorm,
)
from rlk import _torch_convention  # noqa: E402

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
WIDTH = 64


def make(*shape, seed=0, dtype=F32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def with_weight(module, dtype=F32):
    with torch.no_grad():
        module.weight.copy_(make(*module.weight.shape, seed=5))
    return module.to(dtype)


class Model(torch.nn.Module):
    """Norms of two conventions side by side, and what is none."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.first = GemmaLikeRMSNorm(width)
        self.linear = torch.nn.Linear(width, width)
        self.gated = GatedCastRMSNorm(width)
        self.other = BiaslessLayerNorm(width)
        self.last = LlamaLikeRMSNorm(width)

    def forward(self, x):
        y = self.linear(self.first(x))
        return self.last(self.other(self.gated(y, x)))


def inputs(case, dtype=F32):
    x = make(3, 5, WIDTH, seed=1, dtype=dtype)
    return [x, make(3, 5, WIDTH, seed=2, dtype=dtype)] if MAPPED[case][3] else [x]


@pytest.mark.parametrize("case", MAPPED)
def test_finds_the_convention(client, case):
    build, contract, offset, activation, pairs = MAPPED[case]
    model = torch.nn.Sequential(with_weight(build(WIDTH)))
    replaced = rlk.torch.replace(model, client)
    (one,) = replaced.replacements
    assert (one.name, one.contract) == ("0", contract)
    assert one.attributes.get("activation") == activation
    assert one.attributes["weight_offset"] == offset and one.attributes["eps"] == 1e-6
    assert one.differing < 1e-3
    assert len(model[0]._rlk.dtypes) == pairs
    assert contract in repr(model) and contract in str(replaced)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("case", MAPPED)
def test_computes_what_the_module_computed(client, case, dtype):
    module = with_weight(MAPPED[case][0](WIDTH), dtype)
    model = torch.nn.ModuleList([module])
    results = []
    for served in (False, True):
        if served:
            rlk.torch.replace(model, client)
        leaves = [tensor.requires_grad_() for tensor in inputs(case, dtype)] + [module.weight]
        y = module(*leaves[:-1])
        assert y.dtype == dtype
        grads = torch.autograd.grad(y, leaves, make(*y.shape, seed=9, dtype=dtype))
        results.append([y.detach(), *grads])
    limit = {F32: 1e-5, F16: 2e-3, BF16: 2e-2}[dtype]
    for own, ours in zip(*results):
        assert own.dtype == ours.dtype
        scale = own.abs().max().item()
        torch.testing.assert_close(ours, own, rtol=limit, atol=limit * scale)
    # And the bits are those of the direct call, with the contract that was found.
    operator, contract = MAPPED[case][1].split("/")[0], MAPPED[case][1]
    arguments = {"x": leaves[0].detach(), "weight": module.weight.detach()}
    if MAPPED[case][3]:
        arguments.update(gate=leaves[1].detach(), activation=MAPPED[case][3])
    if operator != "qwen3_next_rms_norm":
        arguments["weight_offset"] = MAPPED[case][2]
    direct = client.call(operator + ".forward", contract=contract, eps=1e-6, **arguments)
    assert torch.equal(direct.y, results[1][0])


@pytest.mark.parametrize("width", [1, 2, 16, 128, 2048])
@pytest.mark.parametrize("case", MAPPED)
def test_no_convention_passes_for_another(client, case, width):
    """Every other convention is far away, so that none is taken for it at any width."""
    build, contract, offset, activation, _ = MAPPED[case]
    module = with_weight(build(width))
    caller = _torch_convention._Caller(module, 1e-6, bool(activation), client, None)
    for one in _torch_convention.CONVENTIONS:
        if one.gated != bool(activation):
            continue
        share = caller.share(one, (BF16, BF16))
        is_own = (one.weight_offset, one.activation) == (offset, activation or "")
        if is_own and contract in one.contracts:
            assert share < 1e-3
        else:
            assert share > 0.05


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_by_name(client, case):
    build, text = REFUSED[case]
    model = torch.nn.ModuleDict({"good": OlmoLikeRMSNorm(WIDTH), "bad": build(WIDTH)})
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        rlk.torch.replace(model, client)
    assert caught.value.field == "bad" and text in str(caught.value)
    assert [name for name, _ in caught.value.violations] == ["bad"]
    # Nothing was replaced, and the module can be left alone by name.
    assert type(model["good"]) is OlmoLikeRMSNorm
    replaced = rlk.torch.replace(model, client, skip=["b*"])
    assert [one.name for one in replaced.replacements] == ["good"]


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("case", MAPPED)
def test_narrow_norms_are_norms(client, case, width):
    """Little is left of the gradient of x, which is a difference."""
    module = with_weight(MAPPED[case][0](width))
    (found,) = rlk.torch.replace(torch.nn.ModuleList([module]), client).replacements
    assert found.contract == MAPPED[case][1]


def test_names_every_problem_at_once(client):
    model = torch.nn.ModuleDict({"a": BiasedRMSNorm(8), "b": DtypeEpsRMSNorm(8)})
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        rlk.torch.replace(model, client)
    assert [name for name, _ in caught.value.violations] == ["a", "b"]


def test_norms_of_another_kind_are_kept_and_said(client):
    model = Model()
    replaced = rlk.torch.replace(model, client)
    assert [one.name for one in replaced.replacements] == ["first", "gated", "last"]
    ((name, reason),) = replaced.kept
    assert name == "other" and "BiaslessLayerNorm: its forward follows no contract" in reason
    assert "other  kept: BiaslessLayerNorm" in str(replaced)


@pytest.mark.parametrize(
    "options,field,text",
    [
        ({"contract": "rms_norm_gated/leftfold-v1"}, "gated", "not of rms_norm_gated/leftfold-v1"),
        ({"contract": "rms_norm/leftfold-v1"}, "last", "its forward is that of rms_norm/hf-v1"),
        ({"contract": "det_linear/bf16-k128-v1"}, "contract", "nothing in the model takes det_"),
        ({"contract": ["rms_norm/hf-v1", "nothing"]}, "contract", "takes nothing"),
        ({"skip": ["first", "nowhere"]}, "skip", "nothing in the model takes nowhere"),
        ({"backend": "nothing"}, "options.backend", "nothing"),
        ({"skip": ["*"]}, "model", "no RMSNorm"),
    ],
)
def test_arguments_that_fit_nothing(client, options, field, text):
    model = Model()
    with pytest.raises(rlk.RlkError) as caught:
        rlk.torch.replace(model, client, **options)
    assert caught.value.field == field and text in str(caught.value)
    assert type(model.first) is GemmaLikeRMSNorm


def test_each_module_takes_the_contract_that_it_has(client):
    asked = ["qwen3_next_rms_norm/chunk128-v1", "rms_norm/hf-v1"]
    model = Model()
    replaced = rlk.torch.replace(model, client, contract=asked, backend="cpu")
    assert [one.contract for one in replaced.replacements] == [
        "qwen3_next_rms_norm/chunk128-v1",
        "rms_norm_gated/hf-v1",
        "rms_norm/hf-v1",
    ]
    x, grad = make(300, WIDTH), make(300, WIDTH, seed=1)
    model.first(x).backward(grad)
    weight = model.first.weight
    for contract, equal in (("chunk128-v1", True), ("leftfold-v1", False)):
        direct = client.call(
            "qwen3_next_rms_norm.backward",
            contract="qwen3_next_rms_norm/" + contract,
            **{"x": x, "weight": weight.detach(), "grad_y": grad},
        )
        assert torch.equal(direct.grad_weight, weight.grad) == equal


def test_undo_gives_everything_back(client):
    model = Model()
    x = make(4, WIDTH)
    before, keys = model(x), list(model.state_dict())
    parameters = [id(p) for p in model.parameters()]
    replaced = rlk.torch.replace(model, client)
    assert isinstance(model.first, GemmaLikeRMSNorm)
    assert list(model.state_dict()) == keys
    assert [id(p) for p in model.parameters()] == parameters
    served = model(x)
    assert not torch.equal(served, before)  # close, and not the same bits
    replaced.undo()
    replaced.undo()
    assert type(model.first) is GemmaLikeRMSNorm and "_rlk" not in vars(model.first)
    assert torch.equal(model(x), before)
    with rlk.torch.replace(model, client):
        assert torch.equal(model(x), served)
    assert torch.equal(model(x), before)


def test_replacing_twice_is_refused(client):
    model = Model()
    rlk.torch.replace(model, client)
    with pytest.raises(rlk.InvalidArgumentError, match="runs on a server already"):
        rlk.torch.replace(model, client)
    assert rlk.torch.restore(model) == 3 and rlk.torch.restore(model) == 0
    rlk.torch.replace(model, client)


def test_copies_are_served_and_restored_on_their_own(client):
    model = Model()
    rlk.torch.replace(model, client)
    other = copy.deepcopy(model)
    x = make(4, WIDTH)
    with torch.no_grad():
        other.first.weight.mul_(2)
    assert not torch.equal(model(x), other(x))
    other.load_state_dict(model.state_dict())
    served = model(x)
    assert torch.equal(served, other(x))
    assert rlk.torch.restore(other) == 3
    assert type(other.first) is GemmaLikeRMSNorm
    assert not torch.equal(other(x), served) and torch.equal(model(x), served)


def test_classes_that_came_since_are_undone_first(client):
    module = OlmoLikeRMSNorm(8)
    model = torch.nn.ModuleList([module])
    rlk.torch.replace(model, client)
    x = make(2, 8)
    served = module(x)
    torch.nn.utils.parametrize.register_parametrization(module, "weight", torch.nn.Identity())
    assert torch.equal(module(x), served)
    with pytest.raises(rlk.FailedPreconditionError, match="another class was put before"):
        rlk.torch.restore(model)
    torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
    assert rlk.torch.restore(model) == 1 and type(module) is OlmoLikeRMSNorm


def test_sharded_weights_are_gathered_before_calls(client):
    if not hasattr(torch.distributed, "device_mesh"):
        pytest.skip(f"torch {torch.__version__} has no device meshes")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip(f"torch {torch.__version__} has no fully_shard")
    model, x = Model(), make(4, WIDTH)
    rlk.torch.replace(model, client)
    served = model(x)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        for module in (model.first, model.gated, model):
            fsdp.fully_shard(module, mesh=mesh)
        y = model(x)
        assert torch.equal(y, served)
        y.sum().backward()
        assert all(p.grad is not None for p in model.parameters())
    finally:
        torch.distributed.destroy_process_group()


def test_state_travels_as_a_state_dict_and_modules_are_not_pickled(client):
    model = Model()
    rlk.torch.replace(model, client)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    Model().load_state_dict(torch.load(file))
    for module in (model, rlk.torch.RMSNorm(4), rlk.torch.FinalLogitSoftcap()):
        with pytest.raises(TypeError, match="state_dict"):
            pickle.dumps(module)
    rlk.torch.restore(model)
    pickle.loads(pickle.dumps(model))


def test_hooks_and_keywords_reach_the_module(client):
    model = torch.nn.ModuleList([GatedCastRMSNorm(8)])
    x, gate = make(2, 8), make(2, 8, seed=1)
    seen = []
    model[0].register_forward_hook(lambda *event: seen.append(event[2]))
    rlk.torch.replace(model, client)
    assert seen == []  # the probe is not seen
    y = model[0](gate=gate, hidden_states=x)
    assert seen[0] is y and torch.equal(y, model[0](x, gate))
    for args, kwargs in (((x,), {}), ((x, gate, gate), {}), ((x,), {"z": gate}),
                         ((x, gate), {"gate": gate})):
        with pytest.raises(TypeError, match="takes hidden_states, gate"):
            model[0](*args, **kwargs)


def test_modules_of_one_class_are_looked_at_by_all_that_they_hold(client):
    """A private attribute or a function makes another convention of the same class."""
    norms = [
        with_weight(HiddenRMSNorm(WIDTH, offset, activation))
        for offset in (0.0, 1.0)
        for activation in (torch.nn.functional.silu, torch.sigmoid)
    ]
    model = torch.nn.ModuleList(norms)
    x, gate = make(4, WIDTH), make(4, WIDTH, seed=1)
    own = [norm(x, gate) for norm in model]
    found = [one.attributes for one in rlk.torch.replace(model, client).replacements]
    assert [(one["weight_offset"], one["activation"]) for one in found] == [
        (0.0, "silu"), (0.0, "sigmoid"), (1.0, "silu"), (1.0, "sigmoid")
    ]
    for norm, y in zip(model, own):
        torch.testing.assert_close(norm(x, gate), y, rtol=2e-5, atol=1e-6)


class Changed:
    """Ways to make a replaced module compute something that its own forward would not."""

    @staticmethod
    def eps(module):
        module.eps = 1e-5

    @staticmethod
    def private(module):
        module._limit = 2.0

    @staticmethod
    def forward(module):
        module.forward = lambda x: x

    @staticmethod
    def dtype(module):
        module.weight.data = module.weight.data.to(torch.float64)


@pytest.mark.parametrize(
    "change,error,text",
    [
        (Changed.eps, rlk.FailedPreconditionError, "eps was 1e-06"),
        (Changed.private, rlk.FailedPreconditionError, "_limit was 1.0"),
        (Changed.forward, rlk.FailedPreconditionError, "runs on a server"),
        (Changed.dtype, rlk.InvalidArgumentError, "float32 with float64"),
    ],
)
def test_a_change_that_the_server_would_not_see_is_refused(client, change, error, text):
    module = OlmoLikeRMSNorm(8)
    module._limit = 1.0
    rlk.torch.replace(torch.nn.ModuleList([module]), client)
    with pytest.raises(error, match=text):
        change(module)
        module(make(2, 8))


def test_dtypes_in_which_the_module_gives_another_are_refused(client):
    """Llama's norm gives float32 for a float32 weight, whatever x is; no contract does."""
    module = LlamaLikeRMSNorm(8)
    rlk.torch.replace(torch.nn.ModuleList([module]), client)
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        module(make(2, 8, dtype=BF16))
    assert caught.value.reason == "DTYPE_NOT_ALLOWED"
    assert caught.value.value == "bfloat16 with float32"
    module.to(BF16)(make(2, 8, dtype=BF16))


def test_a_lost_server_is_an_error_and_no_fallback(server):
    model = Model()
    own = rlk.connect(server.tcp)
    rlk.torch.replace(model, own)
    own.close()
    with pytest.raises(rlk.FailedPreconditionError, match="closed"):
        model(make(2, WIDTH))


def test_the_model_keeps_its_client_alive(server):
    model = Model()
    rlk.torch.replace(model, rlk.connect(server.tcp))
    model(make(2, WIDTH)).sum().backward()


def test_training_checkpointing_and_functional_calls_have_the_same_bits(client):
    model = Model()
    rlk.torch.replace(model, client)
    x = make(6, WIDTH)
    y = model(x)
    y.square().sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        assert torch.equal(model.eval()(x), y)
    model.train().zero_grad()
    for reentrant in (False, True):
        leaf = x.clone().requires_grad_()
        z = torch.utils.checkpoint.checkpoint(model, leaf, use_reentrant=reentrant)
        assert torch.equal(z, y)
        z.square().sum().backward()
        for name, p in model.named_parameters():
            assert torch.equal(p.grad, expected[name])
        model.zero_grad()
    functional = getattr(torch, "func", None) or pytest.importorskip("torch.nn.utils.stateless")
    parameters = {name: (p * 2).detach().requires_grad_() for name, p in model.named_parameters()}
    other = functional.functional_call(model, parameters, (x,))
    other.sum().backward()
    assert all(p.grad is not None for p in parameters.values())
    assert not torch.equal(other, y)


@pytest.mark.skipif(
    not rlk.torch.HAS_CUSTOM_OP, reason="this torch has no torch.library.custom_op"
)
def test_compiles_without_a_graph_break(client):
    model = Model()
    rlk.torch.replace(model, client)
    x = make(6, WIDTH)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), model(x))


def test_modules(client):
    x, gate = make(3, WIDTH), make(3, WIDTH, seed=1)
    modules = [
        (rlk.torch.RMSNorm(WIDTH, 1e-5, client=client), (x,)),
        (rlk.torch.RMSNorm(WIDTH, weight_offset=1.0, client=client), (x,)),
        (rlk.torch.RMSNormGated(WIDTH, activation="sigmoid", client=client), (x, gate)),
        (rlk.torch.FinalLogitSoftcap(20.0, client=client), (x,)),
    ]
    call = {"client": client}
    expected = [
        rlk.torch.rms_norm(x, torch.ones(WIDTH), 1e-5, **call),
        rlk.torch.qwen3_next_rms_norm(x, torch.zeros(WIDTH), **call),
        rlk.torch.rms_norm_gated(x, torch.ones(WIDTH), gate, activation="sigmoid", **call),
        rlk.torch.final_logit_softcap(x, 20.0, **call),
    ]
    for (module, tensors), y in zip(modules, expected):
        assert torch.equal(module(*tensors), y)
        assert torch.equal(copy.deepcopy(module)(*tensors), y)
        assert "contract=default" in repr(module)
    assert modules[0][0].weight.requires_grad
