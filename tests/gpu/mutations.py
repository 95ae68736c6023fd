"""Faults that are planted into kernels: the fake driver must find each of them, or the numbers must be wrong.

A mutation replaces a pattern in the PTX of a kernel: everywhere, or at one of its places. Those that change no result
are left out, such as another maximum before a softmax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Mutation:
    label: str
    pattern: str
    replacement: str | Callable[[re.Match[str]], str] = ""
    place: int | None = None
    """The number of the match; None for all."""

    def apply(self, text: str) -> str:
        """Returns the text with the fault. Raises LookupError where it is the same as before."""
        matches = list(re.finditer(self.pattern, text))
        if self.place is not None:
            matches = matches[self.place : self.place + 1]
        made = text
        for match in reversed(matches):
            with_fault = (
                match.expand(self.replacement) if isinstance(self.replacement, str) else self.replacement(match)
            )
            made = made[: match.start()] + with_fault + made[match.end() :]
        if made == text:
            raise LookupError(f"`{self.pattern}` changes nothing")
        return made


_ORDERING = re.compile(
    r"(?:mbarrier\.(?:arrive|try_wait\S+ (%p\d+),)|bar\.sync|fence\.|wgmma\.(?:fence|commit_group|wait_group))[^;]*;"
)
"""An instruction that orders others, and the predicate that a wait sets."""
NO_BARRIER = Mutation("no barrier", r"bar\.sync[^;]*;")
NO_WAIT = Mutation("no wait for copies", r"cp\.async\.wait_group[^;]*;")
ROWS = Mutation("exchanged rows", r"(mma\.sync\S+\s*\{[^}]*\},\s*\{%\w+, )(%\w+), (%\w+)", r"\1\3, \2")
NOT_TURNED = Mutation("a matrix is not turned over", r"\.trans\.shared", ".shared")
NO_INVERSE = Mutation("sums are not divided", r"rcp\.rn\.f32(\s+%\w+, %\w+;)", r"mov.b32\1")
BEYOND = Mutation("keys beyond the end", r"setp\.lt\.u32", "setp.ge.u32")
NO_POWER = Mutation("no power", r"ex2\.approx\.f32", "mov.b32")
UNALIGNED = Mutation("an unaligned vector", r"(ld\.shared\.v4\.b32\s+\{[^}]*\}, \[%rd\d+)[^]]*\]", r"\1+4]", 1)
NO_ACTIVATION = Mutation("no activation", r"max\.NaN\.f32(\s+%\w+, %\w+), [^;]*;", r"mov.b32\1;")


def lost_product(place: int) -> Mutation:
    return Mutation("a product is lost", r"fma\.rn\.f32(\s+%\w+), %\w+, %\w+, (%\w+);", r"mov.b32\1, \2;", place)


def lost_barriers(*places: int) -> tuple[Mutation, ...]:
    """Each barrier at these places is lost alone. Calls with more steps need those at other places."""
    return tuple(Mutation(f"barrier {place} is lost", r"bar\.sync[^;]*;", "", place) for place in places)


def other_lane(distance: int, other: int) -> Mutation:
    pattern = rf"(shfl\.sync\.bfly\.b32 .*), {distance}, 31, -1;"
    return Mutation(f"lane {other} instead of {distance}", pattern, rf"\1, {other}, 31, -1;")


def removals(text: str) -> dict[str, str]:
    """Returns kernels, each without one of its waits, fences, barriers and arrivals, and without one end of a group of
    products; the keys are the instructions and their places."""
    made = {}
    for match in _ORDERING.finditer(text):
        instead = f"mov.pred {match[1]}, -1;" if match[1] else ""
        made[f"{' '.join(match[0].split())} at {match.start()}"] = text[: match.start()] + instead + text[match.end() :]
    return made


def no_stride(match: re.Match[str]) -> str:
    """The descriptor of a tile without the distance of its parts."""
    return f"{match[1]}{int(match[2]) & ~(0x3FFF << 32)};"


AMPERE: Mapping[str, Sequence[Mutation]] = {
    "tensor": (
        NO_BARRIER,
        NO_WAIT,
        Mutation("waits for one copy less", r"(cp\.async\.wait_group\s+)1", r"\g<1>2"),
        Mutation("no groups of copies", r"cp\.async\.commit_group;"),
        Mutation("copies in flight at the end", r"cp\.async\.wait_group\s+0;"),
        ROWS,
        Mutation("exchanged depths", r"(mma\.sync\S+\s*(?:\{[^}]*\},\s*){2}\{)(%\w+), (%\w+)", r"\1\3, \2"),
        NOT_TURNED,
        Mutation("another matrix", r"(ldmatrix\S+x4\.shared\.b16\s+\{[^}]*\}, \[%\w+)[^]]*\]", r"\1+16]", 0),
        Mutation("no zeros at the end", r"(cp\.async\.cg\S+\s+\[[^]]*\], \[[^]]*\], 16), %\w+", r"\1, 16"),
        Mutation("a result beside its place", r"(st\.global\.v2\.b16\s+\[%rd\d+)[^]]*\]", r"\1+4]", 0),
        NO_ACTIVATION,
    ),
    "attend": (
        NO_BARRIER,
        NO_WAIT,
        other_lane(1, 4),
        other_lane(2, 8),
        NOT_TURNED,
        ROWS,
        NO_POWER,
        BEYOND,
        NO_INVERSE,
        *lost_barriers(0, 4, 5, 6, 7),
    ),
    "exact": (
        NO_BARRIER,
        NO_WAIT,
        other_lane(3, 1),
        other_lane(1, 4),
        UNALIGNED,
        lost_product(7),
        NO_POWER,
        BEYOND,
        NO_INVERSE,
        *lost_barriers(0, 1),
    ),
    "blocked": (
        *lost_barriers(0, 1),
        lost_product(3),
        UNALIGNED,
        Mutation("an element beside its place", r"(st\.shared\.b32\s+\[%rd\d+)[^]]*\]", r"\1+4]", 0),
        Mutation("zeros enter the last step", r"min\.u64", "max.u64"),
        Mutation("rows beyond the end", r"or\.pred", "and.pred"),
    ),
    "shares": (
        NO_BARRIER,
        other_lane(16, 8),
        Mutation("products instead of quotients", r"div\.rn\.f32", "mul.rn.f32"),
        Mutation("a row beyond the last one", r"setp\.ge\.u64", "setp.gt.u64"),
        Mutation("a sum is lost", r"add\.rn\.f32(\s+%\w+, %\w+), %\w+;", r"mov.b32\1;", 1),
        *lost_barriers(0, 2),
    ),
    "long": lost_barriers(0, 1, 3, 4),
    "whole": lost_barriers(0),
    "turned": lost_barriers(0),
    "few": (
        NO_BARRIER,
        other_lane(16, 8),
        lost_product(3),
        Mutation("an element beside its place", r"(st\.shared\.v4\.b32\s+\[%r\w+)[^]]*\]", r"\1+4]", 0),
    ),
    "elements": (
        NO_ACTIVATION,
        Mutation("an element beyond the last one", r"setp\.ge\.u64", "setp.gt.u64"),
        Mutation("an unaligned vector", r"(ld\.global\.nc\.v4\.b32\s+\{[^}]*\}, \[%rd\d+)[^]]*\]", r"\1+4]", 0),
        Mutation("a vector beside its place", r"(st\.global\.v4\.b32\s+\[%rd\d+)[^]]*\]", r"\1+16]"),
    ),
}
"""The mutations of each model of `AMPERE_SOURCE`."""

DECODING: Sequence[Mutation] = (
    NO_BARRIER,
    NO_WAIT,
    ROWS,
    Mutation("one tile of weights instead of two", r"sub\.s64(\s+%rd\d+), (\d{4,}), (%rd\d+);", r"mov.b64\1, \3;"),
    Mutation("weights beside their place", r"(st\.shared\.v4\.b32\s+\[%rd\d+)[^]]*\]", r"\1+32]", 0),
)
"""The mutations of products with decoded weights. Weights after the end of the depth are multiplied by 0, so that only
infinite ones there would be noticed."""

AMPERE_SOURCE = """language 1
dim B in 0..256
model tensor(x: f16[B, 72], w: f16[72, 96], b: f16[96]) -> f16[B, 96] { return relu(x @ w + b) }
model attend(q: f16[2, B, 32], k: f16[2, B, 32], v: f16[2, B, 32]) -> f16[2, B, 32] {
  return attention(q, k, v, causal=true)
}
model exact(q: f32[2, B, 16], k: f32[2, B, 16], v: f32[2, B, 16]) -> f32[2, B, 16] { return attention(q, k, v) }
model blocked(x: f32[B, 37], w: f32[37, 65]) -> f32[B, 65] { return x @ w }
model shares(x: f32[B, 45]) -> f32[B, 45] { return softmax(x) }
model long(x: f32[B, 2500]) -> f32[B, 2500] { return softmax(x) }
model whole(x: f32[B, 45]) -> f32 { return sum(x, axis=(0, 1)) }
model turned(x: f32[B, 45]) -> f32[45, B] { return x.T }
model few(x: f32[5, B], w: f32[B, 200]) -> f32[5, 200] { return x @ w }
model elements(x: f32[B, 36], y: f32[36]) -> f32[B, 36] { return relu(x) + y }
"""

HOPPER: Mapping[str, Sequence[Mutation]] = {
    "tiles": (
        Mutation("no wait at all", r"mbarrier\.try_wait\S+ (%p\d+), [^;]*;", r"mov.pred \1, -1;"),
        Mutation("no wait for copies", r"mbarrier\.try_wait\S+ (%p\d+), [^;]*;", r"mov.pred \1, -1;", 0),
        Mutation("no wait for products", r"mbarrier\.try_wait\S+ (%p\d+), [^;]*;", r"mov.pred \1, -1;", 1),
        Mutation("fewer bytes announced", r"(expect_tx\S+ _, \[[^]]*\]), %\w+;", r"\1, 16384;"),
        Mutation("tiles are never given back", r"mbarrier\.arrive\.shared::cta\.b64 _, [^;]*;"),
        Mutation("the last tiles are not given back", r"mbarrier\.arrive\.shared::cta\.b64 _, [^;]*;", "", 1),
        Mutation("tiles are left out", r"(mov\.u32\s+%r\d+), %nctaid\.x;", r"\1, 3;"),
        Mutation("tiles are computed by several blocks", r"(mov\.u32\s+%r\d+), %nctaid\.x;", r"\1, 1;"),
        Mutation("each block has the same tiles", r"(mov\.u32\s+%r\d+), %ctaid\.x;", r"\1, 0;"),
        Mutation("too many arrivals expected", r"mov\.b32(\s+%r\d+), 8;", r"mov.b32\1, 9;"),
        Mutation("products are not complete", r"wgmma\.wait_group[^;]*;"),
        Mutation("sums are read too early", r"wgmma\.wait_group\.sync\.aligned 0;"),
        Mutation("no barrier after barriers are created", r"bar\.sync[^;]*;"),
        Mutation("too few arrivals expected", r"mov\.b32(\s+%r\d+), 8;", r"mov.b32\1, 7;"),
        Mutation("tiles are given back too early", r"(wgmma\.wait_group\.sync\.aligned) 1;", r"\1 6;"),
        Mutation("tiles are given back one step early", r"(wgmma\.wait_group\.sync\.aligned) 1;", r"\1 2;"),
        Mutation("no group of products", r"wgmma\.commit_group[^;]*;"),
        Mutation("no fence before products", r"wgmma\.fence[^;]*;"),
        Mutation("no fence after barriers", r"fence\.proxy[^;]*;"),
        Mutation("a matrix is not turned over", r"1, 1, 0, 1;", "1, 1, 0, 0;"),
        Mutation("no distance in a descriptor", r"(or\.b64\s+%\w+, %\w+, )(46\d{17});", no_stride, 0),
        Mutation("exchanged axes", r"\{(%r\d+), (%r\d+)\}\], \[", r"{\2, \1}], ["),
        Mutation("a tile beside its place", r"(cp\.async\.bulk\S+ \[%r\d+)\]", r"\1+1024]", 1),
        Mutation("a parity that never changes", r"xor\.b32(\s+(%r\d+), \2), %r\d+;", r"mov.b32\1;"),
        Mutation("a result beside its place", r"(st\.global\.v2\.b16\s+\[%rd\d+)[^]]*\]", r"\1+4]", 0),
    )
}

HOPPER_SOURCE = """language 1
dim B in 0..256
model tiles(x: f16[B, 456], w: f16[456, 136]) -> f16[B, 136] { return x @ w }
"""

SHAPES: Mapping[str, Sequence[tuple[int, ...]]] = {
    "tensor": ((67, 72), (72, 96), (96,)),
    "attend": ((2, 67, 32),) * 3,
    "exact": ((2, 67, 16),) * 3,
    "blocked": ((67, 37), (37, 65)),
    "shares": ((67, 45),),
    "long": ((3, 2500),),
    "whole": ((67, 45),),
    "turned": ((67, 45),),
    "few": ((5, 67), (67, 200)),
    "elements": ((67, 36), (36,)),
    "tiles": ((130, 456), (456, 136)),
}


def reference(name: str, *given: Array) -> Array:
    """The results in f64."""
    x, *others = (array.astype(np.float64) for array in given)
    if name in ("attend", "exact"):
        k, v = others
        scores = x @ k.swapaxes(1, 2) * x.shape[-1] ** -0.5
        if name == "attend":
            scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -np.inf)
        weights = np.exp(scores)
        return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)
    if name in ("whole", "turned"):
        return x.T if name == "turned" else x.sum()
    if name in ("shares", "long"):
        return np.asarray(np.exp(x) / np.exp(x).sum(-1, keepdims=True))
    if name == "elements":
        return np.maximum(x, 0) + others[0]
    return np.maximum(x @ others[0] + others[1], 0) if name == "tensor" else x @ others[0]
