"""How long an answer of `forerun wait-time` takes, and how well answers do on every log there is.

    python benchmarks/cluster/wait_time.py [--json]

Theta's log of 2023 first: processor time of one answer with 100 draws, without the former questions; of the whole command;
and of the back-test, with what it says. Then the back-test of the logs that chose nothing: real ones, which like Theta's are
in FORERUN_DATA_DIR or in ../shared/data beside the project, and drawn sites. Exit code 1 if on Theta's log an answer takes
over 0.5 s, coverage is over 3 points and two standard errors off in all, in a regime or in a partition, the loss is over
0.80 of that of the best class history, or the interval of their difference is not below 0. The other logs have no limits:
what they show is written down as it is. All of it takes half an hour.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.site.reference.export import write  # noqa: E402
from tests.site.reference.sites import draw  # noqa: E402

from forerun.core.errors import TraceError  # noqa: E402
from forerun.site.history import History, read_history  # noqa: E402
from forerun.site.wait_time import forecast as fc  # noqa: E402
from forerun.site.wait_time.answer import answer  # noqa: E402
from forerun.site.wait_time.backtest import BackTest, back_test  # noqa: E402
from forerun.site.wait_time.situation import Question  # noqa: E402

ANSWER_S: Final = 0.5
RATIO: Final = 0.80
#: answers that are timed
REPEATS: Final = 20
#: when the question is asked: 2023-04-20T12:00 UTC, in seconds since 1970
ASKED_S: Final = 1_681_992_000
#: the log on which the method was chosen, and real ones that chose nothing
CHOSEN_ON: Final = ("Theta, early 2023", "theta_2023a_first60.csv.gz")
OTHERS: Final = {
    "Theta, 2022, large jobs": "theta_2022_main.csv.gz",
    "MetaCentrum, early 2013": "wagap_2013.csv.gz",
}
#: drawn sites that chose nothing, by their seeds; jobs and days of each
SITES: Final = range(100, 110)
JOBS, DAYS = 2000, 60
#: of the longer logs, each so manieth job is asked about
EVERY: Final = 4


def folder() -> Path:
    """Where the real logs are."""
    shared = Path(os.environ.get("FORERUN_SHARED", ROOT.parent / "shared"))
    return Path(os.environ.get("FORERUN_DATA_DIR", shared / "data")) / "replay"


def of_site(seed: int) -> History:
    """What `sacct` prints of a drawn site, whose scheduler is the reference of the tests."""
    site = draw(seed, JOBS, DAYS)
    with tempfile.TemporaryDirectory() as made:
        return read_history(write(site, site.attempts(), Path(made))["sacct.txt"], zone=site.zone)


def others() -> Iterator[dict[str, Any]]:
    """The back-test of each log that chose nothing."""
    for name, file in OTHERS.items():
        yield {"log": name, "kind": "real"} | of_log(read_history(folder() / file), EVERY)
    for seed in SITES:
        yield {"log": f"drawn site {seed}", "kind": "drawn"} | of_log(of_site(seed))


def of_log(log: History, every: int = 1) -> dict[str, Any]:
    """How answers did on a log, over all; why there are none where there are none. every: so manieth job is asked about."""
    try:
        return summed_up(back_test(fc.Forecaster(log), every=every), every)
    except TraceError as error:
        return {"refused": str(error.problems[0])}


def summed_up(found: BackTest, every: int = 1) -> dict[str, Any]:
    """A back-test over all answers. every: as for `of_log`."""
    content = found.data()
    print(found.source, found.why, file=sys.stderr, flush=True)
    return {
        "every": every,
        "pool": found.pool,
        "asked": found.asked,
        "unanswered": found.unanswered,
        "ratio": found.ratio,
        "difference": list(found.difference),
        "best": found.best,
        "parts": content["coverage"],
    }


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
    if not folder().exists():
        print(f"no logs at {folder()}", file=sys.stderr)
        return 2
    forecaster = fc.Forecaster(read_history(folder() / CHOSEN_ON[1]))
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
    logs = [{"log": CHOSEN_ON[0], "kind": "chosen on"} | summed_up(found), *others()]
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
            "logs": logs,
        }
        print(json.dumps(figures))
    else:
        print(
            f"an answer {answer_s:.3f} s, with former questions {whole_s:.1f} s, the back-test {test_s:.0f} s"
        )
        for one in logs:
            print(one["log"], "; ".join(map(str, one["parts"])) if "parts" in one else one["refused"])
    print(f"missed: {', '.join(late)}" if late else "no limit is missed", file=sys.stderr)
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main())
