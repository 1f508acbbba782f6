"""Puts back faults that this project had, one at a time, and says which test names each.

    python -m benchmarks.mutants [NAME]... [--json] [--folder FOLDER]

`mutants.toml` lists the faults. Each is put into a copy of the package that comes first on PYTHONPATH, and the narrowest
tests that should name it are run until one fails. A fault that stops the tests from being collected, or hangs them, counts
as not named. Before that, the same tests must pass on an unchanged copy, and two controls must fail: a copy that cannot be
imported, and one that only other processes than the tests' own cannot import.

Exit code 1 if fewer than 38 of the first 40 faults are named, or one that says `must`; 2 if a check beforehand fails.
`--folder` keeps the copy and its compiled kernels there for the next call.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LIST: Final = Path(__file__).with_name("mutants.toml")
#: so many of the first so many faults must be named
FEWEST, FIRST = 38, 40
#: a test that takes longer with a fault hangs
MOST_S: Final = 900
#: what must fail with a copy that no process of the tests, or no other process, can import
CONTROLS: Final = (
    ("copy", "raise ImportError('control')\n", "tests/core/test_units.py"),
    (
        "copy in other processes",
        "import sys\nif 'pytest' not in sys.modules:\n    raise ImportError('control')\n",
        "tests/core/test_cli.py::test_ctrl_c_while_the_command_line_is_imported_is_one_line",
    ),
)


@dataclass(frozen=True)
class Fault:
    """What replaces one text of one file, and the tests that should name it.

    Parameters
    ----------
    name : of the fault.
    what : a user would have seen.
    file : below the root of the repository.
    was : the text of today, which stands once in the file.
    fault : the text that brings the fault back.
    tests : the narrowest files or ids.
    must : count as missed whenever no test names it (default no).
    """

    name: str
    what: str
    file: str
    was: str
    fault: str
    tests: tuple[str, ...]
    must: bool = False


def faults() -> list[Fault]:
    """All faults, in the order of the list."""
    found = tomllib.loads(LIST.read_text(encoding="utf-8"))["fault"]
    return [Fault(**{**one, "tests": tuple(one["tests"])}) for one in found]


class Copy:
    """A copy of the package, in which one file at a time differs.

    Parameters
    ----------
    folder : where it lies; kernels are compiled for files at their place, so one place serves all faults.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.source = folder, folder / "src"
        shutil.rmtree(self.source, ignore_errors=True)
        # This keeps the times of files, by which numba knows them.
        shutil.copytree(ROOT / "src", self.source, ignore=shutil.ignore_patterns("__pycache__"))
        own = {"PYTHONPATH": str(self.source), "FORERUN_CACHE_DIR": str(folder / "cache")}
        self.environment = {k: v for k, v in os.environ.items() if k != "FORERUN_CASES"} | own

    def run(self, tests: Sequence[str], *options: str) -> tuple[int, list[str]]:
        """Exit code of pytest, and the tests that failed."""
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--no-header", "--tb=no", *options, *tests]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=MOST_S,
            )
        except subprocess.TimeoutExpired:
            return -1, []
        # an id may have spaces; what follows " - " is the message
        return done.returncode, re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", done.stdout, re.M)

    def with_text(
        self, file: str, was: str, fault: str, tests: Sequence[str], *options: str
    ) -> tuple[int, list[str]]:
        """The same while one text of one file is replaced."""
        path = self.folder / file
        content, times = path.read_text(encoding="utf-8"), path.stat()
        assert content.count(was) == 1 or not was, f"{file} has {was!r} {content.count(was)} times"
        path.write_text(content.replace(was, fault, 1), encoding="utf-8")
        try:
            return self.run(tests, *options)
        finally:
            path.write_text(content, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)


def checked(copy: Copy, chosen: Iterable[Fault]) -> list[str]:
    """What is wrong before any fault is put back: tests that fail, or a copy that is not what runs."""
    wrong = []
    for name, text, test in CONTROLS:
        code, _ = copy.with_text("src/forerun/__init__.py", "", text, [test])
        if code == 0:
            wrong.append(f"{name}: {test} does not run it")
    tests = sorted({test for one in chosen for test in one.tests})
    code, failed = copy.run(tests)
    if code != 0:
        wrong += failed or [f"pytest ended with {code} without a fault"]
    return wrong


def main() -> int:
    """Put all faults back, or the named ones; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print the figures of the record")
    parser.add_argument("--folder", type=Path, help="keep the copy and its kernels here")
    given = parser.parse_args()
    known = faults()
    if unknown := sorted({*given.names} - {one.name for one in known}):
        print(f"no fault named {', '.join(unknown)}", file=sys.stderr)
        return 2
    chosen = [one for one in known if one.name in given.names or not given.names]
    rows: list[dict[str, str | float | None]] = []
    with tempfile.TemporaryDirectory() as temporary:
        copy = Copy(given.folder.resolve() if given.folder else Path(temporary))
        if wrong := checked(copy, chosen):
            print("without a fault:", *wrong, sep="\n  ", file=sys.stderr)
            return 2
        for one in chosen:
            begun_s = time.monotonic()
            code, failed = copy.with_text(one.file, one.was, one.fault, one.tests, "-x")
            test = failed[0] if code == 1 and failed else None
            rows.append({"fault": one.name, "test": test, "wall_s": round(time.monotonic() - begun_s, 1)})
            said = f"{one.name}: {test or f'no test names it (exit code {code})'}"
            print(said, file=sys.stderr if given.json else sys.stdout, flush=True)
    named = {str(row["fault"]) for row in rows if row["test"]}
    first = sum(one.name in named for one in known[:FIRST])
    missed = [one.name for one in chosen if one.name not in named]
    if given.json:
        found = {"faults": len(rows), "named": len(named), "first_40": first, "missed": missed}
        print(json.dumps({**found, "rows": rows}))
    else:
        print(f"{len(named)} of {len(rows)} are named" + f"; not {', '.join(missed)}" * bool(missed))
    few = first < FEWEST and not given.names
    return int(few or any(one.must and one.name in missed for one in chosen))


if __name__ == "__main__":
    sys.exit(main())
