"""From files of measurements to costs that a scenario can use, with what is known of their errors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from forerun.core.errors import TraceError
from forerun.core.result.stats import student_quantile
from forerun.serving.engine.outcome import Iterations
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.inputs.pipeline import Floats, Ints
from forerun.serving.llm.calibration.experiment import Experiment, Steps
from forerun.serving.llm.calibration.fitting import FARTHEST, PRECISION, Fit, Trial, fit
from forerun.serving.llm.calibration.knee import COVERED, DEVIATIONS, STEP, growth, interval, saturating
from forerun.serving.llm.calibration.physics import Physics, from_hardware, from_measurements
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.replay import COEFFICIENTS, possible
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.calibration.steps import SAID, StepFit, fit_steps
from forerun.serving.llm.scenario.language_model import Coefficients, FitRecord, Row, together

#: an interval is at least this wide to either side, as a share
LEAST_ERROR: Final = 0.02
#: experiments from which on each is left out once, to see how far off the others are
LEAST_LEFT_OUT: Final = 3
#: relative precision of coefficients from a table of iterations, as a start for what the table does not say
STEP_SPREAD: Final = 0.02
#: costs miss their own data where a median error is above the stated one, if that is between so many times the precision
#: of the figure and so many times
LEAST_OFF: Final = 3.0
MOST_OFF: Final = 10.0
#: share of the seats from which on a server counts as saturated
SEATS_SHARE: Final = 0.85
#: a fit explains measurements clearly better than another if its loss is less by so much, and by this factor
LESS_LOSS: Final = 10.0
CLEARLY: Final = 0.5


@dataclass(frozen=True)
class Compared:
    """One figure of one experiment.

    Parameters
    ----------
    experiment : its name.
    role : `fitted`, `left out` (predicted from a fit without it) or `held out` (never fitted).
    figure : its name.
    measured, replayed : its value there and in the replay.
    saturating : near saturation, so that the replay says nothing of it, and how far off it is counts nowhere (default: not).
    growth : how many times as fast as iterations the figure grows there, 1 at the least (default: 1).
    full : the server had hardly a free seat, so that its latencies say little of those of lighter loads (default: it had).
    low, high : where 90 % of such measurements should lie; of those that were not fitted (default NaN: unknown).
    """

    experiment: str
    role: str
    figure: str
    measured: float
    replayed: float
    saturating: bool = False
    full: bool = False
    growth: float = 1.0
    low: float = math.nan
    high: float = math.nan

    @property
    def error(self) -> float:
        """How far off the replay is, as a share of what was measured."""
        return self.replayed / self.measured - 1

    @property
    def log_error(self) -> float:
        """The same as a logarithm, over what the figure grows by there."""
        return math.log(max(self.replayed, 1e-9) / self.measured) / self.growth


@dataclass(frozen=True)
class Calibration:
    """Costs, and what is known of them.

    Parameters
    ----------
    cost : as a scenario's section, with the record of the fit.
    found : the fit to experiments (None: there were only tables of iterations).
    steps : the fit to tables of iterations (None: there were none).
    compared : figures of all experiments.
    notes : what was assumed, left out or not said by the data.
    """

    cost: Coefficients
    found: Fit | None
    steps: StepFit | None
    compared: tuple[Compared, ...]
    notes: tuple[str, ...]


def calibrate(
    server: Server,
    files: Sequence[Path],
    held_out: Sequence[Path] = (),
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Fit the costs of a server's iterations.

    Parameters
    ----------
    server : limits of the server that was measured.
    files : measurements to fit to.
    held_out : measurements to compare with only (default: none).
    seed : of what files do not list, and of the starts of the search (default 0).
    say : is called with how far it is (default: nobody is).

    Raises TraceError, ProfileError or ScenarioError for what cannot be used.
    """
    reads = ScenarioFiles()
    seen = [one for file in files for one in read_measurements(file, seed=seed)]
    unseen = [one for file in held_out for one in read_measurements(file, seed=seed)]
    distinct((*seen, *unseen))
    tables = [one for one in seen if isinstance(one, Steps)]
    trials = [trial_of(server, one, reads, seed) for one in seen if isinstance(one, Experiment)]
    later = [trial_of(server, one, reads, seed) for one in unseen if isinstance(one, Experiment)]
    notes = [f"{one.name}: {note}" for one in (*seen, *unseen) for note in one.notes]
    steps = fit_steps(tables) if tables else None
    if not trials:
        if steps is None:
            raise TraceError.at(", ".join(map(str, files)), "contain no measurement")
        return _of_steps(steps, tables, [one for one in unseen if isinstance(one, Steps)], notes)
    useful = [trial for trial in trials if trial.compared]
    if not useful:
        raise TraceError.at(", ".join(map(str, files)), "contain no latency that can be compared")
    start = _start(server, [trial.experiment for trial in useful], reads, steps)
    say(f"fitting {len(COEFFICIENTS)} coefficients to {len(useful)} experiments")
    found = fit(useful, start, seed=seed)
    compared = [row for trial in useful for row in comparison(trial, found.values, "fitted")]
    left_out: list[Compared] = []
    if len(useful) >= LEAST_LEFT_OUT:
        for number, trial in enumerate(useful):
            say(f"leaving out {number + 1} of {len(useful)} experiments")
            others = [other for other in useful if other is not trial]
            without = fit(others, start, near=found.values)
            left_out += comparison(trial, without.values, "left out")
    # Intervals of a prediction know nothing of the measurement that it stands beside.
    record = FitRecord(
        experiments=len(useful), step_error=0.0, **_most([trial.iterations(found.values) for trial in useful])
    )
    record = stating(record, interval_errors(left_out, (), compared)[0])
    held = [row for trial in later for row in comparison(trial, found.values, "held out", record)]
    errors, basis = interval_errors(left_out, held, compared)
    record = stating(record, errors, compared)
    record = msgspec.structs.replace(record, spread=spread_of(useful, found, record.step_error))
    say("trying iterations that are composed the other way")
    notes += [
        basis,
        *_unsaid(found),
        *_at_limits(found),
        *_at_bounds(found, server, reads),
        *_saturated(useful),
        *refused((*trials, *later)),
        *composed_otherwise(server, useful, found, reads, seed),
    ]
    if record.misses:
        notes.append(f"these costs {record.missing}; scenarios that use them need --accept-fit")
    cost = section_of(found.values, record)
    return Calibration(cost, found, steps, (*compared, *left_out, *held), tuple(notes))


def distinct(found: Sequence[Experiment | Steps]) -> None:
    """Raises TraceError where one measurement is there twice: it would count twice, or judge what was fitted to it."""
    names: dict[bytes, str] = {}
    for one in found:
        parts: list[Floats | Ints] = (
            [np.array([*one.measured.values()])] if isinstance(one, Experiment) else []
        )
        whole = one.load if isinstance(one, Experiment) else one
        parts += [value for value in vars(whole).values() if isinstance(value, np.ndarray)]
        key = b"".join(part.tobytes() for part in parts)
        if key in names:
            raise TraceError.at(one.name, f"is the same measurement as {names[key]}; give each once")
        names[key] = one.name


def refused(trials: Sequence[Trial]) -> list[str]:
    """Notes of requests that were measured, but do not fit into the cache of the server's file."""
    return [
        f"{trial.experiment.name}: {trial.model.refused.sum()} requests do not fit into the server's cache, so replays are "
        "without them: is it larger?"
        for trial in trials
        if trial.model.refused.any()
    ]


def trial_of(server: Server, experiment: Experiment, files: ScenarioFiles, seed: int) -> Trial:
    """An experiment ready to be replayed on a server. Raises ScenarioError where none of its requests fits."""
    return Trial(experiment, server.language_model(experiment.load, files, seed), server.replicas)


def composed_otherwise(
    server: Server, trials: Sequence[Trial], found: Fit, files: ScenarioFiles, seed: int
) -> list[str]:
    """A note where iterations composed ahead, or not, explain the measurements clearly better; none where the server's file
    says how they are composed.

    Parameters
    ----------
    server, files, seed : as of `trial_of`.
    trials : the experiments.
    found : fitted to them.
    """
    scheduler, ahead = server.scheduler, not server.scheduler.rules().ahead
    field = scheduler.composing
    if not field or getattr(scheduler, field) is not None:
        return []
    other = msgspec.structs.replace(server, scheduler=msgspec.structs.replace(scheduler, **{field: ahead}))
    again = [trial_of(other, trial.experiment, files, seed) for trial in trials]
    loss = fit(again, found.start, near=found.values).loss
    if loss > min(found.loss - LESS_LOSS, CLEARLY * found.loss):
        return []
    how = "composed ahead" if ahead else "not composed ahead"
    name = type(scheduler).__struct_config__.tag
    return [
        f"iterations {how} explain the measurements better (misfit {loss:.3g} instead of {found.loss:.3g}): vLLM schedules "
        "asynchronously by default since 0.14; if that is so, say it in the server's file and in scenarios: "
        f"scheduler: {{name: {name}, {field}: {str(ahead).lower()}}}"
    ]


def _start(
    server: Server, experiments: Sequence[Experiment], files: ScenarioFiles, steps: StepFit | None
) -> Physics:
    """Where the search begins: at what the hardware can do, or the lightest measurement; and at what a table of iterations
    said, where there is one."""
    start = from_measurements(experiments)
    memory = server.memory
    if memory is not None and memory.gpu is not None:
        start = from_hardware(files.architecture(memory.model), memory)
    if steps is None:
        return start
    values, spread = start.values.copy(), start.spread.copy()
    for i, (value, clear) in enumerate(zip(steps.values, steps.supported().values())):
        if clear:
            values[i], spread[i] = value, STEP_SPREAD
    return replace(start, values=values, spread=spread, source=f"{start.source}, and a table of iterations")


def comparison(trial: Trial, values: Floats, role: str, record: FitRecord | None = None) -> list[Compared]:
    """What coefficients say of an experiment, beside what was measured.

    Parameters
    ----------
    trial : the experiment.
    values : in the order of `replay.COEFFICIENTS`.
    role : as in `Compared`.
    record : what the costs know of their errors; figures have intervals then (default: none).
    """
    measured, full = trial.experiment.measured, is_full(trial)

    @functools.cache
    def at(factor: float) -> dict[str, float]:
        return trial.figures(values, factor)

    shown, above, below = at(1.0), at(1 + STEP), at(1 - STEP)
    rows = []
    for name in trial.compared:
        if name in shown:
            near = saturating(shown[name], above[name], below[name])
            grows = growth(shown[name], above[name], below[name])
            row = Compared(trial.experiment.name, role, name, measured[name], shown[name], near, full, grows)
            if record is not None:
                low, high, _ = interval(name, at, record)
                row = replace(row, low=low, high=high)
            rows.append(row)
    return rows


def interval_errors(
    left_out: Sequence[Compared], held: Sequence[Compared], fitted: Sequence[Compared]
) -> tuple[dict[str, float], str]:
    """Half the width of an interval of each figure's logarithm where it grows as iterations do, and what it is from.

    Taken are errors of experiments that were left out; without them those held out; without them twice those fitted. Figures
    near saturation do not count, nor those of full servers where there are others: intervals are for loads that are served.
    """
    rows, factor, basis = left_out, 1.0, "intervals: from experiments that were left out once each"
    if not rows:
        rows, basis = held, "intervals: from the experiments held out; there are too few to leave one out"
    if not rows:
        rows, factor = fitted, 2.0
        basis = (
            "intervals: twice the errors of the fit itself, because no experiment is left to test it: a guess"
        )
    errors = {}
    for name, own in _counted(rows).items():
        logs = np.array([row.log_error for row in own])
        if len(logs):
            n = len(logs)
            wide = student_quantile(0.5 + COVERED / 2, n) * math.sqrt(1 + 1 / n)
            errors[name] = max(LEAST_ERROR, factor * wide * float(np.sqrt((logs**2).mean())))
    return errors, basis


def _counted(rows: Sequence[Compared]) -> dict[str, list[Compared]]:
    """The rows of each figure that say how good costs are: not those near saturation, nor those of full servers where there
    are others."""
    every = {name: [row for row in rows if row.figure == name and not row.saturating] for name in PRECISION}
    return {name: [row for row in own if not row.full] or own for name, own in every.items()}


def misses_of(rows: Sequence[Compared], errors: Mapping[str, float]) -> dict[str, float]:
    """By figure, how far costs are off the data in the median, where that is more than the error that they state, or than
    `MOST_OFF` times the figure's precision: a stated error grows with the misfit.

    Parameters
    ----------
    rows : of the data that they were fitted to, or are to describe.
    errors : as stated.
    """
    found = {}
    for name, own in _counted(rows).items():
        off = float(np.median([abs(row.error) for row in own])) if own else 0.0
        least, most = LEAST_OFF * PRECISION[name], MOST_OFF * PRECISION[name]
        if off > min(max(errors.get(name, most), least), most):
            found[name] = float(f"{off:.4g}")
    return found


def _most(runs: Sequence[Iterations | Steps]) -> dict[str, Any]:
    """The most of one iteration in some, by the names that a record has for it."""
    return {
        "prefill_tokens": int(max(run.prefill.max(initial=0) for run in runs)),
        "decodes": int(max(run.decodes.max(initial=0) for run in runs)),
        "kv_tokens": int(max(run.kv.max(initial=0) for run in runs)),
    }


def stating(record: FitRecord, errors: dict[str, float], rows: Sequence[Compared] = ()) -> FitRecord:
    """The record with these errors, and with what costs miss of the data in these rows by more (default: none)."""
    return msgspec.structs.replace(
        record,
        step_error=errors.get("tpot_mean_ms", errors.get("e2e_mean_ms", LEAST_ERROR)),
        errors={name: float(f"{value:.4g}") for name, value in errors.items()},
        misses=misses_of(rows, errors) or None,
    )


def spread_of(trials: Sequence[Trial], found: Fit, step_error: float) -> tuple[Row, ...]:
    """How unsure fitted coefficients are: as the data leave them, and all iterations together by what the error of unseen
    loads is beyond that.

    Parameters
    ----------
    trials : what they were fitted to.
    step_error : half the interval of iterations.
    """
    counted = len(SAID)
    covariance = found.covariance[:counted, :counted]
    shares = np.array([_shares(trial, found.values) for trial in trials])
    known = float(np.einsum("ij,jk,ik->i", shares, covariance, shares).mean())
    beyond = math.sqrt(max(0.0, (step_error / DEVIATIONS) ** 2 - known))
    rows: Floats = np.linalg.cholesky(found.covariance).T.astype(np.float64)
    return (*_rows(rows), together(float(f"{beyond:.4g}")))


def _shares(trial: Trial, values: Floats) -> Floats:
    """Of the time of a replay's iterations, the share of each term that tables of iterations say; prompt tokens that are
    hidden take none of it."""
    run = trial.iterations(values)
    shown = np.maximum(run.prefill - values[6], 0.0)
    counts = [len(shown), shown.sum(), run.decodes.sum(), run.kv.sum()]
    times_ms = values[: len(SAID)] * np.array(counts, dtype=np.float64)
    return np.asarray(times_ms / times_ms.sum())


def _rows(values: Floats) -> list[Row]:
    return [tuple(float(f"{value:.4g}") for value in row) for row in values.tolist()]


def section_of(values: Floats, record: FitRecord) -> Coefficients:
    """Coefficients as the section `cost` of a scenario, with the record of what is known of their errors."""
    rounded = np.array([float(f"{value:.6g}") for value in values.tolist()])
    # No more is hidden than there is time, in what is written, too.
    return Coefficients(**dict(zip(Coefficients.names, possible(rounded).tolist())), fit=record)


def _unsaid(found: Fit) -> list[str]:
    missing = [name for name, clear in found.supported().items() if not clear and name not in found.bounded]
    if not missing:
        return []
    words = f"the data say little of {', '.join(missing)}: taken from {found.start.source}"
    return [f"{words}; loads of other lengths and rates would say more"]


def _at_limits(found: Fit) -> list[str]:
    far = np.abs(np.log(found.values / found.start.values)) > 0.999 * math.log(FARTHEST)
    names = ", ".join(name for name, one in zip(COEFFICIENTS, far) if one)
    return [f"{names}: as far from the start as the search goes ({FARTHEST:g} times)"] if names else []


def _at_bounds(found: Fit, server: Server, files: ScenarioFiles) -> list[str]:
    """What it suggests that coefficients end at the least that the hardware of the server's file allows."""
    memory, least = server.memory, dict(zip(COEFFICIENTS, found.start.least.tolist()))
    if memory is None or not found.bounded:
        return []
    model = files.architecture(memory.model)
    weights, kv_bits = memory.weights_bytes or model.weight_bytes, memory.kv_bits or model.bits
    bits = 8 * weights / model.parameters
    causes = {
        "a_ms": f"the time to read weights of {bits:.3g} bits ({weights / 1e9:.3g} GB). Are they "
        f"{'FP8' if bits > 8 else 'smaller'}? Say memory.weights: {weights / 2e9:.3g}GB",
        "kv_ms_per_token": f"the time to read a cache of {kv_bits} bits a value. Is it smaller? Say memory.kv_bits: "
        f"{kv_bits // 2}",
    }
    other = "the peak rate of its products. Is the model, its precision, the accelerator or tensor_parallel another?"
    return [
        f"{name} ends at its bound, {least[name]:.4g}, on {memory.tensor_parallel} x {memory.gpu}: {causes.get(name, other)}"
        for name in found.bounded
    ]


def is_full(trial: Trial) -> bool:
    """Whether hardly a seat was free on average while an experiment was measured."""
    return trial.experiment.in_flight > SEATS_SHARE * trial.model.max_seqs * trial.replicas


def _saturated(trials: Sequence[Trial]) -> list[str]:
    return [
        f"{trial.experiment.name}: {trial.experiment.in_flight:.0f} requests are under way on average, of "
        f"{trial.model.max_seqs * trial.replicas} seats: near saturation, where latencies to the first token count little"
        for trial in trials
        if is_full(trial)
    ]


def _of_steps(
    steps: StepFit, tables: Sequence[Steps], unseen: Sequence[Steps], notes: Sequence[str]
) -> Calibration:
    """From tables of iterations alone: what they do not say is 0, and no latency has an interval."""
    values = np.concatenate([steps.values, np.zeros(len(COEFFICIENTS) - len(steps.values))])
    rows = []
    for role, group in (("fitted", tables), ("held out", unseen)):
        rows += [
            Compared(
                table.name,
                role,
                "iteration_mean_ms",
                float(table.took_ms.mean()),
                float(steps.times_ms(table).mean()),
            )
            for table in group
        ]
    off = [steps.mean_error(table) for table in (*tables, *unseen)]
    said = [
        f"{table.name}: iterations are off by {100 * error:.2f} % in the mean"
        for table, error in zip((*tables, *unseen), off)
    ]
    missing = [name for name, clear in steps.supported().items() if not clear]
    missing += COEFFICIENTS[len(steps.values) :]
    said.append(f"the table says nothing of {', '.join(missing)}: they are 0 or unsure")
    unsure = np.divide(steps.error, steps.values, out=np.zeros(len(steps.values)), where=steps.values > 0)
    unsure = np.concatenate([unsure, np.zeros(len(COEFFICIENTS) - len(unsure))])
    record = FitRecord(
        experiments=len(tables),
        **_most(tables),
        step_error=max(off),
        spread=tuple(_rows(np.diag(unsure))),
    )
    return Calibration(section_of(values, record), None, steps, tuple(rows), (*notes, *said))
