"""Options and the cache of the whole test run, in which every build is checked."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import pytest
from nacre.compiler.tools.validate.checker import VARIABLE

QUICK = (
    "artifact/test_loader_files.py",
    "artifact/test_size_formulas.py",
    "bench/test_compile_costs.py::test_bounds_are_reported",
    "cli/test_check_command.py",
    "cli/test_opt_command.py",
    "codegen/test_forking.py",
    "codegen/test_literals.py",
    "dialect/",
    "differential/test_machinery.py",
    "gpu/test_ptx_to_c.py::test_threads_exchange_through_shared_memory",
    "gpu/test_ptx_to_c.py::test_warp_sums_by_shuffles",
    "house/test_imports_point_down.py",
    "house/test_recipes.py",
    "lower/test_cost.py",
    "lower/test_entry_sizes.py",
    "lower/test_module.py",
    "lower/test_packing.py",
    "models/test_float8.py::test_numbers_are_converted",
    "mutation/test_mutants.py::test_a_run_ends_by_its_cpu_time",
    "onnx/test_bad_files.py",
    "operators/test_inference_errors.py",
    "operators/test_operators.py::test_decomposition_equals_the_reference",
    "operators/test_operators.py::test_reference_agrees_with_float64",
    "operators/test_operators.py::test_reference_has_the_inferred_type",
    "operators/test_operators.py::test_wrong_dtype_is_refused",
    "passes/test_manager.py",
    "passes/test_properties.py",
    "quantization/test_policy.py",
    "readers/language/test_elaborate.py",
    "readers/language/test_elaborate_run.py",
    "readers/language/test_hostile_sources.py",
    "readers/test_table.py",
    "readers/tflite_files/test_tflite.py::test_operators_agree_with_the_reference_kernels",
    "runtime/test_observe.py",
    "samples/test_digits.py::test_any_batch_gives_the_same",
    "samples/test_digits.py::test_files_are_small",
    "samples/test_digits.py::test_probabilities_are_those_of_the_formula",
    "samples/test_digits.py::test_sample_is_formatted",
    "states/test_states_in_place.py::test_rotation_of_three_states",
    "targets/test_families.py::test_gemm_for_neon_keeps_24_accumulators_in_registers",
    "test_files.py",
    "test_sizes.py",
    "stablehlo/test_stablehlo.py::test_operations",
    "pytorch/test_pytorch_reading.py::test_torch_is_not_imported_unless_used",
    "tools/accuracy/test_bounds.py",
    "tools/accuracy/test_tally.py",
    "tools/bisect/test_bisect.py::test_a_rewrite_limit_stops_the_passes",
    "tools/bisect/test_bisect.py::test_a_wrong_command_line_is_told",
    "tools/bisect/test_bisect.py::test_nothing_is_blamed_where_nothing_is_wrong",
    "tools/explorer/test_edits.py",
    "tools/explorer/test_queries.py",
    "tools/language_server/test_grammar_for_editors.py",
    "tools/profile/test_profile.py",
    "tools/validate/test_compare.py",
    "tools/validate/test_inputs.py",
    "tools/validate/test_judge.py",
    "tools/viewer/test_tree.py",
    "weights/",
)
"""Folders, files and single tests of `pytest -m quick`: some of every room, none of which compiles much, in less than a
minute on two cores."""


_ONCE = "once"
"""Stands for a folder of the run, in which checks are recorded that were passed."""


_MEMORY, _MEMORY_BYTES = Path("/dev/shm"), 8 << 30
"""A file system in memory, and the room that it must have; a run takes less than half of that."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="rewrite the expectations of the file tests; read the diff afterwards"
    )
    parser.addoption("--variants", action="store_true", help="run all operators for every CPU variant and for GPUs")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One folder for all processes of the run: neither takes a test what the user compiled, nor leaves it anything."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    os.environ["NACRE_CACHE"] = str(shared / "cache")
    if os.environ.get(VARIABLE) == _ONCE:
        os.environ[VARIABLE] = str(shared / "passed")


@pytest.fixture(scope="session", autouse=True)
def own_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Reproducers of faults outlive the processes that write them, and go with the folders of the run."""
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("temporary"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick`, skips files without quick tests: importing them would take most of the time of the run."""
    tests = Path(__file__).parent
    if config.option.markexpr != "quick" or not collection_path.is_relative_to(tests) or collection_path == tests:
        return None
    name = collection_path.relative_to(tests).as_posix() + "/" * collection_path.is_dir()
    return None if any(entry.startswith(name) or name.startswith(entry) for entry in QUICK) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(QUICK):
            item.add_marker(pytest.mark.quick)


def pytest_collection_finish() -> None:
    # What was collected stays: no garbage collection needs to look at it again, nor copies it in a forked process.
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    # Set before processes of the run start. Whatever tests build is checked stage by stage, so that a pass or a kernel
    # that is wrong is named; the same graph, kernel or artifact is checked once in a run. Threads of the interpreter's
    # products would only be in each other's way.
    os.environ.setdefault(VARIABLE, _ONCE)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _keep_bytecode(config)
    _use_memory_for_files()


def _use_memory_for_files() -> None:
    """Puts the folders of the run into memory, where a file system in memory has room and lets libraries be loaded.

    Each build makes dozens of small files and removes them; disks of servers spend a tenth of the run on that.
    """
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return
    room = os.statvfs(_MEMORY)
    if room.f_bavail * room.f_frsize >= _MEMORY_BYTES and not room.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def _keep_bytecode(config: pytest.Config) -> None:
    """Tests start hundreds of processes. Where Python writes no bytecode, each of them would compile all modules again,
    which takes longer than most tests: here it is written into a folder of the tests."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(config.rootpath / ".pytest_cache" / "bytecode")
        sys.dont_write_bytecode = False


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """For builds that are not to be checked: what is taken from a cache, or computes something else on purpose."""
    monkeypatch.delenv(VARIABLE, raising=False)
