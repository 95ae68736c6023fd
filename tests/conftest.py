"""Options and the cache of the whole test run, in which every build is checked."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

# Threads of the interpreter's products would only be in each other's way: in two threads on a busy machine, a small
# product takes 20 times the processor time, and a small fit of scikit-learn 80 times. The libraries read the variables
# when they are loaded, so this precedes their imports.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from huge_pages import use_huge_pages, use_huge_pages_again
from nacre.compiler.base.environment import CHECK_PASSES

QUICK = (
    "artifact/test_loader_files.py::test_damage_does_not_pass_for_an_artifact",
    "artifact/test_loader_files.py::test_files_that_are_no_artifact",
    "artifact/test_loader_files.py::test_other_machines_and_versions",
    "artifact/test_loader_files.py::test_truncated_files",
    "artifact/test_size_formulas.py",
    "bench/test_compile_costs.py::test_bounds_are_reported",
    "cli/test_check_command.py",
    "cli/test_opt_command.py",
    "codegen/test_forking.py",
    "codegen/test_literals.py",
    "dialect/",
    "differential/test_machinery.py::test_a_seed_gives_one_graph_and_all_are_valid",
    "gpu/test_translate_ptx.py::test_threads_exchange_through_shared_memory",
    "gpu/test_translate_ptx.py::test_warp_sums_by_shuffles",
    "house/test_imports_point_down.py",
    "house/test_recipes.py",
    "lower/test_cost.py",
    "lower/test_entry_sizes.py",
    "lower/test_module.py",
    "lower/test_packing.py",
    "models/test_windows.py::test_windows_that_are_refused",
    "mutation/test_mutants.py::test_mutants_of_c",
    "mutation/test_mutants.py::test_mutants_of_python",
    "mutation/test_mutants.py::test_nearest_tests",
    "onnx/test_bad_files.py",
    "operators/test_inference_errors.py",
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
    "samples/test_digits.py::test_files_are_small",
    "samples/test_digits.py::test_sample_is_formatted",
    "states/test_states_in_place.py::test_rotation_of_three_states",
    "targets/test_families.py::test_gemm_for_neon_keeps_24_accumulators_in_registers",
    "test_files.py",
    "test_sizes.py::test_bounds_are_read",
    "test_sizes.py::test_growth_has_its_cause",
    "test_sizes.py::test_transforms_keep_the_bound",
    "stablehlo/test_stablehlo.py::test_operations",
    "pytorch/test_pytorch_reading.py::test_torch_is_not_imported_unless_used",
    "comparison/test_bounds.py",
    "comparison/test_tally.py",
    "tools/bisect/test_bisect.py::test_a_rewrite_limit_stops_the_passes",
    "tools/bisect/test_bisect.py::test_a_wrong_command_line_is_an_error",
    "tools/explorer/test_edits.py",
    "tools/explorer/test_queries.py",
    "tools/language_server/test_grammar_for_editors.py",
    "tools/profile/test_machine.py",
    "tools/profile/test_profile.py::test_the_bound_of_a_kernel",
    "validate/test_compare.py",
    "validate/test_inputs.py",
    "validate/test_judge.py",
    "tools/viewer/test_tree.py",
    "weights/",
)
"""The tests of `pytest -m quick`, as folders, files and single tests. Every folder has some. Few of them compile a
model; together they take less than a minute of processor time."""
SLOW = (
    "dialect/test_graph_text.py::test_bits_of_float_constants_come_back",
    "lower/test_module.py::test_texts_do_not_depend_on_hashes",
    "onnx/test_bad_files.py::test_a_file_of_empty_nodes",
    "onnx/test_bad_files.py::test_exit_code_of_the_command",
    "readers/language/test_elaborate.py::test_sizes_that_double_with_every_step_are_refused",
    "readers/language/test_hostile_sources.py::test_warnings_end_no_check",
    "test_files.py::test_file[check/too-many-operations]",
    "tools/explorer/test_queries.py::test_package_loads_without_the_graph",
    "validate/test_judge.py::test_nan_has_to_be_where_it_belongs",
)
"""Tests of the above files that take too long: none of `pytest -m quick`."""


_ONCE = "once"
"""Stands for a folder of the run, in which checks are recorded that were passed."""


_MEMORY, _MEMORY_BYTES = Path("/dev/shm"), 8 << 30
"""A file system in memory, and the room that it must have; a run takes less than half of that."""


_SHOWN_SECONDS = 0.005
"""The default of `--durations-min`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="rewrite the expectations of the file tests; read the diff afterwards"
    )
    parser.addoption("--variants", action="store_true", help="run all operators for every CPU variant")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One folder for all processes of the run: neither takes a test what the user compiled, nor leaves it anything."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    os.environ["NACRE_CACHE"] = str(shared / "cache")
    # ptxas would take half as long as everything else in the build of a kernel. tests/gpu/test_cubins.py uses it.
    os.environ["NACRE_NO_CUBIN"] = "1"
    if os.environ.get(CHECK_PASSES) == _ONCE:
        os.environ[CHECK_PASSES] = str(shared / "passed")


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
        name = item.nodeid.removeprefix("tests/")
        if name.startswith(QUICK) and not name.startswith(SLOW):
            item.add_marker(pytest.mark.quick)


def pytest_collection_finish() -> None:
    _freeze()
    use_huge_pages()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Runs a test as pytest does, and leaves out the reports of fixtures that pass, print nothing, and take less time
    than `--durations` shows. Sending three reports from a worker takes as long as running a short test."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.sections or report.duration >= _SHOWN_SECONDS:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_runtest_teardown(nextitem: pytest.Item | None, item: pytest.Item) -> None:
    if nextitem is not None and nextitem.path != item.path:
        _freeze()
        use_huge_pages_again()


def _freeze() -> None:
    """Exempts what is alive from garbage collections: what was collected, and what modules keep. No collection looks at
    it again, nor copies its pages in a forked process."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    # Set before processes of the run start. Whatever tests build is checked stage by stage, so that a pass or a kernel
    # that is wrong is named; the same graph, kernel or artifact is checked once in a run.
    os.environ.setdefault(CHECK_PASSES, _ONCE)
    _keep_bytecode(config)
    _use_memory_for_files()
    # With Python's own thresholds, collections take a tenth of the processor time of the tests' process, and of the
    # imports of the tests.
    gc.set_threshold(50_000, 50, 100)


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
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache without artifacts; objects are those of the whole run, which no build may tell from new ones."""
    folder, shared = tmp_path_factory.mktemp("cache"), Path(os.environ["NACRE_CACHE"]) / "objects"
    shared.mkdir(parents=True, exist_ok=True)
    (folder / "objects").symlink_to(shared)
    return folder


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """For builds that are not to be checked: what is taken from a cache, or computes something else on purpose."""
    monkeypatch.delenv(CHECK_PASSES, raising=False)
