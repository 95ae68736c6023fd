"""Sequences against PyTorch: a classifier with an LSTM, the encoder of Whisper, and a recogniser of speech."""

from __future__ import annotations

from typing import Any

import pytest
from test_torch_models import LEVELS, check, compiled, random, weights_of

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional


def ids(words: int, *shape: int) -> Any:
    return torch.randint(0, words, shape, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("level", LEVELS)
def test_classifier_with_an_lstm(level: int) -> None:
    embed, layer = nn.Embedding(50, 12), nn.LSTM(12, 10, bidirectional=True, batch_first=True)
    head = nn.Linear(20, 5)
    weights = weights_of(nn.ModuleDict({"embed": embed, "layer": layer, "head": head}))
    model = compiled("sequence_classifier", weights, level)
    for batch, time in ((1, 1), (3, 7), (8, 32)):
        tokens, label = ids(50, batch, time), ids(5, batch)
        states, (ends, _) = layer(embed(tokens))
        logits = head(states.mean(1) + torch.cat([ends[0], ends[1]], -1))
        found, loss = model(tokens, label)
        check(found, logits)
        check(loss, functional.cross_entropy(logits, label))


class WhisperLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.self_attn = nn.ModuleDict({name: nn.Linear(width, width) for name in ("q_proj", "v_proj", "out_proj")})
        self.self_attn["k_proj"] = nn.Linear(width, width, bias=False)
        self.self_attn_layer_norm, self.final_layer_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        h = self.self_attn_layer_norm(x)
        q, k, v = (self.self_attn[f"{name}_proj"](h).unflatten(-1, (4, -1)).transpose(1, 2) for name in "qkv")
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.self_attn["out_proj"](mixed)
        return x + self.fc2(functional.gelu(self.fc1(self.final_layer_norm(x))))


@pytest.mark.parametrize("level", LEVELS)
def test_encoder_of_whisper(level: int) -> None:
    width = 16
    layers = nn.ModuleList(WhisperLayer(width) for _ in range(2))
    conv1, conv2 = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)
    positions, norm = nn.Embedding(64, width), nn.LayerNorm(width)
    parts = {"conv1": conv1, "conv2": conv2, "layers": layers, "embed_positions": positions, "layer_norm": norm}
    model = compiled("whisper", weights_of(nn.ModuleDict(parts)), level)
    for batch, time in ((1, 1), (2, 9), (1, 64)):
        features = random(batch, 80, 2 * time, seed=time)
        x = functional.gelu(conv2(functional.gelu(conv1(features)))).mT + positions.weight[:time]
        for layer in layers:
            x = layer(x)
        check(model(features), norm(x))


@pytest.mark.parametrize("level", LEVELS)
def test_speech_from_a_signal(level: int) -> None:
    parts = {"conv": nn.Conv1d(40, 24, 3, stride=2, padding=1), "gru": nn.GRU(24, 16, batch_first=True)}
    parts["head"] = nn.Linear(16, 29)
    weights = weights_of(nn.ModuleDict(parts))
    weights |= {"filters": random(201, 40, seed=3).abs() / 20, "window": torch.hann_window(400)}
    model = compiled("speech", weights, level)
    for batch, size in ((1, 400), (2, 1600), (3, 8000)):
        signal = random(batch, size, seed=size)
        spectrum = torch.stft(signal, 400, 160, window=weights["window"], return_complex=True)
        mel = torch.log10((weights["filters"].T @ spectrum.abs() ** 2).clamp_min(1e-10))
        mel = (torch.maximum(mel, mel.amax((1, 2), keepdim=True) - 8) + 4) / 4
        states, _ = parts["gru"](torch.relu(parts["conv"](mel)).mT)
        found, letters = model(signal)
        check(found, mel)
        check(letters, torch.log_softmax(parts["head"](states), -1))
