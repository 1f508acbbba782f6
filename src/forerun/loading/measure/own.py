"""A data set and a transform of the user's own, measured in torch's workers: where a sample's time goes, and what binds.

Each worker records for every sample the time, the processor time, and the time in which it was ready to run and waited
for a processor; what is left is waiting for the store. Runs with several numbers of workers show what workers share: a
link whose waiting grows with them, or processors. What is handed on are these numbers: collating and sending samples is
not measured.
"""

from __future__ import annotations

import math
import os
import pkgutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from forerun.core.errors import DataError, ForerunError, StoreError, UsageError
from forerun.core.rng import stream
from forerun.loading.measure.answers import Host, Job, keeps_up, load_average, scenario_of
from forerun.loading.measure.runner import Decoder, queued_s
from forerun.loading.measure.torch_loader import STUCK_S, more_workers_than_cores
from forerun.loading.measure.torch_step import require_torch
from forerun.loading.policy import F64

#: samples of the trial run that the lengths of the others are estimated from
TRIAL_SAMPLES: Final = 16
#: batches of each worker in a run, at least and at most
LEAST_BATCHES, MOST_BATCHES = 4, 24
#: a worker's time for a sample that grows by so much with their number shows that they share something
GROWS: Final = 1.25
#: share of the processors' time from which on they bind
BUSY: Final = 0.9
#: share of the demand that hides loading
HIDES: Final = 0.98

Binds = Literal["step", "store", "link", "cpu", "workers"]


def named(text: str, option: str) -> Any:
    """What a text `module:name` names.

    Parameters
    ----------
    text : as an option gives it.
    option : named in messages.

    Raises UsageError where there is no such thing, or its module cannot be imported.
    """
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise UsageError.at(option, f"{text!r} is not of the form module:name")
    try:
        return pkgutil.resolve_name(text)
    except Exception as error:  # a module of somebody else may raise anything
        raise UsageError.at(option, f"{text!r} cannot be imported: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """Kind and first line of an error of somebody else's code."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@dataclass(frozen=True)
class OwnTransform:
    """A function of the user's own as a decoder of samples.

    Parameters
    ----------
    name : as the user gave it.
    function : of a sample; what it returns is the sample from then on.
    """

    name: str
    function: Callable[[Any], Any]

    @classmethod
    def of(cls, text: str) -> OwnTransform:
        """The function that a text `module:function` names. Raises UsageError for what is none."""
        function = named(text, "--transform")
        if not callable(function):
            raise UsageError.at("--transform", f"{text!r} is a {type(function).__name__}, not a function")
        return cls(text, function)

    def __call__(self, sample: Any) -> Any:
        """The transformed sample. Raises ValueError if the function returns nothing, and whatever it raises."""
        made = self.function(sample)
        if made is None:
            raise ValueError(f"{self.name} returned nothing")
        return made


@dataclass(frozen=True)
class OwnData:
    """A data set of the user's own.

    Parameters
    ----------
    name : as the user gave it.
    data : of torch's map or iterable style.
    transform : applied to every sample (default: none).
    """

    name: str
    data: Any
    transform: Decoder | None = None

    @classmethod
    def of(cls, text: str, transform: Decoder | None = None) -> OwnData:
        """The data set that the function of a text `module:function` makes; a data set itself is taken as it is.

        Parameters
        ----------
        text : as an option gives it.
        transform : applied to every sample (default: none).

        Raises UsageError for a function that raises, and for what is no data set or a map without a length.
        """
        require_torch()  # first: BlockDataset is of torch's kind only where torch is imported
        found = named(text, "--dataset")
        bare = not (hasattr(found, "__getitem__") or hasattr(found, "__iter__"))
        if isinstance(found, type) or (callable(found) and bare):
            try:
                found = found()
            except Exception as error:
                raise UsageError.at("--dataset", f"{text!r} raised {_said(error)}") from error
        made = cls(text, found, transform)
        if not made.iterable:
            if not hasattr(found, "__getitem__"):
                raise UsageError.at(
                    "--dataset",
                    f"{text!r} gives a {type(found).__name__}, which has no __getitem__ and is not iterable",
                )
            try:
                length = len(found)
            except Exception as error:
                raise UsageError.at(
                    "--dataset", f"{text!r} gives a map-style data set without a length: {_said(error)}"
                ) from error
            if not length:
                raise UsageError.at("--dataset", f"{text!r} gives an empty data set")
        return made

    @property
    def iterable(self) -> bool:
        """Whether samples come one after another and have no numbers."""
        kind = require_torch().utils.data.IterableDataset
        return isinstance(self.data, kind) or (
            hasattr(self.data, "__iter__") and not hasattr(self.data, "__getitem__")
        )

    def spent(self, get: Callable[[], Any], what: str) -> F64 | ForerunError | None:
        """The seconds that a sample takes, a row of `COLUMNS`.

        Parameters
        ----------
        get : gives the sample.
        what : the sample in words.

        Returns None where there is no further sample. What goes wrong is returned as an error: torch would make a text of
        it, with its traceback.
        """
        begun, cpu, queued = time.perf_counter(), time.process_time(), queued_s()
        try:
            sample = get()
        except StopIteration:
            return None
        except Exception as error:
            return DataError.at(self.name, f"{what} cannot be loaded: {_said(error)}")
        got, got_cpu = time.perf_counter(), time.process_time()
        ended, ended_cpu = got, got_cpu
        if self.transform is not None:
            try:
                self.transform(sample)
            except Exception as error:
                return DataError.at(self.name, f"{what} cannot be transformed: {_said(error)}")
            ended, ended_cpu = time.perf_counter(), time.process_time()
        return np.array([got - begun, got_cpu - cpu, ended - got, ended_cpu - got_cpu, queued_s() - queued])


#: seconds that are recorded of each sample
COLUMNS: Final = ("fetch_s", "fetch_cpu_s", "transform_s", "transform_cpu_s", "queued_s")


class _ByNumber:
    """A map for torch's loader: an item is what a sample takes."""

    def __init__(self, own: OwnData, numbers: Sequence[int]) -> None:
        self.own, self.numbers = own, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> Any:
        """What the sample at this place of the order takes."""
        number = self.numbers[at]
        spent = self.own.spent(lambda: self.own.data[number], f"sample {number}")
        return (
            DataError.at(self.own.name, f"sample {number} raised StopIteration") if spent is None else spent
        )


class _InOrder:
    """The same for a data set of the iterable style, some samples of each worker."""

    def __init__(self, own: OwnData, samples: int) -> None:
        self.own, self.samples = own, samples

    def __reduce__(self) -> tuple[Any, ...]:
        # The class that torch is shown has no name to be imported by.
        return _in_order, (self.own, self.samples)

    def __iter__(self) -> Iterator[Any]:
        """What each sample takes; an error ends them."""
        try:
            samples = iter(self.own.data)
        except Exception as error:
            yield DataError.at(self.own.name, f"cannot be iterated: {_said(error)}")
            return
        for number in range(self.samples):
            spent = self.own.spent(lambda: next(samples), f"sample {number} of a worker")
            if spent is None:
                return
            yield spent


def _in_order(own: OwnData, samples: int) -> Any:
    """An `_InOrder` that torch takes for one of its own."""
    return type("InOrder", (_InOrder, require_torch().utils.data.IterableDataset), {})(own, samples)


def _gathered(items: Sequence[Any]) -> Any:
    """A batch of rows, or its first error."""
    return next((item for item in items if isinstance(item, ForerunError)), None) or np.stack(items)


@dataclass(frozen=True)
class OwnRow:
    """What some workers did, per sample in the mean.

    Parameters
    ----------
    workers : processes.
    samples : that were counted; the first batch of each worker is not.
    samples_per_s : of all workers together, with steps that take no time.
    fetch_s, fetch_cpu_s, transform_s, transform_cpu_s : seconds of a worker, and of its processor, for a sample and for its
        transform.
    queued_s : seconds that it was ready to run and waited for a processor (0 where the system does not report it).
    """

    workers: int
    samples: int
    samples_per_s: float
    fetch_s: float
    fetch_cpu_s: float
    transform_s: float
    transform_cpu_s: float
    queued_s: float

    @property
    def total_s(self) -> float:
        """Of a worker."""
        return self.fetch_s + self.transform_s

    @property
    def cpu_s(self) -> float:
        """Of its processor."""
        return self.fetch_cpu_s + self.transform_cpu_s

    @property
    def waiting_s(self) -> float:
        """Neither running nor ready to run: waiting for the store, or asleep."""
        return max(0.0, self.total_s - self.cpu_s - self.queued_s)

    def data(self) -> dict[str, Any]:
        """Plain data."""
        names = (
            "workers", "samples", "samples_per_s", "total_s", "waiting_s", "cpu_s", "queued_s", "transform_s",
            "transform_cpu_s",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class OwnAnswer:
    """What binds a data set of the user's own, and how many workers are enough.

    Parameters
    ----------
    own : name of the data set.
    job : its batch and step.
    rows : by number of workers, one worker first.
    cores : processors that this process may use.
    host : the machine.
    """

    own: str
    job: Job
    rows: tuple[OwnRow, ...]
    cores: int
    host: Host

    @property
    def needed_per_s(self) -> float:
        """Samples a second that the step takes."""
        return self.job.batch / self.job.step_s if self.job.step_s else math.inf

    @property
    def binds(self) -> Binds:
        """`step`: loading is hidden. `cpu`: the processors. `link`: what workers share, whose waiting grows with them.

        `store`: waiting for it, sample after sample, which more workers do at once. `workers`: their own work, for which
        there are processors left.
        """
        first, last = self.rows[0], self.rows[-1]
        if max(row.samples_per_s for row in self.rows) >= HIDES * self.needed_per_s:
            return "step"
        more_s = last.total_s - first.total_s
        processors_s = last.cpu_s + last.queued_s - first.cpu_s - first.queued_s
        if last.cpu_s * last.samples_per_s >= BUSY * self.cores:
            return "cpu"
        if last.total_s > GROWS * first.total_s:
            return "cpu" if processors_s > more_s / 2 else "link"
        return "store" if first.waiting_s > first.cpu_s else "workers"

    @property
    def enough(self) -> int | None:
        """The least number of workers that keeps up; None where more of them do not help."""
        kept = [row.workers for row in self.rows if row.samples_per_s >= HIDES * self.needed_per_s]
        if kept:
            return min(kept)
        if self.binds in ("cpu", "link") or not math.isfinite(self.needed_per_s):
            return None
        last = self.rows[-1]
        wanted = math.ceil(self.needed_per_s * last.workers / last.samples_per_s)
        fits = self.binds == "store" or wanted * last.cpu_s / last.total_s <= self.cores
        return wanted if fits else None

    @property
    def sentence(self) -> str:
        """Hidden or not, what a sample's time is, what binds, and what would be enough."""
        first, last = self.rows[0], self.rows[-1]
        parts = f"{1e3 * first.waiting_s:.3g} ms waiting, {1e3 * first.cpu_s:.3g} ms of processor time"
        if first.transform_s:
            parts += f" ({1e3 * first.transform_cpu_s:.3g} ms of it transforming)"
        time_of = f"a sample takes one worker {1e3 * first.total_s:.3g} ms: {parts}"
        most = max(row.samples_per_s for row in self.rows)
        enough = self.enough
        keeps = keeps_up(enough, last.workers, self.cores)
        said = {
            "step": f"loading is hidden with {enough} worker{'s' if enough != 1 else ''}: the step binds",
            "store": f"not hidden, waiting for the store binds, sample after sample: {keeps or 'more workers help'}",
            "workers": f"not hidden, the workers' own work binds: {keeps or 'more than the processors do'}",
            "cpu": f"not hidden, the {self.cores} processors bind: more workers do not help",
            "link": f"not hidden, the store's link or slots bind: {last.workers} workers wait longer than one",
        }[self.binds]
        needed = (
            f"; {most:.4g} samples/s of {self.needed_per_s:.4g}" if math.isfinite(self.needed_per_s) else ""
        )
        return f"{said}{needed}; {time_of}"

    @property
    def scenario(self) -> dict[str, Any]:
        """The job with the most workers that were measured; of a sample's time, waiting is the store's latency."""
        first, last = self.rows[0], self.rows[-1]
        return scenario_of(
            self.job, 64 * self.job.batch, 1.0, store={"latency_s": first.waiting_s},
            cpu={"decode_cpu_s": first.cpu_s, "cores": self.cores}, loader={"mode": "workers", "workers": last.workers},
            grid={"blocks": [1, 4, 16, 64], "threads": [1], "workers": sorted({1, 2, 4, 8, 16, last.workers})},
        )  # fmt: skip

    def data(self) -> dict[str, Any]:
        """Plain data.

        The answer as a measurement file has it.
        """
        needed = self.needed_per_s
        return {
            "source": self.own,
            "answer": self.sentence,
            "loader": "own",
            "binds": self.binds,
            "needed_samples_per_s": needed if math.isfinite(needed) else None,
            "workers_enough": self.enough,
            "cores": self.cores,
            "own": [row.data() for row in self.rows],
            "scenario": self.scenario,
            "host": self.host.data(),
        }


def measure_own(
    own: OwnData,
    job: Job,
    many: Sequence[int],
    *,
    probe_s: float,
    progress: Callable[[str], None] = lambda _: None,
) -> OwnAnswer:
    """Run a data set through torch's loader with one worker and with each number of them.

    Parameters
    ----------
    own : the data set.
    job : its batch and step; the step is not run, samples are taken as they come.
    many : numbers of workers; one is added.
    probe_s : seconds of a run, about.
    progress : called with a line about each run.

    Raises UsageError without torch, DataError for a sample that cannot be loaded or transformed, StoreError for workers
    that give nothing.
    """
    before = load_average()
    progress("trying one worker")
    tried = _run(own, 1, 1, TRIAL_SAMPLES, 0)
    each_s = max(float(tried.rows[:, 0].mean() + tried.rows[:, 2].mean()), 1e-6)
    batch = max(1, min(job.batch, int(probe_s / (LEAST_BATCHES * each_s))))
    batches = max(LEAST_BATCHES, min(MOST_BATCHES, int(probe_s / (batch * each_s))))
    rows, start = [], TRIAL_SAMPLES
    for workers in sorted({1, *many}):
        progress(f"{workers} workers, {batches} batches of {batch} samples each")
        run = _run(own, workers, batch, batches, start)
        start += batch * batches * workers
        rows.append(run.row(workers))
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return OwnAnswer(own.name, job, tuple(rows), len(affinity), Host.since(before))


@dataclass(frozen=True)
class _Run:
    """What one run measured.

    Parameters
    ----------
    rows : float64[samples, columns], without the first batch of each worker where there are others.
    samples_per_s : between the arrival of these first batches and the last.
    """

    rows: F64
    samples_per_s: float

    def row(self, workers: int) -> OwnRow:
        """Means of the run."""
        means = dict(zip(COLUMNS, self.rows.mean(axis=0).tolist()))
        return OwnRow(workers, len(self.rows), self.samples_per_s, **means)


@more_workers_than_cores()
def _run(own: OwnData, workers: int, batch: int, batches: int, start: int) -> _Run:
    """Some batches of each worker.

    Parameters
    ----------
    batches : of each worker.
    start : samples that runs before this one took, so that it takes others where there are some.
    """
    torch = require_torch()
    data: Any
    if own.iterable:
        data = _in_order(own, batch * batches)
    else:
        # Shuffled, as training reads: neighbours would be cached together.
        order = stream(0, "own samples").permutation(len(own.data))
        wanted = np.arange(start, start + batch * batches * workers) % len(order)
        data = _ByNumber(own, order[wanted].tolist())
    loader = torch.utils.data.DataLoader(
        data, batch_size=batch, num_workers=workers, collate_fn=_gathered, timeout=STUCK_S, shuffle=False
    )
    rows, at = [], []
    try:
        for got in loader:
            if isinstance(got, ForerunError):
                raise got
            rows.append(got)
            at.append(time.perf_counter())
    except ForerunError:
        raise
    except Exception as error:
        # torch hands on a worker's traceback as text, whose last line is the error.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise StoreError.at(own.name, f"a worker ended: {lines[-1][:300]}") from error
    if not rows:
        raise DataError.at(own.name, "gave no samples")
    counted = rows[workers:] or rows
    if len(rows) <= workers:
        if workers == 1 and batches == TRIAL_SAMPLES and batch == 1:
            return _Run(np.concatenate(counted), math.nan)
        raise DataError.at(
            own.name,
            f"gave {sum(map(len, rows))} samples; {workers} workers need more than {workers * batch}",
        )
    seconds = max(at[-1] - at[workers - 1], 1e-9)
    return _Run(np.concatenate(counted), sum(map(len, counted)) / seconds)
