"""The blocks of a file of model text."""

from __future__ import annotations

from dataclasses import dataclass, field

from .model_text import Names, flattened
from .model_trees import TreeNodes


@dataclass
class BlockLibrary:
    """The blocks of a file: equal ones are written once. trees: the ensembles whose tables become blocks."""

    file_names: Names
    trees: TreeNodes
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def add(self, instance: str, head: str, lines: str) -> str:
        """Returns the name of the block with this text."""
        if (head, lines) not in self.names:
            wanted = "".join(map(str.capitalize, flattened(instance, "block").split("_"))) or "Block"
            name = self.names[head, lines] = self.file_names.give(wanted)
            self.texts.append(f"block {name}{head} {{\n{lines}\n}}")
        return self.names[head, lines]
