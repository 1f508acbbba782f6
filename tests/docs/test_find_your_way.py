"""The page for newcomers names the parts of every domain, and each part contains what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forerun.core.domain import domain_names

from .claims import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
#: what every domain has
REQUIRED = {
    "domain",
    "scenario",
    "inputs",
    "policy",
    "policies",
    "observer",
    "engine",
    "summary",
    "figures",
    "explain",
}
OURS = ("cluster", "serving", "spot", "loading", "energy")


def named() -> set[str]:
    """The parts of a domain that the page's first table names."""
    table = PAGE.read_text(encoding="utf-8").partition("| looking for |")[2].partition("\n\n")[0]
    places = [row.split("|")[2] for row in table.splitlines()[2:]]
    return {
        word.rstrip("/").removesuffix(".py")
        for place in places
        for word in re.findall(r"`([\w.]+/?)`", place)
    }


@pytest.mark.parametrize("name", OURS)
def test_a_domain_has_the_parts_that_the_page_names(name: str) -> None:
    """No more in its folder than the page lists, and all that every domain needs."""
    folder = ROOT / "src" / "forerun" / name
    entries = {path.name.removesuffix(".py") for path in folder.iterdir() if path.name != "__pycache__"}
    entries = {entry for entry in entries if not entry.startswith("demo_")}
    assert entries <= named() and entries >= REQUIRED
    for part, function in (("inputs", "prepare"), ("engine", "run"), ("summary", "summarize")):
        assert re.search(rf"^def {function}\(", text(folder / part), re.MULTILINE), (
            f"{name}: no {function} in {part}"
        )


def text(part: Path) -> str:
    """The source of a module, or of all modules of a package."""
    files = [part.with_suffix(".py")] if part.with_suffix(".py").is_file() else sorted(part.rglob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_the_page_names_every_domain_and_existing_places() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert set(OURS) <= set(domain_names()) and all(f"`{name}`" in page for name in OURS)
    for place in re.findall(r"`((?:src|tests|examples)/[\w./-]+)`", page.replace("/D/", "/cluster/")):
        assert (ROOT / place.replace("/SYSTEM", "")).exists(), place
