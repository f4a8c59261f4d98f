"""rlk.torch.replace on transformers' own models, small and with random weights. Skipped without
transformers.

The bits of the rest of a model are torch's; replaced, the norms and the softcap are the contracts'.
"""

import concurrent.futures
import copy
import importlib

import pytest

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import rlk.torch  # noqa: E402
from rlk import _torch_logits  # noqa: E402

if not hasattr(transformers, "Qwen3NextForCausalLM"):
    pytest.skip(
        f"transformers {transformers.__version__} has no Qwen3-Next", allow_module_level=True
    )

SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "attn_implementation": "eager",
}
QWEN3_NEXT = {
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
OFFSET, CAST = "qwen3_next_rms_norm/leftfold-v1", "rms_norm/hf-v1"
# (class, sizes, {contract: how many})
MODELS = {
    "qwen3_next": (
        "Qwen3NextForCausalLM", QWEN3_NEXT, {OFFSET: 11, "rms_norm_gated/hf-v1": 3},
    ),
    "llama": ("LlamaForCausalLM", {}, {CAST: 5}),
    "qwen2": ("Qwen2ForCausalLM", {}, {CAST: 5}),
    "qwen3": ("Qwen3ForCausalLM", {}, {CAST: 9}),
    "olmo2": ("Olmo2ForCausalLM", {}, {"rms_norm/leftfold-v1": 9}),
    "gemma2": ("Gemma2ForCausalLM", {}, {OFFSET: 9, "final_logit_softcap/portable-v1": 1}),
    "gemma3": (
        "Gemma3ForCausalLM", {"final_logit_softcapping": 30.0},
        {OFFSET: 13, "final_logit_softcap/portable-v1": 1},
    ),
}


def build(name, dtype=torch.float32, **sizes):
    kind, more, _ = MODELS[name]
    cls = getattr(transformers, kind)
    config = cls.config_class(**{**SIZES, **more, **sizes})
    torch.manual_seed(0)
    model = cls(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            # Weights of norms start at 0 or 1, where an offset or a lost weight is not seen.
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.to(dtype)


def tokens(rows=2, length=24):
    return torch.randint(0, SIZES["vocab_size"], (rows, length),
                         generator=torch.Generator().manual_seed(2))


def run(model, ids):
    """Logits, loss and gradients of a step."""
    model.zero_grad()
    out = model(ids, labels=ids, use_cache=False)
    out.loss.backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return out.logits.detach(), out.loss.detach(), grads


@pytest.mark.parametrize("name", MODELS)
def test_models(client, name, record_property):
    model, ids = build(name), tokens()
    own = run(model, ids)
    replaced = rlk.torch.replace(model, client)
    found = [one.contract for one in replaced.replacements]
    assert {contract: found.count(contract) for contract in set(found)} == MODELS[name][2]
    served = run(model, ids)
    worst = (own[0] - served[0]).abs().max().item()
    record_property("largest difference of a logit", worst)
    torch.testing.assert_close(served[0], own[0], rtol=1e-4, atol=1e-4)
    assert own[2].keys() == served[2].keys()
    for parameter, grad in own[2].items():
        scale = grad.abs().max().item()
        torch.testing.assert_close(served[2][parameter], grad, rtol=1e-3, atol=1e-3 * scale)
    # The server was asked: the same bits by it alone, other than torch's.
    again = run(model, ids)
    assert torch.equal(again[0], served[0])
    assert all(torch.equal(again[2][p], grad) for p, grad in served[2].items())
    assert not torch.equal(served[0], own[0])
    replaced.undo()
    assert torch.equal(run(model, ids)[0], own[0])
    assert not model._forward_hooks and not model.lm_head._forward_hooks


@pytest.mark.parametrize("name", ["qwen3_next", "llama"])
def test_bf16(client, name):
    model, ids = build(name, torch.bfloat16), tokens()
    own = model(ids, use_cache=False).logits
    with rlk.torch.replace(model, client):
        served = model(ids, use_cache=False).logits
    assert served.dtype == torch.bfloat16
    torch.testing.assert_close(served, own, rtol=5e-2, atol=5e-2)


def test_names_of_classes_are_not_believed(client):
    """A final norm whose 1 was forgotten, and an offset given to a norm that has none, are what
    they compute, not what they are called."""
    qwen = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    swapped = {
        "Qwen3NextRMSNorm": type("Qwen3NextRMSNorm", (llama.LlamaRMSNorm,), {}),
        "LlamaRMSNorm": type("LlamaRMSNorm", (qwen.Qwen3NextRMSNorm,), {}),
    }
    model = torch.nn.ModuleDict({name: cls(64) for name, cls in swapped.items()})
    contracts = [one.contract for one in rlk.torch.replace(model, client).replacements]
    assert contracts == [CAST, OFFSET]


def test_every_norm_of_transformers_is_mapped_or_refused(client):
    """All that fits into none of the conventions says so."""
    refused = {
        ("bamba", "BambaRMSNormGated"): "follows no contract",  # the gate comes first
        ("deepseek_v4", "DeepseekV4UnweightedRMSNorm"): "it has none",
    }
    for (family, kind), text in refused.items():
        try:
            module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        except ImportError:
            continue
        norm = torch.nn.ModuleList([getattr(module, kind)(64)])
        with pytest.raises(rlk.InvalidArgumentError, match=text):
            rlk.torch.replace(norm, client)


def test_generates_and_copies(client):
    model, ids = build("qwen3_next"), tokens()
    rlk.torch.replace(model, client)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    first = model.generate(ids, **options)
    assert first.shape == (2, 30)
    other = copy.deepcopy(model)
    assert torch.equal(other.generate(ids, **options), first)
    assert rlk.torch.restore(other) == 14
    assert torch.isfinite(other(ids).logits).all()


def test_inference_and_autocast(client):
    model, ids = build("qwen3_next"), tokens()
    rlk.torch.replace(model, client)
    expected = model(ids, use_cache=False).logits
    with torch.inference_mode():
        assert torch.equal(model(ids, use_cache=False).logits, expected)
    with torch.autocast("cpu", torch.bfloat16):  # FP32 weights and BF16 activations
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_gradient_checkpointing_of_the_model(client):
    model, ids = build("qwen3_next"), tokens()
    rlk.torch.replace(model, client)
    plain = run(model.train(), ids)
    model.gradient_checkpointing_enable()
    other = run(model, ids)
    assert torch.equal(plain[1], other[1])
    assert all(torch.equal(other[2][name], grad) for name, grad in plain[2].items())


@pytest.mark.skipif(
    not rlk.torch.HAS_CUSTOM_OP, reason="this torch has no torch.library.custom_op"
)
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_compiles_without_a_graph_break(client, name):
    model, ids = build(name), tokens()
    rlk.torch.replace(model, client)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(ids, use_cache=False).logits, model(ids, use_cache=False).logits)


def test_saved_models_keep_their_config_and_names(client, tmp_path):
    model, ids = build("gemma2"), tokens()
    rlk.torch.replace(model, client)
    served = model(ids).logits
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, attn_implementation="eager")
    assert loaded.config.final_logit_softcapping == 30.0
    assert loaded.config.architectures == ["Gemma2ForCausalLM"]
    torch.testing.assert_close(loaded(ids).logits, served, rtol=1e-4, atol=1e-4)
    rlk.torch.replace(loaded, client)
    assert torch.equal(loaded(ids).logits, served)


def test_the_softcap_is_the_servers_and_comes_once(client):
    model, ids = build("gemma2"), tokens()
    uncapped = copy.deepcopy(model)
    uncapped.config.final_logit_softcapping = None
    raw = uncapped(ids).logits.detach() * 1
    rlk.torch.replace(model, client, skip=["*norm*"])
    capped = model(ids).logits
    assert torch.equal(capped, client.call("final_logit_softcap.forward", x=raw, softcap=30.0).y)
    assert not torch.equal(capped, raw)
    # The head alone is not the model's forward.
    head = model.lm_head(model.model(ids).last_hidden_state)
    assert torch.equal(head, raw)


class Forwards:
    """What a model's forward may do to its logits instead."""

    @staticmethod
    def drops_it(model, logits):
        return logits

    @staticmethod
    def applies_it_twice(model, logits):
        for _ in range(2):
            logits = torch.tanh(logits / 30.0) * 30.0
        return logits

    @staticmethod
    def does_more_between(model, logits):
        return torch.tanh(logits / 30.0 + 1) * 30.0

    @staticmethod
    def stops_early(model, logits):
        return torch.tanh(logits / 30.0)

    @staticmethod
    def takes_another_cap(model, logits):
        return torch.tanh(logits / 20.0) * 20.0

    @staticmethod
    def fails(model, logits):
        raise ZeroDivisionError

    @staticmethod
    def scales_first(model, logits):  # as Muse-Glimmer does
        return torch.tanh(logits * 0.5 / 30.0) * 30.0


class Capped(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.config = transformers.Gemma2Config(**SIZES)
        self.lm_head = torch.nn.Linear(8, 16)
        self.way = forward

    def forward(self, x):
        return self.way(self, self.lm_head(x))


@pytest.mark.parametrize(
    "way,error,text",
    [
        (Forwards.drops_it, rlk.FailedPreconditionError, "did not apply its softcap of 30"),
        (Forwards.applies_it_twice, rlk.FailedPreconditionError, "applies its softcap twice"),
        (Forwards.does_more_between, rlk.FailedPreconditionError, "where tanh was to come"),
        (Forwards.stops_early, rlk.FailedPreconditionError, "did not apply"),
        (Forwards.takes_another_cap, rlk.FailedPreconditionError, "did not apply"),
        (Forwards.fails, ZeroDivisionError, None),
        (Forwards.scales_first, None, None),
    ],
)
def test_a_softcap_that_comes_not_or_twice_is_refused(client, way, error, text):
    model, x = Capped(way), torch.randn(3, 8)
    rlk.torch.replace(model, client)
    for _ in range(2):  # a failed forward leaves nothing behind
        if error is None:
            expected = rlk.torch.final_logit_softcap(model.lm_head(x) * 0.5, client=client)
            assert torch.equal(model(x), expected)
        else:
            with pytest.raises(error, match=text):
                model(x)
        assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize("where", ["before the head", "after the head"])
def test_an_interrupted_forward_watches_nothing(client, where):
    """An interrupt is no Exception: torch calls no hook at the end of the forward."""
    def interrupted(model, logits):
        if stop and where == "after the head":
            raise KeyboardInterrupt
        return Forwards.scales_first(model, logits)

    model, x = Capped(interrupted), torch.randn(3, 8)
    rlk.torch.replace(model, client)
    stop = False
    expected = model(x)

    def interrupt(module, args):
        if stop and where == "before the head":
            raise KeyboardInterrupt

    model.lm_head.register_forward_pre_hook(interrupt)
    for _ in range(2):
        stop = True
        with pytest.raises(KeyboardInterrupt):
            model(x)
        stop = False
        logits = model.lm_head(x)
        assert not torch.equal(logits / 30.0, logits)
        with torch.device("cpu"):  # modes of others come and go above it
            assert torch.equal(torch.tanh(logits / 30.0) * 30.0, (logits / 30.0).tanh().mul(30.0))
        assert torch.equal(model(x), expected)
        assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize(
    "options,field",
    [
        ({"contract": "final_logit_softcap/nothing-v1"}, "options.contract"),
        ({"backend": "nothing"}, "options.backend"),
    ],
)
def test_a_softcap_that_the_server_has_not(client, options, field):
    model = Capped(Forwards.scales_first)
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        rlk.torch.replace(model, client, **options)
    assert caught.value.field == field and not model._forward_hooks


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan"), float("inf"), 1e-60, 1e39])
def test_a_cap_that_is_none_is_refused_by_name(client, cap):
    model = Capped(Forwards.scales_first)
    model.config.final_logit_softcapping = cap
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        rlk.torch.replace(model, client)
    assert caught.value.field == "softcap" and not model._forward_hooks


def test_a_softcap_needs_hooks_that_older_torch_has_not(client, monkeypatch):
    monkeypatch.setattr(_torch_logits, "HAS_HOOKS", False)
    model = Capped(Forwards.scales_first)
    with pytest.raises(rlk.InvalidArgumentError, match="needs a newer torch"):
        rlk.torch.replace(model, client)


def test_forwards_of_several_threads(client):
    model, ids = build("gemma2"), tokens()
    rlk.torch.replace(model, client)
    expected = model(ids).logits

    def forward(at):
        if at % 3 == 0:  # failures of one thread are not those of another
            with pytest.raises(IndexError):
                model(ids + SIZES["vocab_size"])
        return model(ids).logits

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(got, expected) for got in pool.map(forward, range(12)))


def test_a_softcap_of_16_bits_needs_a_word(client):
    model, ids = build("gemma2", torch.bfloat16), tokens()
    with pytest.raises(rlk.InvalidArgumentError, match="softcap_dtype=torch.float32"):
        rlk.torch.replace(model, client)
    own = model(ids).logits
    for dtype in (torch.float32, torch.bfloat16):
        with rlk.torch.replace(model, client, softcap_dtype=dtype):
            served = model(ids).logits
        assert served.dtype == dtype
        torch.testing.assert_close(served.float(), own.float(), rtol=5e-2, atol=5e-2)
    model.float()
    rlk.torch.replace(model, client)
    with pytest.raises(rlk.InvalidArgumentError, match="bfloat16 logits"):
        model.bfloat16()(ids)
    with pytest.raises(rlk.InvalidArgumentError, match="already"):
        rlk.torch.replace(model, client, skip=["*norm*"])
