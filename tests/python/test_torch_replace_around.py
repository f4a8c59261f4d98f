"""What rlk.torch.replace does where something else stands around it. Skipped without torch."""

import pytest

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")

import rlk.torch  # noqa: E402
from norm_modules import GatedCastRMSNorm, GemmaLikeRMSNorm, LlamaLikeRMSNorm  # noqa: E402
from norm_modules import OlmoLikeRMSNorm  # noqa: E402
from rlk import _torch_modules  # noqa: E402

WIDTH = 16


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GemmaLikeRMSNorm(WIDTH)
        self.gated = GatedCastRMSNorm(WIDTH)
        self.last = LlamaLikeRMSNorm(WIDTH)

    def forward(self, x):
        return self.last(self.gated(self.first(x), x))


@pytest.mark.parametrize(
    "around",
    [
        torch.no_grad(),
        torch.inference_mode(),
        pytest.param(
            torch.device("meta"),
            marks=pytest.mark.skipif(
                not hasattr(torch.device, "__enter__"), reason="no context in this torch"
            ),
        ),
    ],
    ids=str,
)
def test_replaces_whatever_stands_around(client, around):
    model = Model()
    with around:
        replaced = rlk.torch.replace(model, client)
    assert len(replaced.replacements) == 3
    model(torch.ones(2, WIDTH)).sum().backward()
    assert model.first.weight.grad is not None


def test_a_module_of_several_names_is_skipped_by_any(client):
    shared = OlmoLikeRMSNorm(8)
    model = torch.nn.ModuleDict({"a": shared, "b": shared, "c": OlmoLikeRMSNorm(8)})
    for skip in (["a"], ["b"], ["[ab]"]):
        with rlk.torch.replace(model, client, skip=skip) as replaced:
            assert [one.name for one in replaced.replacements] == ["c"]
    with rlk.torch.replace(model, client) as replaced:
        assert [one.name for one in replaced.replacements] == ["a", "c"]


def test_what_is_interrupted_replaces_nothing(client, monkeypatch):
    model = Model()
    serve = _torch_modules.serve

    def interrupted(module, binding):
        if module is model.last:
            raise KeyboardInterrupt
        serve(module, binding)

    monkeypatch.setattr(_torch_modules, "serve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rlk.torch.replace(model, client)
    assert [type(m) for m in (model.first, model.gated, model.last)] == [
        GemmaLikeRMSNorm, GatedCastRMSNorm, LlamaLikeRMSNorm
    ]
    assert rlk.torch.restore(model) == 0 and "_rlk" not in vars(model.first)
