"""How well `forerun replay` reproduces the queues of a real machine: its report cards.

    python benchmarks/cluster/replay.py [--json]

The logs are Theta's of early 2023 and of 2022, in FORERUN_DATA_DIR, or in ../shared/data beside the project. Machine and
policy come from the first 60 % of each; the last 40 % score them. The method was chosen on the whole log of early 2023,
whose figures say little of other months; the quarters of 2022 are other months. Exit code 1 if a limit of a card is missed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any, Final

from wait_time import log

from forerun.site.history import History, read_history
from forerun.site.replay.play import policy_name
from forerun.site.replay.replay import replay_log

QUARTER_S: Final = 91 * 86_400.0
#: name, file, and the quarter (all: none)
LOGS: Final = {
    **{f"Theta, quarter {at + 1} of 2022, large jobs": ("theta_2022_main.csv.gz", at) for at in range(4)},
    "Theta, 2022, large jobs": ("theta_2022_main.csv.gz", None),
    "calibration log: Theta, early 2023": ("theta_2023a_first60.csv.gz", None),
}


def part_of(history: History, quarter: int | None) -> History:
    """A quarter of a log: jobs that ran or waited in it, as known at its end."""
    if quarter is None:
        return history
    from_s = history.complete_from_s + quarter * QUARTER_S
    there = ~(history.end_s <= from_s)
    return replace(history.of(there).until(from_s + QUARTER_S), complete_from_s=from_s)


def card(file: str, quarter: int | None) -> dict[str, Any]:
    """The report card of a log."""
    made = replay_log(part_of(read_history(log().with_name(file)), quarter))
    lines = [
        {
            "figure": one.what,
            "measured": one.value,
            "limit": one.limit,
            "at_most": one.at_most,
            "met": one.met,
        }
        for one in made.card.lines
        # Where there is one pool, all pools are that one.
        if len(made.cases) > 1 or not one.what.endswith(", all pools")
    ]
    return {"policy": policy_name(made.card.policy), "named": made.card.named is not None, "lines": lines}


def main() -> int:
    """Replay; 1 if a limit is missed."""
    if not log().exists():
        print(f"no log at {log()}", file=sys.stderr)
        return 2
    cards = {name: card(*which) for name, which in LOGS.items()}
    missed = [
        f"{name}: {line['figure']}" for name, one in cards.items() for line in one["lines"] if not line["met"]
    ]
    if "--json" in sys.argv[1:]:
        print(json.dumps({"cards": cards, "missed": missed}))
    else:
        for name, one in cards.items():
            print(f"{name}, replayed with {one['policy']}")
            for line in one["lines"]:
                bound = "at most" if line["at_most"] else "at least"
                print(f"  {line['figure']}: {line['measured']:.3f}, {bound} {line['limit']:g}")
    print(f"missed: {', '.join(missed)}" if missed else "no limit is missed", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
