"""Draws one picture per domain for its page, on a light and on a dark background.

    python docs/figures/domains.py

A reproduced published result where the domain has one to show (it needs the public data, see `forerun data`), else a
figure of the embedded demonstration.
"""

from __future__ import annotations

from pathlib import Path

import forerun
from forerun.core.catalog import demo
from forerun.core.report.contents import figures_of
from forerun.core.report.images import svg
from forerun.core.report.palette import DARK, LIGHT
from forerun.core.result.figures import Figure

HERE = Path(__file__).parent

#: domain: the id of a reproduction (empty: the demonstration), and the figure
SHOWN = {
    "cluster": ("ef-fig8a", "fig8a"),
    "serving": ("", "where-the-time-went"),
    "spot": ("bamboo-notebook", "sensitivity"),
    "loading": ("", "block-threads-heat-map"),
    "energy": ("", "energy-plane"),
}


def figure(domain: str) -> Figure:
    """The figure to show for a domain."""
    identifier, name = SHOWN[domain]
    if identifier:
        figures = forerun.reproduce(identifier).figures
    else:
        figures = figures_of(forerun.simulate(forerun.load(demo(domain).scenario)))
    return next(one for one in figures if one.id == name)


def main() -> None:
    """Write every picture."""
    for domain in SHOWN:
        drawn = figure(domain)
        for ground, palette in (("light", LIGHT), ("dark", DARK)):
            (HERE / f"{domain}-{ground}.svg").write_text(svg(drawn, palette), encoding="utf-8")


if __name__ == "__main__":
    main()
