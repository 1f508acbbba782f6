"""The commands of docs/live/index.md, in order, as a reader would type them in two terminals."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from pathlib import Path

from tests.live.commands import environment, forerun

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: seconds after which a command is taken to hang
PATIENCE_S = 300.0


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    served: list[subprocess.Popen[bytes]] = []
    written: set[str] = set()
    try:
        for kind, text in BLOCK.findall((ROOT / "docs" / "live" / "index.md").read_text(encoding="utf-8")):
            named = re.match(r"# file: (\S+)\n", text)
            if named:
                (tmp_path / named[1]).write_text(text.partition("\n")[2])
                written.add(named[1])
            elif kind == "console":
                for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                    run_line(line, tmp_path, served)
        assert served and {"train.py", "machine.yaml", "job.yaml"} <= written
        assert all(one.returncode == 0 for one in served)
    finally:
        for one in served:
            one.kill()


def run_line(line: str, folder: Path, served: list[subprocess.Popen[bytes]]) -> None:
    """Run a command; one that ends in `&` is waited for until it takes requests."""
    command, _, comment = line.partition("  #")
    wanted = int(found[1]) if (found := re.search(r"exit (\d+)", comment)) else 0
    words = shlex.split(command)
    if words[-1] == "&":
        served.append(subprocess.Popen(words[:-1], cwd=folder, env=environment()))
        until_s = time.monotonic() + PATIENCE_S
        while not (folder / "live-run" / "control.sock").exists():
            assert served[-1].poll() is None and time.monotonic() < until_s, line
            time.sleep(0.05)
        return
    if words[0] == "forerun":
        done = forerun(folder, *words[1:])
    else:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert done.returncode == wanted, f"{line}\n{done.stdout}\n{done.stderr}"
    if words[:3] == ["forerun", "live", "stop"]:  # a reader goes on when the first terminal is free again
        assert [one.wait(PATIENCE_S) for one in served] == [0]
