"""Faults of the runtime: of the Python loader, and of the C sources that go into every artifact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nacre.compiler.artifact import link
from nacre.runtime import loader

from .planted import Planted
from .setting import Setter


def other_strides(setter: Setter) -> None:
    """What is known of a call is taken for calls with other strides."""
    prepare = loader.Entry._prepare

    class Plans(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            if key in self:
                return self[key]
            return next((plan for known, plan in self.items() if known[:3] == key[:3]), default)

    def wrong(self: Any, inputs: Any) -> Any:
        prepared = prepare(self, inputs)
        self._plans = Plans(self._plans)
        return prepared

    setter.attribute(loader.Entry, "_prepare", wrong)


def other_sizes(setter: Setter) -> None:
    """The sizes of the first call are those of all calls with larger ones. Those of smaller calls stay: beyond their
    tensors is the memory of the process, which may do anything then."""
    make_plan = loader.Entry._make_plan

    def wrong(self: Any, arrays: Any) -> Any:
        plan = make_plan(self, arrays)
        first = next(iter(self._plans.values()), plan)
        is_inside = all(x <= y for x, y in zip(first.dims, plan.dims, strict=True))
        return replace(plan, dims=first.dims, dims_address=first.dims_address) if is_inside else plan

    setter.attribute(loader.Entry, "_make_plan", wrong)


def out_over_input(setter: Setter) -> None:
    """A result may lie over an argument."""
    take = loader.take_out
    setter.attribute(loader, "take_out", lambda out, plans, taken: take(out, plans, []))


def _replace(setter: Setter, file: str, right: str, wrong: str) -> None:
    """Another line in a source of the runtime."""
    compiled = link._runtime_objects

    def runtime_objects(linker: Any, sources: Any, kept: Any) -> Any:
        texts = dict(sources)
        assert right in texts[file], right
        return compiled(linker, tuple({**texts, file: texts[file].replace(right, wrong)}.items()), kept)

    setter.attribute(link, "_runtime_objects", runtime_objects)


def unseen_strides(setter: Setter) -> None:
    """`run` takes every tensor for a dense one."""
    _replace(setter, "check.c", "if (got->strides && nacre_tensor_bytes(got) != 0) {", "if (0) {")


def lost_chunk(setter: Setter) -> None:
    """The last chunk of the work items that threads share is not computed if it is shorter than the others."""
    _replace(setter, "pool.c", "(items - begin + job->chunk - 1) / job->chunk", "(items - begin) / job->chunk")


def lost_initial(setter: Setter) -> None:
    """A state whose initial value is repeated begins with it once, and with zeros behind it."""
    _replace(setter, "state.c", "at < bytes; at += state->initial_bytes)", "at < state->initial_bytes; at += bytes)")


def lost_fork(setter: Setter) -> None:
    """A fork leaves out the last bytes of the states."""
    _replace(setter, "state.c", "(size_t)all_bytes(source->dims));", "(size_t)all_bytes(source->dims) / 2);")


_STATES = """language 1

dim B in 2..64

model g(x: f32[B, 40]) -> f32[B, 40] {  # here
  state total: f32[B, 40] = 2.5
  total = total + x
  return total
}
"""

_MODEL = """language 1

dim B in 1..65536

model f(x: f32[B, 8]) -> f32[B, 8] {  # here
  return softmax(x)
}
"""

FAULTS = tuple(
    Planted(name, "runtime", fault, _MODEL)
    for name, fault in (
        ("other-strides", other_strides),
        ("other-sizes", other_sizes),
        ("out-over-input", out_over_input),
        ("unseen-strides", unseen_strides),
        ("lost-chunk", lost_chunk),
    )
)
FAULTS += (
    Planted("lost-initial", "runtime", lost_initial, _STATES),
    Planted("lost-fork", "runtime", lost_fork, _STATES),
)
