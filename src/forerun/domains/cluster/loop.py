"""The core loop: one instant after another, each with its steps in the schedule's own order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from forerun.domains.cluster.policy import Rules, Step

#: an observer and what it is shown
Watcher = tuple[Callable[[float, Any], None], Any]


def run(rules: Rules, *, watch: Sequence[Watcher] = ()) -> None:
    """Play a world to its end.

    The clock says when something happens next; what happens is a sequence of steps. That order, the clock and the
    quirks of a published schedule are the rules' own; nothing else differs between schedules.

    Rules that play many instants at once (`stop_at_each_instant`) play one at a time where somebody watches.
    """
    if watch and (stop := getattr(rules, "stop_at_each_instant", None)) is not None:
        stop()
    while (now_s := rules.next_moment()) is not None:
        for step in rules.order:
            match step:
                case Step.ADVANCE:
                    rules.advance(now_s)
                case Step.FINISH:
                    rules.finish(now_s)
                case Step.ROUND:
                    rules.on_round(now_s)
                case Step.ARRIVE:
                    rules.arrive(now_s)
                case Step.WAKE:
                    rules.wake(now_s)
                case Step.DECIDE:
                    rules.decide(now_s)
                case Step.CHARGE:
                    rules.charge(now_s)
                case _:
                    assert_never(step)
        if watch and (log := getattr(rules, "log", None)) is not None:
            log.flush()  # a record may lag; whoever looks at it between instants shall not notice
        for observe, shown in watch:
            observe(now_s, shown)
