"""Loops of a GPU kernel run in many threads only if their iterations touch different elements."""

from __future__ import annotations

import pytest
from nacre.compiler.base.mlir import ir
from nacre.compiler.codegen.gpu.loop_nests import LoopNest, find_loops

ROWS = """
  %first = arith.muli %i, %c8 : index
  %left = arith.subi %n, %first : index
  %whole = arith.cmpi sge, %left, %c8 : index
  %rest = arith.select %whole, %c0, %left : index
  %few = arith.minsi %left, %c8 : index
  scf.for %j = %c0 to {end} step %c1 {{
    %row = arith.addi %first, %j : index
    memref.store %x, %y[%row] : memref<?xf32>
  }}"""
PLACES = """
  %at = memref.load %places[%i] : memref<?xindex>
  %old = memref.load %y[%at] : memref<?xf32>
  %new = arith.addf %old, %x : f32
  memref.store %new, %y[{place}] : memref<?xf32>"""


def read(body: str) -> LoopNest | None:
    """Returns the loops of a nest with this body, if several threads may run it."""
    constants = "".join(f"%c{n} = arith.constant {n} : index\n" for n in (0, 1, 7, 8, 9))
    arguments = "%n: index, %x: f32, %y: memref<?xf32>, %places: memref<?xindex>"
    loop = f"scf.for %i = %c0 to %n step %c1 {{{body}\n}}"
    module = ir.Module.parse(f"func.func @f({arguments}) {{\n{constants}{loop}\nreturn\n}}", ir.Context())
    function = module.body.operations[0].operation
    return find_loops(list(function.regions[0].blocks[0].operations)[-2].operation)


@pytest.mark.parametrize("end", ["%c7", "%c8", "%rest", "%few"])
def test_blocks_of_rows_have_threads(end: str) -> None:
    found = read(ROWS.format(end=end))
    assert found is not None and found.parallel == (0,)


@pytest.mark.parametrize("end", ["%c9", "%left", "%n"])
def test_blocks_that_may_overlap_are_not_apart(end: str) -> None:
    """Only the elements may be shared out, where the inner loop is one of the nest."""
    found = read(ROWS.format(end=end))
    assert found is None or (found.parallel == () and len(found.owned) == 1)


def test_places_are_shared_out() -> None:
    found = read(PLACES.format(place="%at"))
    assert found is not None and found.parallel == () and len(found.owned) == 1 and found.ordered == (0,)


def test_steps_with_two_places_have_one_thread() -> None:
    assert read(PLACES.format(place="%i")) is None


def test_neighbours_have_one_thread() -> None:
    """Element i is read in the iteration that follows the one which writes it."""
    body = "%next = arith.addi %i, %c1 : index\n%v = memref.load %y[%i] : memref<?xf32>"
    assert read(f"{body}\nmemref.store %v, %y[%next] : memref<?xf32>") is None


def test_elements_of_fixed_distance_have_threads() -> None:
    found = read("%next = arith.addi %i, %n : index\nmemref.store %x, %y[%next] : memref<?xf32>")
    assert found is not None and found.parallel == (0,) and found.owned == ()
