"""The public names: each says what it means with an example, and the examples are true."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import forerun

PAGE = Path(__file__).parents[2] / "docs" / "core" / "python.md"
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.parametrize("name", forerun.__all__)
def test_a_public_name_shows_how_it_is_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder(recurse=False).find(
        getattr(forerun, name), name, globs={"forerun": forerun}
    )
    assert sum(len(one.examples) for one in found) > 0, f"forerun.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    told: list[str] = []
    for one in found:
        runner.run(one, out=told.append)
    assert not runner.failures, "".join(told)


def test_the_page_tells_every_public_name() -> None:
    told = set(re.findall(r"^\| `(\w+)[`(]", PAGE.read_text(), re.MULTILINE))
    assert told == set(forerun.__all__)


def test_the_examples_of_the_page_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    parsed = doctest.DocTestParser().get_doctest(PAGE.read_text(), {}, "python.md", str(PAGE), 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(parsed, out=told.append)
    assert parsed.examples and not runner.failures, "".join(told)
