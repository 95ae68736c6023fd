"""Whole artifacts on a GPU: the real runtime and the real code, with the fake driver in place of a device."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nacre
import numpy as np
import pytest
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.runtime.library import ArtifactError, OutOfRangeError

ROOT = Path(__file__).parents[2]
MODEL = """language 1
dim B in 0..64
model pick(x: f32[B, 8], i: i64[B]) -> y: f32[B, 20], z: f32[B, 8] {
  param w: f32[20, 8]
  return softmax(x @ w.T), gather(w, i, axis=0) + x
}
"""
WEIGHT = np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifacts")
    np.savez(folder / "w.npz", w=WEIGHT)
    for name, target in (("both", "native,cuda:sm_80"), ("gpu", "cuda"), ("new", "cuda:sm_90a"), ("cpu", "native")):
        source_model = read_model(MODEL, folder / "w.npz")
        Build(source_model, Options(targets=parse_targets(target))).run(folder / f"{name}.so")
    return folder


def arguments(batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(batch)
    return rng.normal(size=(batch, 8)).astype(np.float32), rng.integers(-20, 20, batch)


def assert_right(model: nacre.Model, batch: int) -> None:
    x, i = arguments(batch)
    y, z = map(np.asarray, model(x, i))
    scores = x.astype(np.float64) @ WEIGHT.T
    parts = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf))
    # Scores reach 16, where steps of f32 are 2e-6; the error of a score is the relative error of its exponential.
    np.testing.assert_allclose(y, parts / parts.sum(1, keepdims=True), rtol=5e-6)
    np.testing.assert_array_equal(z, WEIGHT[i] + x)


@pytest.mark.parametrize("name", ["both", "gpu"])
def test_entry_computes_on_the_device(machine: Machine, folder: Path, name: str) -> None:
    model = nacre.load(folder / f"{name}.so", device="cuda:0")
    for batch in (5, 64, 1, 0, 3):
        assert_right(model, batch)
    assert machine.launches >= 5 and not machine.error
    assert machine.log.count("cuModuleLoadDataEx") < machine.launches
    del model
    gc.collect()
    assert machine.left == 0 and machine.library.fake_depth() == 0


def test_sessions_share_code_and_weights(machine: Machine, folder: Path) -> None:
    first = nacre.load(folder / "both.so", device="cuda")
    loaded = machine.log.count("cuModuleLoadDataEx")
    second = nacre.load(folder / "both.so", device="cuda")
    assert_right(first, 4)
    assert_right(second, 4)
    assert machine.log.count("cuModuleLoadDataEx") == loaded > 0
    del first, second
    gc.collect()
    assert machine.left == 0


def test_index_out_of_range(machine: Machine, folder: Path) -> None:
    model = nacre.load(folder / "gpu.so", device="cuda")
    x, i = arguments(4)
    i[2] = 20
    with pytest.raises(OutOfRangeError, match=r"index 20 is out of range for an axis of size 20 \(element 2"):
        model(x, i)
    assert_right(model, 4)


def test_cpu_computes_without_a_device(machine: Machine, folder: Path) -> None:
    machine.reset(devices=0)
    for device in ("auto", "cpu", None):
        model = nacre.load(folder / "both.so", device=device)
        assert_right(model, 5)
        assert model.device == "cpu" and model._session.device == -1
    assert machine.launches == 0


def test_auto_takes_the_device(machine: Machine, folder: Path) -> None:
    assert_right(nacre.load(folder / "both.so"), 5)
    assert machine.launches > 0


def test_each_device_has_its_own_code(machine: Machine, folder: Path) -> None:
    """Models on one device share what is loaded into it; a model on another one does not."""
    machine.reset(devices=2)

    def contexts() -> list[int]:
        return [machine.library.fake_contexts(number) for number in range(2)]

    models = {}
    for name, device, expected in (("a", "cuda:0", [1, 0]), ("b", "cuda:1", [1, 1]), ("c", "cuda:1", [1, 1])):
        models[name] = nacre.load(folder / "gpu.so", device=device)
        assert_right(models[name], 5)
        assert contexts() == expected
    for name, expected in (("b", [1, 1]), ("c", [1, 0]), ("a", [0, 0])):
        del models[name]
        gc.collect()
        assert contexts() == expected


@pytest.mark.parametrize(
    ("name", "device", "capability", "message"),
    [
        ("gpu", "cpu", 80, "the artifact has no code for a CPU"),
        ("cpu", "cuda:0", 80, "the artifact has no code for the device `cuda:0`: it was compiled for CPUs alone"),
        ("both", "cuda:1", 80, "there is no device `cuda:1`; the driver has 1"),
        ("both", "gpu", 80, "`gpu` is none of `auto`, `cpu`, `cuda` and `cuda:NUMBER`"),
        ("gpu", "cuda", 75, "the artifact is for cuda:sm_80 or newer, and the device is sm_75"),
        ("gpu", "auto", 75, "the artifact is for cuda:sm_80 or newer, and the device is sm_75"),
        ("new", "cuda", 120, "the artifact is for cuda:sm_90a, and the device is sm_120"),
    ],
)
def test_device_that_is_not_there(
    machine: Machine, folder: Path, name: str, device: str, capability: int, message: str
) -> None:
    machine.reset(capability=capability)
    with pytest.raises(ArtifactError, match=message):
        nacre.load(folder / f"{name}.so", device=device)
    assert machine.left == 0 and machine.library.fake_depth() == 0


def test_newer_device_runs_the_code(machine: Machine, folder: Path) -> None:
    machine.reset(capability=120)
    assert_right(nacre.load(folder / "gpu.so", device="cuda"), 5)


LOADING = (
    *("cuDeviceGetCount", "cuDeviceGet", "cuDriverGetVersion", "cuDeviceGetAttribute"),
    *("cuDevicePrimaryCtxRetain", "cuCtxPushCurrent", "cuModuleLoadDataEx"),
    *("cuModuleGetFunction", "cuMemAlloc", "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuStreamCreate"),
)
CALLING = ("cuMemAlloc", "cuMemcpyHtoDAsync", "cuLaunchKernel", "cuStreamSynchronize", "cuMemcpyDtoHAsync")


@pytest.mark.parametrize("function", LOADING)
def test_failure_while_loading(machine: Machine, folder: Path, function: str) -> None:
    """No failure is hidden, and none leaves anything behind."""
    for nth in (1, 2):
        machine.reset()
        machine.fail(function, nth)
        try:
            model = nacre.load(folder / "both.so")
        except ArtifactError as error:
            assert "injected failure" in str(error)
        else:
            assert nth == 2
            del model
        gc.collect()
        assert machine.left == 0 and machine.library.fake_depth() == 0


@pytest.mark.parametrize("function", CALLING)
def test_failure_of_a_call(machine: Machine, folder: Path, function: str) -> None:
    model = nacre.load(folder / "gpu.so", device="cuda")
    for nth in (1, 2):
        machine.fail(function, nth)
        x, i = arguments(6)
        try:
            model(x, i)
        except nacre.NacreError as error:
            assert "injected failure" in str(error)
            assert function != "cuLaunchKernel" or "could not launch `" in str(error)
        else:
            assert nth == 2
        machine.fail("", 0)
        assert_right(model, 6)
    del model
    gc.collect()
    assert machine.left == 0 and machine.library.fake_depth() == 0


def test_failure_while_a_stream_is_selected(machine: Machine, folder: Path) -> None:
    """The stream stays as it was, and the context of the caller too."""
    model = nacre.load(folder / "gpu.so", device="cuda")
    assert_right(model, 3)
    for function in ("cuCtxPushCurrent", "cuStreamSynchronize"):
        machine.fail(function)
        with pytest.raises(nacre.NacreError, match="injected failure"):
            model.use_stream(1)
        assert machine.library.fake_depth() == 0
        assert_right(model, 3)
    del model
    gc.collect()
    assert machine.left == 0


def message_in_child(action: Callable[[], object]) -> str:
    """Returns the error of an action in the child of a fork."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            os.write(writer, b"no error")
        except nacre.NacreError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        return file.read()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_child_of_a_fork(machine: Machine, folder: Path, counter: Path) -> None:
    """It gets an error for everything that would reach the device, and the parent goes on."""
    model, session = nacre.load(folder / "both.so"), nacre.load(counter, device="cuda").session(N=3)
    x = np.ones(3, np.float32)
    session(x)
    used = "a session on a device cannot be used after a fork"
    assert used in message_in_child(lambda: model(*arguments(2)))
    assert used in message_in_child(lambda: model.use_stream(1))
    assert used in message_in_child(lambda: session.states["sum"])
    assert "started before this process was forked" in message_in_child(lambda: nacre.load(folder / "both.so"))
    assert message_in_child(lambda: nacre.load(folder / "both.so", device="cpu")(*arguments(2))) == "no error"
    assert_right(model, 2)
    np.testing.assert_array_equal(session(x), 2 * x)


def test_device_out_of_memory(machine: Machine, folder: Path) -> None:
    machine.reset(memory=16 << 10)
    model = nacre.load(folder / "gpu.so", device="cuda")
    assert_right(model, 1)
    with pytest.raises(nacre.NacreError, match="could not allocate memory for a call: out of memory"):
        model(*arguments(64))
    assert_right(model, 1)


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = """language 1
dim N in 1..8
model add(x: f32[N]) -> total: f32[N] {
  state sum: f32[N]
  sum = sum + x
  return sum
}
"""
    path = tmp_path_factory.mktemp("counter") / "s.so"
    Build(read_model(text), Options(targets=parse_targets("native,cuda"))).run(path)
    return path


def test_sizes_of_a_state_and_its_values(machine: Machine, counter: Path) -> None:
    session = nacre.load(counter, device="cuda").session(N=3)
    x = np.arange(3, dtype=np.float32)
    for count in (1, 2, 3):
        np.testing.assert_array_equal(session(x), count * x)
    assert machine.launches > 0


def test_missing_driver(folder: Path) -> None:
    """In a process of its own, which opens another driver."""
    code = f"import nacre; nacre.load({str(folder / 'gpu.so')!r}, device='cuda')"
    environment = {"NACRE_CUDA_DRIVER": "/nowhere/libcuda.so", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "there is no CUDA driver: /nowhere/libcuda.so" in done.stderr


def test_driver_that_is_too_old(folder: Path, tmp_path: Path) -> None:
    """It lacks a function; a library without any stands for it."""
    if shutil.which("cc") is None:
        pytest.skip("the library needs a C compiler named `cc`")
    (tmp_path / "old.c").write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    old = tmp_path / "libold.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "old.c"), "-o", str(old)], check=True)
    code = f"import nacre; nacre.load({str(folder / 'gpu.so')!r}, device='cuda')"
    environment = {"NACRE_CUDA_DRIVER": str(old), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert f"the CUDA driver is too old, it lacks `cuDriverGetVersion`: {old}" in done.stderr


def test_model_compiled_for_a_device_that_is_not_at_hand(tmp_path: Path) -> None:
    """Only its call needs the device."""
    program = """
import nacre
import numpy as np
model = nacre.compile("model m(x: f32[4]) -> f32[4] { return x + x }", target="cuda")
print(model.describe()["name"], list(model.entries))
try:
    model(np.zeros(4, np.float32))
except nacre.NacreError as error:
    print(error)
"""
    environment = os.environ | {"NACRE_CUDA_DRIVER": "/nowhere/libcuda.so", "NACRE_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "model ['m']" and second.startswith("there is no CUDA driver: /nowhere/libcuda.so")


def test_caller_that_knows_no_device(machine: Machine, folder: Path, machine_folder: Path, tmp_path: Path) -> None:
    """A C program passes pointers of the host, and the environment selects the device."""
    if shutil.which("cc") is None:
        pytest.skip("the program needs a C compiler named `cc`")
    program = tmp_path / "program.c"
    program.write_text(PROGRAM)
    done = subprocess.run(
        ["cc", "-std=c11", f"-I{ROOT / 'runtime'}", str(program), "-o", str(tmp_path / "program"), "-ldl"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    run = subprocess.run([str(tmp_path / "program"), str(folder / "both.so")], capture_output=True, text=True, env={})
    assert run.returncode == 0, run.stdout + run.stderr


PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include "abi.h"

int main(int count, char **arguments) {
    void *library = dlopen(arguments[count - 1], RTLD_NOW);
    const nacre_api *(*get)(uint32_t) = (const nacre_api *(*)(uint32_t))dlsym(library, "nacre_get_api");
    const nacre_api *api = get(NACRE_ABI_VERSION);
    nacre_options options = {sizeof options, .device = "cuda"};
    nacre_session *session;
    if (api->session_create(&options, &session) != NACRE_NO_DEVICE) return 1;
    options.device = NULL;
    if (api->session_create(&options, &session)) return puts(api->last_error()), 2;
    float x[16] = {0}, y[40], z[16];
    int64_t i[2] = {0, 19}, wide[] = {2, 8}, tall[] = {2, 20}, one[] = {2};
    nacre_tensor in[] = {{x, wide, 0, NACRE_F32, 2}, {i, one, 0, NACRE_I64, 1}};
    nacre_tensor out[] = {{y, tall, 0, NACRE_F32, 2}, {z, wide, 0, NACRE_F32, 2}};
    static _Alignas(64) char workspace[1 << 16];
    if (api->run(session, 0, in, 2, out, 2, workspace, sizeof workspace)) return puts(api->last_error()), 3;
    api->session_destroy(session);
    return y[0] > 0.049f && y[0] < 0.051f ? 0 : 4;
}
"""
