"""Rewrites masked stores of a single lane to scalar stores, in LLVM IR that has been optimised.

LLVM's code generator folds a `trunc` into the masked store after it. If the mask is a constant with one lane set, it
then writes that lane as an element of the wider type: 4 bytes for an `i16` that was an `i32`, which goes beyond the end
of a tensor. The rewritten form stores exactly one element:

    call void @llvm.masked.store.v2i16.p0(<2 x i16> %7, ptr align 2 %0, <2 x i1> <i1 false, i1 true>)

    %one.9.value = extractelement <2 x i16> %7, i64 1
    %one.9.address = getelementptr i16, ptr %0, i64 1
    store i16 %one.9.value, ptr %one.9.address, align 2
"""

from __future__ import annotations

import re

MASKED_STORE = "@llvm.masked.store."
_CALL = re.compile(
    r"(?P<indent> *)(?:(?:tail|musttail|notail) )?call void @llvm\.masked\.store\.v\d+\w+\.p0\("
    r"(?P<vector><\d+ x (?P<type>i\d+|half|bfloat|float|double)>) (?P<value>%[-\w.$]+), "
    r"ptr (?:(?P<attributes>[^%@,]*) )?(?P<address>[%@][-\w.$]+), "
    r"<\d+ x i1> <(?P<mask>[^>]*)>\)(?: #\d+)?(?P<rest>(?:, ![^\n]*)?)"
)
_ALIGN = re.compile(r"align (\d+)")


def rewrite_single_lanes(text: str) -> str:
    """Returns the same module with each masked store of one lane rewritten as a scalar store."""
    if MASKED_STORE not in text:
        return text
    return "\n".join(
        _rewrite_line(line, number) if MASKED_STORE in line else line for number, line in enumerate(text.split("\n"))
    )


def _rewrite_line(line: str, number: int) -> str:
    call = _CALL.fullmatch(line)
    if call is None:
        return line
    lanes = [i for i, lane in enumerate(call["mask"].split(", ")) if lane != "i1 false"]
    if len(lanes) != 1:
        return line
    (lane,), indent, rest, type = lanes, call["indent"], call["rest"], call["type"]
    align = _ALIGN.search(call["attributes"] or "")
    # Lanes after the first are aligned to their element alone.
    alignment = int(align[1]) if align and lane == 0 else 1
    value, address = f"%one.{number}.value", f"%one.{number}.address"
    return "\n".join(
        f"{indent}{statement}{rest}"
        for statement in (
            f"{value} = extractelement {call['vector']} {call['value']}, i64 {lane}",
            f"{address} = getelementptr {type}, ptr {call['address']}, i64 {lane}",
            f"store {type} {value}, ptr {address}, align {alignment}",
        )
    )
