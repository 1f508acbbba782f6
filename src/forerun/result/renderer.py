"""What draws the figures of results. The front door sets it: the report lies above results, which only call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.result.figures import Figure

#: a figure as an SVG text
svg: Callable[[Figure], str]
#: the figures of a run and of its ledgers, by name
named_figures: Callable[[Any], dict[str, Figure]]
