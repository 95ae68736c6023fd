"""Models with random weights compute the same as in `transformers`: as a whole, in chunks, and token by token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from tiny import CONTEXT, VOCABULARY, write_gpt2, write_model

transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
torch = pytest.importorskip("torch")

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "attn_implementation": "eager",
}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_positions": CONTEXT,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "attn_implementation": "eager",
}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "Llama", {"rope_theta": 500000.0, "tie_word_embeddings": False}),
    "llama-tied": ("llama", "Llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "mistral": ("llama", "Mistral", {"sliding_window": 5, "tie_word_embeddings": False}),
    "qwen2": ("qwen2", "Qwen2", {"num_key_value_heads": 1}),
    "qwen3": ("qwen3", "Qwen3", {"head_dim": 16}),
    "gpt2": ("gpt2", "GPT2", {}),
    "gemma": ("gemma", "Gemma", {"hidden_activation": "gelu_pytorch_tanh"}),
}
BY_DEFAULT = ("qwen3",)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if name not in BY_DEFAULT and not pytestconfig.getoption("--variants"):
        pytest.skip("the other architectures run with --variants")
    architecture, family, further = MODELS[name]
    sizes = GPT2 if architecture == "gpt2" else SIZES
    config = getattr(transformers, f"{family}Config")(**{**sizes, **further})
    torch.manual_seed(0)
    suffix = "LMHeadModel" if architecture == "gpt2" else "ForCausalLM"
    model = getattr(transformers, f"{family}{suffix}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    if architecture == "gpt2":
        write_gpt2(tmp_path / "model.gguf", model)
    else:
        write_model(tmp_path / "model.gguf", model, architecture)
    ids = np.random.default_rng(1).integers(0, VOCABULARY, CONTEXT).astype(np.int32)
    with torch.no_grad():
        expected = model.double()(torch.tensor(ids[None].astype(np.int64))).logits[0].numpy()
    compiled = nacre.compile(tmp_path / "model.gguf", tmp_path / "model.so")
    session = compiled.session(S=CONTEXT)
    tolerance = 1e-5 * float(np.abs(expected).max())
    np.testing.assert_allclose(session.entries["score"](ids), expected, rtol=0, atol=tolerance)
    for sizes in ([7, 1, 16], [1] * CONTEXT):
        session.reset()
        last = 0
        for size in sizes:
            found = session.entries["decode" if size == 1 else "prefill"](ids[last : last + size])
            last += size
            np.testing.assert_allclose(found, expected[last - 1], rtol=0, atol=tolerance)
