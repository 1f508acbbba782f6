"""The demonstrations: one question a room, answered on data that come with the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forerun.domains import room, rooms
from forerun.errors import UnknownName


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
    """The demonstration of a room. Raises UnknownName with what there is."""
    known = {entry.room: entry for entry in demos()}
    if name not in known:
        raise UnknownName.among("demonstration", name, known)
    return known[name]


def _question(path: Path) -> str:
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
    text = " ".join(words)
    end = text.find("?")
    return text[: end + 1] if end >= 0 else text
