"""Names of parameters: those of the sources, which are the names in GGUF files, and those in the checkpoint of a
folder.

blk.0.attn_q.weight           model.layers.0.self_attn.q_proj.weight
blk.0.ffn_gate_exps.weight    model.layers.0.mlp.experts.*.gate_proj.weight, the tensors of all experts as one
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ....dialect.graph import Parameter
from ....dialect.types import Array
from ...weights import Checkpoint
from ...weights.checkpoint import StoredTensor

_LAYER = re.compile(r"blk\.(\{\}|\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a kind of checkpoints.

    layers: the name of the array of layers.
    whole, inner: the names of parameters outside and inside of layers; the suffix `.weight` or `.bias` may be omitted.
    prefixes: the possible prefixes of keys. A checkpoint uses one of them; keys in `bare` have no prefix.
    transposed: the names inside of layers of matrices that are stored as [inputs, outputs].
    """

    layers: str
    whole: Mapping[str, str]
    inner: Mapping[str, str]
    prefixes: Sequence[str] = ("",)
    bare: frozenset[str] = frozenset()
    transposed: frozenset[str] = field(default_factory=frozenset)

    def key(self, name: str) -> str:
        """Returns the name in a checkpoint without a prefix."""
        layer = _LAYER.fullmatch(name)
        if layer is None:
            return _renamed(name, self.whole)
        return f"{self.layers}.{layer[1]}.{_renamed(layer[2], self.inner)}"

    def parameter(self, parameter: Parameter, name: str, prefix: str) -> Parameter:
        """Returns the parameter with its key, and transposed if it is stored so."""
        layer = _LAYER.fullmatch(name)
        turned = layer is not None and layer[2].rpartition(".")[0] in self.transposed and parameter.type.rank == 2
        key = self.key(name) if name.rpartition(".")[0] in self.bare else prefix + self.key(name)
        return replace(parameter, source=key, transpose=(1, 0) if turned else parameter.transpose)

    def prefix(self, checkpoint: Checkpoint, name: str) -> str:
        """Returns the prefix of the keys of a checkpoint: the one with which it has the parameter `name`."""
        found = (p for p in self.prefixes if p + self.key(name) in checkpoint)
        return next(found, self.prefixes[0])


def _renamed(name: str, table: Mapping[str, str]) -> str:
    if name in table:
        return table[name]
    stem, _, last = name.rpartition(".")
    return f"{table[stem]}.{last}" if stem in table else name


def with_stacks(checkpoint: Checkpoint, keys: Iterable[str]) -> Checkpoint:
    """Returns the checkpoint with an additional tensor for each key with `*`: the stack of the tensors whose keys have
    a number instead."""
    added: dict[str, StoredTensor] = {}
    for key in keys:
        if "*" not in key or key in added:
            continue
        names: list[str] = []
        while (name := key.replace("*", str(len(names)))) in checkpoint:
            names.append(name)
        if names:
            first = checkpoint.tensors[names[0]]
            shapes = {checkpoint.tensors[name].shape for name in names}
            if len(shapes) == 1:
                load = partial(_stack, checkpoint, names)
                shape = (len(names), *first.shape)
                added[key] = StoredTensor(first.file, first.dtype, first.stored_as, shape, load=load)
    return replace(checkpoint, tensors={**checkpoint.tensors, **added})


def _stack(checkpoint: Checkpoint, names: Sequence[str]) -> Array:
    return np.stack([checkpoint.read(name) for name in names])
