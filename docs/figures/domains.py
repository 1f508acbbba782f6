"""Draws one picture a room for the README, on light and on dark ground.

    python docs/figures/domains.py

Published results that come out again where the room has one to show (they want the public data, see `forerun data`), a
picture of the embedded demonstration elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import forerun
from forerun.catalog import demo
from forerun.report.contents import figures_of
from forerun.report.images import svg
from forerun.report.palette import DARK, LIGHT
from forerun.result.figures import Figure

HERE = Path(__file__).parent

#: room: the id of a reproduction (empty: the demonstration), and the figure
SHOWN = {
    "cluster": ("ef-fig8a", "fig8a"),
    "serving": ("", "where-the-time-went"),
    "spot": ("bamboo-notebook", "sensitivity"),
    "loading": ("", "block-threads-heat-map"),
    "energy": ("", "energy-plane"),
}


def figure(room: str) -> Figure:
    """The figure to show of a room."""
    identifier, name = SHOWN[room]
    if identifier:
        found = forerun.reproduce(identifier).figures
    else:
        found = figures_of(forerun.simulate(forerun.load(demo(room).scenario)))
    return next(one for one in found if one.id == name)


def main() -> None:
    """Write every picture."""
    for room in SHOWN:
        drawn = figure(room)
        for ground, palette in (("light", LIGHT), ("dark", DARK)):
            (HERE / f"{room}-{ground}.svg").write_text(svg(drawn, palette), encoding="utf-8")


if __name__ == "__main__":
    main()
