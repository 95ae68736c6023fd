"""Models of the package `transformers`, with random weights, agree with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

B, T = torch.export.Dim("B", min=1, max=8), torch.export.Dim("T", min=1, max=64)
SIZES = ((2, 7), (1, 1), (3, 20))
TOKENS = 99
SMALL: dict[str, Any] = {"vocab_size": TOKENS, "bos_token_id": 0, "eos_token_id": 1}
USUAL: dict[str, Any] = {
    **SMALL, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip


class One(torch.nn.Module):
    """A model with one of its results, without a cache of keys and values."""

    def __init__(self, model: torch.nn.Module, key: str) -> None:
        super().__init__()
        self.model, self.key = model, key

    def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
        options = {"use_cache": False} if self.key == "logits" else {}
        return getattr(self.model(*arguments, **options), self.key)


def ids(b: int, t: int) -> torch.Tensor:
    return torch.randint(0, TOKENS, (b, t))


def bert() -> torch.nn.Module:
    return One(transformers.BertModel(transformers.BertConfig(**USUAL)), "last_hidden_state")


def gpt2() -> torch.nn.Module:
    config = transformers.GPT2Config(**SMALL, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    return One(transformers.GPT2LMHeadModel(config), "logits")


def llama() -> torch.nn.Module:
    config = transformers.LlamaConfig(**USUAL, num_key_value_heads=2, max_position_embeddings=64)
    return One(transformers.LlamaForCausalLM(config), "logits")


def t5() -> torch.nn.Module:
    config = transformers.T5Config(vocab_size=TOKENS, d_model=32, num_layers=2, num_heads=4, d_kv=8, d_ff=64)
    return One(transformers.T5EncoderModel(config), "last_hidden_state")


def whisper() -> torch.nn.Module:
    config = transformers.WhisperConfig(
        d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, num_mel_bins=16,
        max_source_positions=50,
    )  # fmt: skip
    return One(transformers.models.whisper.modeling_whisper.WhisperEncoder(config), "last_hidden_state")


def only_ids(b: int, t: int) -> tuple[torch.Tensor, ...]:
    return (ids(b, t),)


def with_mask(b: int, t: int) -> tuple[torch.Tensor, ...]:
    return ids(b, t), (torch.arange(t)[None] < torch.randint(1, t + 1, (b, 1))).long()


def sound(b: int, t: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(b, 16, 100),)


DEFAULT = (gpt2,)
"""The models that run without `--variants`."""


@pytest.mark.parametrize(
    ("make", "arguments", "dims"),
    [
        (bert, with_mask, ({0: B, 1: T}, {0: B, 1: T})),
        (gpt2, only_ids, ({0: B, 1: T},)),
        (llama, only_ids, ({0: B, 1: T},)),
        (t5, only_ids, ({0: B, 1: T},)),
        (whisper, sound, ({0: B},)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_model_agrees_with_eager(
    make: Callable[[], torch.nn.Module],
    arguments: Callable[[int, int], tuple[torch.Tensor, ...]],
    dims: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if make not in DEFAULT and not request.config.getoption("--variants"):
        pytest.skip("runs with --variants")
    torch.manual_seed(0)
    module = make().eval()
    source = nacre.from_torch(module, arguments(*SIZES[0]), dynamic_shapes={"arguments": dims})
    model = nacre.compile(source, tmp_path / "model.so")
    for sizes in SIZES:
        given = arguments(*sizes)
        with torch.no_grad():
            expected = module(*given).numpy()
        np.testing.assert_allclose(model(*given), expected, rtol=0, atol=1e-5)
