"""Discovery of members, by file and by entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from forerun.core import registry as registry_module
from forerun.core.errors import UnknownName, UsageError
from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec


class Colour(NamedSpec, frozen=True, kw_only=True):
    """A kind that exists for these tests."""


class Mauve(Colour, tag="mauve", frozen=True, kw_only=True):
    """A plugin's colour."""


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Colour]:
    package = tmp_path / "palette"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "warm.py").write_text(
        "from tests_house_colour import Colour\n"
        "class Red(Colour, tag='red', frozen=True): 'Red.'\n"
        "class _Hidden(Colour, tag='hidden', frozen=True): 'Not a member.'\n"
    )
    (package / "cold.py").write_text(
        "from palette.warm import Red\nfrom tests_house_colour import Colour\n"
        "class Blue(Colour, tag='blue', frozen=True): 'Blue.'\n"
    )
    module = type(registry_module)("tests_house_colour")
    module.Colour = Colour  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "tests_house_colour", module)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "paints").mkdir()
    (tmp_path / "paints" / "__init__.py").write_text("")
    (tmp_path / "paints" / "cold.py").write_text(
        "from tests_house_colour import Colour\nclass Azure(Colour, tag='azure', frozen=True): 'Azure.'\n"
    )
    for name in ("palette", "palette.warm", "palette.cold", "paints", "paints.cold"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return Registry("colour", "palette", base=Colour, group="forerun.colours")


def announce(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    points = [EntryPoint(name=name, value=value, group="forerun.colours")]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: points)


def test_members_are_found_in_files(colours: Registry[Colour]) -> None:
    assert colours.names() == ("blue", "red")
    assert colours.get("red").__name__ == "Red"
    assert "hidden" not in colours


def test_members_of_several_packages_are_one_kind(colours: Registry[Colour], tmp_path: Path) -> None:
    both = Registry("colour", "palette", "paints", base=Colour, group="forerun.colours")
    assert both.names() == ("azure", "blue", "red") and both.get("azure").__module__ == "paints.cold"
    (tmp_path / "paints" / "odd.py").write_text((tmp_path / "palette" / "warm.py").read_text())
    with pytest.raises(AssertionError, match="two colours are named 'red' in palette and paints"):
        Registry("colour", "palette", "paints", base=Colour, group="forerun.colours").names()


def test_an_unknown_name_is_answered_with_what_is_known(colours: Registry[Colour]) -> None:
    with pytest.raises(UnknownName, match=r"no colour named 'blu'; did you mean 'blue'\? known: blue, red"):
        colours.get("blu")


def test_plugins_are_found(colours: Registry[Colour], monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(registry_module)("tests_house_plugin")
    module.Mauve = Mauve  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "tests_house_plugin", module)
    announce(monkeypatch, "mauve", "tests_house_plugin:Mauve")
    assert colours.get("mauve") is Mauve
    assert colours.names() == ("blue", "mauve", "red")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gone", "no_such_module:X", "cannot be loaded: ModuleNotFoundError"),
        ("path", "pathlib:Path", "is not a subclass of Colour"),
        ("puce", "tests_house_plugin:Mauve", "calls itself 'mauve'"),
    ],
)
def test_an_unfit_plugin_is_named(
    colours: Registry[Colour], monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    module = type(registry_module)("tests_house_plugin")
    module.Mauve = Mauve  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "tests_house_plugin", module)
    announce(monkeypatch, name, value)
    with pytest.raises(UsageError, match=message):
        colours.get(name)
