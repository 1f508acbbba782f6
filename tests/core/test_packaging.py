"""The wheel holds what it needs, and works where nothing but the answer can be written."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: the command line, with the checkout taken off the path: only the installed package is left
LAUNCH = (
    "import sys; sys.path = [p for p in sys.path if p != {source!r}]; import forerun; "
    "from forerun.core.cli.main import run; assert forerun.__file__.startswith({site!r}), forerun.__file__; "
    "sys.exit(run(sys.argv[1:]))"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
    ]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    ours = {str(path.relative_to(source)) for path in (source / "forerun").rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    assert {name for name in names if ".dist-info/" not in name} == ours
    assert "forerun/py.typed" in names
    assert wheel.name.endswith("-py3-none-any.whl")


def test_extras_are_the_designed_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"ray", "torch", "test"} <= set(project["optional-dependencies"])
    assert project["requires-python"] == ">=3.11"


@pytest.mark.skipif(sys.platform != "linux", reason="read-only folders are made with Linux capabilities")
def test_a_read_only_installation_and_an_unwritable_home_work(wheel: Path, tmp_path: Path) -> None:
    site, home, work = (tmp_path / name for name in ("site", "home", "work"))
    zipfile.ZipFile(wheel).extractall(site)
    home.mkdir()
    work.mkdir()
    for path in (home, site, *site.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    launch = LAUNCH.format(source=str(ROOT / "src"), site=str(site))
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1", "PYTHONPATH": str(site), "TMPDIR": str(work),
        "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"),  # so that the second command compiles no module again
    }  # fmt: skip

    def forerun(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", launch, *arguments], cwd=work, env=environment, preexec_fn=_bound_by_permissions,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    refused = forerun("init", "energy", str(home / "mine"))
    if refused.returncode == 0:
        pytest.skip("this user may write to read-only folders")
    assert refused.returncode == 2 and "cannot be written: Permission denied" in refused.stderr
    done = forerun("demo", "energy", "-q", "-o", str(work / "page.html"))
    assert done.returncode == 0, done.stderr
    assert "why:" in done.stdout and (work / "page.html").stat().st_size > 100_000
    assert not any(home.iterdir())


def _bound_by_permissions() -> None:
    """Root without the capabilities that let it pass by permissions (PR_CAPBSET_DROP of the DAC and owner ones)."""
    for capability in (1, 2, 3):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)


def test_the_source_distribution_leaves_nothing_out() -> None:
    """All that the front page leads to, and all that building and testing take."""
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    wanted = {link.split("/")[0] for link in links} | {"Makefile", "LICENSE", "src", "tests"}
    assert wanted <= set(hatch["sdist"]["include"])


def test_every_dependency_has_a_tested_lower_bound_and_an_upper_bound() -> None:
    """The lower bound is the release in tests/lowest.txt, which `make test-lowest` runs with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(line for name, lines in extras.items() if name != "test" for line in lines),
    ]
    lines = (ROOT / "tests" / "lowest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {re.split("[<>=]", line)[0] for line in wanted} == set(pinned)
    for line in wanted:
        name, lower, upper = re.fullmatch(r"([\w-]+)>=([\d.]+),<([\d.]+)", line).groups()  # type: ignore[union-attr]
        least, most, tested = (
            [int(part) for part in text.split(".")] for text in (lower, upper, pinned[name])
        )
        assert tested == least + [0] * (len(tested) - len(least)) and least < most, line
