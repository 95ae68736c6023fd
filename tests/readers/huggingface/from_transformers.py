"""Folders and expected results from the package `transformers`, in f64.

Run as a program, it rewrites `references.npz`, which the tests read where the package is not installed:

    PYTHONPATH=tests/readers/huggingface python tests/readers/huggingface/from_transformers.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open
from tiny_folders import (
    DECODERS,
    ENCODERS,
    IDS,
    REFERENCES,
    Array,
    encoder_inputs,
    write_folder,
)


def make_folder(path: Path, family: str, values: Mapping[str, Any], shards: int = 1) -> tuple[Any, dict[str, Any]]:
    """Writes a folder, and returns its model in f64, and the configuration and the shapes by which it can be written
    again."""
    transformers.logging.set_verbosity_error()
    kind = getattr(transformers, family)
    kind(kind.config_class(**values)).save_pretrained(path)
    with safe_open(path / "model.safetensors", "np") as stored:
        shapes = {key: tuple(stored.get_slice(key).get_shape()) for key in stored.keys()}  # noqa: SIM118  # no mapping
    (path / "model.safetensors").unlink()
    config = json.loads((path / "config.json").read_text())
    write_folder(path, config, shapes, shards)
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = kind.from_pretrained(path, dtype=torch.float64, **eager).eval()
    return model, {"config": config, "shapes": shapes}


def expected_logits(model: Any) -> Array:
    with torch.no_grad():
        return np.asarray(model(torch.tensor(IDS[None].astype(np.int64))).logits[0].numpy())


def expected_vectors(model: Any, name: str) -> dict[str, Array]:
    """Returns the result of each entry for the inputs of `encoder_inputs`. Vectors of padding are zero."""
    inputs = {entry: [torch.tensor(a) for a in arrays] for entry, arrays in encoder_inputs(name).items()}
    found: dict[str, Any] = {}
    with torch.no_grad():
        for entry, arrays in inputs.items():
            if name == "clip":
                features = {"embed_text": "get_text_features", "embed_image": "get_image_features"}[entry]
                given = arrays[0].double() if entry == "embed_image" else arrays[0]
                found[entry] = getattr(model, features)(given).pooler_output
            elif name == "whisper":
                found[entry] = model.encoder(arrays[0].double()).last_hidden_state
            elif name == "vit":
                whole = model(pixel_values=arrays[0].double(), output_hidden_states=True)
                found[entry] = whole.logits if entry == "classify" else model.vit.layernorm(whole.hidden_states[-1])
            else:
                ids, mask, *types = arrays
                further = {"token_type_ids": types[0]} if types else {}
                whole = model(input_ids=ids, attention_mask=mask, **further)
                keep = mask[:, :, None].double()
                hidden = whole.last_hidden_state * keep
                mean = hidden.sum(1) / keep.sum(1)
                found[entry] = {
                    "pool": whole.get("pooler_output"),
                    "embed": mean / mean.norm(dim=1, keepdim=True),
                }.get(entry, hidden)
    return {entry: np.asarray(tensor.numpy()) for entry, tensor in found.items()}


def write_references(path: Path) -> None:
    """Writes the configuration and the shapes of each model, and a part of its results."""
    arrays: dict[str, Array] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (family, values) in {**DECODERS, **ENCODERS}.items():
            model, described = make_folder(Path(folder) / name, family, values)
            if name in DECODERS:
                results = {"score": expected_logits(model)[-2:]}
            else:
                results = {entry: found[-1:] for entry, found in expected_vectors(model, name).items()}
            arrays[f"{name}/described"] = np.frombuffer(json.dumps(described).encode(), np.uint8)
            arrays |= {f"{name}/{entry}": found.astype(np.float32) for entry, found in results.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # the stubs take the arrays for an option


if __name__ == "__main__":
    write_references(Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCES)
