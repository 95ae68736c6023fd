"""Launchers: the functions that compute all work items of a kernel, on the threads of a team if the call has one.

Kernels with as many dims and tensors share a launcher: LLVM takes more than a millisecond for each function, however
short. In an artifact, each launcher is a module of its own, whose object every model can take from the cache.
"""

from __future__ import annotations

from ...dialect.lazy_dataclass import dataclass

LAUNCHER, TASK = "nacre_launch", "nacre_task"
"""The prefixes of launchers, and of the functions that each of the threads calls. Entries and kernels never have such a
name."""


@dataclass(frozen=True, slots=True, order=True)
class Signature:
    """The arguments of a kernel besides its work items: the numbers of its dims and tensors. `suffix` is that of the
    kernels' symbols, which names their target."""

    dims: int
    pointers: int
    suffix: str = ""

    @property
    def types(self) -> list[str]:
        return ["i64"] * self.dims + ["ptr"] * self.pointers

    @property
    def launcher(self) -> str:
        """The symbol of the launcher."""
        return f"{LAUNCHER}_{self.dims}_{self.pointers}{self.suffix}"

    @property
    def declaration(self) -> str:
        """The type and the symbol of the launcher, as `declare` takes them."""
        return f"void @{self.launcher}({', '.join([*['ptr'] * 4, *self.types])})"

    def definition(self, linkage: str, attributes: str = "") -> str:
        """Returns the functions of the launcher. With one work item, or without a team, it is a plain call; otherwise
        the kernel, dims and pointers are passed to the task in each thread through memory. See `nacre_team` in the
        runtime's tables.h. `attributes` are further ones of its functions."""
        values = [f"{type} %a{number}" for number, type in enumerate(self.types)]
        kept = ["ptr %kernel", *values]
        slots = [f"getelementptr i64, ptr %context, i64 {number}" for number in range(len(kept))]
        numbered = list(enumerate(kept))
        task = f"{TASK}_{self.dims}_{self.pointers}{self.suffix}"
        arguments = ", ".join(["ptr %team", "ptr %kernel", "ptr %count", "ptr %pace", *values])
        loads = (f"  {value.split()[1]} = load {value.split()[0]}, ptr %s{i}, align 8" for i, value in numbered)
        return "\n".join(
            [
                f"define internal void @{task}(ptr %context, i64 %begin, i64 %end) {attributes}{{",
                *(f"  %s{number} = {slot}" for number, slot in enumerate(slots)),
                *loads,
                f"  call void %kernel({', '.join([*values, 'i64 %begin', 'i64 %end'])})",
                "  ret void",
                "}",
                f"define {linkage} void @{self.launcher}({arguments}) noinline {attributes}{{",
                f"  %context = alloca [{len(kept)} x i64], align 8",
                f"  %items = call i64 %count({', '.join(values[: self.dims])})",
                "  %single = icmp slt i64 %items, 2",
                "  %alone = icmp eq ptr %team, null",
                "  %direct = or i1 %single, %alone",
                "  br i1 %direct, label %here, label %shared",
                "here:",
                f"  call void %kernel({', '.join([*values, 'i64 0', 'i64 %items'])})",
                "  ret void",
                "shared:",
                *(f"  %s{number} = {slot}" for number, slot in enumerate(slots)),
                *(f"  store {value}, ptr %s{number}, align 8" for number, value in numbered),
                "  %parallel = load ptr, ptr %team, align 8",
                f"  call void %parallel(ptr %team, ptr @{task}, ptr %context, i64 %items, ptr %pace)",
                "  ret void",
                "}",
                "",
            ]
        )
