"""Results as pages and pictures.

    from forerun.core.report import write_page, write_pictures
    write_page([result], "report.html")          # one self-contained page; several runs come side by side
    write_pictures([result], "figures", "svg")    # every figure as a file, drawn without a browser

Each takes results, saved runs (`forerun.load_result`), saved studies (`forerun.core.study.saved.load_saved`), comparisons
(`forerun.compare`), and files of plans, comparisons and measurements (`forerun.core.report.stored.open_stored`) in any mix.

A page loads nothing, works from a file, follows the reader's light or dark setting and prints. Domains give figures as
data (`forerun.core.result.figures`); everything about how they look is here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from forerun.core.report.contents import Item
    from forerun.core.result.figures import Figure
    from forerun.core.study.compared import Comparison

__all__ = ["chart", "html_page", "write_page", "write_pictures"]


def html_page(items: Sequence[Item | Comparison], *, questions: Sequence[str] = ()) -> str:
    """The page of one thing, or of several side by side, as text.

    Parameters
    ----------
    items : as for `write_page`.
    questions : what each item was run to answer, in their order (default: none).

    Raises
    ------
    UsageError : there are no items, or one that no page can show, or more than a page holds.
    """
    from forerun.core.report.compose import any_page

    return any_page(_shown(items), questions)


def _shown(items: Any) -> list[Item]:
    """The items, with a name for each comparison that comes from no file.

    Raises
    ------
    UsageError : an item is something that no page can show, or there are none.
    """
    from forerun.core.report.contents import Item
    from forerun.core.report.stored import StoredComparison
    from forerun.core.scenario.arguments import wrong_type
    from forerun.core.study.compared import Comparison

    expected = "a list of runs, studies or comparisons, as forerun.simulate, load_result, run_study and compare return,"
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        raise wrong_type("report", items, expected)
    for item in items:
        if not isinstance(item, (*get_args(Item), Comparison)):
            raise wrong_type("report", item, expected)
    return [
        StoredComparison(f"comparison {item.id[:8]}", item) if isinstance(item, Comparison) else item
        for item in items
    ]


def write_page(
    items: Sequence[Item | Comparison], path: str | os.PathLike[str], *, questions: Sequence[str] = ()
) -> Path:
    """Write one self-contained HTML page; returns its path.

    Parameters
    ----------
    items : results, saved runs, studies, comparisons and stored documents; several runs of one domain are shown side by
        side.
    path : the file to write; a page that forerun wrote is replaced.
    questions : the question that each item answers (default: none).

    Raises
    ------
    StoreError : the path contains something else or cannot be written.
    UsageError : there are no items, or one that no page can show, or more than a page holds.

    >>> result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0"]))
    >>> forerun.write_page([result], "report.html").name
    'report.html'
    """
    from forerun.core.report.compose import write_html

    return write_html(html_page(items, questions=questions), path)


def write_pictures(
    items: Sequence[Item | Comparison], folder: str | os.PathLike[str], kind: Literal["png", "svg"]
) -> list[Path]:
    """Write every figure and ledger to `<id>.png` or `<id>.svg`; returns the paths.

    Parameters
    ----------
    items : as for `write_page`.
    folder : created if absent; with several items, each has a folder of its own in it.
    kind : "png" or "svg".

    Raises
    ------
    StoreError : a file cannot be written.
    UsageError : there are no items, or one that is none of these.

    >>> result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0"]))
    >>> pictures = forerun.write_pictures([result], "pictures", "svg")
    >>> {picture.suffix for picture in pictures}
    {'.svg'}
    """
    from forerun.core.report.contents import figures_of_item, labels, ledger_figures
    from forerun.core.report.images import file_stem, write_images
    from forerun.core.result.run import Result, SavedRun

    shown = _shown(items)
    written: list[Path] = []
    for item, name in zip(shown, labels(shown)):
        place = Path(folder) if len(shown) == 1 else Path(folder) / file_stem(name)
        drawn = figures_of_item(item)
        if isinstance(item, (Result, SavedRun)):
            drawn = (*drawn, *ledger_figures(item.ledgers))
        written += write_images(drawn, place, kind)
    return written


def chart(figure: Figure) -> Any:
    """Convert a figure to an Altair chart, to show, change or combine in a notebook.

    Parameters
    ----------
    figure : one of `result.figures`.

    Raises
    ------
    UsageError : it is anything else, or the extra `altair` is not installed.

    >>> result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0"]))
    >>> type(forerun.chart(result.figures["ledger-energy"])).__name__
    'LayerChart'
    """
    from forerun.core.report.images import chart as altair_chart
    from forerun.core.result.figures import Figure
    from forerun.core.scenario.arguments import wrong_type

    if not isinstance(figure, Figure):
        raise wrong_type("chart", figure, "a figure, as result.figures[name] gives,")
    return altair_chart(figure)
