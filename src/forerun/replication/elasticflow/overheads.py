"""Figure 12 of the ElasticFlow paper: seconds of profiling and of changes, published ones and our own programs' here.

They are of other models on other machines: both stand in one table, and no number is judged by one of the other kind.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from forerun.core.result.figures import Axis, Figure
from forerun.live.engines.local import LocalEngine
from forerun.live.folder import RunFolder
from forerun.live.profiling import Measured, ProfilingPlan, measure
from forerun.live.spec import JobSpec
from forerun.replication.elasticflow.published import PUBLISHED
from forerun.replication.reproduction import Progress, Reproduced, Row, from_points

#: our training programs, with the library that each needs
PROGRAMS: Final = {"numpy_job": "numpy", "torch_mlp": "torch"}
#: changes of the published figure, in its order
CHANGES: Final = ("1->2", "2->1", "8->16", "16->8", "migrate 8")
PLAN: Final = ProfilingPlan(slots=(1, 2, 4, 8), batches=(64,), throughput_s=4.0, repeats=2)
QUICK_PLAN: Final = ProfilingPlan(slots=(1, 2), batches=(64,), throughput_s=0.5, repeats=1, cold=False)
_SECONDS: Final = Axis("seconds", "time", "s")


def fig12(
    progress: Progress, *, plan: ProfilingPlan = PLAN, programs: Sequence[str] = tuple(PROGRAMS)
) -> Reproduced:
    """Figure 12 of the ElasticFlow paper: seconds of profiling (a) and of changes (b), beside those of our programs here.

    Parameters
    ----------
    progress : called with a message at each program.
    plan : what is measured of each.
    programs : which of ours (default: all whose library is here).
    """
    ours, absent = [], []
    for program in programs:
        if importlib.util.find_spec(PROGRAMS[program]) is None:
            absent.append(f"{program} was not measured: {PROGRAMS[program]} is not installed")
            continue
        progress(f"{program} on {', '.join(map(str, plan.slots))} slots of this machine")
        ours.append(profiled(program, plan))
    rows = [
        *(
            Row(f"{model} profiling (s)", seconds, None, None, note="the paper's testbed, A100")
            for model, seconds in PUBLISHED["12a"].items()
        ),
        *(
            Row(
                f"{model} {change} (s)", seconds, None, None,
                note="the paper's testbed, A100" if model != "deepspeech2" else
                "the plotted bar repeats bert's; this unplotted row of the plot script is probably it",
            )
            for model, row in PUBLISHED["12b"].items()
            for change, seconds in zip(CHANGES, row, strict=True)
        ),
    ]  # fmt: skip
    for one in ours:
        counts = ", ".join(map(str, plan.slots))
        rows.append(
            Row(f"{one.model} profiling (s)", None, None, None, measured=one.profiling_s,
                note=f"ours, here: throughput on {counts} slots, {plan.throughput_s:g} s each, with starts")
        )  # fmt: skip
        for (name, how), times in one.seconds.items():
            move = f"migrate {plan.slots[-1]}" if name == "migrate" else name
            rows.append(
                Row(f"{one.model} {move}, {how} (s)", None, None, None, measured=statistics.median(times),
                    note=f"ours, here: median of {len(times)}, {min(times):.2f} to {max(times):.2f}")
            )  # fmt: skip
    here = f"{os.cpu_count()} cores ({platform.machine()}), load average {os.getloadavg()[0]:.1f}"
    return Reproduced(
        tuple(rows),
        tuple(_figures(ours, plan)),
        (
            f"measured: our programs as real processes on this machine, {here}; not paced, by the wall clock",
            "published and measured are of other models on other machines: they stand beside each other, and none is judged",
            "warm: forked from a process that has its libraries; cold: a new process",
            *absent,
            *(f"{one.model}: {note}" for one in ours for note in one.notes),
        ),
    )


def profiled(program: str, plan: ProfilingPlan) -> Measured:
    """What a program of ours does on this machine.

    Parameters
    ----------
    program : of `PROGRAMS`.
    plan : what is measured.

    Raises
    ------
    ProgramFailed : nothing could be measured.
    """
    measured = Measured(program)
    with tempfile.TemporaryDirectory(prefix="forerun-live-") as temporary:
        command = (sys.executable, "-m", f"forerun.live.programs.{program}")
        spec = JobSpec(name="profiled", command=command, iterations=10**12, folder=temporary)
        engine = LocalEngine(RunFolder.create(Path(temporary) / "run"), {"local": max(plan.slots)})
        try:
            measure(
                engine, spec, plan, measured,
                slots=max(plan.slots), begin=lambda words: None, at=lambda share, words: None,
            )  # fmt: skip
        finally:
            engine.close()
    return measured


def _figures(ours: Sequence[Measured], plan: ProfilingPlan) -> list[Figure]:
    """Published and ours apart: seconds of profiling by model, and of changes by model."""
    changes = [
        (model, change, seconds)
        for model, row in PUBLISHED["12b"].items()
        for change, seconds in zip(CHANGES, row, strict=True)
    ]
    measured = [
        (
            f"{one.model}, {how}",
            f"migrate {plan.slots[-1]}" if name == "migrate" else name,
            statistics.median(times),
        )
        for one in ours
        for (name, how), times in one.seconds.items()
    ]
    profiling = [(one.model, one.profiling_s) for one in ours]
    figures = []
    for which, part_a, part_b in (
        ("published", list(PUBLISHED["12a"].items()), changes),
        ("ours", profiling, measured),
    ):
        where = "the paper's testbed, A100" if which == "published" else "our programs on this machine"
        if not part_a:
            continue
        figures += [
            Figure.of(
                "bar", f"fig12a-{which}", f"Seconds of profiling, {which}", from_points(("model", "seconds"), part_a),
                x="model", y=_SECONDS, caption=f"Figure 12(a): {where}.",
            ),
            Figure.of(
                "bar", f"fig12b-{which}", f"Seconds of changes, {which}",
                from_points(("model", "change", "seconds"), part_b),
                x="model", y=_SECONDS, series="change", caption=f"Figure 12(b): {where}.",
                order=list(dict.fromkeys(change for _, change, _ in part_b)),
            ),
        ]  # fmt: skip
    return figures
