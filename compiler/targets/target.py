"""Targets of machine code: a CPU variant, any CPU that LLVM supports, or another machine."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.lazy_dataclass import dataclass
from .cpus import ask_features, ask_names, near_names
from .cuda import CUDA, PREFIX, PTX_VERSIONS, TRIPLE
from .families import FAMILIES
from .family import Family
from .variants import PORTABLE, PORTABLE_VARIANTS, VARIANTS
from .vector_unit import PanelSizes, VectorUnit
from .x86 import X86

TILE_FEATURES = frozenset({"amx-tile", "amx-int8", "amx-bf16"})
"""The features whose registers the system saves only for processes that ask for it."""
_OTHERS = """adx aes avx512bitalg avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vp2intersect avx512vpopcntdq
avxifma avxneconvert avxvnni avxvnniint8 fma4 gfni pclmul sha sse4a tbm vaes vpclmulqdq xop"""
_OF_VARIANTS = {name for each in VARIANTS.values() for name in each.features}
CHECKED_FEATURES = frozenset((*_OTHERS.split(), *_OF_VARIANTS, *TILE_FEATURES))
"""The features that the runtime can detect; the code generator does not use other features on its own."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target. `cpu` is one of LLVM's names of CPUs, or `native` for the CPU of the compiling machine; `features`, as
    in `+avx512f,-fma`, are added to those of the CPU or removed from them.

    Without a triple, the target is the compiling machine.
    """

    cpu: str = "native"
    triple: str = ""
    features: str = ""

    @property
    def added(self) -> tuple[str, ...]:
        return tuple(f.removeprefix("+") for f in self.features.split(",") if f.startswith("+"))

    @property
    def name(self) -> str:
        """The target as a user types it."""
        if self.is_device:
            return f"{PREFIX}:{self.cpu}"
        if self.triple not in ("", X86.triple):
            return self.triple + self._beyond_family
        added = sorted(self.features.split(","))
        for variant in VARIANTS.values():
            if variant.beyond and self.cpu == variant.cpu and added == [f"+{feature}" for feature in variant.beyond]:
                return variant.name
        return self.cpu + self.features.replace(",", "")

    @property
    def _beyond_family(self) -> str:
        """The CPU and the features after a triple, where they differ from those of the family."""
        if self.family is None:
            return ""
        cpu = "" if self.cpu == self.family.cpu else f":{self.cpu}"
        return cpu + self.features.removeprefix(self.family.features).replace(",", "")

    @property
    def family(self) -> Family | None:
        """The family of its CPU; None for an architecture that no family describes."""
        return FAMILIES.get(machine_of(self.triple))

    @property
    def is_device(self) -> bool:
        """Whether its kernels run on a separate device."""
        return self.family is not None and self.family.device

    @property
    def host(self) -> Target:
        """The target of the code that calls kernels: for a device, the least CPU of this machine's family."""
        if not self.is_device:
            return self
        family = FAMILIES.get(machine_of(""))
        return Target() if family is None else Target(family.cpu, features=family.features)

    @property
    def suffix(self) -> str:
        """The suffix of symbols for this target, where a library holds code for several."""
        return "_" + re.sub(r"\W", "_", self.name)

    @property
    def needs(self) -> tuple[str, ...]:
        """The features that the code of a CPU variant needs; none for another target."""
        return tuple(sorted(VARIANTS[self.name].features)) if self.name in VARIANTS else ()

    def has(self, feature: str) -> bool:
        """Returns whether the code for an x86 CPU may use one of `CHECKED_FEATURES`."""
        for sign in reversed(self.features.split(",")):
            if sign[1:] == feature:
                return sign.startswith("+")
        if self.cpu == "native":
            return feature in host_features()
        return feature in (VARIANTS[self.cpu].features if self.cpu in VARIANTS else ask_features(self.cpu, ""))

    @property
    def unit(self) -> VectorUnit | None:
        """The vector unit that code is tiled for; None for a device and for an architecture without a family."""
        units = () if self.family is None else self.family.units
        return next((unit for needed, unit in units if all(map(self.has, needed))), None)

    @property
    def runs_here(self) -> bool:
        """Returns whether this machine can run the target's code, as far as the system reports."""
        if machine_of(self.triple) != machine_of(""):
            return False
        if self.cpu == "native":
            return host_features().issuperset(CHECKED_FEATURES.intersection(self.added))
        if self.name in VARIANTS:
            return host_features().issuperset(self.needs)
        needed = ask_features(self.cpu, self.features)
        return bool(needed) and host_features().issuperset(needed)


@dataclass(frozen=True, slots=True)
class MadeFor:
    """The machine that code was generated for, independent of the target's name, and the features that the code may
    use."""

    cpu: str = ""
    triple: str = ""
    features: tuple[str, ...] = ()


def family_of(targets: Sequence[Target]) -> Family:
    """Returns the family that targets of one build have in common; that of x86 for an architecture without
    a family."""
    return targets[0].family or X86


def machine_of(triple: str) -> str:
    return triple.split("-", 1)[0] if triple else platform.machine().replace("AMD64", "x86_64")


def parse_targets(text: str) -> tuple[Target, ...]:
    """Returns the targets of one artifact, the most demanding first. Raises DiagnosticError.

    The text is `native`; CPU variants, separated by commas; `portable` for several of these; the triple of another
    machine, such as `aarch64-linux-gnu`, or one of its CPUs, such as `aarch64-linux-gnu:neoverse-n1`; or any of LLVM's
    names of CPUs for this machine, such as `znver4`. GPUs may be added to any of these, as in `native,cuda:sm_90a`, or
    stand alone. `native`, one variant, a CPU or a triple may be followed by `+feature` and `-feature`.
    """
    names = [name.strip() for part in text.split(",") for name in (PORTABLE_VARIANTS if part == PORTABLE else (part,))]
    devices = sorted({_parse_device(name) for name in filter(_is_device, names)}, key=_demand, reverse=True)
    return (*_parse_cpus([name for name in names if not _is_device(name)], bool(devices)), *devices)


def _parse_cpus(names: Sequence[str], optional: bool) -> tuple[Target, ...]:
    if optional and not names:
        return ()
    if len(set(names)) == 1:
        return (_parse(names[0]),)
    for name in names:
        if name not in VARIANTS:
            message = f"`{name}` is not a CPU variant, and only CPU variants can share an artifact"
            raise _unknown(message, name)
    return tuple(sorted({_parse(name) for name in names}, key=lambda target: (-len(target.needs), target.name)))


def choose_panels(targets: Iterable[Target]) -> PanelSizes:
    """Returns the sizes of panels of packed weights that all targets of an artifact share: those of the widest unit."""
    targets = tuple(targets)
    units = [target.unit for target in targets]
    widest = max((unit for unit in units if unit is not None), key=lambda unit: unit.bytes, default=None)
    decoded = all(target.family is not None and any(map(target.has, target.family.bfloat_blocks)) for target in targets)
    return PanelSizes() if widest is None else replace(widest.panels, decoded=decoded)


def _is_device(name: str) -> bool:
    return name.partition(":")[0] == PREFIX


def _demand(device: Target) -> tuple[int, bool]:
    """Returns the order of GPUs: by architecture, and before it the code that runs on that one alone."""
    number = device.cpu.removeprefix("sm_")
    return int(number.removesuffix("a")), number.endswith("a")


def _parse_device(name: str) -> Target:
    architecture = name.partition(":")[2] if ":" in name else CUDA.cpu
    if architecture not in PTX_VERSIONS:
        message = f"`{architecture}` is not a supported GPU architecture"
        help_text = f"supported: {', '.join(PTX_VERSIONS)}"
        raise DiagnosticError([Diagnostic("unknown-target", message, help=help_text)])
    return Target(architecture, TRIPLE, f"+ptx{PTX_VERSIONS[architecture]}")


def format_targets(targets: Iterable[Target]) -> str:
    """Formats targets in the syntax of `parse_targets`."""
    return ",".join(target.name for target in targets)


def _parse(name: str) -> Target:
    if name in VARIANTS:
        triple = "" if machine_of("") == X86.machine else X86.triple
        return Target(VARIANTS[name].cpu, triple, ",".join(f"+{feature}" for feature in VARIANTS[name].beyond))
    if "-" in name and machine_of(name) in FAMILIES:
        return _parse_triple(name)
    cpu = _split_cpu(name)
    if not cpu or not all(c.isalnum() or c in "-_." for c in cpu):
        raise _unknown(f"`{name}` is not a known CPU", name)
    features = _split_features(name.removeprefix(cpu), name)
    _check_names(cpu, features)
    if cpu not in VARIANTS:
        return Target(cpu, features=",".join(features))
    variant = _parse(cpu)
    return replace(variant, features=",".join(filter(None, (variant.features, *features))))


def _parse_triple(name: str) -> Target:
    """Returns the target of a triple, which may be followed by a CPU and by features, as in
    `aarch64-linux-gnu:neoverse-v1+sve2`."""
    triple = re.split("[:+]", name, maxsplit=1)[0]
    if not re.fullmatch(r"[a-z0-9_]+(-[a-z0-9_]+){1,3}", triple):
        raise _unknown(f"`{triple}` is not a triple", name)
    family, rest = FAMILIES[machine_of(triple)], name.removeprefix(triple)
    cpu = family.cpu
    if rest.startswith(":"):
        cpu = _split_cpu(rest[1:], triple)
        rest = rest[1:].removeprefix(cpu)
        if not re.fullmatch(r"[\w.-]+", cpu):
            raise _unknown(f"`{cpu}` is not a CPU for `{triple}`", cpu, ask_names(triple)[0], triple)
    features = [family.features] if family.features else []
    own = _split_features(rest, name, triple)
    _check_names("native" if cpu == family.cpu else cpu, own, triple)
    return Target(cpu, triple, ",".join([*features, *own]))


def _split_cpu(name: str, triple: str = "") -> str:
    """Returns the CPU of a name that is followed by features. Names of CPUs have hyphens too: the longest known one
    counts."""
    head = name.partition("+")[0]
    beginnings = [head, *(head[: dash.start()] for dash in reversed(list(re.finditer("-", head))))]
    own = head if triple else next((cpu for cpu in beginnings if cpu in VARIANTS or cpu == "native"), head)
    if own != head or "-" not in head or head in VARIANTS:
        return own
    known = ask_names(triple)[0]
    return next((cpu for cpu in beginnings if cpu in known), head)


def _split_features(text: str, name: str, triple: str = "") -> list[str]:
    """Returns the features of a text such as `+avx512f-fma`, each with its sign. Some feature names have hyphens."""
    pieces = re.findall(r"[+-][^+-]*", text)
    known = ask_names(triple)[1] if any(piece.startswith("-") for piece in pieces) else ()
    features: list[str] = []
    while pieces:
        count = next((n for n in range(len(pieces), 0, -1) if "".join(pieces[:n])[1:] in known), 1)
        if pieces[0].startswith("-") and "".join(pieces[:count])[1:] not in known:
            raise _unknown(
                f"`{name}` is not a CPU, or `{pieces[0][1:]}` is not a CPU feature", name, ask_names(triple)[0], triple
            )
        features.append("".join(pieces[:count]))
        del pieces[:count]
    return features


def _check_names(cpu: str, features: Sequence[str], triple: str = "") -> None:
    """Raises DiagnosticError for a CPU or a feature that LLVM does not know. LLVM is asked only about
    names other than those of CPU variants."""
    if (cpu in VARIANTS or cpu == "native") and not features:
        return
    cpus, known = ask_names(triple)
    if not cpus:
        return  # LLVM does not answer: the build reports it
    if cpu not in cpus and cpu not in VARIANTS and cpu != "native":
        raise _unknown(f"unknown CPU `{cpu}`", cpu, cpus, triple)
    for feature in features:
        if feature[1:] not in known:
            raise _unknown_feature(feature[1:], known)


def _unknown_feature(name: str, features: Iterable[str]) -> DiagnosticError:
    near = near_names(name, features)
    help_text = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""
    return DiagnosticError([Diagnostic("unknown-target", f"unknown CPU feature `{name}`", help=help_text)])


def _unknown(message: str, name: str = "", names: Iterable[str] = (), triple: str = "") -> DiagnosticError:
    own = () if triple else (*VARIANTS, "native", PORTABLE)
    near = [n for n in near_names(name, (*own, *names)) if n != name]
    if triple and not near:
        return DiagnosticError([Diagnostic("unknown-target", message)])
    known = (
        f"known CPU variants: {', '.join(('native', *VARIANTS, PORTABLE))}; any LLVM CPU name is accepted too;"
        " `nacre help target` lists GPUs and other machines"
    )
    help_text = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else known
    return DiagnosticError([Diagnostic("unknown-target", message, help=help_text)])


@lru_cache(maxsize=1)
def identify_host() -> str:
    """Returns an identification of this machine for `native`, as far as the system reports: a different text means
    different code."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"model name {platform.processor()}"]
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features"))))


# fmt: off
LINUX_NAMES: Mapping[str, str] = {
    "amx-bf16": "amx_bf16", "amx-int8": "amx_int8", "amx-tile": "amx_tile",
    "avx512bf16": "avx512_bf16", "avx512bitalg": "avx512_bitalg", "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avxvnni": "avx_vnni", "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert", "avxvnniint8": "avx_vnni_int8", "bmi": "bmi1", "lzcnt": "abm",
    "pclmul": "pclmulqdq", "sahf": "lahf_lm", "sha": "sha_ni", "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2",
}
# fmt: on
"""Linux's names of features, where they differ from LLVM's."""


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """Returns the `CHECKED_FEATURES` of this machine, as far as the system reports."""
    lines = (line for line in identify_host().splitlines() if line.startswith("flags"))
    flags = {flag for line in lines for flag in line.split()}
    return frozenset(f for f in CHECKED_FEATURES if LINUX_NAMES.get(f, f) in flags)


_REFUSALS = re.compile(
    r"'(?P<name>[^']+)' is not a recognized (?P<kind>processor|feature) for this target"
    r"|(?P<bits>64-bit code requested on a subtarget that doesn't support it)"
)


def check_target_is_known(output: str, triple: str = "") -> None:
    """Raises DiagnosticError where LLVM's output reports an unknown target. LLVM continues with another target, or ends
    the process, so its output is the only sign."""
    refusal = _REFUSALS.search(output)
    if refusal is None:
        return
    message = "the target is not a 64-bit CPU"
    if not refusal["name"]:
        raise _unknown(message)
    cpus, features = ask_names(triple)
    if refusal["kind"] == "processor":
        raise _unknown(f"unknown CPU `{refusal['name']}`", refusal["name"], cpus, triple)
    raise _unknown_feature(refusal["name"].lstrip("+-"), features)
