"""How far an epoch is: what is saved in a checkpoint, and what continues from one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from forerun.errors import Problem, UsageError
from forerun.loading.order import I64, EpochOrder, Runs

FORMAT: Final = "forerun.loading.state/1"


@dataclass(frozen=True)
class Place:
    """A place in an epoch.

    Parameters
    ----------
    epoch : its number.
    mark : what its order is derived from.
    before : samples of this process's order that were taken before the iteration began.
    taken : samples taken in the iteration, of a worker its own.
    worker, workers : whose iteration it is; 0 of 0 in a process without workers.
    batch : samples a batch by which workers share the order (0: whole blocks).
    """

    epoch: int
    mark: tuple[int, ...]
    before: int = 0
    taken: int = 0
    worker: int = 0
    workers: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Share:
    """What an iteration takes.

    Parameters
    ----------
    runs : the samples, as stretches in the order in which they are read.
    numbers : of the samples, in the order in which they are given (None: as they are read).
    """

    runs: Runs
    numbers: I64 | None = None


class Progress:
    """The epochs of one process: which comes next, how far it is, and where it continues.

    Parameters
    ----------
    order : of every epoch.
    digest : of the container, so that a state continues on no other.
    batch : samples a batch by which workers share the order (0: whole blocks).

    Attributes
    ----------
    count : samples taken since `begin`; whoever takes them counts.
    """

    def __init__(self, order: EpochOrder, digest: str, batch: int = 0) -> None:
        self.order, self.digest, self.batch = order, digest, batch
        self.epoch = 0
        self.fixed = False
        self.place: Place | None = None
        self.count = 0
        self._resumed: Place | None = None
        self._resumed_in = self._begun_in = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that every iteration takes from now on.

        A place that was loaded is kept if it is in that epoch.
        """
        if self._resumed is not None and self._resumed.epoch != epoch:
            self._resumed = None
        if self.place is not None and self.place.epoch != epoch:
            self.place = None
        self.epoch, self.fixed = epoch, True

    def begin(self, worker: int = 0, workers: int = 0, base: int = 0) -> Share:
        """What an iteration takes, from the loaded place or from the beginning of the epoch on.

        Parameters
        ----------
        worker, workers : number and count of a loader's workers (default: there are none).
        base : torch's seed of the epoch, which tells epochs apart where nobody sets them.

        Raises UsageError for a place that another worker, or another number of workers, has to continue from, and for
        workers that cannot have a shuffle buffer each.
        """
        if workers > 1 and self.batch and self.order.shuffle_samples:
            raise UsageError.at(
                "shuffle_samples",
                "workers have a buffer each and share whole blocks: leave out batch_samples",
            )
        process = os.getpid()
        loaded_here = self._resumed is not None and self._resumed_in == process
        if workers and self.fixed and self._begun_in == process and not loaded_here:
            # A worker that stays for several epochs has a copy of its own, which set_epoch does not reach.
            self.epoch += 1
            self._resumed = None
        resumed, self._resumed = self._resumed, None
        if resumed is not None and workers and not self.fixed and not loaded_here:
            raise UsageError.at(
                "load_state_dict",
                "workers continue an epoch only where set_epoch says, before each, which it is",
            )
        # A worker is a copy: the epoch it counts is lost with it. torch draws a base seed each epoch; it tells them apart.
        # Other processes of the job draw another base seed: with it they would not share one order between them.
        alone = workers and self.order.world == 1 and not self.fixed
        mark = (self.epoch, base) if alone else (self.epoch,)
        place = Place(self.epoch, mark, 0, 0, worker, workers, self.batch)
        skipped = 0
        if resumed is not None:
            if resumed.workers and (resumed.worker, resumed.workers) != (worker, workers):
                here = f"worker {worker} of {workers}" if workers else "a process without workers"
                raise UsageError.at(
                    "load_state_dict",
                    f"the state is of worker {resumed.worker} of {resumed.workers}, this is {here}",
                )
            if resumed.workers:
                skipped = resumed.taken
            place = replace(
                place, epoch=resumed.epoch, mark=resumed.mark, taken=skipped,
                before=resumed.before + (0 if resumed.workers else resumed.taken),
            )  # fmt: skip
        self.place, self.count, self._begun_in = place, 0, process
        if not self.fixed:
            self.epoch = place.epoch + 1
        return self._share(place, skipped)

    def check_batch(self, batch_size: int) -> None:
        """Raise UsageError for a loader with other batches than workers share.

        Parameters
        ----------
        batch_size : of the loader (0: unknown).
        """
        if self.batch and batch_size and batch_size != self.batch:
            raise UsageError.at(
                "batch_samples",
                f"is {self.batch}, and the loader's batch_size {batch_size}: give both the same, for "
                "workers take turns by it",
            )

    def _share(self, place: Place, skipped: int) -> Share:
        """What is left at a place.

        Parameters
        ----------
        place : where the iteration began.
        skipped : samples that a worker has taken of its own share.
        """
        order, whole = self.order, self.order.runs(place.mark)
        if not order.shuffle_samples:
            mine = whole.cut(place.before, whole.samples).dealt(place.worker, place.workers, self.batch)
            return Share(mine.cut(skipped, mine.samples))
        numbers = order.mixed(whole, *place.mark)[place.before :]
        if not place.workers:
            return Share(whole.among(numbers), numbers)
        mine = whole.among(numbers).dealt(place.worker, place.workers)
        own = order.mixed(mine, *place.mark, place.before, place.worker, place.workers)[skipped:]
        return Share(mine.among(own), own)

    def numbers(self) -> I64:
        """The samples of the epoch that comes next, from its beginning on, in order, without workers."""
        runs = self.order.runs((self.epoch,))
        return self.order.mixed(runs, self.epoch) if self.order.shuffle_samples else runs.numbers()

    def ended(self) -> None:
        """The iteration gave all it had; the next epoch comes next, unless the epoch is set."""
        if not self.fixed and self.place is not None and not self.place.workers:
            self.place = None

    def state(self, samples: int | None = None) -> dict[str, Any]:
        """The place as plain data, for JSON.

        Parameters
        ----------
        samples : taken from a loader with workers, which cannot be counted here (default: those that were taken here).

        Raises UsageError for a number that is none, or that does not say where each worker is.
        """
        if samples is not None:
            place = self._after(samples)
        elif self.place is not None:
            place = replace(self.place, taken=self.place.taken + self.count)
        else:
            place = self._resumed or Place(self.epoch, (self.epoch,), batch=self.batch)
        return {
            "format": FORMAT, **self._identity(), "epoch": place.epoch, "mark": list(place.mark), "before": place.before,
            "taken": place.taken, "worker": place.worker, "workers": place.workers, "batch": place.batch,
        }  # fmt: skip

    def _identity(self) -> dict[str, Any]:
        """What a state continues with only: the container, and which order and share of it."""
        order = self.order
        return {
            "index_sha256": self.digest, "seed": order.seed, "shuffle": order.shuffle,
            "shuffle_samples": order.shuffle_samples, "rank": order.rank, "world": order.world,
            "equal_ranks": order.equal_ranks,
        }  # fmt: skip

    def _after(self, samples: int) -> Place:
        """The place after so many samples of a loader with workers."""
        begun = self.place or self._resumed or Place(self.epoch, (self.epoch,))
        before = begun.before + begun.taken
        elsewhere = self.place is None
        shared = self.batch and self.fixed and not self.order.shuffle_samples
        if begun.workers or (elsewhere and not shared):
            raise UsageError.at(
                "state_dict",
                "a number of samples says where workers are with batch_samples and set_epoch only",
            )
        left = self.order.samples - before
        if not 0 <= samples <= left:
            raise UsageError.at("state_dict", f"{samples} samples of {left}")
        if elsewhere and samples % self.batch and samples != left:
            raise UsageError.at(
                "state_dict",
                f"{samples} samples are no whole batches of {self.batch}: is that the loader's batch_size?",
            )
        return Place(begun.epoch, begun.mark, before, samples, batch=self.batch)

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a place.

        Parameters
        ----------
        state : that `state` gave, here or in a process before.

        Raises UsageError, and changes nothing, for one that is damaged or of another container, order or share.
        """
        place = _place_of(state)
        problems = [
            Problem("load_state_dict", f"{name} is {state.get(name)!r} in the state and {value!r} here")
            for name, value in self._identity().items()
            if state.get(name) != value
        ]
        if place.workers > 1 and place.batch != self.batch:
            what = f"batch_samples is {place.batch} in the state and {self.batch} here"
            problems.append(Problem("load_state_dict", what))
        if not problems and place.before + place.taken > self.order.samples:
            what = f"{place.before + place.taken} samples were taken of {self.order.samples}"
            problems.append(Problem("load_state_dict", what))
        if problems:
            raise UsageError(*problems)
        self._resumed, self._resumed_in, self.place = place, os.getpid(), None
        self.epoch = place.epoch


def _place_of(state: Mapping[str, Any]) -> Place:
    """The place in a state. Raises UsageError for what is none."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise UsageError.at("load_state_dict", f"is not a state of the format {FORMAT!r}")
    numbers = {name: state.get(name) for name in ("epoch", "before", "taken", "worker", "workers", "batch")}
    mark = state.get("mark")
    wrong = [name for name, value in numbers.items() if type(value) is not int or value < 0]
    if not isinstance(mark, list | tuple) or not mark or any(type(each) is not int for each in mark):
        wrong.append("mark")
    if wrong:
        raise UsageError.at("load_state_dict", f"is damaged: {', '.join(wrong)}")
    assert isinstance(mark, list | tuple)
    whole = {name: int(value or 0) for name, value in numbers.items()}
    return Place(mark=tuple(int(each) for each in mark), **whole)
