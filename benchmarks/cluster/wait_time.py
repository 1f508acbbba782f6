"""How long an answer of `forerun wait-time` takes, and how well answers do on the log of a real machine.

    python benchmarks/cluster/wait_time.py [--json]

The log is Theta's of 2023, in FORERUN_DATA_DIR, or in ../shared/data beside the project. Processor time of one answer with
100 draws, without the former questions; of the whole command; and of the back-test, with what it says. Exit code 1 if an
answer takes over 0.5 s, coverage is over 3 points and two standard errors off in all, in a regime or in a partition, the
loss is over 0.80 of that of the best class history, or the interval of their difference is not below 0.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from forerun.site.history import read_history
from forerun.site.wait_time import forecast as fc
from forerun.site.wait_time.answer import answer
from forerun.site.wait_time.backtest import BackTest, back_test
from forerun.site.wait_time.situation import Question

ANSWER_S: Final = 0.5
RATIO: Final = 0.80
#: answers that are timed
REPEATS: Final = 20
#: when the question is asked: 2023-04-20T12:00 UTC, in seconds since 1970
ASKED_S: Final = 1_681_992_000


def log() -> Path:
    """The log."""
    shared = Path(os.environ.get("FORERUN_SHARED", Path(__file__).parents[3] / "shared"))
    return Path(os.environ.get("FORERUN_DATA_DIR", shared / "data")) / "replay" / "theta_2023a_first60.csv.gz"


def missed(found: BackTest, answer_s: float) -> list[str]:
    """The limits that are missed, in words."""
    late = [f"an answer takes {answer_s:.2f} s"] if answer_s > ANSWER_S else []
    for part in (found.whole, *found.regimes, *found.partitions):
        shares = ", ".join(
            f"{share:.1%} at {promised:.0%}" for promised, share in part.covered.shares.items()
        )
        kept = part.good and all(off <= most for off, most in part.off)
        late += [] if kept else [f"{part.name}: {shares}, loss {part.pinball:.3f}"]
    if found.ratio > RATIO:
        late.append(f"loss {found.ratio:.2f} of the best class history's")
    if found.difference[2] >= 0:
        late.append("the difference to the best class history may be 0")
    return late


def main() -> int:
    """Measure; 1 if a limit is missed."""
    as_json = "--json" in sys.argv[1:]
    if not log().exists():
        print(f"no log at {log()}", file=sys.stderr)
        return 2
    forecaster = fc.Forecaster(read_history(log()))
    question = Question(ASKED_S - forecaster.log.origin_s, 128, 6 * 3600.0)
    situation = forecaster.situation(question)
    situation.waits_s(situation.draw(forecaster.rng(question), fc.DRAWS))  # compiles
    begin_s = time.process_time()
    for _ in range(REPEATS):
        situation = forecaster.situation(question)
        situation.waits_s(situation.draw(forecaster.rng(question), fc.DRAWS))
    answer_s = (time.process_time() - begin_s) / REPEATS
    begin_s = time.process_time()
    answer(forecaster, question)
    whole_s = time.process_time() - begin_s
    begin_s = time.process_time()
    found = back_test(forecaster)
    test_s = time.process_time() - begin_s
    late = missed(found, answer_s)
    if as_json:
        content: dict[str, Any] = found.data()
        kept = {
            name: content[name]
            for name in ("coverage", "fortnights", "jobs asked about", "without an answer")
        }
        figures = {
            "answer_s": answer_s,
            "answer_with_former_questions_s": whole_s,
            "back_test_s": test_s,
            "ratio": found.ratio,
            "difference": list(found.difference),
            "best": found.best,
            **kept,
        }
        print(json.dumps(figures))
    else:
        print(
            f"an answer {answer_s:.3f} s, with former questions {whole_s:.1f} s, the back-test {test_s:.0f} s"
        )
        print(found.why)
    print(f"missed: {', '.join(late)}" if late else "no limit is missed", file=sys.stderr)
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main())
