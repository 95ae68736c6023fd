"""The checks for a machine with a GPU run from their folder alone, with a device in C, and find a wrong result."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run as program
from assembler import assemble, find_ptxas
from chip.cases import DATA, pack_data, packed_of, read_index, unpack_data, write_index
from chip.ceilings import measure_ceilings, products_of_warpgroups, products_of_warps
from chip.clock import CALLS, WARM_UP
from chip.drawn import Drawn
from chip.records import out_of_time, read_records
from chip.report import describe
from chip.stages import SHARES, Run, run_checks
from compile_kernels import build_driver
from fake_driver import Machine, environment_of
from packing import Amount, Pack, pack_all

MOST_BYTES = 20_000
"""The bytes of a folder of few cases for each of these, with artifacts, inputs and expected results."""
STAGES = {"operators": 10, "graphs": 3, "samples": 4, "threads": 4, "errors": 7, "timings": 10}
"""The least cases of each stage."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    pack = pack_all(folder, Amount(graphs=3, quick=True))
    assert not pack.refused
    size = (folder / DATA).stat().st_size
    assert size <= MOST_BYTES * sum(len(each.cases) for each in pack.packed), size
    for stage in ("samples", "operators", "graphs", "timings"):
        assert any(line.startswith(f"| {stage} |") for line in pack.estimate), pack.estimate
    return folder


@pytest.fixture(scope="module")
def data(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked files, which tests only read."""
    folder = tmp_path_factory.mktemp("data")
    unpack_data(packed / DATA, folder)
    return folder


def run(
    packed: Path, machine_folder: Path, results: Path, *arguments: str, **variables: str
) -> tuple[int, dict[str, Any]]:
    """Runs the checks on a Hopper GPU in C; `variables` are added to the environment of their processes."""
    driver = build_driver(machine_folder)
    command = [sys.executable, str(packed / "run.py"), "run", str(results), "--driver", str(driver), *arguments]
    environment = environment_of(machine_folder, capability=90) | variables
    done = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, env=environment, cwd=results)
    assert (results / "results.json").exists(), done.stderr
    assert (results / "results.md").read_text() in done.stdout + "\n"
    return done.returncode, json.loads((results / "results.json").read_text())


def test_all_checks_pass(packed: Path, machine_folder: Path, tmp_path: Path) -> None:
    code, results = run(packed, machine_folder, tmp_path)
    stages = {stage["stage"]: stage for stage in results["stages"]}
    assert [failure for stage in stages.values() for failure in stage["failures"]] == []
    assert code == 0
    for name, least in STAGES.items():
        assert stages[name]["cases"] >= least, (name, stages[name])
        assert all(reason.startswith("peers: torch ") for reason in stages[name]["skipped"]), stages[name]
    rows = {detail["name"]: detail["rows"] for detail in stages["timings"]["details"] if "rows" in detail}
    times = {row["name"]: row["seconds"] for row in rows["timings"]}
    assert {"resnet50_1", "minilm_1_8", "matmul_int4_1_64_64", "attention_1_2_64_64", "relu_f32_8_64"} < set(times)
    assert min(times.values()) > 0
    assert {row["name"] for row in rows["ceilings"] if row["rate"] > 0} == {"copy", "products"}


def test_cases_without_time_are_reported(packed: Path, machine_folder: Path, tmp_path: Path) -> None:
    """A run that ends early says which cases it has not run, and its exit status is not that of a success."""
    code, results = run(packed, machine_folder, tmp_path, "--minutes", "0")
    stages = {stage["stage"]: stage for stage in results["stages"]}
    assert code == 2 and all(stage["cases"] == 0 for stage in stages.values())
    for name, least in STAGES.items():
        assert stages[name]["not_run"] >= least, stages[name]
        assert all(reason.endswith(": no time is left") for reason in stages[name]["skipped"]), stages[name]
    assert f"{sum(stage['not_run'] for stage in stages.values())} cases were not run." in describe(results)


def test_large_inputs_are_drawn(data: Path) -> None:
    """A seed gives the same array again; one that gives another array is an error."""
    cases = [case for packed in packed_of(read_index(data)) for case in packed.cases]
    drawn = [each for case in cases for each in case.inputs if each is not None]
    assert {each.dtype for each in drawn} >= {"bf16", "f32"} and min(each.array().size for each in drawn) > 100
    with pytest.raises(AssertionError, match="draws other numbers from seed"):
        replace(drawn[0], seed=drawn[0].seed + 1).array()
    values = Drawn(1, "f64", (4000,)).draw()
    assert abs(values.mean()) < 0.05 and abs(values.std() - 1) < 0.05


@pytest.mark.parametrize("capability", [80, 90])
def test_products_are_measured(machine: Machine, capability: int) -> None:
    """Both kernels run, and are assembled without registers in memory."""
    machine.reset(capability=capability)
    text = products_of_warpgroups() if capability == 90 else products_of_warps()
    architecture = "sm_90a" if capability == 90 else "sm_80"
    with tempfile.TemporaryDirectory() as folder:
        assert assemble(find_ptxas(), text, architecture, Path(folder)) == []
    for record in measure_ceilings("cuda:0", 1, quick=True):
        assert "row" not in record or record["row"]["rate"] > 0
    assert machine.launches == WARM_UP + CALLS and not machine.error
    assert machine.left == 0


def test_folder_that_is_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pack(folder: Path, *_: object, **__: object) -> Pack:
        (folder / DATA).write_bytes(bytes(1 << 20))
        return Pack(folder)

    monkeypatch.setattr("packing.pack_all", pack)
    for most, code in (("1", 0), ("0.99", 1)):
        monkeypatch.setattr(sys, "argv", ["run.py", "pack", str(tmp_path), "--most-mib", most])
        assert program.main() == code
    assert "more than the 0.99 MiB" in capsys.readouterr().err


def test_workers_end_with_the_process_that_packs() -> None:
    """A signal that ends it leaves no process behind that makes a part, or waits for the next one."""
    text = "import time, packing_workers as p\np.make_parts(time.sleep, 3600, 1, lambda *_: print(flush=True))"
    with subprocess.Popen([sys.executable, "-c", text], cwd=Path(__file__).parent, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()  # the part that sleeps for 0 seconds
        threads = Path(f"/proc/{process.pid}/task").iterdir()
        children = [int(n) for each in threads for n in (each / "children").read_text().split()]
        own = [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        process.kill()
        process.wait()
    assert own
    end = time.monotonic() + 30
    while any(is_running(child) for child in own):
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def test_no_case_begins_after_the_deadline(packed: Path, data: Path, machine_folder: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    command = [sys.executable, str(packed / "run.py"), "part", "check", "sample-digits", str(data), str(records)]
    environment = environment_of(machine_folder) | {"NACRE_CUDA_DRIVER": str(build_driver(machine_folder))}
    subprocess.run([*command, "--deadline", "0"], env=environment, check=True)
    assert list(read_records(records)) == [out_of_time()]


def test_time_that_a_stage_leaves_is_that_of_later_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage ends with its share of the whole, counted from the beginning."""
    write_index(tmp_path, [], timings=[])
    deadlines = []

    def note(run: Run, stage: str, *_: object) -> dict[str, Any]:
        deadlines.append(run.deadline)
        return {"stage": stage}

    monkeypatch.setattr("chip.stages.run_stage", note)
    monkeypatch.setattr("chip.stages.time.monotonic", lambda: 1000.0)
    run_checks(Run(tmp_path, tmp_path, tmp_path, "cuda:0", 1, 1450.0, 120.0), list(SHARES)[:-1], lambda _: None)
    whole = sum(list(SHARES.values())[:-1])
    assert deadlines == pytest.approx([1000 + 450 * sum(list(SHARES.values())[: n + 1]) / whole for n in range(6)])


def test_wrong_result_is_found(packed: Path, data: Path, machine_folder: Path, tmp_path: Path) -> None:
    """The packed expectation of one element is changed."""
    changed, files = tmp_path / "packed", shutil.copytree(data, tmp_path / "files")
    path = next(files.glob("graphs*.npz"))
    arrays = dict(np.load(path))
    name = next(key for key, array in arrays.items() if key.endswith(".exact") and array.size > 3)
    arrays[name].flat[3] += 1
    np.savez(path, **arrays)  # type: ignore[arg-type]  # NumPy's own stub
    shutil.copytree(packed, changed)
    pack_data(files, changed / DATA)
    code, results = run(changed, machine_folder, tmp_path, "--stages", "graphs")
    (stage,) = results["stages"]
    assert code == 1
    assert len(stage["failures"]) == 1 and stage["failures"][0].startswith(name.partition(".")[0])
    assert "(1 of" in stage["failures"][0]


@pytest.mark.parametrize("variable", ["FAKE_CUDA_EXIT_AT", "FAKE_CUDA_FAULT_AT"])
def test_cases_after_a_crash_run(packed: Path, data: Path, machine_folder: Path, tmp_path: Path, variable: str) -> None:
    """A process that ends, and a device that is lost, cost one case: another process runs those after it."""
    code, results = run(packed, machine_folder, tmp_path, "--stages", "graphs", **{variable: "10"})
    (stage,) = results["stages"]
    (part,) = (each for each in packed_of(read_index(data)) if each.stage == "graphs")
    assert code == 1
    assert 0 < len(stage["failures"]) < stage["cases"] == len(part.cases)
    records = [json.loads(line) for line in (tmp_path / "parts" / f"check-{part.name}.jsonl").read_text().splitlines()]
    assert [each["case"] for each in records if "case" in each] == [case.name for case in part.cases]
