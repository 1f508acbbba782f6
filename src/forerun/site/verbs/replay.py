"""`forerun replay`: a job log replayed, with how well that reproduces it, and what would have been otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output
from forerun.site.reading import Reading
from forerun.site.verbs._default import DefaultGroup
from forerun.site.verbs._history import reading_options

if TYPE_CHECKING:
    from forerun.site.history import History
    from forerun.site.machine import System
    from forerun.site.replay.replay import Replay
    from forerun.site.replay.whatif import Counterfactual, Difference

command = DefaultGroup(
    "replay", "log", "Replay the log of a real queue, then ask what a change would have done."
)

_LIMIT: Final = "user.running="
_DAY_S: Final = 86_400.0
_SYSTEM: Final = _options.path_option(
    "--system",
    multiple=True,
    metavar="FILE",
    help="The machine (default: inferred): our own file, or slurm.conf and what scontrol and sacctmgr print; repeatable.",
)
_WITHOUT: Final = click.option(
    "--without",
    multiple=True,
    metavar="FINDING",
    help="Infer no pools, windows, order, latencies, limits or holds; repeatable.",
)


@command.command(name="log")
@click.argument("log", type=_options.PATH, metavar="LOG")
@_SYSTEM
@click.option(
    "--calibrate-until", "until", metavar="INSTANT", help="Infer before, score after (default: 60 %)."
)
@_WITHOUT
@_options.out_option("FILE", "Keep the replay, for what-ifs and reports.")
@_options.path_option("--report", "page", metavar="PAGE", help="Also write an HTML page.")
@reading_options
@_options.output_options
def replay(
    log: Path,
    system: tuple[Path, ...],
    until: str | None,
    without: tuple[str, ...],
    out: Path | None,
    page: Path | None,
    reading: Reading,
    output: Output,
) -> int:
    """Replay LOG, a history of a queue as SWF, sacct -P or CSV, and say how well that reproduces it.

    With `whatif` in front: what would have been otherwise, in a replay that was kept.
    """
    from dataclasses import replace

    from forerun.core.result.plan import write_document
    from forerun.site.replay.replay import replay_log
    from forerun.site.replay.stored import content_of

    _check_names(without)
    reading.place()
    until_s = reading.instant_s("--calibrate-until", until) if until is not None else None
    with output.working(f"replaying {log.name}") as state:
        history, machine, notes = _known(log, system, reading)
        made = replay_log(history, system=machine, off=without, calibrate_until_s=until_s, progress=state)
        made = replace(made, notes=(*notes, *made.notes))
    content = content_of(made, log, reading)
    if out is not None:
        write_document(content, out)
    if page is not None:
        from forerun.core.report import write_page
        from forerun.site.replay.document import DOCUMENT

        with output.working("drawing the page"):
            write_page([DOCUMENT.read((out or log).stem, content)], page)
    if output.as_json:
        _show.print_json(content)
        return 0
    _print(made, content)
    if page is not None:
        _show.prose(f"saved to {page}")
    if out is not None:
        output.hint(
            f"saved to {out}; next: forerun replay whatif {out} --nodes +{max(made.main.pool.gpus // 10, 1)}"
        )
    return 0


@command.command(name="backtest")
@click.argument("log", type=_options.PATH, metavar="LOG")
@_SYSTEM
@click.option("--every", metavar="TIME", help="Length of a part, such as 14d (default: calendar months).")
@_WITHOUT
@_options.out_option("FILE", "Save the back-test; forerun report shows it.")
@reading_options
@_options.output_options
def backtest(
    log: Path,
    system: tuple[Path, ...],
    every: str | None,
    without: tuple[str, ...],
    out: Path | None,
    reading: Reading,
    output: Output,
) -> None:
    """How well is each month of LOG replayed from what was known before it?

    Machine and policy are chosen on the past, which also says whether the month is answered for. It is scored in any case.
    """
    from forerun.core.errors import UsageError
    from forerun.core.result.plan import write_document
    from forerun.core.units import parse_quantity
    from forerun.site.replay.backtest import back_test

    _check_names(without)
    try:
        every_s = 0.0 if every is None else parse_quantity(every, "s")
    except ValueError as error:
        raise UsageError.at(f"--every {every}", str(error)) from None
    if every is not None and every_s < _DAY_S:
        raise UsageError.at(f"--every {every}", "a part has a day at least, such as 14d")
    history, machine, notes = _known(log, system, reading)
    with output.working(f"replaying the parts of {log.name}") as state:
        content = back_test(history, system=machine, off=without, every_s=every_s, progress=state).data()
    content["notes"] = [*notes, *content["notes"]]
    if out is not None:
        write_document(content, out)
    if output.as_json:
        _show.print_json(content)
        return
    _show.print_rows(
        [{name: cell for name, cell in row.items() if name != "evidence"} for row in content["splits"]],
        title=f"Mean waits of each part of {log.name}, machine and policy known from before it",
        about="off: of the mean, relative to the recorded one; worst class: of partitions, else of pools and sizes of jobs; "
        "past: the same of what was known before, by which a part is refused",
    )
    _show.prose(f"\n{content['answer']}")
    if out is not None:
        _show.prose(f"saved to {out}")


def _check_names(without: tuple[str, ...]) -> None:
    """Raises UsageError for a name of what is not inferred that is none."""
    from forerun.core.errors import UsageError, known_names
    from forerun.site.machine import INFERRED

    for name in without:
        if name not in INFERRED:
            raise UsageError.at(f"--without {name}", known_names(name, INFERRED))


def _known(
    log: Path, system: tuple[Path, ...], reading: Reading
) -> tuple[History, System | None, tuple[str, ...]]:
    """The history, its machine where files describe it, and notes on those."""
    from forerun.site.files import read_machine

    reading.place()
    history = reading.read(log)
    machine, notes = read_machine(system, reading.zone, history) if system else (None, ())
    return history, machine, notes


@command.command(name="whatif")
@click.argument("kept", type=_options.PATH, metavar="REPLAY")
@click.option("--policy", metavar="NAME", help="Another policy: easy, conservative or first-fit.")
@click.option("--order", metavar="NAME", help="Another order of the queue: fcfs, sjf or wfp3.")
@click.option(
    "--nodes", type=click.IntRange(-(10**9), 10**9), default=0, metavar="+N|-N", help="More or fewer nodes."
)
@click.option("--no-window", "window", type=click.IntRange(min=1), metavar="N", help="Without outage N.")
@click.option("--limit", metavar="user.running=N", help="At most N running jobs a user; 0: any number.")
@_options.output_options
def whatif(
    kept: Path,
    policy: str | None,
    order: str | None,
    nodes: int,
    window: int | None,
    limit: str | None,
    output: Output,
) -> int:
    """Change one thing in a kept REPLAY, and say what that does to waits, or that the log does not show it.

    The change is measured against the replay, not against history, on jobs that are not held.
    """
    from dataclasses import asdict

    from forerun.core.errors import UsageError
    from forerun.core.result.reading import read_document
    from forerun.site.replay.stored import kept_replay
    from forerun.site.replay.whatif import what_if

    content = read_document(kept)
    with output.working(f"replaying {kept.name}"):
        made = kept_replay(kept, content)
        change = _change(made, policy, order, nodes, window, limit)
        try:
            answer = what_if(made, change)
        except ValueError as error:
            raise UsageError.at(str(kept), str(error)) from None
    if output.as_json:
        _show.print_json(asdict(answer))
        return 0
    _print_answer(answer)
    return 0


def _change(
    made: Replay,
    policy: str | None,
    order: str | None,
    nodes: int,
    window: int | None,
    limit: str | None,
) -> Counterfactual:
    """What is asked for. Raises UsageError for what cannot be, and for nothing."""
    from forerun.core.errors import Problem, UsageError, known_names
    from forerun.site.replay.play import policy_name
    from forerun.site.replay.whatif import Counterfactual, named_policies

    problems: list[Problem] = []
    chosen = None
    if policy is not None or order is not None:
        now, by = policy_name(made.card.policy).split()
        name = f"{policy or now} {order or by}"
        names = named_policies(made)
        chosen = names.get(name)
        if chosen is None:
            problems.append(Problem(f"--policy {name}", known_names(name, names)))
    most = None
    if limit is not None:
        digits = limit.removeprefix(_LIMIT)
        if not limit.startswith(_LIMIT) or not digits.isdecimal() or len(digits) > 9:
            problems.append(Problem(f"--limit {limit}", "write it as user.running=20"))
        elif not made.log.user.known:
            problems.append(Problem(f"--limit {limit}", "the log does not say whose jobs they are"))
        else:
            most = int(digits)
    if problems:
        raise UsageError(*problems)
    change = Counterfactual(policy=chosen, nodes=nodes, without_window=window or 0, running_per_user=most)
    if not change.what:
        raise UsageError.at(
            "whatif", "say what is otherwise: --policy, --order, --nodes, --no-window or --limit"
        )
    return change


def _print(made: Replay, content: Mapping[str, Any]) -> None:
    """Waits, findings, the report card, and which policy it was. content: of the file of the replay."""
    from forerun.site.replay.document import DOCUMENT
    from forerun.site.replay.play import REPLAYS, policy_name
    from forerun.site.replay.stored import named_of

    card, page = made.card, DOCUMENT.read("replay", content)
    about = {
        "waits beside history": "jobs of all pools on the last part that are not held; first difference: when a job has "
        "started in one of the two and waits in the other",
        "report card": f"pool {made.main.pool.name}, on the last part, replayed from the machine as it was at its beginning "
        f"{REPLAYS} times, each submission up to two minutes later; the mean wait varies by "
        f"{card.spread_s / max(card.history_s, 1.0):.1%} (standard deviation)",
        "policies, one decision at a time": "what each would have started on the first part; errors: of free replays; the "
        "log of the chosen has the same jobs",
        "what the log says of the machine": "--without NAME switches one off",
        "mean wait by class": "jobs that are not held; medians part narrow from wide, and short from long requests",
    }
    for title, rows in page.tables.items():
        if rows:
            _show.print_rows(rows, title=title.capitalize(), about=about[title])
    _show.prose(f"{named_of(made)}. The replay uses {policy_name(card.policy)}.")
    _show.prose(f"\nwhy: {page.answer}")
    _show.prose(
        f"note: {100 * card.held_share:.0f} % of the scored jobs are held, with {100 * card.held_waiting:.0f} % of all "
        "waiting; why is not in the log"
    )
    for note in page.notes:
        _show.prose(f"note: {note}")


def _print_answer(answer: Difference) -> None:
    """The difference, its interval, and the verdict."""
    hours = {
        name: getattr(answer, f"{name}_s") / 3600
        for name in ("replay", "changed", "difference", "low", "high")
    }
    _show.print_rows(
        [{"change": answer.change, **{f"{name}_h": value for name, value in hours.items()}}],
        title="Mean wait of jobs that are not held",
        about=f"{answer.jobs} jobs in {answer.fortnights} fortnights; low, high: of the 95 % interval over "
        f"{', '.join(answer.policies)}",
    )
    verdict = answer.verdict if answer.verdict == "cannot tell" else f"waits would have been {answer.verdict}"
    _show.prose(f"\n{verdict}: {answer.why}")
