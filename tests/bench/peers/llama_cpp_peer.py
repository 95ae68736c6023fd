"""llama.cpp, through the functions of its C interface that the package `llama-cpp-python` declares.

If `LLAMA_CPP_LIB_PATH` names a folder of libraries, `llama-cpp-python` takes libllama from it, and so are the backends
for CPUs of that folder loaded: llama.cpp selects the one with the instructions of this CPU.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]


def library() -> Any:
    """Returns the module of declarations. Raises ImportError if it is not installed."""
    module: Any = importlib.import_module("llama_cpp.llama_cpp")
    folder = os.environ.get("LLAMA_CPP_LIB_PATH")
    if folder:
        backends = ctypes.CDLL(str(Path(folder) / "libggml.so"))
        backends.ggml_backend_load_all_from_path(os.fsencode(folder))
    module.llama_log_set(_silent(module), None)
    module.llama_backend_init()
    return module


def _silent(module: Any) -> Any:
    global _LOG
    _LOG = module.llama_log_callback(lambda level, text, data: None)
    return _LOG


_LOG: Any = None
"""The function that takes messages; the library keeps a pointer to it."""


class LlamaCpp:
    """A model with a cache of `capacity` tokens for each of `sequences` texts."""

    def __init__(self, path: Path, capacity: int, threads: int, sequences: int = 1) -> None:
        self.module = library()
        self.model = self.module.llama_model_load_from_file(os.fsencode(path), self.module.llama_model_default_params())
        assert self.model, f"llama.cpp cannot read {path}"
        options = self.module.llama_context_default_params()
        options.n_ctx = -(-capacity // 256) * 256 * sequences
        options.n_batch = options.n_ubatch = 512
        options.n_seq_max = sequences
        options.n_outputs_max = options.n_outputs_max_per_seq = 0
        options.n_threads = options.n_threads_batch = threads
        self.context = self.module.llama_init_from_model(self.model, options)
        assert self.context, f"llama.cpp has no memory for {options.n_ctx} tokens"
        self.memory = self.module.llama_get_memory(self.context)
        vocabulary = self.module.llama_model_get_vocab(self.model)
        self.vocabulary = int(self.module.llama_vocab_n_tokens(vocabulary))
        self.batch = self.module.llama_batch_init(512, 0, 1)

    def keep(self, tokens: int) -> None:
        """Removes the tokens behind the first ones from the cache of every text."""
        self.module.llama_memory_seq_rm(self.memory, -1, tokens, -1)

    def append(self, tokens: Sequence[int] | Tokens, at: int) -> None:
        """Appends up to 512 tokens to the first text, and computes the logits behind the last."""
        self._run([(int(token), at + i, 0, i + 1 == len(tokens)) for i, token in enumerate(tokens)])

    def append_rows(self, tokens: Sequence[int] | Tokens, at: int) -> None:
        """Appends a token to each text, and computes the logits behind them."""
        self._run([(int(token), at, i, True) for i, token in enumerate(tokens)])

    def share(self) -> None:
        """Gives every text the tokens of the first one, copied."""
        for number in range(1, int(self.module.llama_n_seq_max(self.context))):
            self.module.llama_memory_seq_cp(self.memory, 0, number, -1, -1)

    def logits(self) -> npt.NDArray[np.float32]:
        """Returns the logits behind the last token."""
        pointer = self.module.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(pointer, (self.vocabulary,)).copy()

    def _run(self, cells: Sequence[tuple[int, int, int, bool]]) -> None:
        batch = self.batch
        batch.n_tokens = len(cells)
        for i, (token, position, text, wanted) in enumerate(cells):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = text
        status = self.module.llama_decode(self.context, batch)
        assert status == 0, f"llama_decode returned {status}"
        self.module.llama_synchronize(self.context)
