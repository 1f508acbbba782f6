"""What a training program imports to be elastic: it can be drained, moved, and started again on any number of slots.

    from forerun.live import job

    with job.attach(iterations=1000) as me:
        model = me.parallel(build())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        me.state(model=model, optimizer=optimizer)            # taken up again where a checkpoint exists
        for inputs, targets in me.batches(dataset, 256):      # this rank's share of the global batch
            optimizer.zero_grad()
            me.backward(loss_of(model(inputs), targets))
            optimizer.step()
            me.step()                                         # reports, saves when due, leaves when drained

Started by itself, the same program is one rank that saves nothing. Under `forerun live`, the global batch is the same under
every number of ranks: rank r of n has samples floor(batch r / n) to floor(batch (r + 1) / n), `me.backward` weights its
loss by n x share / batch, and the order of samples depends on the seed and the step alone. So the weights are those of one
rank, up to rounding - but not where dropout draws per rank or batch norm looks at a rank's share alone.

Gradients of programs without torch are averaged by `me.average`. Importing this module imports neither torch nor numpy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from forerun.core.errors import UsageError
from forerun.live import checkpoint as checkpoints
from forerun.live.engines.engine import Checkpoint, Pace
from forerun.live.rank_messages import (
    ASSIGNMENT_VARIABLE,
    FD_VARIABLE,
    Assignment,
    Drain,
    FirstStep,
    FromRank,
    Hello,
    Leaving,
    Lines,
    Progress,
    Rendezvous,
    Saved,
    Skip,
    ToRank,
    line,
    to_rank,
)
from forerun.live.star import Star

_LOG: Final = logging.getLogger("forerun.live")
#: exit code of a rank whose shim is gone
SHIM_LOST: Final = 70
#: a paced job behind its pace by more than this does not catch up, as a real one would not
_MOST_BEHIND_S: Final = 1.0
#: what ranks tell each other at a step: whether to leave, and to which step to skip
_WORD: Final = struct.Struct(">?q")


class Stateful(Protocol):
    """A part of the state that can be saved: a model, an optimiser, a schedule."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state, in arrays or tensors, numbers, texts, lists and dicts."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Take up a state."""


class Drained(SystemExit):
    """Leaves the program with exit code 0 after a drain; the job goes on later, in other processes."""

    def __init__(self) -> None:
        super().__init__(0)


class _Alone:
    """In place of the shim, for a program that was started by itself."""

    def say(self, message: FromRank) -> None:
        """Nobody listens."""

    def hear(self, timeout_s: float | None = 0.0) -> list[ToRank]:
        """Nobody speaks."""
        return []

    def close(self) -> None:
        """There is nothing to close."""


class _Shim:
    """The connection to the process above this rank."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._lines = Lines()

    def say(self, message: FromRank) -> None:
        """Send a message. A rank without a shim exits."""
        try:
            self._socket.sendall(line(message))
        except OSError:
            os._exit(SHIM_LOST)

    def hear(self, timeout_s: float | None = 0.0) -> list[ToRank]:
        """The messages that have come, after waiting for the first at most so long (None: until one comes)."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return []
        try:
            data = self._socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            os._exit(SHIM_LOST)
        return [to_rank(text) for text in self._lines.feed(data)]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@contextlib.contextmanager
def attach(*, iterations: int = 0, torch: bool | None = None, paced: bool = False) -> Iterator[Member]:
    """Be a rank of a job, for the duration of a `with` block.

    Leaving the block after the last step ends the job. Leaving it earlier, or by an exception, is a failure, after which
    forerun starts the job again from its last checkpoint. A drained rank leaves the block by `Drained`, a SystemExit.
    Raises UsageError where neither a job file nor `iterations` says how long to train.

    Parameters
    ----------
    iterations : steps of the global batch in all, where no job file says it (default: it does).
    torch : whether the ranks make a process group of torch.distributed, nccl on GPUs and gloo otherwise (default: if
        torch is imported already).
    paced : whether the program goes at the pace that it is given, and skips (default: no; see `Member.pace`).
    """
    fd, text = os.environ.pop(FD_VARIABLE, ""), os.environ.pop(ASSIGNMENT_VARIABLE, "")
    shim: _Shim | _Alone
    if text:
        assignment, shim = msgspec.json.decode(text, type=Assignment), _Shim(int(fd))
    else:
        assignment, shim = _by_itself(), _Alone()
    steps = assignment.iterations or iterations
    if steps < 1:
        raise UsageError.at("forerun.live.job.attach", "say how long to train: attach(iterations=1000)")
    # The module torch, where the program uses it.
    used = "torch" in sys.modules if torch is None else torch
    shim.say(Hello())
    me = Member(assignment, shim, steps, inside=bool(text), paced=paced)
    try:
        me._meet()
        if used:
            me._join_torch()
        yield me
        me._finish()
    except Drained:
        raise
    except BaseException as failure:
        shim.say(Leaving(why="failed", step=me.done, detail=me._how_it_failed(failure)))
        raise
    finally:
        shim.close()


def _by_itself() -> Assignment:
    return Assignment(
        epoch=1, rank=0, world_size=1, local_rank=0, slots=(0,), job_slots=1,
        iterations=0, folder="", secret="",
    )  # fmt: skip


class Member:
    """A rank of a job.

    Attributes
    ----------
    rank, world_size, local_rank : which rank of how many, and which on its node.
    slots, job_slots : the slots that this rank occupies on its node, and how many the whole job has.
    iterations, done : steps of the global batch in all, and those done.
    batch : global batch of the job file (0: not given).
    seed : of the job.
    folder : of the job, for files of the program's own; None outside forerun.
    """

    def __init__(
        self, assignment: Assignment, shim: _Shim | _Alone, iterations: int, *, inside: bool, paced: bool
    ) -> None:
        self._assignment, self._shim, self._inside = assignment, shim, inside
        self.rank, self.world_size, self.local_rank = (
            assignment.rank,
            assignment.world_size,
            assignment.local_rank,
        )
        self.slots, self.job_slots = assignment.slots, assignment.job_slots
        self.iterations, self.done = iterations, 0
        self.batch, self.seed = assignment.batch, assignment.seed
        self.folder = Path(assignment.folder) if inside else None
        self._given_pace: Pace | None = assignment.pace if paced else None
        self._star = Star()
        self._torch: Any = None
        #: drained (with the instant at which it was heard), and to which step to skip
        self._drained_s: float | None = None
        self._skip = 0
        self._rendezvous: Rendezvous | None = None
        self._parts: dict[str, Any] = {}
        #: checkpoints that are on disk, newest first, with the instant at which they came there
        self._on_disk: list[tuple[Checkpoint, float]] = []
        self._saved_step = 0
        self._save_s: float | None = None
        self._saved_s = self._reported_s = self._anchor_s = time.monotonic()
        self._reported_step = self._anchor_step = 0
        self._share, self._of = 1, self.world_size
        self._stepped = False

    # ------------------------------------------------------------------------------------------------- meeting

    def _meet(self) -> None:
        """Connect with the other ranks."""
        one = self._assignment
        if self.world_size == 1:
            return
        if self.rank == 0:
            with socket.create_server((one.address, 0), backlog=self.world_size) as listener:
                self._shim.say(Rendezvous(address=one.address, port=listener.getsockname()[1]))
                self._star = Star.of_root(listener, self.world_size, one.secret)
        else:
            while self._rendezvous is None:
                self._hear(None)
            self._star = Star.of_leaf(self._rendezvous.address, self._rendezvous.port, self.rank, one.secret)

    def _join_torch(self) -> None:
        """The process group of torch.distributed; its store listens where the ranks have met."""
        import torch

        self._torch = torch
        if self._inside:
            # A slot is a part of its node's cores, however many slots the job has: torch would take all for each rank, and
            # the job would be slower or faster with what runs beside it.
            cores = len(os.sched_getaffinity(0)) * len(self.slots) // self._assignment.node_slots
            torch.set_num_threads(max(1, cores))
        if self.world_size == 1:
            return
        address = self._assignment.address if self.rank == 0 else ""
        if self.rank == 0:
            listener = socket.create_server((address, 0), backlog=self.world_size)
            where = msgspec.json.encode((address, listener.getsockname()[1]))
        else:
            listener, where = None, b""
        host, port = msgspec.json.decode(
            self._star.exchange(where, lambda said: said[0]), type=tuple[str, int]
        )
        if host == "127.0.0.1":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = torch.distributed.TCPStore(
            host, port, self.world_size, listener is not None, wait_for_workers=False,
            master_listen_fd=None if listener is None else listener.detach(),
        )  # fmt: skip
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        if torch.cuda.is_available():
            torch.cuda.set_device(self.device)
        torch.distributed.init_process_group(backend, store=store, rank=self.rank, world_size=self.world_size)

    @property
    def device(self) -> str:
        """Where torch computes: the GPU of this rank's slot, or `cpu`."""
        if self._torch is None or not self._torch.cuda.is_available():
            return "cpu"
        # A rank that forerun started sees the GPU of its slot alone.
        visible = self._torch.cuda.device_count()
        return f"cuda:{0 if visible == 1 else self.local_rank % visible}"

    # --------------------------------------------------------------------------------------------------- state

    def parallel(self, model: Any) -> Any:
        """A torch model on this rank's device, in DistributedDataParallel where the job has several ranks.

        Warns in the log of a layer whose effect depends on the number of ranks, as dropout and batch norm do.
        """
        if self._inside and self.rank == 0 and (unequal := _unequal_layers(model)):
            _LOG.warning("the model depends on the number of ranks: it has %s", ", ".join(unequal))
        model = model.to(self.device)
        if self.world_size == 1:
            return model
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)

    def state(self, **parts: Stateful | Any) -> int:
        """Name what is saved, and take it up from the job's checkpoint if there is one; returns the iterations done.

        A checkpoint whose file is damaged is passed over for the one before. Raises StoreError where a part does not fit
        what was saved.

        Parameters
        ----------
        parts : by name, objects with `state_dict` and `load_state_dict`, or numpy arrays, which are filled in place.
        """
        self._parts = dict(parts)
        one = self._assignment
        named = [*filter(None, [one.checkpoint]), *one.older]
        read: dict[str, Any] | None = None
        at = 0
        # Rank 0 decides from which checkpoint all go on.
        while self.rank == 0 and at < len(named) and read is None:
            read = checkpoints.read(self._folder, named[at])
            if read is None:
                _LOG.warning("checkpoint %s is damaged; the one before is taken up", named[at].file)
                at += 1
        chosen = int(self._star.exchange(b"%d" % at, lambda said: said[0]))
        if chosen < len(named):
            if self.rank:
                read = checkpoints.read(self._folder, named[chosen])
            if read is None:
                raise OSError(
                    f"checkpoint {named[chosen].file} cannot be read by rank {self.rank}, but by rank 0"
                )
            self.done = self._saved_step = named[chosen].step
            for name, part in self._parts.items():
                if name not in read:
                    raise UsageError.at("me.state", f"the checkpoint has no {name!r}, but {sorted(read)}")
                _take_up(part, read[name], name)
        now_s = time.monotonic()
        self._on_disk = [(checkpoint, now_s) for checkpoint in named[chosen:]]
        if self.rank == 0 and self._inside:
            self._folder.mkdir(parents=True, exist_ok=True)
            checkpoints.remove_all_but(self._folder, [checkpoint.file for checkpoint in named], one.epoch)
        return self.done

    @property
    def _folder(self) -> Path:
        return Path(self._assignment.folder) / "checkpoints"

    def _save(self) -> None:
        """Write a checkpoint of now, and remove those that nobody needs any more."""
        begun_s = time.monotonic()
        state = {name: _state_of(part) for name, part in self._parts.items()}
        saved = checkpoints.write(self._folder, self._assignment.epoch, self.done, state)
        self._saved_s, self._saved_step = time.monotonic(), self.done
        self._save_s = self._saved_s - begun_s
        self._shim.say(Saved(step=saved.step, file=saved.file, sha256=saved.sha256))
        self._on_disk.insert(0, (saved, self._saved_s))
        # A file that the controller may not have heard of yet must not displace the one that it knows: all young ones stay.
        keep, hold_s = self._assignment.keep, self._assignment.hold_s
        for checkpoint, at_s in self._on_disk[keep:]:
            if self._saved_s - at_s > hold_s:
                (self._folder / checkpoint.file).unlink(missing_ok=True)
        self._on_disk = [
            (checkpoint, at_s)
            for place, (checkpoint, at_s) in enumerate(self._on_disk)
            if place < keep or self._saved_s - at_s <= hold_s
        ]

    def _save_is_due(self) -> bool:
        every_s, failures_s = self._assignment.every_s, self._assignment.failures_s
        if failures_s is not None and self._save_s is not None:
            every_s = checkpoints.young_s(self._save_s, failures_s)
        return time.monotonic() - self._saved_s >= every_s and self.done > self._saved_step

    # --------------------------------------------------------------------------------------------------- steps

    def steps(self) -> Iterator[int]:
        """The number of each step from the present one to the last; call `me.step()` at its end."""
        if self._inside and not self._parts:
            raise UsageError.at(
                "me.steps", "call me.state(model=model, ...) first: a job must be able to go on"
            )
        self._anchor()
        # All are ready, or all leave, if the drain came during the start.
        self._agree()
        if self.rank == 0:
            if self._given_pace is not None:
                self._wait_until(self._assignment.started_s + self._given_pace.start_s)
            self._shim.say(FirstStep(step=self.done))
        self._anchor()
        while self.done < self.iterations:
            self._stepped = False
            yield self.done
            if not self._stepped:
                raise UsageError.at("me.steps", f"step {self.done} ended without me.step()")

    def batches(
        self, data: Any, global_batch: int = 0, *, collate: Callable[[list[Any]], Any] | None = None
    ) -> Iterator[Any]:
        """This rank's samples of each step from the present one to the last; call `me.step()` at the end of each.

        Every pass through the data has an order of its own, and a batch may span two passes. Raises UsageError where the
        batch has fewer samples than there are ranks, or is not that of the job file.

        Parameters
        ----------
        data : an array or a tensor, a tuple of them, a sequence or torch data set, or a torch DataLoader, of which data
            set, workers and collation are used.
        global_batch : samples of a step over all ranks (default: that of the job file).
        collate : makes a batch of a list of samples (default: arrays and tensors are stacked).
        """
        batch = global_batch or self.batch
        if batch < 1:
            raise UsageError.at("me.batches", "say how many samples a step has: me.batches(data, 256)")
        if self.batch and batch != self.batch:
            raise UsageError.at("me.batches", f"{batch} samples a step; the job file says {self.batch}")
        if batch < self.world_size:
            raise UsageError.at("me.batches", f"{batch} samples cannot be shared by {self.world_size} ranks")
        low, high = batch * self.rank // self.world_size, batch * (self.rank + 1) // self.world_size
        self._share, self._of = high - low, batch
        loader = hasattr(data, "dataset") and hasattr(data, "collate_fn")
        order = _Order(len(data.dataset) if loader else _length(data), self.seed)
        shares = (
            order.of(step * batch + low, step * batch + high).tolist()
            for step in range(self.done, self.iterations)
        )
        if not loader:
            for _, share in zip(self.steps(), shares, strict=False):
                yield _samples(data, share, collate)
            return
        ahead = type(data)(
            data.dataset, batch_sampler=shares, num_workers=data.num_workers, collate_fn=data.collate_fn,
            pin_memory=data.pin_memory, worker_init_fn=data.worker_init_fn,
            prefetch_factor=data.prefetch_factor, multiprocessing_context=data.multiprocessing_context,
        )  # fmt: skip
        for _, samples in zip(self.steps(), ahead, strict=False):
            yield samples

    @property
    def scale(self) -> float:
        """The factor of this rank's mean loss: world size x share / global batch."""
        return self.world_size * self._share / self._of

    def backward(self, loss: Any) -> None:
        """`loss.backward()` for the mean loss over this rank's share, weighted so that uneven shares count by sample."""
        (loss * self.scale).backward()

    def average(self, *arrays: Any) -> list[Any]:
        """The average over all samples of the step of numpy arrays that are averages over this rank's share.

        Parameters
        ----------
        arrays : of float64, of the same shapes on all ranks.
        """
        import numpy as np

        if self.world_size == 1:
            return list(arrays)
        flat = np.concatenate([np.ravel(array) for array in arrays]).astype(np.float64) * (
            self._share / self._of
        )

        def added(said: list[bytes]) -> bytes:
            total = np.frombuffer(said[0], np.float64).copy()
            for one in said[1:]:
                total += np.frombuffer(one, np.float64)
            return total.tobytes()

        total = np.frombuffer(self._star.exchange(flat.tobytes(), added), np.float64)
        ends = np.cumsum([np.size(array) for array in arrays])[:-1]
        return [
            part.reshape(np.shape(array)) for part, array in zip(np.split(total, ends), arrays, strict=True)
        ]

    def step(self) -> None:
        """A step of the global batch is done: reports, saves when it is due, and leaves if the job is drained."""
        self._stepped = True
        if self._given_pace is None or self._given_pace.rate_per_s:
            self.done += 1
        self._agree()

    def pace(self) -> None:
        """Wait until the present step would end at the pace that a paced program was given, or it is to skip or leave."""
        if self.rank or self._given_pace is None:
            return
        rate = self._given_pace.rate_per_s
        if not rate:
            while self._skip <= self.done and self._drained_s is None:
                self._hear(None)
            return
        until_s = self._anchor_s + (self.done + 1 - self._anchor_step) / rate
        if time.monotonic() - until_s > _MOST_BEHIND_S:
            self._anchor_s, self._anchor_step = time.monotonic(), self.done + 1
        while self._skip <= self.done and (left_s := until_s - time.monotonic()) > 0:
            self._hear(left_s)

    # ------------------------------------------------------------------------------------------- inside a step

    def _anchor(self) -> None:
        """Measure and pace from now."""
        self._reported_s = self._anchor_s = time.monotonic()
        self._reported_step = self._anchor_step = self.done

    def _hear(self, timeout_s: float | None) -> None:
        """Take in what the shim says, after waiting for it at most so long."""
        for message in self._shim.hear(timeout_s):
            match message:
                case Drain():
                    self._drained_s = self._drained_s or _boottime_s()
                case Skip(step=step):
                    self._skip = max(self._skip, min(step, self.iterations))
                case Rendezvous():
                    self._rendezvous = message

    def _agree(self) -> None:
        """At a step's end, all ranks decide alike whether to leave, and whether to skip."""
        self._hear(0.0)
        word = _WORD.pack(self._drained_s is not None, self._skip if self._given_pace else 0)

        def decided(said: list[bytes]) -> bytes:
            words = [_WORD.unpack(one) for one in said]
            return _WORD.pack(any(leave for leave, _ in words), max(step for _, step in words))

        leave, skip = _WORD.unpack(self._star.exchange(word, decided))
        skipped = skip > self.done
        self.done = max(self.done, skip)
        if self.rank == 0 and self._inside:
            self._report(skipped)
            if not leave and self.done < self.iterations and self._save_is_due():
                try:
                    self._save()
                except OSError as failure:
                    # The job goes on; what it may lose is what it did since the last checkpoint that could be written.
                    _LOG.warning("no checkpoint at step %d: %s", self.done, failure)
                    self._saved_s = time.monotonic()
        if leave and self.done < self.iterations:
            self._leave("drained")
            raise Drained

    def _report(self, skipped: bool) -> None:
        now_s = time.monotonic()
        if skipped:
            self._anchor()
            self._shim.say(Progress(step=self.done))
        elif now_s - self._reported_s >= self._assignment.report_s and self.done > self._reported_step:
            rate = (self.done - self._reported_step) / (now_s - self._reported_s)
            self._reported_s, self._reported_step = now_s, self.done
            self._shim.say(Progress(step=self.done, rate=rate))

    def _leave(self, why: str) -> None:
        """Save what is not saved, and say goodbye."""
        if self.rank == 0 and self._inside and self._parts and self.done > self._saved_step:
            self._save()
        pace = self._given_pace
        if self.rank == 0 and why == "drained" and pace is not None and self._drained_s is not None:
            self._wait_until(self._drained_s + pace.drain_s)
        self._shim.say(Leaving(why="drained" if why == "drained" else "finished", step=self.done))

    def _finish(self) -> None:
        if self._inside and self.done < self.iterations:
            raise SystemExit(self._how_far())
        self._leave("finished")
        if self._torch is not None and self.world_size > 1:
            self._torch.distributed.destroy_process_group()
        self._star.close()

    def _how_far(self) -> str:
        return f"ended after {self.done} of {self.iterations} steps"

    def _how_it_failed(self, failure: BaseException) -> str:
        """Why the block was left before the last step, for people."""
        said = self._how_far() if isinstance(failure, SystemExit) else f"{type(failure).__name__}: {failure}"
        return said[:500]

    def _wait_until(self, boottime_s: float) -> None:
        while (left_s := boottime_s - _boottime_s()) > 0:
            # Drains are noted meanwhile; a shim that is gone ends the wait.
            self._hear(left_s) if self._inside else time.sleep(left_s)


class _Order:
    """The endless order of samples: one permutation a pass, from the seed and the number of the pass alone."""

    def __init__(self, samples: int, seed: int) -> None:
        if samples < 1:
            raise UsageError.at("me.batches", "there are no samples")
        self._samples, self._seed = samples, seed
        self._passes: dict[int, Any] = {}

    def of(self, low: int, high: int) -> Any:
        """The samples at positions low to high of the order, int64[high - low]."""
        import numpy as np

        parts, size = [], self._samples
        for number in range(low // size, -(-high // size)):
            begin = number * size
            parts.append(self._of_pass(number)[max(0, low - begin) : high - begin])
        return np.concatenate(parts)

    def _of_pass(self, number: int) -> Any:
        import numpy as np

        if number not in self._passes:
            random = np.random.Generator(np.random.Philox(key=[self._seed, number]))
            self._passes = {
                **{old: order for old, order in self._passes.items() if old == number - 1},
                number: random.permutation(self._samples),
            }
        return self._passes[number]


def _length(data: Any) -> int:
    return len(data[0]) if isinstance(data, tuple) else len(data)


def _samples(data: Any, at: list[int], collate: Callable[[list[Any]], Any] | None) -> Any:
    """A batch of the samples at these places."""
    if isinstance(data, tuple) and all(hasattr(column, "shape") for column in data):
        return tuple(column[at] for column in data)
    if hasattr(data, "shape"):
        return data[at]
    samples = data.__getitems__(at) if hasattr(data, "__getitems__") else [data[i] for i in at]
    if collate is not None:
        return collate(samples)
    if "torch" in sys.modules:
        from torch.utils.data import default_collate

        return default_collate(samples)
    return _stacked(samples)


def _stacked(samples: Sequence[Any]) -> Any:
    import numpy as np

    if isinstance(samples[0], tuple):
        return tuple(_stacked(column) for column in zip(*samples, strict=True))
    return np.stack(samples)


def _state_of(part: Any) -> Any:
    """What is saved of a part; of a model in DistributedDataParallel the model's own, which any number of ranks loads."""
    if _in_parallel(part):
        part = part.module
    return part.state_dict() if hasattr(part, "state_dict") else part


def _take_up(part: Any, saved: Any, name: str) -> None:
    if _in_parallel(part):
        part = part.module
    if hasattr(part, "load_state_dict"):
        part.load_state_dict(saved)
    elif part.shape != saved.shape or part.dtype != saved.dtype:
        what = f"is {part.dtype}{list(part.shape)}, the checkpoint has {saved.dtype}{list(saved.shape)}"
        raise UsageError.at(f"me.state: {name}", what)
    else:
        part[...] = saved


def _unequal_layers(model: Any) -> list[str]:
    """Kinds of layers that draw per rank, or look at the share of a rank alone."""
    kinds = {
        type(layer).__name__
        for layer in model.modules()
        if getattr(layer, "p", 0) or getattr(layer, "track_running_stats", False)
    }
    return sorted(kind for kind in kinds if "Dropout" in kind or "BatchNorm" in kind)


def _in_parallel(part: Any) -> bool:
    return type(part).__name__ == "DistributedDataParallel"


def _boottime_s() -> float:
    """Seconds of the clock that nodes stamp with: it goes on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
