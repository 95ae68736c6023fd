"""Language models in OpenVINO: the model that OpenVINO GenAI makes from a GGUF file, called without its sampling.

OpenVINO GenAI reads a file only if it has a tokenizer and the field `general.file_type`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino
import openvino_genai

Tokens = npt.NDArray[np.int32]


class OpenVino:
    """A GGUF file whose activations are f32 or bf16; products of quantized weights round them to 8 bits."""

    def __init__(self, path: Path, threads: int, precision: str) -> None:
        core = openvino.Core()
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": precision,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,
        }
        with tempfile.TemporaryDirectory() as folder:
            beside = Path(folder) / path.name
            beside.symlink_to(path.resolve())
            openvino_genai.LLMPipeline(str(beside), "CPU", **settings, enable_save_ov_model=True)
            compiled = core.compile_model(core.read_model(Path(folder) / "openvino_model.xml"), "CPU", settings)
        self.vocabulary = int(compiled.output(0).partial_shape[2].get_length())
        self.request: Any = compiled.create_infer_request()
        self.length = 0

    def keep(self, tokens: int) -> None:
        """Removes the tokens behind the first ones from the cache."""
        if tokens == 0:
            self.request.reset_state()
        elif tokens < self.length:
            for state in self.request.query_state():
                state.state = openvino.Tensor(np.ascontiguousarray(state.state.data[:, :, :tokens]))
        self.length = tokens

    def append(self, tokens: Sequence[int] | Tokens, at: int) -> None:
        """Appends tokens, and computes the logits behind each."""
        end = at + len(tokens)
        inputs = {
            "input_ids": np.asarray(tokens, np.int64)[None],
            "attention_mask": np.ones((1, end), np.int64),
            "position_ids": np.arange(at, end, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        self.request.infer(inputs, share_inputs=True, share_outputs=True)
        self.length = end
