"""Packages beside core: each can be taken away, and core names none."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from benchmarks.structure import Module

from forerun.core.slices import slices

from ..conftest import cases
from .conftest import walk

SOURCE = Path(__file__).parents[2] / "src" / "forerun"
#: files of core with a word that is also a domain's name: energy is a dimension of units
OTHER_MEANINGS = {"units.py": {"energy"}}


def standing_on(name: str, known: dict[str, Module]) -> frozenset[str]:
    """A slice, and those that import it, however indirectly."""
    takes = {
        (module.package, other.package)
        for module in known.values()
        for other, _ in module.imports(known)
        if module.package != "forerun"
    }
    gone = {f"forerun.{name}"}
    while more := {one for one, other in takes if other in gone} - gone:
        gone |= more
    return frozenset(one.rpartition(".")[2] for one in gone)


def trees(gone: dict[str, frozenset[str]]) -> list[frozenset[str]]:
    """What to take away, a few slices at a time: each is missed in some tree by each that does not stand on it.

    gone : what goes with each. FORERUN_CASES asks for each alone.
    """
    if cases(0):
        return [*gone.values()]

    def pairs(away: frozenset[str]) -> set[tuple[str, str]]:
        return {(one, other) for one in away for other in gone.keys() - away}

    possible = {frozenset[str]()}
    for also in gone.values():
        possible |= {away | also for away in possible}
    left = set().union(*(pairs(away) for away in possible))
    chosen: list[frozenset[str]] = []
    while left:
        chosen.append(max(sorted(possible, key=sorted), key=lambda away: len(pairs(away) & left)))
        left -= pairs(chosen[-1])
    return chosen


def test_the_rest_works_without_a_slice(known: dict[str, Module], tmp_path: Path) -> None:
    gone = {name: standing_on(name, known) for name in slices()}
    assert not any("core" in away for away in gone.values())
    chosen = trees(gone)
    for one in gone:
        left = set().union(*(gone.keys() - away for away in chosen if one in away))
        assert left == gone.keys() - gone[one], one
    folders = [tmp_path / "-".join(sorted(away)) for away in chosen]
    for away, folder in zip(chosen, folders, strict=True):
        (folder / "forerun").mkdir(parents=True)
        for entry in SOURCE.iterdir():
            if entry.name not in away | {"__pycache__"}:
                (folder / "forerun" / entry.name).symlink_to(entry)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("without.py")), *map(str, folders)],
        env={"PATH": "/usr/bin:/bin", "NUMBA_DISABLE_JIT": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_core_names_no_slice(known: dict[str, Module]) -> None:
    for module in known.values():
        others = set(slices()) - OTHER_MEANINGS.get(module.path.name, set())
        for node in walk(module.tree) if module.package == "forerun.core" else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in others, f"{module.path}:{node.lineno}: {node.value!r}"
