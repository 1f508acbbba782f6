"""Where compiled kernels are kept: what is named, else beside the installation, else the user's, else ours alone.

What is kept there is never trusted: a damaged file is compiled again.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import ir

import forerun
from forerun.core.kernels import jit
from forerun.core.kernels.jit import cache_root

from ..conftest import cases


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FORERUN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_cache_that_make_filled_is_used(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cache_root.__wrapped__
    assert found() == places / "user" / "forerun" / "kernels"
    (places / "venv" / "cache" / "kernels").mkdir(parents=True)
    assert found() == places / "venv" / "cache" / "kernels"
    monkeypatch.setattr(
        sys, "base_prefix", sys.prefix
    )  # no virtual environment: the folder is somebody else's
    assert found() == places / "user" / "forerun" / "kernels"
    monkeypatch.setenv("FORERUN_CACHE_DIR", str(places / "named"))
    assert found() == places / "named" / "kernels"


def test_where_nothing_can_be_written_a_private_folder_serves(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "file").write_text("")
    monkeypatch.setenv("FORERUN_CACHE_DIR", str(places / "file"))
    folder = cache_root.__wrapped__()
    assert folder is not None and folder.parent == places and folder.name.startswith("forerun-kernels-")
    folder.chmod(0o777)
    assert cache_root.__wrapped__() is None, "a folder that others may write is never loaded from"


Damage = Callable[[Path, list[Path], np.random.Generator], None]


def _cut(file: Path, others: list[Path], rng: np.random.Generator) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: rng.integers(len(content))])


def _flip(file: Path, others: list[Path], rng: np.random.Generator) -> None:
    content = bytearray(file.read_bytes())
    content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)


def _swap(file: Path, others: list[Path], rng: np.random.Generator) -> None:
    shutil.copyfile(others[rng.integers(len(others))], file)


def _folder(file: Path, others: list[Path], rng: np.random.Generator) -> None:
    file.unlink()
    file.mkdir()


def _empty(file: Path, others: list[Path], rng: np.random.Generator) -> None:
    file.write_bytes(b"")


def _gone(file: Path, others: list[Path], rng: np.random.Generator) -> None:
    file.unlink()


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A module of two kernels, loaded anew by each call, and stored below `tmp_path`."""
    lines = ["from own_shift import SHIFT", "from forerun.core.kernels.jit import kernel"]
    for name, sign in (("plus", "+"), ("minus", "-")):
        lines += ["@kernel", f"def {name}(x):", f"    return x {sign} SHIFT"]
    (tmp_path / "own_kernels.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "own_shift.py").write_text("SHIFT = 3\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(jit, "cache_root", lambda: tmp_path / "kernels")

    def load() -> Any:
        for name in ("own_shift", "own_kernels"):
            sys.modules.pop(name, None)
        jit._cache_folder.cache_clear()
        importlib.invalidate_caches()
        return importlib.import_module("own_kernels")

    return load


def test_damaged_files_are_compiled_again(stored: Callable[[], Any], tmp_path: Path) -> None:
    """Whatever sequence of damage: the answers stay right, and what can be written is written anew."""
    rng = np.random.Generator(np.random.Philox(5))
    damages: list[Damage] = [_cut, _flip, _swap, _empty, _gone, _folder]

    def answers() -> tuple[int, int, int]:
        module = stored()
        return (
            module.plus(10),
            module.minus(10),
            sum(len(f.stats.cache_hits) for f in (module.plus, module.minus)),
        )

    assert answers()[:2] == (13, 7)
    assert answers() == (13, 7, 2)
    for number in range(cases(12)):
        files = sorted(path for path in (tmp_path / "kernels").rglob("*.nb[ic]") if path.is_file())
        assert len(files) == 4
        damage = damages[number % len(damages)]
        file = files[rng.integers(4)]
        damage(file, [other for other in files if other != file], rng)
        plus, minus, hits = answers()
        assert (plus, minus) == (13, 7) and hits < 2, (damage.__name__, file.name)
        if damage is _folder:
            file.rmdir()
            answers()
        assert answers() == (13, 7, 2), (damage.__name__, file.name)


def test_processes_that_begin_at_once_compile_a_kernel_once(
    stored: Callable[[], Any], tmp_path: Path
) -> None:
    """The others wait for it and load it, and so with what it calls."""
    asked = (
        "import sys, time, pathlib, own_kernels as own; here = pathlib.Path(sys.argv[1]); (here / sys.argv[2]).touch();\n"
        "while len(list(here.iterdir())) < 3: time.sleep(0.01)\n"
        "print(own.both(10), len(own.both.stats.cache_misses) + len(own.plus.stats.cache_misses))"
    )
    source = tmp_path / "own_kernels.py"
    source.write_text(source.read_text() + "@kernel\ndef both(x):\n    return plus(x) + plus(plus(x))\n")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(forerun.__file__).parents[1])]),
        "FORERUN_CACHE_DIR": str(tmp_path / "cache"),
    }
    (tmp_path / "ready").mkdir()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", asked, str(tmp_path / "ready"), str(number)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    answers = [tuple(map(int, one.communicate()[0].split())) for one in started]
    assert [result for result, _ in answers] == [29] * 3
    assert sum(missed for _, missed in answers) == 2, answers


INLINED = """
from forerun.core.kernels.jit import kernel

@kernel(inline=True)
def least(x, y):
    best = x
    for i in range(3):
        if i * y < best:
            best = i * y
    return best

@kernel(inline=True)
def twice(x, y):
    best = least(x, y)
    return best + least(best, x)

@kernel
def whole(x, y):
    best = 0.0
    for i in range(5):
        best += twice(x, best) - least(best, y)
    return best
"""


def test_kernels_are_the_same_without_copies_of_variables(
    stored: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is inlined, more than once and at two depths, becomes the same instructions; numba is left as it was."""
    (tmp_path / "own_kernels.py").write_text(INLINED)

    def made() -> tuple[float, list[str]]:
        shutil.rmtree(tmp_path / "kernels", ignore_errors=True)
        one = stored().whole
        result = one(3.5, -1.25)
        (code,) = one.inspect_llvm().values()
        return result, re.findall(r"= (\w+) ", code)

    quick = made()
    assert "__deepcopy__" not in vars(ir.Scope)
    monkeypatch.setattr(jit, "_flat_scopes", contextlib.nullcontext)
    assert quick == made() and len(quick[1]) > 20


def test_an_edit_of_what_a_kernel_imports_is_noticed(stored: Callable[[], Any], tmp_path: Path) -> None:
    """numba freezes the constant of another module, and looks at the kernel's own file only."""
    assert stored().plus(10) == 13
    (tmp_path / "own_shift.py").write_text("SHIFT = 5\n")
    assert stored().plus(10) == 15


def test_an_edit_of_a_callee_in_another_package_of_forerun_is_noticed(tmp_path: Path) -> None:
    """Kernels of replays call those of clusters, which call core's: the cache's folder depends on all three files."""
    source = Path(forerun.__file__).parent
    shutil.copytree(source, tmp_path / "forerun", ignore=shutil.ignore_patterns("__pycache__"))
    kernel = tmp_path / "forerun" / "site" / "kernels" / "play_on.py"
    asked = (
        "from pathlib import Path; from forerun.core.kernels.jit import _cache_folder; "
        f"print(_cache_folder('forerun.site.kernels.play_on', Path({str(kernel)!r})))"
    )

    def folder() -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "FORERUN_CACHE_DIR": str(tmp_path / "cache"),
        }
        command = [sys.executable, "-c", asked]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    seen = [folder()]
    for edited in ("cluster/engine/kernels/heap.py", "core/kernels/jit.py"):
        with (tmp_path / "forerun" / edited).open("a") as file:
            file.write("\nEDITED = 1\n")
        seen.append(folder())
    (tmp_path / "forerun" / "energy" / "explain.py").write_text("")
    assert len(set(seen)) == 3 and folder() == seen[-1]
