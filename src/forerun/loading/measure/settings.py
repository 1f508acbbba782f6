"""What `forerun measure loading` takes besides its few options, as `--set KEY=VALUE`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from forerun.core.scenario.numbers import Count, NotNegative, Positive
from forerun.core.scenario.spec import Spec


class Settings(Spec, frozen=True, kw_only=True):
    """How a store is measured.

    step_s, decode_s: of a training step, and of decoding a sample. step_by: sleep, use a core, or train a small network in
    torch for that long. decode_by: sleep, use a core or the interpreter, or do nothing. probe_s: the longest probe.
    memory_bytes: that blocks in memory may take (default: any). include: names of the files that are samples. cold: have
    the kernel forget local files first. samples: of a checked cell. loader: our threads, torch's workers, or these with a
    pool of threads each. workers: numbers to measure. pool_threads: of a pool. block: samples a worker's read.
    """

    step_s: NotNegative = 0.1
    decode_s: NotNegative = 0.001
    step_by: Literal["sleep", "busy", "torch"] = "sleep"
    decode_by: Literal["sleep", "busy", "python", "none"] = "sleep"
    probe_s: Positive = 4.0
    memory_bytes: Positive | None = None
    include: str = ""
    cold: bool = False
    samples: Annotated[int, msgspec.Meta(ge=64)] = 640
    loader: Literal["threads", "workers", "pooled_workers"] = "threads"
    workers: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=256)], ...], msgspec.Meta(min_length=1)] = (
        1,
        2,
        4,
    )
    pool_threads: Count = 2
    block: Count = 1
