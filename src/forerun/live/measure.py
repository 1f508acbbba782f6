"""`forerun measure cluster`: run a training program on this machine's slots, and write what the cluster domain reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forerun.core.cli import _options
from forerun.core.cli._options import Output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forerun.live.profiling import Measured, ProfilingPlan
    from forerun.live.spec import JobSpec


@click.command(name="cluster", context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, metavar="PROGRAM [ARGUMENT]...", type=click.UNPROCESSED)
@click.option(
    "--batch", "batches", required=True, metavar="N,N", help="Global batches; changes use the first."
)
@click.option("--model", default="", metavar="NAME", help="Its name in tables (default: the program's).")
@click.option(
    "--set", "given", multiple=True, metavar="KEY=VALUE",
    help="A setting (see above); repeatable.",
)  # fmt: skip
@click.option("--environment", multiple=True, metavar="NAME", help="A variable that the program inherits.")
@_options.output_options
@_options.out_option("DIR", "Folder to write.", default=Path("measured"), show_default=True)
def command(
    program: tuple[str, ...],
    batches: str,
    model: str,
    given: tuple[str, ...],
    environment: tuple[str, ...],
    output: Output,
    out: Path,
) -> None:
    """Measure throughput by slots and global batch, and the seconds of start, grow, shrink and move, of PROGRAM.

    PROGRAM is a Python script that uses forerun.live.job, or a command; what follows it are its arguments. It runs as
    processes of this machine, as under `forerun live`. DIR gets MODEL.csv and costs.csv, which a scenario names under
    `profile` and `costs`, and MODEL.json, which `forerun report` draws. Rows of other models in costs.csv stay.

    \b
    Settings, as --set KEY=VALUE, with their defaults:
      slots=[1,2,4,8]   counts of slots, ascending
      throughput=15s    for each throughput
      repeats=3         of each change
      cold=true         also change without warm processes
      costs=median      which of the repeats the table of costs gets:
                        median or largest
    """
    import json

    from forerun.core.trace.domain_traces import decoded
    from forerun.live.profiling import Measured, ProfilingPlan

    start = {"batches": _counts(batches, "--batch")}
    plan = decoded("", start, given, ProfilingPlan, name="measure cluster")
    spec = _job(program, environment)
    measured = Measured(model or _name_of(spec))
    _own(out, measured.model)

    progress = (lambda message: None) if output.silent else (lambda message: click.echo(message, err=True))
    stopped, host = _run(plan, spec, measured, progress)
    data = _written(measured, host, stopped, largest=plan.costs == "largest", out=out)
    if output.as_json:
        click.echo(json.dumps(data, indent=1))
    else:
        _show(measured, out)
    if stopped:
        click.echo(f"forerun: interrupted; what was measured is in {out}", err=True)
        raise click.exceptions.Exit(130)


def _counts(text: str, option: str) -> list[int]:
    """The whole numbers of an option. Raises UsageError."""
    from forerun.core.errors import UsageError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError.at(option, f"{text!r} is not a list of whole numbers such as 1,2,4") from error


def _job(program: tuple[str, ...], environment: tuple[str, ...]) -> JobSpec:
    """The program as a job that never ends by itself. Raises UsageError if it does not exist."""
    import shutil
    import sys

    from forerun.core.errors import UsageError
    from forerun.live.spec import JobSpec

    if program[0].endswith(".py"):
        program = (sys.executable, *program)
    if shutil.which(program[0]) is None:
        raise UsageError.at("PROGRAM", f"no program {program[0]!r} on PATH")
    script = next((word for word in program[1:] if word.endswith(".py")), "")
    if script and not Path(script).is_file():
        raise UsageError.at("PROGRAM", f"no script {script!r} in {Path.cwd()}")
    return JobSpec(
        name="profiled", command=program, iterations=10**12, folder=str(Path.cwd()), environment=environment
    )


def _name_of(spec: JobSpec) -> str:
    """A script's or module's name, else the program's."""
    words = spec.command
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].rpartition(".")[2]
    script = next((word for word in words[1:] if word.endswith(".py")), words[0])
    return Path(script).stem


def _own(out: Path, model: str) -> None:
    """Raise StoreError if the folder has such files of another program."""
    from forerun.core.atomic_write import refuse_foreign

    written = sorted(path.name for path in out.glob("*.json"))
    ours = next((name for name in written if b"forerun.measurement" in (out / name).read_bytes()[:65536]), "")
    marker = f"{model}.json" if f"{model}.json" in written else ours or f"{model}.json"
    names = (f"{model}.csv", f"{model}.json", "costs.csv")
    refuse_foreign(out, names, marker=marker, sign=b"forerun.measurement")


def _run(plan: ProfilingPlan, spec: JobSpec, measured: Measured, tell: Any) -> tuple[str, dict[str, Any]]:
    """Measure on an engine of this machine; returns whether it was stopped, in words (empty: it was not), and the host.

    Parameters
    ----------
    plan : counts of slots, batches, seconds and repeats.
    spec : the program, as a job that never ends by itself.
    measured : added to, so that it is there if this is interrupted.
    tell : gets a line at each step.

    Raises KeyboardInterrupt if no throughput was measured yet.
    """
    import tempfile

    from forerun.core.measure.host import described, probe
    from forerun.core.measure.progress import StepProgress
    from forerun.core.study.estimate import duration
    from forerun.core.study.executors.interrupts import terminable
    from forerun.live.engines.local import LocalEngine
    from forerun.live.folder import RunFolder
    from forerun.live.profiling import measure

    expected_s = [plan.expected_s(task) for walk in plan.tasks() for task in walk]
    tell(f"{len(expected_s)} steps, {duration(sum(expected_s))} by estimate")
    steps = StepProgress(tell, expected_s)
    before, stopped = probe(), ""
    with tempfile.TemporaryDirectory(prefix="forerun-measure-") as temporary:
        folder = RunFolder.create(Path(temporary) / "run")
        engine = LocalEngine(folder, {"local": max(plan.slots)})
        try:
            with terminable():
                measure(
                    engine, spec, plan, measured,
                    slots=max(plan.slots), begin=steps.begin, at=steps.at,
                )  # fmt: skip
        except KeyboardInterrupt:
            if not measured.rates:
                raise
            stopped = f"stopped: {len(measured.rates)} throughputs and {len(measured.seconds)} changes were measured"
        finally:
            engine.close()
    return stopped, described(before, probe())


def _written(
    measured: Measured, host: dict[str, Any], stopped: str, *, largest: bool, out: Path
) -> dict[str, Any]:
    """Write the files, and return the measurement as plain data.

    Parameters
    ----------
    measured : throughputs and seconds of changes.
    host : what the machine is, and how quiet it was.
    stopped : how far a measurement that was interrupted is; empty if it was not.
    largest : take the largest of the repeats as a change's cost, not the median.
    out : folder of the files; rows of other programs in its costs.csv stay.
    """
    import json
    import statistics

    from forerun.cluster.inputs.costs import read_costs
    from forerun.core.atomic_write import write_text
    from forerun.core.version import VERSION

    if measured.rates:
        write_text(out / f"{measured.model}.csv", measured.throughput_csv())
    if measured.has_costs:
        table = read_costs(out / "costs.csv") if (out / "costs.csv").exists() else {}
        table[measured.model] = measured.costs(of=max if largest else statistics.median)
        write_text(out / "costs.csv", costs_csv(table))
    else:
        measured.notes.append("no costs.csv: growing and shrinking were not measured")
    if stopped:
        measured.notes.append(stopped)
    best = max(measured.rates.items(), key=lambda one: one[1], default=None)
    data = {
        "format": "forerun.measurement/1",
        "domain": "cluster",
        "forerun": VERSION,
        "answer": f"{measured.model} does at most {best[1]:.4g} iterations/s: batch {best[0][0]} on {best[0][1]} slots"
        if best
        else "",
        "host": host,
        **measured.data(),
    }
    write_text(out / f"{measured.model}.json", json.dumps(data, indent=1))
    return data


def _show(measured: Measured, out: Path) -> None:
    """Print throughput and seconds of changes."""
    import statistics

    for (batch, slots), rate in sorted(measured.rates.items()):
        click.echo(f"  batch {batch} on {slots} slots: {rate:.4g} iterations/s")
    for (name, how), times in measured.seconds.items():
        spread = f" ({min(times):.2f} to {max(times):.2f}, {len(times)} times)" if len(times) > 1 else ""
        click.echo(f"  {name:<8} {how}: {statistics.median(times):.2f} s{spread}")
    for note in measured.notes:
        click.echo(f"note: {note}")
    click.echo(f"written to {out}; figures: forerun report {out / measured.model}.json")


def costs_csv(table: Mapping[str, Mapping[str, float]]) -> str:
    """A table of costs as a file that `read_costs` reads; what a model has no seconds for is left empty."""
    import csv
    import io

    changes = list(dict.fromkeys(change for row in table.values() for change in row))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["model", *changes])
    for model, row in table.items():
        rows.writerow([model, *(f"{row[change]:.6g}" if change in row else "" for change in changes)])
    return text.getvalue()
