"""What the `live` commands print: the status of a run, once or until it ends, and the logs of jobs."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _show

if TYPE_CHECKING:
    from forerun.live.compare import Comparison
    from forerun.live.forecast import Forecast
    from forerun.live.status import JobStatus, RunStatus

#: seconds between two looks at a run that is watched
LOOK_S: Final = 1.0
#: bytes of a log that are read at once
_PIECE: Final = 1 << 16


def of(folder: Path, default: Path) -> str:
    """The option that names a run's folder, as words of a command; empty for the default folder."""
    return "" if folder == default else f" --run {folder}"


def read(folder: Path) -> RunStatus:
    """The status of a run, served now or not."""
    from forerun.core.errors import UsageError
    from forerun.live.service import Client, GetStatus

    try:
        status = Client(folder).ask(GetStatus()).status
    except UsageError:  # nobody serves it
        from forerun.live.runs import stopped_status

        return stopped_status(folder)
    assert status is not None
    return status


def metrics(folder: Path) -> str:
    """The status of a run as Prometheus text. Raises UsageError where prometheus_client is not installed."""
    from forerun.core.errors import UsageError
    from forerun.live.status import metrics_text

    try:
        return metrics_text(read(folder))
    except ImportError:
        raise UsageError.at("--metrics", "needs prometheus_client: pip install 'forerun[live]'") from None


def as_data(status: RunStatus) -> dict[str, Any]:
    """A status as plain data, with what follows from it."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(status)
    for job, plain in zip(status.jobs, data["jobs"], strict=True):
        plain["eta_s"] = job.eta_s
    return data


COLUMNS: Final = ("job", "state", "slots", "done", "rate (1/s)", "ends in (s)", "promise", "deadline", "why")
ABOUT: Final = (
    "done: iterations; ends in: at that rate; promise: the end that the policy planned; "
    "times are s of the run"
)


def rows(jobs: Sequence[JobStatus]) -> list[tuple[Any, ...]]:
    """The jobs as rows of a table."""
    return [
        (
            job.job,
            job.state if job.failures == 0 else f"{job.state} ({job.failures} failed)",
            _slots(job.slots),
            f"{job.step:,}/{job.iterations:,}",
            f"{job.rate:.3g}" if job.rate else "",
            "" if job.eta_s is None else f"{job.eta_s:,.0f}",
            "" if job.promise_s is None else f"{job.promise_s:.0f}",
            "" if job.deadline_s is None else f"{job.deadline_s:.0f}",
            job.why,
        )
        for job in jobs
    ]


def _slots(slots: Sequence[str]) -> str:
    """Slots by node, runs of numbers shortened: `a:0-3 b:0`."""
    by_node: dict[str, list[int]] = {}
    for slot in slots:
        node, _, number = slot.rpartition(":")
        by_node.setdefault(node, []).append(int(number))
    return " ".join(f"{node}:{_runs(sorted(numbers))}" for node, numbers in by_node.items())


def _runs(numbers: Sequence[int]) -> str:
    pieces: list[list[int]] = []
    for number in numbers:
        if pieces and number == pieces[-1][-1] + 1:
            pieces[-1].append(number)
        else:
            pieces.append([number])
    return ",".join(str(piece[0]) if len(piece) == 1 else f"{piece[0]}-{piece[-1]}" for piece in pieces)


def headline(status: RunStatus) -> str:
    """A line that says how the run stands."""
    from collections import Counter

    states = Counter(job.state for job in status.jobs)
    jobs = ", ".join(f"{count} {state}" for state, count in states.items()) or "no jobs"
    nodes = ", ".join(
        f"{node.node} {node.used}/{node.slots}" + ("" if node.state == "up" else f" {node.state}")
        for node in status.nodes
    )
    stands = f"{status.state} at {status.now_s:.0f} s under {status.policy}: {jobs}"
    return "; ".join(filter(None, (stands, f"slots used: {nodes or 'no node yet'}", status.fault)))


def print_status(status: RunStatus) -> None:
    """Print the status as a table."""
    if status.jobs:
        _show.print_table(COLUMNS, rows(status.jobs), title="Jobs", about=ABOUT)
    click.echo(headline(status))


def watch(folder: Path, *, as_json: bool) -> None:
    """Show the status of a run until it is served no more; with JSON, a line a look."""
    if as_json:
        while True:
            status = read(folder)
            click.echo(json.dumps(as_data(status), allow_nan=False))
            if status.state == "stopped":
                return
            time.sleep(LOOK_S)
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def picture(status: RunStatus) -> Group:
        table = Table(*COLUMNS, box=None, pad_edge=False)
        for row in rows(status.jobs):
            table.add_row(*(Text(str(cell)) for cell in row))
        return Group(table, Text(headline(status)))

    with Live(picture(read(folder)), console=_show.terminal(), auto_refresh=False) as live:
        while True:
            status = read(folder)
            live.update(picture(status), refresh=True)
            if status.state == "stopped":
                return
            time.sleep(LOOK_S)


def print_comparison(comparison: Comparison) -> None:
    """Print each job, live and simulated, and how far the simulations are off."""
    _show.print_table(
        (
            "job",
            "submitted (s)",
            "ended (s)",
            "forecast (s)",
            "off",
            "with measured costs (s)",
            "deadline",
            "met",
        ),
        (
            (
                job.job,
                job.submit_s,
                _instant(job.end_s) if job.admitted else "rejected",
                _instant(job.predicted_end_s) if job.predicted_admitted else "rejected",
                "" if math.isnan(job.jct_error) else f"{job.jct_error:+.1%}",
                _instant(job.explained_end_s),
                _instant(job.deadline_s),
                _both(job.met, job.predicted_met),
            )
            for job in comparison.jobs
        ),
        title="Live beside simulated",
        about="forecast: simulated with the scenario's costs; off: the measured time from submission to end against it; "
        "met: the deadline, and in brackets the forecast where it differs",
    )
    for name, errors in (("forecast", comparison.forecast), ("with measured costs", comparison.explanation)):
        if errors is not None:
            _show.prose(
                f"{name}: makespan {errors.makespan:+.1%}, mean completion time {errors.mean_jct:+.1%}, worst job "
                f"{errors.worst_jct:.1%} off, over {errors.jobs} jobs"
            )
    same = {True: "the same", False: "not the same"}
    click.echo(
        f"admissions: {same[comparison.same_admissions]}; deadlines met: {same[comparison.same_deadlines]}"
    )
    for note in comparison.notes:
        _show.prose(f"note: {note}")


def print_forecast(expected: Forecast) -> None:
    """Print each job with its interval, and those of the whole run."""
    _show.print_table(
        ("job", "submitted (s)", "ends (s)", "from (s)", "to (s)"),
        (
            (job.job, job.submit_s, *map(_instant, (job.end_s, job.low_s, job.high_s)))
            if not math.isnan(job.end_s)
            else (job.job, job.submit_s, "rejected or no end", "", "")
            for job in expected.jobs
        ),
        title="Forecast",
        about=f"from, to: all jobs at once, in {100 * expected.level:g} % of runs like the {expected.runs} earlier ones",
    )
    names = {"makespan_s": "until the last job ends", "mean_jct_s": "mean completion time"}
    for name, (value_s, low_s, high_s) in expected.figures.items():
        _show.prose(f"{names[name]}: {value_s:.1f} s, {low_s:.1f} to {high_s:.1f}")
    for note in expected.notes:
        _show.prose(f"note: {note}")


def _instant(at_s: float) -> str:
    return "" if math.isnan(at_s) else f"{at_s:.1f}"


def _both(live: bool, foretold: bool) -> str:
    words = {True: "yes", False: "no"}
    return words[live] if live == foretold else f"{words[live]} ({words[foretold]})"


@contextmanager
def on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops a run: its jobs save their state. The second ends it at once.

    Parameters
    ----------
    stop : asks the run to stop, without waiting.
    """
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        click.echo(
            "forerun: stopping: jobs save their state and leave; once more ends them at once", err=True
        )
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def display(folder: Path, *, silent: bool) -> Iterator[None]:
    """Say on stderr how a run stands while it is being played here."""
    from forerun.core.errors import ForerunError

    with _show.working(f"running in {folder}", quiet=silent) as tell:
        done = threading.Event()

        def look() -> None:
            while not done.wait(LOOK_S):
                try:
                    status = read(folder)
                except ForerunError:  # it has not begun, or has just ended
                    continue
                tell(headline(status))

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def print_logs(
    folder: Path, job: str, *, follow: bool, epoch: int | None, rank: int | None, as_json: bool
) -> None:
    """Print the logs of a job's ranks.

    Parameters
    ----------
    folder : the run's.
    job : its name.
    follow : go on while the job has not ended.
    epoch : which start of the job (default: the last).
    rank : which rank (default: all).
    as_json : an object a line, with the start and the rank that wrote it.

    Raises
    ------
    UnknownName : the run has no such job.
    UsageError : nothing has been written yet by such ranks.
    """
    from forerun.core.errors import UnknownName, UsageError
    from forerun.live.status import FINAL

    place = folder / "jobs" / job / "logs"
    known = sorted(path.name for path in (folder / "jobs").glob("*") if path.is_dir())
    if job not in known:
        raise UnknownName.among("job", job, known, where=str(folder))
    offsets: dict[Path, int] = {}
    while True:
        ended = not follow or any(one.job == job and one.state in FINAL for one in read(folder).jobs)
        for path in _logs_of(place, epoch, rank):
            for line in _new_lines(path, offsets, whole=ended):
                start, number = path.stem.split("-")
                if as_json:
                    click.echo(json.dumps({"start": int(start), "rank": int(number), "line": line}))
                else:
                    click.echo(line if rank is not None else f"[{start}-{number}] {line}")
        if ended:
            break
        time.sleep(LOOK_S / 4)
    if not offsets:
        asked = "".join(f" {name} {n}" for name, n in (("start", epoch), ("rank", rank)) if n is not None)
        raise UsageError.at(place, f"has no log{f' of{asked}' if asked else ' yet'}")


def _logs_of(place: Path, epoch: int | None, rank: int | None) -> list[Path]:
    """The log files of some ranks, in order. Without an epoch: those of the last start."""
    named: list[tuple[int, int, Path]] = []
    for path in place.glob("*-*.log"):
        start, _, number = path.stem.partition("-")
        if start.isdigit() and number.isdigit():
            named.append((int(start), int(number), path))
    wanted = epoch if epoch is not None else max((start for start, _, _ in named), default=0)
    return [path for start, number, path in sorted(named) if start == wanted and rank in (None, number)]


def _new_lines(path: Path, offsets: dict[Path, int], *, whole: bool) -> Iterator[str]:
    """The lines of a log beyond what was read of it before; with `whole`, also a last one that has no end."""
    with path.open("rb") as file:
        file.seek(offsets.setdefault(path, 0))
        while piece := file.read(_PIECE):
            end = piece.rfind(b"\n") + 1
            if not end:
                if len(piece) < _PIECE and not whole:
                    return
                end = len(piece)  # a line longer than a piece, or the end of the file
            offsets[path] += end
            file.seek(offsets[path])
            for line in piece[:end].splitlines():
                yield "".join(
                    letter if letter.isprintable() or letter == "\t" else "�"
                    for letter in line.decode("utf-8", "replace")
                )
