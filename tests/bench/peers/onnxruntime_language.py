"""Language models in ONNX Runtime GenAI: a folder that its model builder writes.

    python -m onnxruntime_genai.models.builder -i FOLDER -o OUTPUT -p int4 -e cpu -c CACHE

The builder also needs the package `onnx_ir`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime_genai

Tokens = npt.NDArray[np.int32]


class OnnxRuntime:
    """A model with a cache of `capacity` tokens."""

    def __init__(self, folder: Path, capacity: int, threads: int) -> None:
        config: Any = onnxruntime_genai.Config(str(folder))
        options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        model = onnxruntime_genai.Model(config)
        parameters: Any = onnxruntime_genai.GeneratorParams(model)
        parameters.set_search_options(max_length=capacity, do_sample=False)
        self.generator: Any = onnxruntime_genai.Generator(model, parameters)
        self.vocabulary = int(json.loads((folder / "genai_config.json").read_text())["model"]["vocab_size"])

    def keep(self, tokens: int) -> None:
        """Removes the tokens behind the first ones from the cache."""
        self.generator.rewind_to(tokens)

    def append(self, tokens: Sequence[int] | Tokens, at: int) -> None:
        """Appends tokens, and computes the logits behind the last."""
        assert self.generator.token_count() == at, (self.generator.token_count(), at)
        self.generator.append_tokens(np.asarray(tokens, np.int32))
        self.generator.get_logits()
