"""The demonstrations: one question a room, answered on data that come with the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.domains import room, rooms, simulate
from forerun.errors import UnknownName
from forerun.result.run import Result
from forerun.scenario.load import load
from forerun.study.executors.apart import apart


@dataclass(frozen=True, slots=True)
class Demo:
    """A room's demonstration: the question, and the scenario that answers it."""

    room: str
    question: str
    scenario: Path


def demos() -> tuple[Demo, ...]:
    """The demonstrations there are: every room with a `demo.yaml`, whose first comment asks the question."""
    found = []
    for name in rooms():
        path = Path(str(room(name).__path__[0])) / "demo.yaml"
        if path.is_file():
            found.append(Demo(name, _question(path), path))
    return tuple(found)


def demo(name: str) -> Demo:
    """The demonstration of a room: a question, and the scenario file that answers it. Raises UnknownName with what there is.

    >>> forerun.demo("energy").question
    'A small image model, retrained every night, on self-made measurements: who finds the cheapest batch size and limit?'
    """
    known = {entry.room: entry for entry in demos()}
    if name not in known:
        raise UnknownName.among("demonstration", name, known)
    return known[name]


def run_demos(
    names: Sequence[str] = (), *, workers: int = 1, watch: Callable[[Demo], None] = lambda entry: None
) -> tuple[tuple[Demo, Result], ...]:
    """The demonstrations of some rooms (all, if none is named) with their results, in the order asked for.

    `watch` is told of each as it ends. Raises UnknownName, and what a simulation raises.
    """
    chosen = [demo(name) for name in names] or list(demos())
    found: dict[Demo, Result] = {}
    for piece in apart(_simulated, chosen, workers):
        if isinstance(piece.result, Exception):
            raise piece.result
        found[piece.item] = piece.result
        watch(piece.item)
    return tuple((entry, found[entry]) for entry in chosen)


def _simulated(entry: Demo) -> Result:
    result: Result = simulate(load(entry.scenario)).check()
    return result


def _question(path: Path) -> str:
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
    text = " ".join(words)
    end = text.find("?")
    return text[: end + 1] if end >= 0 else text
