"""Colours of pages and charts: safe for colour-blind readers, in a light and a dark set.

The series colours follow Okabe and Ito ("Color Universal Design", 2008), darkened for white paper and lightened for
dark paper until each stands out at 3:1 or more (WCAG 2.1, 1.4.11). A page draws its charts with CSS variables, so
one drawing serves both sets and print; pictures are drawn with the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: strokes of line number n: series beyond the colours repeat them with another dash
DASHES: Final[tuple[tuple[int, ...], ...]] = ((), (6, 3), (2, 2), (8, 3, 2, 3))

#: a sequential scheme that stays ordered for colour-blind readers and on either paper
SEQUENTIAL: Final = "cividis"


@dataclass(frozen=True, slots=True)
class Palette:
    """One set of colours, as texts that CSS and SVG understand.

    Parameters
    ----------
    paper : behind everything.
    card : behind charts.
    ink : text.
    soft : secondary text.
    line : hairlines and grids.
    accent : links and marks of attention.
    good, bad : the words of badges, such as whether a number is within its tolerance.
    series : the colours of series, in order.
    tints : their pale forms, for areas beyond the colours (lines take dashes instead).
    """

    paper: str
    card: str
    ink: str
    soft: str
    line: str
    accent: str
    good: str
    bad: str
    series: tuple[str, ...]
    tints: tuple[str, ...]

    def variables(self) -> dict[str, str]:
        """CSS variables by name: `--paper` and the like, `--s0` ... of the series, `--t0` ... of the tints."""
        named = {f"--{name}": colour for name, colour in self.named().items()}
        named |= {f"--s{number}": colour for number, colour in enumerate(self.series)}
        return named | {f"--t{number}": colour for number, colour in enumerate(self.tints)}

    def named(self) -> dict[str, str]:
        """The colours that are not of series, by name."""
        names = ("paper", "card", "ink", "soft", "line", "accent", "good", "bad")
        return {name: getattr(self, name) for name in names}

    def series_colour(self, number: int) -> str:
        """The colour of series `number`, from 0; beyond the last colour they repeat."""
        return self.series[number % len(self.series)]

    def area_colour(self, number: int) -> str:
        """The colour of area `number`: the colours, then their pale forms, then from the beginning."""
        return (*self.series, *self.tints)[number % (2 * len(self.series))]


LIGHT: Final = Palette(
    paper="#f6f7f8",
    card="#ffffff",
    ink="#1d242c",
    soft="#59636e",
    line="#dfe3e8",
    accent="#005f9e",
    good="#1a7048",
    bad="#b3400a",
    series=("#0072b2", "#d55e00", "#00875f", "#b8578c", "#b37700", "#3a8fc4", "#65707c", "#857a00"),
    tints=("#80b8d8", "#eaae80", "#80c3af", "#dcabc6", "#d9bb80", "#9cc7e2", "#b2b8be", "#c2bc80"),
)

DARK: Final = Palette(
    paper="#14181d",
    card="#1b2027",
    ink="#e7ebef",
    soft="#a3adb8",
    line="#333b45",
    accent="#79bff0",
    good="#5fd0a0",
    bad="#ff9a62",
    series=("#56a8e0", "#f28444", "#35c49a", "#e093bf", "#eab54a", "#9bd2f4", "#a9b3bf", "#ddd35a"),
    tints=("#386484", "#865236", "#287260", "#7e5a73", "#826a38", "#5b798e", "#626a73", "#7c7a40"),
)

#: every colour as a CSS variable, for charts drawn in a page
VARIABLES: Final = Palette(
    **{name: f"var(--{name})" for name in LIGHT.named()},
    series=tuple(f"var(--s{number})" for number in range(len(LIGHT.series))),
    tints=tuple(f"var(--t{number})" for number in range(len(LIGHT.tints))),
)
