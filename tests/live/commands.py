"""Commands of `forerun`, as tests of live runs call them: in this process, which has imported what they need."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from forerun.core.cli.main import run


def environment() -> dict[str, str]:
    """The tests' own environment, with this Python's commands first, for text without colour and of one width."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "200"}


def forerun(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder.

    Parameters
    ----------
    folder : where it is typed.
    words : those after `forerun`.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        patch.dict(os.environ, environment()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
