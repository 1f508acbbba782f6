"""How far an epoch is: what is saved in a checkpoint, and what continues from one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ctypes import c_longlong
from dataclasses import dataclass, replace
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import Any, Final

from forerun.errors import Problem, UsageError
from forerun.loading.order import I64, EpochOrder, Runs

FORMAT: Final = "forerun.loading.state/1"
#: an epoch, or any number of a state, is less: it lies in shared memory
MOST: Final = 2**63


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


class Board:
    """What a process sets for its workers, in memory that they share, however they were started.

    A worker is a copy of its process. One that stays for several epochs learns here what was set since. Nobody waits: the
    process writes one of two lines and then says which; a reader looks again where that changed meanwhile.
    """

    LINE: Final = 11

    def __init__(self) -> None:
        self._cells = RawArray(c_longlong, 2 + 2 * self.LINE)

    def write(self, epoch: int, fixed: bool, loads: int, place: Place | None) -> None:
        """Set what workers read.

        Parameters
        ----------
        epoch, fixed : that comes next, and whether `set_epoch` said so.
        loads : which loaded place this is.
        place : where the epoch continues (None: it is whole).
        """
        numbers: list[c_longlong | int] = [epoch, int(fixed), loads]
        if place is not None:
            numbers += [
                place.epoch,
                place.before,
                place.taken,
                place.worker,
                place.workers,
                place.batch,
                *place.mark,
            ]
        turn = self._cells[0] + 1
        at = 2 + turn % 2 * self.LINE
        self._cells[at : at + self.LINE] = numbers + [-1] * (self.LINE - len(numbers))
        self._cells[0] = turn

    def read(self) -> tuple[int, bool, int, Place | None]:
        """What `write` was given last."""
        turn, numbers = -1, [0]
        while turn != self._cells[0]:
            turn = self._cells[0]
            at = 2 + turn % 2 * self.LINE
            numbers = self._cells[at : at + self.LINE]
        epoch, fixed, loads, of, before, taken, worker, workers, batch, *mark = numbers
        if of < 0:
            return epoch, bool(fixed), loads, None
        place = Place(of, tuple(each for each in mark if each >= 0), before, taken, worker, workers, batch)
        return epoch, bool(fixed), loads, place

    @property
    def begun(self) -> int:
        """The last loaded place from which a worker began."""
        return int(self._cells[1])

    @begun.setter
    def begun(self, loads: int) -> None:
        self._cells[1] = loads


class Progress:
    """The epochs of one process: which comes next, how far it is, and where it continues.

    Its workers are copies, with which it shares a `Board`; any other copy has a board of its own, and so has a process
    that calls `set_epoch` on the copy it was started with.

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
        self._resumed_in = self._begun_in = self._loads = 0
        self._board, self._home = Board(), os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if get_spawning_popen() is None:  # no process is being started: a copy of its own
            del state["_board"], state["_home"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_board" not in state:
            self._board, self._home = Board(), os.getpid()
            self._publish()

    def _publish(self) -> None:
        """Show workers what is set here, where this process has set it."""
        if self._home == os.getpid():
            self._board.write(self.epoch, self.fixed, self._loads, self._resumed)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that every iteration takes from now on, from its beginning.

        A place that was loaded is kept if it is in that epoch and no iteration has begun from it.

        Raises ValueError for a negative number.
        """
        if not 0 <= epoch < MOST:
            raise ValueError(f"epoch is {epoch}, and must be from 0 to {MOST - 1}")
        if self._home != os.getpid():
            self._board, self._home = Board(), os.getpid()
        if self._resumed is not None and (self._resumed.epoch != epoch or self._board.begun == self._loads):
            self._resumed = None
        self.place, self.epoch, self.fixed = None, int(epoch), True
        self._publish()

    def renew(self) -> None:
        """In a worker that stays for another epoch: take over what its process has set since the last one.

        The first iteration of a worker is of what was set when it was started, whatever has been set since.
        """
        process = os.getpid()
        if self._begun_in == process != self._home and not self._loaded_in(process):
            epoch, fixed, loads, place = self._board.read()
            if fixed:
                self.epoch, self.fixed, self._loads, self._resumed = epoch, fixed, loads, place
        self._begun_in = process

    def _loaded_in(self, process: int) -> bool:
        """Whether a place waits that was loaded in this very process."""
        return self._resumed is not None and self._resumed_in == process

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
        loaded_here = self._loaded_in(os.getpid())
        resumed, self._resumed = self._resumed, None
        if resumed is not None and workers and not loaded_here:
            if not self.fixed:
                raise UsageError.at(
                    "load_state_dict",
                    "workers continue an epoch only where set_epoch says, before each, which it is",
                )
            self._board.begun = self._loads
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
        self.place, self.count = place, 0
        # Nor do the workers of several processes count: one that was looked at would be ahead of the others.
        if not self.fixed and (alone or not workers):
            self.epoch = place.epoch + 1
        if not workers:
            self._publish()
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
        # More than were taken here are a loader's with workers.
        elsewhere = self.place is None or samples > self.place.taken + self.count
        begun = (None if elsewhere else self.place) or self._resumed or Place(self.epoch, (self.epoch,))
        before = begun.before + begun.taken
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
        self.epoch, self._loads = place.epoch, self._loads + 1
        self._publish()


def _place_of(state: Mapping[str, Any]) -> Place:
    """The place in a state. Raises UsageError for what is none."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise UsageError.at("load_state_dict", f"is not a state of the format {FORMAT!r}")
    numbers = {name: state.get(name) for name in ("epoch", "before", "taken", "worker", "workers", "batch")}
    mark = state.get("mark")
    wrong = [name for name, value in numbers.items() if type(value) is not int or not 0 <= value < MOST]
    marks = mark if isinstance(mark, list | tuple) else []
    if len(marks) not in (1, 2) or any(type(each) is not int or not 0 <= each < MOST for each in marks):
        wrong.append("mark")
    if wrong:
        raise UsageError.at("load_state_dict", f"is damaged: {', '.join(wrong)}")
    whole = {name: int(value or 0) for name, value in numbers.items()}
    return Place(mark=tuple(marks), **whole)
