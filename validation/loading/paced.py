"""A real loader under a pace policy: threads change while it runs, blocks between epochs, as in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.loading.engine.pacing import Paced, Pacer
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import Corpus
from forerun.loading.policy import Cell, PaceSpec, paces

#: looks in an epoch that is shorter than the policy's own interval would allow any, and batches that a look needs
LEAST_LOOKS: Final = 8
LEAST_BATCHES: Final = 4


@dataclass(frozen=True)
class PacedEpoch:
    """One epoch under a pace policy.

    Parameters
    ----------
    epoch : its number, from 0.
    block_samples : samples a block, which change between epochs only.
    threads_at_end : that may read when it ends.
    total_s : with the last step.
    samples_per_s : of the epoch as a whole.
    waited_share : of the time, what the loop waited after its first batch.
    """

    epoch: int
    block_samples: int
    threads_at_end: int
    total_s: float
    samples_per_s: float
    waited_share: float


@dataclass(frozen=True)
class PacedRun:
    """What a loader did under a pace policy.

    Parameters
    ----------
    epochs : in order.
    looks : every look of the policy, with what it saw and decided.
    """

    epochs: tuple[PacedEpoch, ...]
    looks: tuple[Paced, ...]


def pace_named(name: str, batches: int) -> PaceSpec:
    """A pace policy, asked often enough for short epochs.

    Parameters
    ----------
    name : of the policy.
    batches : of an epoch.

    Raises UnknownName.
    """
    spec = paces().get(name, where="--pace")()
    return spec.with_(every_batches=min(spec.every_batches, max(LEAST_BATCHES, batches // LEAST_LOOKS)))


def run_paced(
    corpus: Corpus,
    job: Job,
    samples: int,
    spec: PaceSpec,
    *,
    start: Cell,
    threads: Sequence[int],
    blocks: Sequence[int],
    epochs: int = 2,
    memory_bytes: float = float("inf"),
    progress: Callable[[str], None] = lambda _: None,
) -> PacedRun:
    """Load the first `samples` samples `epochs` times, from a cell on, with the policy in charge of threads and blocks.

    Blocks of a container may be read in parts, so another block size needs no merging; none larger than its own is
    offered. Raises what a reading thread raised.

    Parameters
    ----------
    corpus, job : what is read, and by what training job.
    samples : of an epoch.
    spec : the policy.
    start : the first cell.
    threads, blocks : on offer.
    epochs : how many (default: 2).
    memory_bytes : that blocks in memory may take (default: any).
    progress : called with a line about each epoch.
    """
    offered = tuple(sorted({start.block, *(block for block in blocks if block <= corpus.largest_piece)}))
    pacer = Pacer(
        spec, start.threads, start.block, tuple(sorted({start.threads, *threads})), offered, job.batch, samples, epochs,
        memory_bytes,
    )  # fmt: skip
    ran = []
    for epoch in range(epochs):
        block = pacer.block_samples
        progress(f"epoch {epoch + 1} of {epochs}: blocks of {block}, from {pacer.threads} threads on")
        pieces = corpus.pieces(block, samples)
        run = job.load(corpus.client_for(block), pieces, pacer.threads, pacer.steering())
        ran.append(
            PacedEpoch(epoch, block, pacer.threads, run.total_s, run.samples / run.total_s, run.load_share)
        )
    return PacedRun(tuple(ran), tuple(pacer.record))
