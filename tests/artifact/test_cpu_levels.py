"""Artifacts with code for several kinds of CPU: the best that the CPU runs is taken, and no CPU gets what it cannot."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

import nacre
import numpy as np
import pytest
from c_models import CC, STRICT, argument, entry
from nacre.compiler.artifact.assemble import build_artifact
from nacre.compiler.artifact.assembly import ELF, Assembly
from nacre.compiler.artifact.link import RUNTIME_FOLDER
from nacre.compiler.artifact.spec import ArtifactSpec, LevelSpec
from nacre.compiler.artifact.tables import feature_bits, write_tables
from nacre.compiler.artifact.weights import WrittenWeights
from nacre.compiler.targets.target import CHECKED_FEATURES, LINUX_NAMES, TILE_FEATURES
from nacre.compiler.targets.variants import VARIANTS
from nacre.dialect.types import F32

HERE = Path(__file__).parent
TILES = {name.replace("-", "_") for name in TILE_FEATURES}
"""The features that an artifact needs only if a kernel uses tile registers."""
X86 = platform.machine() in ("x86_64", "AMD64")
pytestmark = pytest.mark.skipif(not X86, reason="levels are those of x86-64")

SHOW = """
#include <stdio.h>
#include "cpu.h"
#define X(name, leaf, subleaf, where, bit, state) printf("%s %d\\n", #name, (int)(mask >> NACRE_CPU_BIT_##name & 1));
static void show(const char *title, uint64_t mask) {
    printf("= %s\\n", title);
    NACRE_CPU_FEATURES(X)
}
int main(void) {
    show("this", nacre_cpu_features());
    show("slow", nacre_cpu_slow_features());
    return 0;
}
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The features of this CPU, and those of every variant, with the names of the runtime."""
    assert CC
    folder = tmp_path_factory.mktemp("cpu")
    (folder / "show.c").write_text(SHOW)
    # The runtime's choice among levels is left out: it needs an artifact.
    (folder / "cpu.c").write_text((RUNTIME_FOLDER / "cpu.c").read_text().split("static const char *const")[0])
    subprocess.run([CC, *STRICT, f"-I{RUNTIME_FOLDER}", "show.c", "cpu.c", "-o", "show"], cwd=folder, check=True)
    text = subprocess.run([folder / "show"], check=True, capture_output=True, text=True).stdout
    sections: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in text.splitlines():
        name, value = line.split(" ", 1)
        if name == "=":
            current = sections.setdefault(value, set())
            continue
        names.add(name)
        if value == "1":
            current.add(name)
    return {**{name: {c_name(f) for f in v.features} for name, v in VARIANTS.items()}, **sections, "all": names}


def c_name(feature: str) -> str:
    return re.sub("[.-]", "_", feature)


def test_compiler_and_runtime_know_the_same_features(shown: dict[str, set[str]]) -> None:
    assert shown["all"] == set(map(c_name, CHECKED_FEATURES))


def test_artifacts_have_all_variants() -> None:
    out = Assembly(ELF)
    write_tables(out, ArtifactSpec("empty", ()), WrittenWeights(""))
    texts = dict(re.findall(r'^(\S+):\n\.asciz "(.*)"$', "\n".join(out.lines), re.MULTILINE))
    start = out.lines.index("known_levels:") + 1
    end = out.lines.index(f".size known_levels, {16 * len(VARIANTS)}")
    rows = (line.removeprefix(".8byte ").split(", ") for line in out.lines[start:end])
    bits = feature_bits()
    found = {texts[name]: {feature for feature in bits if int(mask) & bits[feature]} for name, mask in rows}
    assert found == {name: set(map(c_name, variant.features)) for name, variant in VARIANTS.items()}


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux's own list of features")
def test_detected_features_are_those_that_linux_lists(shown: dict[str, set[str]]) -> None:
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    assert shown["this"] == {name for name in shown["all"] if LINUX_NAMES.get(name, name) in flags}


KERNEL = """
#include "tables.h"
int64_t nacre_entry_which{suffix}(const void *const *in, void *const *out, char *space, const char *weights,
                                  const int64_t *dims, nacre_team *team, nacre_failure *failure) {{
    (void)in, (void)space, (void)weights, (void)dims, (void)team, (void)failure;
    *(float *)out[0] = {number};
    return 0;
}}
"""


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact whose entry returns the number of the level that was taken."""
    assert CC
    folder = tmp_path_factory.mktemp("several")
    names = ["x86-64-v3", "x86-64-v2", "x86-64"]
    levels = [LevelSpec(name, f"_{i}", VARIANTS[name].features) for i, name in enumerate(names)]
    objects: list[bytes] = []
    for i, level in enumerate(levels):
        (folder / f"{i}.c").write_text(KERNEL.format(suffix=level.suffix, number=3 - i))
        subprocess.run([CC, "-O2", "-fPIC", f"-I{RUNTIME_FOLDER}", "-c", f"{i}.c"], cwd=folder, check=True)
        objects.append((folder / f"{i}.o").read_bytes())
    which = entry("which", [], [argument("level", F32)])
    return build_artifact(ArtifactSpec("several", (which,), levels=tuple(levels)), objects, folder / "several.so")


@pytest.mark.parametrize(
    ("limit", "taken"),
    [("x86-64-v4", 3), ("x86-64-v3", 3), ("x86-64-v2", 2), ("x86-64", 1), ("", None)],
)
def test_the_best_level_is_taken(
    several: Path, shown: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch, limit: str, taken: int | None
) -> None:
    monkeypatch.setenv("NACRE_CPU_LEVEL", limit)
    if taken is None or not shown["x86-64-v3"] <= shown["this"]:
        taken = next(
            n for n, level in ((3, "x86-64-v3"), (2, "x86-64-v2"), (1, "x86-64")) if shown[level] <= shown["this"]
        )
    assert nacre.load(several)() == taken


def test_each_session_chooses(several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library stays in memory; what was chosen for one session is not for the next."""
    first = nacre.load(several)
    monkeypatch.setenv("NACRE_CPU_LEVEL", "x86-64")
    second = nacre.load(several)
    assert second() == 1 and first() != 1


def test_an_unknown_level_is_an_error(several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_CPU_LEVEL", "x86-64-v9")
    with pytest.raises(nacre.NacreError, match="NACRE_CPU_LEVEL is `x86-64-v9`, which is none of x86-64, x86-64-v2"):
        nacre.load(several)


MODEL = """model scaled(x: f32[4]) -> f32[4] {
  table = reshape(tanh(x), [4, 1]) @ reshape(x, [1, 4])
  return softmax(table @ x) * 2
}
"""
X = np.array([-1, 0.5, 2, 3], np.float32)
Y = np.exp(np.outer(np.tanh(X), X) @ X)
EXPECTED = 2 * Y / Y.sum()


@pytest.fixture(scope="module", params=["portable", "native", "x86-64-v3", "x86-64-v2"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled model; the name of its file is its target."""
    path = tmp_path_factory.mktemp("model") / f"{request.param}.so"
    try:
        nacre.compile(MODEL, path, target=request.param)
    except nacre.NacreError as error:
        # It is made, though it cannot be loaded here.
        assert "this CPU lacks" in str(error)
    return path


@pytest.mark.parametrize("limit", VARIANTS)
def test_every_level_computes_the_same(
    artifact: Path, limit: str, shown: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_CPU_LEVEL", limit)
    have = shown[limit] & shown["this"]
    needed = {"portable": shown["x86-64-v3"], "native": shown["this"] - TILES}.get(
        artifact.stem, shown.get(artifact.stem, set())
    )
    if needed <= have:
        np.testing.assert_allclose(nacre.load(artifact)(X), EXPECTED, rtol=1e-5)
        return
    least = {"portable": "x86-64-v3 or more"}.get(artifact.stem, artifact.stem)
    with pytest.raises(nacre.NacreError, match=f"the artifact is for {least}, and this CPU lacks ") as caught:
        nacre.load(artifact)
    assert set(str(caught.value).split("lacks ")[1].split(", ")) == needed - have


def test_variants_of_an_artifact_are_described(artifact: Path, shown: dict[str, set[str]]) -> None:
    text = artifact.read_bytes()
    start = text.index(b'{"format":"nacre"')
    description = text[start : text.index(b"\0", start)].decode()
    levels = json.loads(description)["target"]["levels"]
    portable = ["x86-64-v4-vnni-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3"]
    expected = {"portable": portable}.get(artifact.stem, [artifact.stem])
    assert [level["name"] for level in levels] == expected
    for level in levels:
        needed = shown["this"] - TILES if level["name"] == "native" else shown[level["name"]]
        assert {name.replace(".", "_") for name in level["features"]} == needed
    assert all(level["cpu"] not in ("", "native") for level in levels)


CHOOSE = """
#include <stdio.h>
#include "cpu.h"
int main(void) {
    const uint64_t old = NACRE_CPU(sse3), v3 = old | NACRE_CPU(avx2), v4 = v3 | NACRE_CPU(avx512f);
    const uint64_t vnni = v4 | NACRE_CPU(avx512vnni), slow = NACRE_CPU(avx512bf16), bf16 = vnni | slow;
    const nacre_level levels[] = {{"bf16", bf16}, {"vnni", vnni}, {"v4", v4}, {"v3", v3}};
    const nacre_level few[] = {{"bf16", bf16}, {"v3", v3}};
    printf("%d", nacre_best_level(levels, 4, bf16, 0));
    printf("%d", nacre_best_level(levels, 4, bf16, slow));
    printf("%d", nacre_best_level(levels, 4, v4, slow));
    printf("%d", nacre_best_level(levels, 1, bf16, slow));
    printf("%d", nacre_best_level(few, 2, bf16, slow));
    printf("%d\\n", nacre_best_level(levels, 4, old, slow));
    return 0;
}
"""


def test_slow_features_are_avoided_where_nothing_else_is_lost(tmp_path: Path) -> None:
    assert CC
    (tmp_path / "choose.c").write_text(CHOOSE)
    (tmp_path / "cpu.c").write_text((RUNTIME_FOLDER / "cpu.c").read_text().split("static const char *const")[0])
    subprocess.run([CC, *STRICT, f"-I{RUNTIME_FOLDER}", "choose.c", "cpu.c", "-o", "choose"], cwd=tmp_path, check=True)
    text = subprocess.run([tmp_path / "choose"], check=True, capture_output=True, text=True).stdout
    assert text.strip() == "012004"


QEMU = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert CC
    path = tmp_path_factory.mktemp("program") / "level"
    subprocess.run([CC, *STRICT, f"-I{RUNTIME_FOLDER}", str(HERE / "level.c"), "-o", str(path), "-ldl"], check=True)
    return path


@pytest.mark.skipif(QEMU is None, reason="needs qemu-x86_64, which plays older CPUs")
@pytest.mark.parametrize(
    ("cpu", "runs"),
    [("Haswell", {"portable", "x86-64-v3", "x86-64-v2"}), ("Nehalem", {"x86-64-v2"}), ("core2duo", set())],
)
def test_older_cpus(artifact: Path, program: Path, cpu: str, runs: set[str]) -> None:
    """On an emulated CPU, the use of a feature that was not detected is an illegal instruction."""
    assert QEMU
    done = subprocess.run([QEMU, "-cpu", cpu, program, artifact], capture_output=True, text=True)
    if artifact.stem in runs:
        assert done.returncode == 0, (done.stdout, done.stderr)
        np.testing.assert_allclose([float(x) for x in done.stdout.split()], EXPECTED, atol=4e-6)
    else:
        assert (done.returncode, done.stdout.split(", and this CPU lacks")[0]) == (
            1,
            f"5: the artifact is for {artifact.stem.replace('portable', 'x86-64-v3 or more')}",
        ), (done.stdout, done.stderr)
