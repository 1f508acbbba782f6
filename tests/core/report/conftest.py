"""Fixtures of the report's tests."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _neighbour(name: str) -> ModuleType:
    # Tests are imported by path, without packages: their shared modules are loaded under names of their own.
    full = f"report_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


@pytest.fixture(scope="session")
def gallery() -> ModuleType:
    """Figures of every kind and made-up runs."""
    return _neighbour("gallery")


@pytest.fixture
def gallery_domain(monkeypatch: pytest.MonkeyPatch, gallery: ModuleType) -> None:
    """Lets runs of the domain `gallery` be drawn, with a figure of every kind."""
    from forerun.core.report import contents

    monkeypatch.setattr(contents, "find_domain", lambda name: gallery.FIGURES)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running headless browser; the test is skipped where none is installed."""
    module = _neighbour("browser")
    program = module.find()
    if program is None:
        pytest.skip(
            f"no browser here: none of {', '.join(module.NAMES)} is on PATH (or set FORERUN_CHROMIUM)"
        )
    browser = module.Browser(program)
    yield browser
    browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page in the browser and waits until its charts are drawn."""
    opened: list[Any] = []

    def opens(path: Path, **options: Any) -> Any:
        page = chromium.open(path, **options)
        opened.append(page)
        if page.value("document.querySelectorAll('script.figure-data').length"):
            page.wait_for("document.documentElement.dataset.drawn !== undefined")
        return page

    yield opens
    for page in opened:
        page.close()
