"""Progress and other text do not interleave on a terminal; off a terminal long work is not silent."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.core.cli import _show
from forerun.core.cli.main import run

WORKING = """
import time
from forerun.core.cli import _show
with _show.working("simulating", quiet=False) as told:
    for number in range(4):
        told(f"run {number}")
        time.sleep(0.3)
        _show.say(f"line {number} [bold]as it is[/bold]")
print("the end")
"""
BAR = """
import time
from forerun.core.cli import _show
from forerun.core.cli.study import _bar
from forerun.core.study.run import Progress
reached = []
with _bar(False, reached) as progress:
    for number in range(4):
        progress(Progress(done=number, failed=0, total=4))
        time.sleep(0.3)
        _show.say(f"line {number} [bold]as it is[/bold]")
print("the end")
"""


def screen(written: bytes) -> list[str]:
    """What stands on a wide terminal in the end, line by line."""
    lines, row, column = [""], 0, 0
    text = written.decode()
    while text:
        control = re.match(r"\x1b\[(\??\d*)([A-Za-z])", text)
        if control:
            count, what = control[1], control[2]
            if what == "A":
                row = max(0, row - int(count or 1))
            elif what == "K":
                lines[row] = "" if count == "2" else lines[row][:column]
            text = text[control.end() :]
            continue
        letter, text = text[0], text[1:]
        if letter == "\n":
            row, column = row + 1, 0
            if row == len(lines):
                lines.append("")
        elif letter == "\r":
            column = 0
        else:
            lines[row] = lines[row][:column].ljust(column) + letter + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def at_a_terminal(code: str) -> bytes:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "NO_COLOR": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:  # the other side was closed
        pass
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return written


@pytest.mark.parametrize("code", [WORKING, BAR], ids=["status", "bar"])
def test_lines_stand_by_themselves_above_what_moves(code: str) -> None:
    shown = screen(at_a_terminal(code))
    said = [line for line in shown if "line" in line]
    assert said == [f"line {number} [bold]as it is[/bold]" for number in range(4)]
    assert shown.index("the end") > shown.index(said[-1])


def test_off_a_terminal_a_line_comes_now_and_then() -> None:
    now, told = [0.0], []
    tell = _show.now_and_then(told.append, clock=lambda: now[0])
    for second in range(60):
        now[0] = float(second)
        tell(f"at {second}")
    assert told == [f"at {second}" for second in (15, 30, 45)]


KERNELS = """
import click
from forerun.core.cli import _options
from own_kernels import twice, thrice

@click.command()
@_options.output_options
def command(output):
    with output.working("simulating"):
        print(twice(2.0) + thrice(2.0))

command()
"""
OWN = "from forerun.core.kernels.jit import kernel\n" + "".join(
    f"@kernel\ndef {name}(x):\n    return x * {factor}\n\n" for name, factor in (("twice", 2), ("thrice", 3))
)


def test_the_first_run_says_that_it_compiles(tmp_path: Path) -> None:
    """Once for all kernels of a run, not where they are found in the cache, and not where nothing is to be said."""
    (tmp_path / "own_kernels.py").write_text(OWN)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def said(cache: str, *words: str) -> list[str]:
        environment = os.environ | {"FORERUN_CACHE_DIR": str(tmp_path / cache), "PYTHONPATH": paths}
        done = subprocess.run(
            [sys.executable, "-c", KERNELS, *words], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0 and done.stdout == "10.0\n", done.stderr
        return done.stderr.splitlines()

    assert said("quiet", "-q") == said("json", "--json") == []
    (line,) = said("cache")
    assert line.startswith("compiling kernels, for the first run")
    assert said("cache") == []


def test_a_demonstration_on_a_pipe_says_each_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(("demo", "energy", "loading")) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("simulating")
    assert {line.partition(":")[0] for line in lines[1:]} == {"1 of 2", "2 of 2"}
    assert any("energy" in line for line in lines) and any("loading" in line for line in lines)
    assert run(("demo", "energy", "--quiet")) == 0
    assert capfd.readouterr().err == ""
