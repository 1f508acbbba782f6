"""What commands that simulate many times say while they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forerun.core.cli import _show
from forerun.core.cli._options import Output

if TYPE_CHECKING:
    from forerun.core.study.searches import Reached


def counted(workers: int, output: Output, show: Callable[[str], None]) -> Callable[[Reached], None]:
    """What says how far an explanation is: at most how many simulations, and how long they take when one has ended.

    Parameters
    ----------
    workers : processes that simulate.
    output : whether anything is printed meanwhile.
    show : what shows the present state.
    """
    from forerun.core.study.estimate import Estimate

    estimate, estimated = Estimate(workers), False

    def progress(now: Reached) -> None:
        nonlocal estimated
        estimate.see(now.done)
        if now.done == 0 and now.most and not output.silent:
            _show.say(f"at most {now.most} simulations (-j N: N at once)")
        left = estimate.left(now.most)
        if left and not estimated and not output.silent:
            _show.say(f"{now.most - now.done} more at most: {left} or less")
            estimated = True
        show(f"{now.done} simulations of at most {now.most}{f', {left} left' if left else ''}: {now.about}")

    return progress
