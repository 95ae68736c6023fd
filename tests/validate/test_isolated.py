"""What is tried is tried in a child: whatever becomes of it, the next thing is tried too."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from nacre.compiler.validate import isolated
from nacre.compiler.validate.isolated import Died, Isolated, Progress, run_each_isolated, run_isolated


def crash(tell: Progress) -> int:
    tell("into nowhere")
    ctypes.string_at(0)
    return 1


def hang(tell: Progress) -> int:
    tell("asleep")
    time.sleep(60)
    return 1


def test_each_task_gives_its_result_or_the_reason_of_its_loss() -> None:
    answers = run_isolated([lambda tell: 1, crash, lambda tell: 2, hang, lambda tell: 3], 1.0)
    assert answers == [
        1,
        Died("crash", "SIGSEGV while running into nowhere", "into nowhere"),
        2,
        Died("hang", "no answer within 1 seconds while running asleep", "asleep"),
        3,
    ]


def test_exceptions_are_internal_errors(capfd: pytest.CaptureFixture[str]) -> None:
    def wrong(tell: Progress) -> int:
        raise ValueError("not ours")

    with pytest.raises(AssertionError, match="the child ended with 3"):
        run_isolated([wrong], 5.0)
    assert "not ours" in capfd.readouterr().err


def test_large_answers_come_whole() -> None:
    (answer,) = run_isolated([lambda tell: bytes(3 << 20)], 10.0)
    assert answer == bytes(3 << 20)


def is_running(pid: int) -> bool:
    """Ended, though perhaps nobody has asked for its exit code yet, is not running."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


def test_children_of_a_lost_task_end_with_it(tmp_path: Path) -> None:
    def start(tell: Progress) -> int:
        process = subprocess.Popen(["sleep", "60"])
        (tmp_path / "pid").write_text(str(process.pid))
        return hang(tell)

    (answer,) = run_isolated([start], 1.0)
    assert isinstance(answer, Died) and answer.kind == "hang"
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 120
    while is_running(pid):
        assert time.monotonic() < end, f"{pid} is still there"
        time.sleep(0.05)


def test_an_answer_does_not_wait_for_the_next_task() -> None:
    reader, writer = os.pipe()
    answers = run_each_isolated([lambda tell: b"1", lambda tell: os.read(reader, 1)], 60.0)
    assert next(answers) == b"1"
    os.write(writer, b"2")
    assert next(answers) == b"2"
    os.close(reader)
    os.close(writer)


def test_a_loop_without_end_is_a_hang() -> None:
    def spin(tell: Progress) -> int:
        while True:
            pass

    assert run_isolated([spin], 0.2) == [Died("hang", "no answer within 0.2 seconds while running start", "start")]


@pytest.mark.parametrize(("step", "ends"), [(0.02, b"1"), (0.0, None), (0.2, None)])
def test_a_task_that_is_slowed_down_does_not_hang(
    step: float, ends: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor time that the task has used grows by a step in each period; the task ends after five of them."""
    reader, writer = os.pipe()
    periods = 0

    def used(group: int) -> float:
        nonlocal periods
        periods += 1
        if periods == 6:
            os.write(writer, b"1")
        return step * periods

    monkeypatch.setattr(isolated, "_cpu_seconds", used)
    (answer,) = run_isolated([lambda tell: os.read(reader, 1)], 0.2)
    assert answer == ends if ends else isinstance(answer, Died) and answer.kind == "hang" and periods == 2
    os.close(reader)
    os.close(writer)


def test_questions_share_a_child_until_it_dies() -> None:
    asked: list[str] = []

    def answer(question: str, tell: Progress) -> tuple[int, int]:
        asked.append(question)
        if question == "crash" or (question == "careful" and "damage" in asked):
            crash(tell)
        if question == "hang":
            hang(tell)
        return os.getpid(), len(asked)

    with closing(Isolated(answer, 0.5)) as child:
        first, second = child.ask("first"), child.ask("second")
        assert isinstance(first, tuple) and first[0] != os.getpid() and second == (first[0], 2)
        assert child.ask("crash") == Died("crash", "SIGSEGV while running into nowhere", "into nowhere")
        other = child.ask("damage")
        assert isinstance(other, tuple) and other[0] != first[0] and other[1] == 1
        careful = child.ask("careful")
        assert isinstance(careful, tuple) and careful[1] == 1, "another child is asked, without the damage"
        assert child.ask("hang") == Died("hang", "no answer within 0.5 seconds while running asleep", "asleep")
    assert asked == [], "all questions are answered in children"
