"""A pace policy at work on one loader, simulated or real: what it is shown, what it decides, and the record of both."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from forerun.core.errors import PolicyError, Problem
from forerun.core.rng import stream
from forerun.loading.engine.model import Steering
from forerun.loading.policy import F64, Look, Pace, PaceSpec, PaceView


@dataclass(frozen=True)
class Paced:
    """One look of a pace policy at a loader.

    Parameters
    ----------
    job, epoch, batch, at_s : when, in its epoch.
    threads_before : up to the look.
    threads : from then on.
    block_samples : from the next epoch on.
    waited_share, samples_per_s, request_s, decode_s : what was seen since the look before.
    why : the policy's reason.
    """

    job: int
    epoch: int
    batch: int
    at_s: float
    threads_before: int
    threads: int
    block_samples: int
    waited_share: float
    samples_per_s: float
    request_s: float
    decode_s: float
    why: str


@dataclass
class Pacer:
    """A pace policy at work on one loader, simulated or real.

    `steering` is given to the loader of each epoch in turn; after an epoch `block_samples` is the size of the next one's
    blocks.

    Parameters
    ----------
    spec : the policy.
    threads, block_samples : at the beginning.
    offered_threads, offered_blocks : to choose from, ascending.
    batch_samples, epoch_samples : samples a batch and an epoch.
    epochs : of the run.
    memory_bytes : that blocks may take.
    merge_s : seconds of making blocks.
    job, seed : for the policy's random stream.
    record : of all looks.
    """

    spec: PaceSpec
    threads: int
    block_samples: int
    offered_threads: tuple[int, ...]
    offered_blocks: tuple[int, ...]
    batch_samples: int
    epoch_samples: int
    epochs: int = 1
    memory_bytes: float = math.inf
    merge_s: float = 0.0
    job: int = 0
    seed: int = 0
    epoch: int = 0
    record: list[Paced] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policy = self.spec.build(stream(self.seed, "pace", self.job))

    @property
    def most(self) -> int:
        """The most threads that there may be."""
        return max(self.threads, *self.offered_threads)

    def most_used(self, epoch: int) -> int:
        """The most threads that read at a time in an epoch that is over.

        Parameters
        ----------
        epoch : its number, from 0.
        """
        return max(row.threads_before for row in self.record if row.epoch == epoch)

    def steering(self) -> Steering:
        """How a loader is steered through the present epoch."""
        return Steering(self.threads, self.spec.every_batches, self.look, self.ended)

    def look(self, look: Look) -> int:
        """Show the policy what happened; how many threads may take blocks from now on.

        Raises PolicyError for a number of threads or a block size that is not on offer, and for other blocks while an
        epoch runs.
        """
        pace = self._decided(look, ends=False)
        if pace.block_samples not in (None, self.block_samples):
            raise self._impossible(
                look, f"blocks of {pace.block_samples} while an epoch runs; when it ends they may change"
            )
        return self.threads

    def ended(self, look: Look) -> None:
        """Show the policy the end of an epoch, when it may choose other blocks.

        Raises PolicyError for a number of threads or a block size that is not on offer.
        """
        pace = self._decided(look, ends=True)
        self.epoch += 1
        self.block_samples = pace.block_samples or self.block_samples

    def replay(self, epoch: int) -> Steering:
        """The threads of an epoch that was recorded, decided anew by nobody: for runs beside it.

        Steers by what was decided then, so that a run beside it, such as one with an instantaneous store, has the
        same threads at the same batches.

        Parameters
        ----------
        epoch : of the record.
        """
        rows = [row for row in self.record if row.epoch == epoch]
        decided = {row.batch: row.threads for row in rows}
        return Steering(
            rows[0].threads_before,
            self.spec.every_batches,
            lambda look: decided.get(look.batch, look.threads),
            lambda look: None,
        )

    def _decided(self, look: Look, *, ends: bool) -> Pace:
        """Ask the policy, check its answer and record it.

        Parameters
        ----------
        ends : whether the epoch is over.
        """
        view = PaceView(
            **{**vars(look), "threads": self.threads},
            epoch=self.epoch,
            block_samples=self.block_samples,
            offered_threads=self.offered_threads,
            offered_blocks=self.offered_blocks,
            batch_samples=self.batch_samples,
            memory_bytes=self.memory_bytes,
            epoch_ends=ends,
            epochs_left=self.epochs - self.epoch - 1,
            epoch_samples=self.epoch_samples,
            merge_s=self.merge_s,
        )
        pace = self.policy.adjust(view)
        if not 1 <= pace.threads <= self.most:
            raise self._impossible(look, f"a pace of {pace.threads} threads; 1 to {self.most} are on offer")
        block = pace.block_samples or self.block_samples
        if block not in (self.block_samples, *self.offered_blocks):
            raise self._impossible(
                look, f"blocks of {block}; on offer are {', '.join(map(str, self.offered_blocks))}"
            )
        self.record.append(
            Paced(
                self.job, self.epoch, look.batch, look.now_s, self.threads, pace.threads, block, view.waited_share,
                view.samples_per_s, _mean(look.request_s), _mean(look.decode_s / np.maximum(look.samples, 1)),
                pace.why,
            )
        )  # fmt: skip
        self.threads = pace.threads
        return pace

    def _impossible(self, look: Look, what: str) -> PolicyError:
        where = f"job {self.job}, epoch {self.epoch}, batch {look.batch}, {look.now_s:.6g} s"
        return PolicyError(Problem(where, what))


def _mean(values: F64) -> float:
    return float(values.mean()) if len(values) else math.nan
