"""GPT-2 and Llama against the modules of transformers, and a training step whose gradients are written by hand against
PyTorch's autograd, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_torch_models import LEVELS, check, compiled, random, torch, weights_of

nn, functional = torch.nn, torch.nn.functional


def words(count: int, *shape: int) -> Any:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("level", LEVELS)
def test_gpt2(level: int) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=101, n_positions=32, n_embd=24, n_layer=3, n_head=4)
    module = transformers.GPT2LMHeadModel(config).eval()
    weights = weights_of(module.transformer)
    model = compiled("gpt2", weights, level)
    for batch, time in ((1, 1), (2, 7), (4, 32)):
        ids = words(101, batch, time)
        logits = module(ids).logits
        check(model.entries["logits"](ids), logits)
        np.testing.assert_array_equal(model.entries["next"](ids), logits[:, -1].argmax(-1).numpy())


@pytest.mark.parametrize("level", LEVELS)
def test_llama(level: int) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=90,
        hidden_size=48,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
    )
    module = transformers.LlamaForCausalLM(config).eval()
    model = compiled("llama", weights_of(module), level)
    for batch, time, start in ((1, 1, 0), (2, 7, 0), (3, 16, 20)):
        ids = words(90, batch, time)
        places = torch.arange(start, start + time)[None].expand(batch, time)
        found = model(ids.to(torch.int32).numpy(), np.int32(start))
        check(found, module(ids, position_ids=places).logits)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("hidden", [1, 8])
def test_training_step_by_hand(level: int, hidden: int, tmp_path: Path) -> None:
    first, second = nn.Linear(6, hidden), nn.Linear(hidden, 3)
    module = nn.ModuleDict({"first": first, "second": second})
    weights = {name: value.numpy().copy() for name, value in weights_of(module).items()}
    session = compiled("backward", weights, level, hidden=hidden).session()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for number, batch in enumerate((1, 5, 64, 7)):
        x, labels = random(batch, 6, seed=number), words(3, batch)
        loss = functional.cross_entropy(second(torch.relu(first(x))), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        check(session.entries["step"](x, labels, np.float32(0.1)), loss)
    for state, parameter in (("w1", first.weight), ("b1", first.bias), ("w2", second.weight), ("b2", second.bias)):
        check(session.states[state], parameter)
