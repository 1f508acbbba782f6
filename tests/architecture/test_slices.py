"""Packages beside core: each can be taken away, and core names none."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.structure import Module, modules

from forerun.core.slices import slices

SOURCE = Path(__file__).parents[2] / "src" / "forerun"
#: files of core with a word that is also a domain's name: energy is a dimension of units
OTHER_MEANINGS = {"units.py": {"energy"}}

#: what works in a tree without some packages: every module, every command's help, each domain's policies and demonstration
WORKS = """
import pkgutil, importlib, sys
import forerun
from forerun.core import slices
from forerun.core.cli.main import run
from forerun.core.data.registry import known_sources
from forerun.core.trace.arrivals import processes
from forerun.core.trace.reader import readers

assert forerun.__file__.startswith(sys.argv[1]), forerun.__file__
assert set(slices.slices()) == set(sys.argv[2].split()), slices.slices()
for module in pkgutil.walk_packages(forerun.__path__, "forerun."):
    try:
        importlib.import_module(module.name) if module.name != "forerun.__main__" else None
    except ModuleNotFoundError as error:
        assert error.name.partition(".")[0] != "forerun", (module.name, error)  # a library of an extra may be absent
for verb in slices.verbs():
    assert run([verb, "--help"]) == 0, verb
for kind in slices.measures():
    assert run(["measure", kind, "--help"]) == 0, kind
assert processes().names() and readers().names() and known_sources() is not None
for document in slices.documents():
    importlib.import_module(slices.documents()[document]).DOCUMENT
for name in slices.domains():
    domain = forerun.get_domain(name)
    for registry in domain.policy_kinds.values():
        assert [registry.get(one) for one in registry.names()]
    domain.prepare(forerun.load(forerun.demo(name).scenario))
"""


@pytest.fixture(scope="module")
def known() -> dict[str, Module]:
    return modules()


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


@pytest.mark.slow
@pytest.mark.parametrize("name", slices())
def test_the_rest_works_without_a_slice(name: str, known: dict[str, Module], tmp_path: Path) -> None:
    gone = standing_on(name, known)
    assert "core" not in gone
    copy = tmp_path / "forerun"
    shutil.copytree(SOURCE, copy)  # with what Python compiled before, which knows its files by their times
    for one in gone:
        shutil.rmtree(copy / one)
    left = " ".join(set(slices()) - gone)
    command = [sys.executable, "-c", WORKS, str(tmp_path), left]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "NUMBA_DISABLE_JIT": "1"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_core_names_no_slice() -> None:
    for path in sorted((SOURCE / "core").rglob("*.py")):
        allowed = OTHER_MEANINGS.get(path.name, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in set(slices()) - allowed, f"{path}:{node.lineno}: {node.value!r}"
