"""How far an epoch is: what is saved in a checkpoint, and what continues from one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import c_longlong
from dataclasses import dataclass, replace
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import Any, Final, TypeVar

from forerun.blocks.reader.order import I64, EpochOrder, Runs
from forerun.core.errors import Problem, UsageError

T = TypeVar("T")

FORMAT: Final = "forerun.loading.state/1"
#: an epoch, or any number of a state, is less: it lies in shared memory
MOST: Final = 2**63
#: numbers that an order is derived from, at most
MOST_MARKS: Final = 1024


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


#: the numbers of a place, beside what its order is derived from
NUMBERS: Final = ("epoch", "before", "taken", "worker", "workers", "batch")


class Board:
    """What a process sets for its workers, in memory that they share, however they were started.

    A worker is a copy of its process. One that stays for several epochs learns here what was set since. Nobody waits: the
    process writes one of two lines and then says which; a reader looks again where that changed meanwhile.
    """

    LINE: Final = 9 + MOST_MARKS

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
            numbers += [*(getattr(place, name) for name in NUMBERS), *place.mark]
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
        epoch, fixed, loads, *rest = (number for number in numbers if number >= 0)
        given, mark = rest[: len(NUMBERS)], tuple(rest[len(NUMBERS) :])
        return epoch, bool(fixed), loads, Place(mark=mark, **dict(zip(NUMBERS, given))) if given else None

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

    def counted(self, items: Iterable[T]) -> Iterator[T]:
        """The items of the iteration that has begun, counted as they are taken; then the epoch has ended."""
        place = self.place
        for item in items:
            if self.place is place:  # a newer iteration is what a state is of
                self.count += 1
            yield item
        if self.place is place:
            self.ended()

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
            "format": FORMAT, **self._identity(), "mark": list(place.mark),
            **{name: getattr(place, name) for name in NUMBERS},
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
        left = self.order.runs(begun.mark).samples - before
        if not 0 <= samples <= left:
            raise UsageError.at("state_dict", f"{samples} samples of {left}")
        if elsewhere and samples % self.batch and samples != left:
            raise UsageError.at(
                "state_dict",
                f"{samples} samples are no whole batches of {self.batch}: is that the loader's batch_size?",
            )
        return Place(begun.epoch, begun.mark, before, samples, batch=self.batch)

    def load(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a place.

        Parameters
        ----------
        state : that `state` gave, here or in a process before; or those of all processes of a job. Of a job of another
            number of processes, one alone stands for all: these were equally far.

        Raises UsageError, and changes nothing, for one that is damaged or of another container, order or share.
        """
        states = list(state) if isinstance(state, Sequence) else [state]
        places = [_place_of(each) for each in states]
        one, place, seat = states[0], places[0], (self.order.rank, self.order.world)
        own = [at for at, each in enumerate(states) if (each.get("rank"), each.get("world")) == seat]
        if own:
            one, place = states[own[0]], places[own[0]]
        elif not self.order.shuffle_samples:
            one, place = self._shared_anew(states, places)
        problems = [
            Problem("load_state_dict", f"{name} is {one.get(name)!r} in the state and {value!r} here")
            for name, value in self._identity().items()
            if one.get(name) != value
        ]
        if place.workers > 1 and place.batch != self.batch:
            what = f"batch_samples is {place.batch} in the state and {self.batch} here"
            problems.append(Problem("load_state_dict", what))
        if not problems and place.before + place.taken > (most := self.order.runs(place.mark).samples):
            what = f"{place.before + place.taken} samples were taken of {most}"
            problems.append(Problem("load_state_dict", what))
        if problems:
            raise UsageError(*problems)
        self._resumed, self._resumed_in, self.place = place, os.getpid(), None
        self.epoch, self._loads = place.epoch, self._loads + 1
        self._publish()

    def _shared_anew(
        self, states: Sequence[Mapping[str, Any]], places: Sequence[Place]
    ) -> tuple[Mapping[str, Any], Place]:
        """A state and a place of this process in what another number of processes has left; else the first as they are."""
        one, place, world = states[0], places[0], states[0].get("world")
        if type(world) is not int or not 0 < world < MOST_MARKS:
            return one, place
        by_rank = {(each.get("rank"), each.get("world")): of for each, of in zip(states, places)}
        seats = [(rank, world) for rank in range(world)]
        alike = {(each.mark, each.epoch, each.workers) for each in places} == {(place.mark, place.epoch, 0)}
        complete = len(states) == world and all(seat in by_rank for seat in seats)
        complete |= len(states) == 1 and world != self.order.world
        if not (alike and complete) or len(place.mark) == 2:
            return one, place
        so_far = [by_rank.get(seat, place) for seat in seats]
        mark = (*place.mark, world, *(each.before + each.taken for each in so_far))
        rank, world = self.order.rank, self.order.world
        return {**one, "rank": rank, "world": world}, Place(place.epoch, mark, batch=self.batch)


def _place_of(state: Mapping[str, Any]) -> Place:
    """The place in a state. Raises UsageError for what is none."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise UsageError.at("load_state_dict", f"is not a state of the format {FORMAT!r}")
    numbers = {name: state.get(name) for name in NUMBERS}
    mark = state.get("mark")
    wrong = [name for name, value in numbers.items() if type(value) is not int or not 0 <= value < MOST]
    marks = mark if isinstance(mark, list | tuple) else []
    if not 0 < len(marks) <= MOST_MARKS or any(
        type(each) is not int or not 0 <= each < MOST for each in marks
    ):
        wrong.append("mark")
    if wrong:
        raise UsageError.at("load_state_dict", f"is damaged: {', '.join(wrong)}")
    whole = {name: int(value or 0) for name, value in numbers.items()}
    return Place(mark=tuple(marks), **whole)


class Resumable:
    """What has epochs that are set, saved and continued."""

    _progress: Progress

    def __len__(self) -> int:
        """Samples that this process takes in an epoch."""
        return self._progress.order.samples

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order every iteration takes from now on, from its beginning.

        A loaded place is kept if it is in that epoch and no iteration has begun from it.

        Parameters
        ----------
        epoch : from 0; every process of a job is given the same one.
        """
        self._progress.set_epoch(epoch)

    def state_dict(self, samples: int | None = None) -> dict[str, Any]:
        """How far the epoch is, as plain data for a checkpoint; it continues in the same order, byte for byte.

        With workers, a loader that asks each of them (torchdata's `StatefulDataLoader`) needs nothing more; for a
        `DataLoader` say how many samples it has given, with `batch_samples` and `set_epoch` in use. A loader with workers
        draws ahead from a `BlockSampler`, too.

        Parameters
        ----------
        samples : given by a loader since this epoch, or its continuation, began (default: those that were taken from
            this object).

        Raises UsageError where that number does not say which samples were given, or is no number of whole batches.
        """
        return self._progress.state(samples)

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue where a state was saved: the next iteration gives the rest of its epoch.

        The state of a process continues with any number of workers; in the same order with `batch_samples`, and without
        workers. The state of one of several workers continues in that worker. With workers call `set_epoch` before each
        epoch. A job of another number of processes continues with the states of all of them, in a list, or with one, if
        all have taken as many samples; each process takes its part of what is left. Not with `shuffle_samples`.

        Parameters
        ----------
        state : that `state_dict` gave, of this container and order.

        Raises UsageError for another one, a line for each difference; then nothing has changed.
        """
        self._progress.load(state)
