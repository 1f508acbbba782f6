"""`forerun live`: the policies that were simulated, over real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Asked, Output
from forerun.live.verbs import _live

if TYPE_CHECKING:
    from forerun.core.domain import Program
    from forerun.live.service import Request

F = TypeVar("F", bound=Callable[..., Any])

#: the run folder where none is named
FOLDER = Path("live-run")

_run_option = _options.path_option(
    "--run", "folder", metavar="DIR", default=FOLDER, show_default=True, help="The run's folder."
)


@click.group(name="live", context_settings={"max_content_width": 100})
def command() -> None:
    """Run real jobs under the policies that were simulated: serve, submit, look, stop, compare."""


_engine_option = click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where jobs run: on this machine, or on a Ray cluster.",
)


@command.command()
@_options.scenario_options
@_run_option
@_engine_option
@click.option(
    "--clock",
    default="wall",
    show_default=True,
    metavar="wall|compressed:K|fast-forward",
    help="What a second of the run is; others than wall are for paced jobs.",
)
@_options.decider_options
def run(asked: Asked, output: Output, folder: Path, engine: str, clock: str, decider: Program | None) -> None:
    """Play the trace of SCENARIO with real processes, end, and write the result.

    Killed or interrupted at any instant, the same command goes on where it stopped.
    """
    _play(asked, output, folder, engine=engine, clock=clock, decider=decider)


@command.command()
@_run_option
@_options.output_options
def demo(folder: Path, output: Output) -> None:
    """Run ten paced jobs with deadlines on eight slots of this machine, in less than a minute; no GPU is needed."""
    import forerun.live

    scenario = Path(forerun.live.__file__).parent / "demo" / "scenario.yaml"
    _play(Asked(scenario, (), None), output, folder, engine="local", clock="wall")


def _play(
    asked: Asked,
    output: Output,
    folder: Path,
    *,
    engine: str,
    clock: str,
    decider: Program | None = None,
) -> None:
    """Play a scenario's trace and print its result.

    Parameters
    ----------
    asked : the scenario.
    output : how to print.
    folder : the run's.
    engine, clock : as the options of `live run`.
    decider : another program that decides in the place of the policy.
    """
    from forerun.core.domain import get_domain
    from forerun.live.runs import Stopped, run_scenario

    scenario = asked.load()
    if decider is not None:
        scenario = scenario.with_(policy=get_domain(scenario.domain).decider(scenario, decider))
    try:
        with _live.display(folder, silent=output.silent):
            result = run_scenario(scenario, folder, engine=engine, clock=clock, stop=_live.on_signals)
    except Stopped:
        click.echo("forerun: stopped; the same command goes on from there", err=True)
        raise click.exceptions.Exit(130) from None
    if output.as_json:
        _show.print_json(result.data())
        return
    _show.print_result(result, scenario=asked.words(), quiet=True)
    output.hint(f"saved to {folder / 'result'}; next: forerun report {folder / 'result'} -o live.html")
    output.hint(f"next: forerun live compare {folder}")


@command.command()
@_options.scenario_options
@_run_option
@_engine_option
@click.option(
    "--metrics",
    "port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Offer Prometheus text on loopback.",
)
def serve(asked: Asked, output: Output, folder: Path, engine: str, port: int | None) -> None:
    """Run jobs on the machines of SCENARIO as they are submitted, until `forerun live stop` or Ctrl-C.

    The scenario's trace is left out. Served again on the same folder, the run goes on where it stopped.
    """
    from forerun.live.runs import serve as serve_scenario

    def ready() -> None:
        if not output.silent:
            click.echo(
                f"next, in another terminal: forerun live submit JOB.yaml{_live.of(folder, FOLDER)}", err=True
            )

    result = serve_scenario(
        asked.load(), folder, engine=engine, metrics_port=port, stop=_live.on_signals, ready=ready
    )
    if result is None:
        click.echo("no job was submitted")
        return
    if output.as_json:
        _show.print_json(result.data())
        return
    _show.print_result(result, scenario=asked.words(), quiet=True)
    output.hint(f"saved to {folder / 'result'}; next: forerun report {folder / 'result'} -o live.html")


@command.command()
@click.argument("jobs", type=_options.PATH, metavar="JOB...", nargs=-1, required=True)
@_run_option
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="A.B=C",
    help="Override one value of the job files, such as name=second; repeatable.",
)
@_options.output_options
def submit(jobs: tuple[Path, ...], folder: Path, overrides: tuple[str, ...], output: Output) -> None:
    """Submit the jobs that the files JOB describe. The same job submitted twice is one job.

    A file with a problem is not submitted; the others are.
    """
    from forerun.core.errors import InputError, Problem
    from forerun.live.job_file import read_job
    from forerun.live.service import Client, GetDecision, Submit

    client = Client(folder)
    submitted: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for path in jobs:
        try:
            spec = read_job(path, overrides)
            submitted.append((spec.name, client.ask(Submit(spec=spec)).said))
        except InputError as error:
            problems.extend(error.problems)
    said: list[str] = []
    for name, so_far in submitted:
        said.append(f"{so_far}; {client.ask(GetDecision(job=name)).said}")
        if not output.as_json:
            click.echo(said[-1])
    if output.as_json:
        _show.print_json({"submitted": said, "problems": [str(problem) for problem in problems]})
    if problems:
        raise InputError(*problems)
    output.hint(f"next: forerun live status{_live.of(folder, FOLDER)} --watch")


def _ask(folder: Path, request: Request, output: Output) -> None:
    """Send a request to the run's controller and print what it says.

    Parameters
    ----------
    folder : the run's.
    request : what is wanted.
    output : how to print.
    """
    from forerun.live.service import Client

    answer = Client(folder).ask(request)
    if output.as_json:
        _show.print_json({"said": answer.said})
    else:
        click.echo(answer.said)


@command.command()
@click.argument("job", metavar="JOB")
@_run_option
@_options.output_options
def cancel(job: str, folder: Path, output: Output) -> None:
    """End JOB, whether it waits or runs."""
    from forerun.live.service import Cancel

    _ask(folder, Cancel(job=job), output)


@command.command()
@click.argument("node", metavar="NODE")
@_run_option
@_options.output_options
def drain(node: str, folder: Path, output: Output) -> None:
    """Empty NODE: its jobs save their state and go on elsewhere; nothing more starts on it."""
    from forerun.live.service import DrainNode

    _ask(folder, DrainNode(node=node), output)


@command.command()
@_run_option
@_options.output_options
def stop(folder: Path, output: Output) -> None:
    """Save all jobs, end every process of the run, and stop serving it. `live serve` goes on from there."""
    from forerun.live.service import Stop

    _ask(folder, Stop(), output)


@command.command()
@_run_option
@click.option("--watch", is_flag=True, help="Show it until the run ends or Ctrl-C.")
@click.option("--metrics", is_flag=True, help="Print Prometheus text.")
@_options.output_options
def status(folder: Path, watch: bool, metrics: bool, output: Output) -> None:
    """Show every job: its state, slots, progress, and when it should end; and the nodes."""
    from forerun.core.errors import UsageError

    if metrics and (watch or output.as_json):
        raise UsageError.at("--metrics", "prints its own format; leave --watch and --json out")
    if metrics:
        click.echo(_live.metrics(folder), nl=False)
    elif watch:
        _live.watch(folder, as_json=output.as_json)
    elif output.as_json:
        _show.print_json(_live.as_data(_live.read(folder)))
    else:
        _live.print_status(_live.read(folder))


@command.command()
@click.argument("job", metavar="JOB")
@_run_option
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends or Ctrl-C.")
@click.option(
    "--start", "epoch", type=click.IntRange(min=1), help="Of this start of the job [default: the last]."
)
@click.option("--rank", type=click.IntRange(min=0), help="Of this rank only [default: all].")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def logs(job: str, folder: Path, follow: bool, epoch: int | None, rank: int | None, as_json: bool) -> None:
    """Print what the ranks of JOB wrote to stdout and stderr."""
    _live.print_logs(folder, job, follow=follow, epoch=epoch, rank=rank, as_json=as_json)


@command.command()
@click.argument("run_folder", type=_options.PATH, metavar="RUN")
@_options.output_options
def replay(run_folder: Path, output: Output) -> None:
    """Play the journal of RUN through the same controller in a new process; exit code 4 if a decision differs."""
    from forerun.core.errors import CheckFailed
    from forerun.live.folder import RunFolder
    from forerun.live.replay import replay as replayed

    with output.working(f"replaying {run_folder.name}"):
        played = replayed(RunFolder(run_folder.absolute()))
    if output.as_json:
        difference = None if played.difference is None else str(played.difference)
        counts = {
            "observations": played.observations,
            "answers": played.answers,
            "decisions": played.decisions,
        }
        _show.print_json({**counts, "difference": difference})
    else:
        click.echo(
            f"{played.observations:,} observations played: {played.answers:,} answers and {played.decisions:,} decisions "
            "are the same again" + ("" if played.difference is None else " before the first that differs")
        )
    if played.difference is not None:
        raise CheckFailed.at(run_folder, str(played.difference))


@command.command()
@_options.scenario_options
@click.option(
    "--earlier",
    type=_options.PATH,
    metavar="RUN",
    multiple=True,
    required=True,
    help="A run that has ended, as often as there are: 9 for 90 %.",
)
@click.option(
    "--level",
    type=_options.Number(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="How often intervals are to contain what comes.",
)
def forecast(asked: Asked, output: Output, earlier: tuple[Path, ...], level: float) -> None:
    """Simulate the jobs of SCENARIO before they run, with intervals from how far forecasts of earlier runs were off."""
    from forerun.live.runs import forecast_run

    scenario = asked.load()
    with output.working("simulating the jobs of the scenario and of earlier runs"):
        expected = forecast_run(scenario, earlier, level)
    if output.as_json:
        _show.print_json(expected.data())
    else:
        _live.print_forecast(expected)


@command.command()
@click.argument("run_folder", type=_options.PATH, metavar="RUN")
@_options.output_options
def compare(run_folder: Path, output: Output) -> None:
    """Simulate the jobs of RUN, and lay each beside what it did.

    Twice: with the costs of the scenario, which were known before, and with those that the run measured.
    """
    from forerun.live.runs import compare_run

    with output.working(f"simulating the jobs of {run_folder.name}"):
        comparison = compare_run(run_folder)
    if output.as_json:
        _show.print_json(comparison.data())
    else:
        _live.print_comparison(comparison)
