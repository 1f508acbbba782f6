"""`forerun wait-time`: when a job would start, and how well such answers did on a log."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output
from forerun.core.result.numbers import shown_instant
from forerun.site.reading import Reading
from forerun.site.verbs._default import DefaultGroup
from forerun.site.verbs._history import reading_options

if TYPE_CHECKING:
    from forerun.cluster.inputs.setting import Window
    from forerun.site.history import History
    from forerun.site.wait_time.answer import StartForecast
    from forerun.site.wait_time.backtest import BackTest

command = DefaultGroup("wait-time", "ask", "Say when a job would start, and how right such answers were.")

#: what --job takes
JOB_KEYS: Final = ("nodes", "gpus", "requested", "partition")
_HOUR_S: Final = 3600.0
_NODES: Final = click.option(
    "--nodes",
    "--gpus",
    "gpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="Nodes of the pool, or its GPUs where jobs share nodes (default: as many as were in use).",
)
_SEED: Final = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed."
)


@command.command(name="ask")
@click.argument("log", type=_options.PATH, metavar="LOG|SNAPSHOT")
@click.option(
    "--job",
    required=True,
    metavar="nodes=N,requested=TIME",
    help="The job, by gpus=N where jobs share nodes; also partition=NAME.",
)
@click.option("--at", metavar="INSTANT", help="When it is submitted (default: at the end of the log).")
@click.option(
    "--by", metavar="INSTANT|TIME", help="Also the probability to start by then, or within so long."
)
@_options.path_option("--history", metavar="LOG", help="With a snapshot: the log of what came before.")
@_NODES
@click.option(
    "--maintenance",
    multiple=True,
    metavar="FROM/TO",
    help="Announced maintenance of the whole pool; repeatable.",
)
@_SEED
@reading_options
@_options.output_options
def ask(
    log: Path,
    job: str,
    at: str | None,
    by: str | None,
    history: Path | None,
    gpus: int | None,
    maintenance: tuple[str, ...],
    seed: int,
    reading: Reading,
    output: Output,
) -> None:
    """When would a job start? LOG has jobs with submission, start, end, nodes and requested time; SNAPSHOT is what
    `squeue -a -r -o "%i|%u|%P|%D|%b|%l|%T|%V|%S|%M"` prints.

    The queue is played on many times, and corrected by how far that was off for the jobs that started last. What is known at
    the instant is all that is used. `forerun wait-time backtest LOG` says how well such answers do.
    """
    from forerun.core.errors import UsageError
    from forerun.site.inference import KnownAt
    from forerun.site.wait_time.answer import answer
    from forerun.site.wait_time.forecast import Forecaster
    from forerun.site.wait_time.situation import Question

    wanted = _job(job)
    known = _known(log, history, at, reading)
    at_s = _instant(known, at, reading)
    within_s = None if by is None else _within(by, at_s + known.origin_s, reading)
    windows = _windows(maintenance, known, at_s, reading)
    unit, partition = known.unit, str(wanted.get("partition", ""))
    if unit.lower() not in wanted:
        raise UsageError.at("--job", f"this log counts {unit}; write it as {unit.lower()}=8,requested=6h")
    forecaster = Forecaster(known, seed=seed, windows=windows, partition=partition, gpus=gpus or 0)
    question = Question(at_s, int(wanted[unit.lower()]), float(wanted["requested"]), partition)
    if not partition and (apart := forecaster.apart(at_s)):
        raise UsageError.at("--job", f"say partition=NAME: {', '.join(apart)} have {unit} of their own")
    there = gpus or KnownAt(at_s).gpus(forecaster.known(question))[0]
    if 0 < there < question.gpus:
        what = f"asks for {question.gpus} {unit}; the pool has {there}"
        raise UsageError.at(
            "--job",
            what if gpus else f"{what}, as more were not in use lately; --{unit.lower()} says otherwise",
        )
    with output.working(f"asking {log.name}") as state:
        found = answer(
            forecaster,
            question,
            within_s,
            said=lambda done, of: state(f"{done} of {of} former jobs asked about"),
        )
    if output.as_json:
        _show.print_json(found.data())
        return
    _print(found, shown_instant(at_s + known.origin_s))
    output.hint(f"next: forerun wait-time backtest {shlex.quote(str(history or log))}")


@command.command(name="backtest")
@click.argument("log", type=_options.PATH, metavar="LOG")
@click.option(
    "--partition", default="", metavar="NAME", help="Only jobs of a partition, if it has nodes of its own."
)
@_NODES
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="K",
    help="Ask about each K-th job only; the errors of fewer former answers are then known.",
)
@_SEED
@_options.out_option("FILE", "Save the back-test; forerun report shows it.")
@_options.path_option("--report", "page", metavar="PAGE", help="Also write an HTML page.")
@reading_options
@_options.output_options
def backtest(
    log: Path,
    partition: str,
    gpus: int | None,
    every: int,
    seed: int,
    out: Path | None,
    page: Path | None,
    reading: Reading,
    output: Output,
) -> None:
    """How well would answers have done? Asks about the jobs of the largest pool of LOG at their submissions, each time as of
    that instant, and compares the answers with what came, with the history of each job's class, and with upper bounds.
    """
    from forerun.core.errors import UsageError
    from forerun.core.result.plan import write_document
    from forerun.site.wait_time.backtest import back_test
    from forerun.site.wait_time.forecast import Forecaster

    for option, path in (("--out", out), ("--report", page)):
        if path is not None and path.is_dir():
            raise UsageError.at(option, f"{path} is a directory; name the file")
    known = reading.read(log)
    forecaster = Forecaster(known, seed=seed, partition=partition, gpus=gpus or 0)
    with output.working(f"asking about the jobs of {log.name}") as state:
        found = back_test(forecaster, every=every, said=_left_of(state))
    content = found.data()
    if out is not None:
        write_document(content, out)
    if page is not None:
        from forerun.core.report import write_page
        from forerun.site.wait_time.document import DOCUMENT

        write_page([DOCUMENT.read((out or log).name.split(".")[0], content)], page)
    if output.as_json:
        _show.print_json(content)
        return
    _print_backtest(found)
    for path in (out, page):
        if path is not None:
            _show.prose(f"saved to {path}")


def _print_backtest(found: BackTest) -> None:
    """The back-test for people."""
    from forerun.site.wait_time.forecast import INTERVALS

    rows = [
        (
            part.name,
            part.covered.answers,
            *(f"{part.covered.shares[promised]:.0%}" for promised in INTERVALS),
            f"{part.pinball:.3f}",
            f"{part.history:.3f}",
            f"{part.bounds:.3f}",
        )
        for part in (found.whole, *found.regimes, *found.partitions, *found.fortnights)
    ]
    _show.print_table(
        ("part", "answers", *(f"in {promised:.0%}" for promised in INTERVALS), "loss", "class", "bound"),
        rows,
        title=f"Answers at the submissions of {found.source}, {found.pool}",
        about="in 50%: share of jobs that started within the 50 % interval; loss: mean pinball loss of the answers on the "
        f"scale log10(wait + a minute); class: of the best class history ({found.best}); bound: of bounds as QBETS makes "
        "them",
    )
    difference, low, high = found.difference
    _show.prose(f"\n{found.why}")
    _show.prose(f"difference of the losses: {difference:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    _show.prose(
        f"{found.asked} jobs asked about; {found.unanswered} without an answer, as too few had started before; of "
        f"{found.unknown} the log does not tell the start"
    )


def _job(text: str) -> dict[str, Any]:
    """The parts of --job. Raises UsageError with all that is wrong."""
    from forerun.core.errors import Problem, UsageError, known_names
    from forerun.core.units import whole_number

    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in JOB_KEYS:
            problems.append(Problem("--job", f"{name}: {known_names(name, JOB_KEYS)}"))
        elif not equals or not value:
            problems.append(Problem("--job", f"{name} has no value; write it as nodes=128,requested=6h"))
        elif name in found:
            problems.append(Problem("--job", f"{name} is given twice"))
        elif name in JOB_KEYS[:2]:
            count = whole_number(value, most_digits=9)
            if count is None or count < 1:
                problems.append(Problem("--job", f"{name}={value}: a whole number from 1 is required"))
            found[name] = count
        elif name == "requested":
            try:
                found[name] = _seconds(value)
                if not found[name] > 0:
                    problems.append(Problem("--job", f"requested={value}: more than 0 is required"))
            except ValueError as error:
                problems.append(Problem("--job", f"requested={value}: {error}"))
                found[name] = 0.0
        else:
            found[name] = value
    missing = [] if found.keys() & set(JOB_KEYS[:2]) else ["nodes or gpus"]
    missing += [] if "requested" in found else ["requested"]
    if missing and not problems:
        problems.append(
            Problem("--job", f"misses {' and '.join(missing)}; write it as nodes=128,requested=6h")
        )
    if problems:
        raise UsageError(*problems)
    return found


def _seconds(text: str) -> float:
    """A time such as 6h, or as Slurm writes its limits: 3-00:00:00, 12:00:00. Raises ValueError for what is none."""
    from forerun.cluster.readers.sacct import time_limit_s
    from forerun.core.units import parse_quantity

    return time_limit_s(text) if set("-:") & set(text[1:]) else parse_quantity(text, "s")


def _known(log: Path, history: Path | None, at: str | None, reading: Reading) -> History:
    """The history as of the end of the log, or of the snapshot."""
    from forerun.core.errors import UsageError
    from forerun.site.wait_time.squeue import is_snapshot, read_snapshot, taken_at_s, with_snapshot

    if not is_snapshot(log):
        if history is not None:
            raise UsageError.at("--history", "is for a snapshot of squeue, which this is not; leave it out")
        return reading.read(log)
    if at is not None:
        raise UsageError.at("--at", "a snapshot speaks of the instant at which it was taken; leave it out")
    entries = read_snapshot(log, reading.place())
    past = None if history is None else reading.read(history)
    return with_snapshot(past, entries, taken_at_s(entries), log.name)


def _instant(known: History, at: str | None, reading: Reading) -> float:
    """The instant of the question on the history's clock. Raises UsageError outside the log."""
    from forerun.core.errors import UsageError

    last_s = max(known.last_s, known.complete_until_s)
    if at is None:
        return last_s
    at_s = reading.instant_s("--at", at) - known.origin_s
    first, last = (shown_instant(s + known.origin_s) for s in (known.complete_from_s, last_s))
    if at_s < known.complete_from_s:
        raise UsageError.at("--at", f"{at} is before {first}, from when on the log is complete")
    if at_s > last_s:
        raise UsageError.at("--at", f"{at} is after {last}, where the log ends; what waits then is not known")
    return at_s


def _within(by: str, at_unix_s: float, reading: Reading) -> float:
    """Seconds from the instant of the question on. Raises UsageError for one before it."""
    from forerun.core.errors import UsageError

    try:
        wait_s = _seconds(by)
    except ValueError:
        wait_s = reading.instant_s("--by", by) - at_unix_s
    if wait_s < 0:
        raise UsageError.at("--by", f"{by} is before the job is submitted, {shown_instant(at_unix_s)}")
    return wait_s


def _windows(given: tuple[str, ...], known: History, at_s: float, reading: Reading) -> tuple[Window, ...]:
    """Announced maintenance on the history's clock. Raises UsageError for what is none."""
    from forerun.cluster.inputs.setting import Window
    from forerun.core.errors import UsageError

    windows = []
    for text in given:
        begin, slash, end = text.partition("/")
        if not slash:
            raise UsageError.at(
                "--maintenance", f"{text!r} is not FROM/TO, such as 2023-05-08T14:00/2023-05-08T22:00"
            )
        from_s, to_s = (reading.instant_s("--maintenance", part) - known.origin_s for part in (begin, end))
        if to_s <= from_s:
            raise UsageError.at("--maintenance", f"{text} ends before it begins")
        windows.append(Window(from_s, to_s, 0, at_s))
    return tuple(windows)


def _print(found: StartForecast, at: str) -> None:
    """The answer for people."""
    from forerun.site.wait_time.forecast import INTERVALS, LEAST_PAST, LEVELS

    gpus, hours, pool = found.question.gpus, found.question.requested_s / _HOUR_S, found.pool
    title = f"A job of {gpus} {pool.unit} for {hours:g} h, submitted {at}"
    queue = (
        f"{pool.name}: {pool.free_gpus} of {pool.gpus} {pool.unit} free, {pool.running_jobs} jobs running, "
        f"{pool.waiting_jobs} waiting, of which {pool.kept_back_jobs} have been passed over so often that something keeps "
        "them back"
    )
    if not found.known:
        _show.prose(title)
        _show.prose(queue)
        _show.prose(
            f"no answer: {found.past} former jobs have a known start, {LEAST_PAST} are needed to say how wrong a forecast is"
        )
        return
    waits, covered = found.waits_s, found.covered
    shares = covered.shares if covered is not None and covered.answers else {}
    rows = [
        (
            f"{promised:.0%}",
            _shown(waits[LEVELS[low]]),
            _shown(waits[LEVELS[high]]),
            f"{shares[promised]:.0%}",
        )
        for promised, (low, high) in INTERVALS.items()
    ]
    half = shown_instant(found.at_s + waits[0.5])
    _show.print_table(
        ("interval", "waits from", "to", "covered"),
        rows,
        title=title,
        about=f"covered: share of the last {covered.answers if covered else 0} answers whose interval contained the start",
    )
    _show.prose(f"\nEven odds to start within {_shown(waits[0.5])}, by {half}.")
    if found.by_share is not None and found.by_s is not None:
        by = shown_instant(found.at_s + found.by_s)
        _show.prose(f"It starts within {_shown(found.by_s)}, by {by}, with probability {found.by_share:.0%}.")
    _show.prose(queue)
    click.echo()
    _show.print_table(
        ("cause", "median wait"),
        [(cause, _shown(wait_s)) for cause, wait_s in found.medians_s.items()],
        title="What it waits for",
        about="each line adds to those above; the last one is the answer. Holds, dependencies and limits of users are not "
        "in a log: they are in the last line only",
    )


def _shown(wait_s: float) -> str:
    """A wait in words, such as `45 s`, `12 min`, `3.4 h`, `2.1 d`."""
    if wait_s < 90:
        return f"{wait_s:.0f} s"
    if wait_s < 5400:
        return f"{wait_s / 60:.0f} min"
    return f"{wait_s / _HOUR_S:.1f} h" if wait_s < 48 * _HOUR_S else f"{wait_s / 86_400:.1f} d"


def _left_of(show: Callable[[str], None]) -> Callable[[int, int], None]:
    """What says how many of a known number of steps are done, and how long the others take.

    Parameters
    ----------
    show : what shows the present state.
    """
    from forerun.core.study.estimate import Estimate

    estimate = Estimate()
    estimate.see(0)

    def progress(done: int, of: int) -> None:
        estimate.see(done)
        left = estimate.left(of)
        show(f"{done} of {of}{f', {left} left' if left else ''}")

    return progress
