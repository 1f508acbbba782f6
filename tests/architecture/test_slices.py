"""Packages beside core: each can be taken away, and core names none."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from benchmarks.structure import Module

from forerun.core.slices import slices

from .conftest import walk

SOURCE = Path(__file__).parents[2] / "src" / "forerun"
#: files of core with a word that is also a domain's name: energy is a dimension of units
OTHER_MEANINGS = {"units.py": {"energy"}}


def standing_on(name: str, known: dict[str, Module]) -> set[str]:
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
    return {one.rpartition(".")[2] for one in gone}


def test_the_rest_works_without_a_slice(known: dict[str, Module], tmp_path: Path) -> None:
    for name in slices():
        gone = standing_on(name, known)
        assert "core" not in gone
        copy = tmp_path / name / "forerun"
        copy.mkdir(parents=True)
        for entry in SOURCE.iterdir():
            if entry.name not in gone | {"__pycache__"}:
                (copy / entry.name).symlink_to(entry)
    command = [sys.executable, str(Path(__file__).with_name("without.py"))]
    done = subprocess.run(
        [*command, *(str(tmp_path / name) for name in slices())],
        env={"PATH": "/usr/bin:/bin", "NUMBA_DISABLE_JIT": "1"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_core_names_no_slice(known: dict[str, Module]) -> None:
    for module in known.values():
        others = set(slices()) - OTHER_MEANINGS.get(module.path.name, set())
        for node in walk(module.tree) if module.package == "forerun.core" else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in others, f"{module.path}:{node.lineno}: {node.value!r}"
