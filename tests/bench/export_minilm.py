"""Exports all-MiniLM-L6-v2 to ONNX by PyTorch: `python tests/bench/export_minilm.py FOLDER FILE.onnx`.

FOLDER has `config.json` and `model.safetensors`. The batch and the number of tokens are symbolic. Needs the packages
`transformers` and `onnxscript`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel


class Encoder(torch.nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.bert = BertModel(BertConfig(**json.loads((folder / "config.json").read_text())), add_pooling_layer=False)
        weights = {name.removeprefix("bert."): each for name, each in load_file(folder / "model.safetensors").items()}
        self.bert.load_state_dict(weights, strict=False)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    ids = torch.randint(0, 30_000, (2, 7))
    axes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("tokens", min=2, max=512)}
    names = ["input_ids", "attention_mask"]
    program = torch.onnx.export(
        Encoder(given.folder).eval(),
        (ids, torch.ones_like(ids)),
        dynamo=True,
        dynamic_shapes=dict.fromkeys(names, axes),
        external_data=False,
        input_names=names,
        output_names=["last_hidden_state"],
    )
    program.save(given.file)


if __name__ == "__main__":
    main()
