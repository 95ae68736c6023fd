"""Parameters in model text: each becomes a `param` of the model, or of a block that is instantiated as an array.

`layer.{}.attention.weight` with six elements becomes `attention_weight` of a block `Layer`, and the model
uses `layer[6]`; within a loop it is `layer[i].attention_weight`. Keys of the checkpoint are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ....dialect.graph import Parameter
from .model_text import RESERVED, Names, Words, flattened, not_expressible


@dataclass(slots=True)
class Holder:
    """A declaration of parameters: the model, or a block instantiated as an array. `block` is the name of its type."""

    names: Names
    block: str = ""
    instance: str = ""
    count: int = 0
    parameters: dict[str, Parameter] = field(default_factory=dict)
    arrays: dict[tuple[str, int], Holder] = field(default_factory=dict)

    def all_arrays(self) -> Iterator[Holder]:
        """Yields all arrays, nested ones first."""
        for array in self.arrays.values():
            yield from array.all_arrays()
            yield array


class ParameterTable:
    """The parameters of one model. `file_names` are the names of the file, from which blocks get theirs."""

    def __init__(
        self,
        parameters: Iterable[Parameter],
        file_names: Names,
        names: Names,
        words: Words,
        path: str | None = "",
        arrays: int = 0,
    ) -> None:
        self.words, self.path, self.arrays = words, path, arrays
        self.model = Holder(names)
        self._paths: dict[str, tuple[str, ...]] = {}
        for parameter in parameters:
            self._place(parameter, file_names)

    def _place(self, parameter: Parameter, file_names: Names) -> None:
        *prefixes, last = parameter.name.split("{}")
        holder, path = self.model, []
        for prefix, count in zip(prefixes, parameter.counts, strict=True):
            if (prefix, count) not in holder.arrays:
                word = flattened(prefix, "array")
                block = file_names.give(
                    "".join(map(str.capitalize, word.split("_"))), RESERVED | self.model.names.taken
                )
                holder.arrays[prefix, count] = Holder(Names(), block, holder.names.give(word), count)
            holder = holder.arrays[prefix, count]
            path.append(holder.instance)
        name = holder.names.give(flattened(last, "weight"))
        holder.parameters[name] = parameter
        self._paths[parameter.name] = (*path, name)

    def __contains__(self, name: str) -> bool:
        return name in self._paths

    def access(self, name: str, indices: Sequence[str]) -> str:
        """Returns the expression for a parameter at these indices."""
        *arrays, last = self._paths[name]
        return "".join(f"{array}[{index}]." for array, index in zip(arrays, indices, strict=True)) + last

    def blocks(self) -> list[str]:
        """Returns the blocks of the arrays. They are never called, and return their first parameter."""
        return [self._block(holder) for holder in self.model.all_arrays()]

    def _block(self, holder: Holder) -> str:
        value, first = holder, ""
        while not value.parameters:
            value = next(iter(value.arrays.values()))
            first += f"{value.instance}[0]."
        name, parameter = next(iter(value.parameters.items()))
        lines = "\n".join(f"  {line}" for line in self.declarations(holder))
        head = f"block {holder.block}() -> {self.words.type(parameter.type)}"
        return f"{head} {{\n{lines}\n  return {first}{name}\n}}"

    def declarations(self, holder: Holder) -> list[str]:
        """Returns the `param` and `use` lines of a holder."""
        lines = [self._declare(name, parameter) for name, parameter in holder.parameters.items()]
        return lines + [f"use {a.instance}[{a.count}] = {a.block}" for a in holder.arrays.values()]

    def _declare(self, name: str, parameter: Parameter) -> str:
        line = f"param {name}: {self.words.type(parameter.type)}"
        if self.path and parameter.key.startswith(self.path) and not parameter.counts:
            key = parameter.key.removeprefix(self.path)
            line += "" if key == name else f' from "{{path}}.{key}"'
        elif parameter.key != name:
            if (
                '"' in parameter.key
                or "\\" in parameter.key
                or parameter.key.count("{") != len(parameter.counts) + self.arrays
            ):
                raise not_expressible(f"the key `{parameter.key}` of a parameter has braces or quotes", parameter.span)
            line += f' from "{parameter.key}"'
        if parameter.transpose is not None:
            line += f" transpose {', '.join(map(str, parameter.transpose))}"
        return line
