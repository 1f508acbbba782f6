"""The job section of a scenario: its shape, its measured times, its checkpoints, and its supply of data."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal

import msgspec

from forerun.core.profile.files import read_profile
from forerun.core.profile.supply import Supply
from forerun.core.scenario.checks import failing
from forerun.core.scenario.numbers import Count, NotNegative, Positive
from forerun.core.scenario.spec import Input, Spec
from forerun.spot.engine.job import Checkpoints, Tier, TrainingJob


class Loading(Spec, frozen=True, kw_only=True):
    """How fast the data arrive: a supply profile (see `forerun profile`), and how many nodes of a pipeline read."""

    file: Input
    readers_per_pipeline: Count = 1


class RestartParts(Spec, frozen=True, kw_only=True):
    """A restart in its parts, in order: the scheduler finds nodes, processes start, they connect, the state is loaded."""

    schedule_s: NotNegative = 0.0
    start_s: NotNegative = 0.0
    communicator_s: NotNegative = 0.0
    load_s: NotNegative = 0.0

    @property
    def parts_s(self) -> tuple[float, float, float, float]:
        """The parts in their order."""
        return self.schedule_s, self.start_s, self.communicator_s, self.load_s


class JobSpec(Spec, frozen=True, kw_only=True):
    """The job: its shape, its measured times, its checkpoints.

    depth: nodes in a pipeline. max_pipelines, min_pipelines: most, and fewest, that train (fewest: 1).
    step_s: seconds a step by number of nodes training, one entry for every reachable multiple of `depth`.
    samples_per_step: at any number of nodes.
    reconfig_s: pause to rebuild pipelines, which contains load_s, the load of the checkpoint (default 0).
    restart: the same pause in its parts, in place of reconfig_s and load_s (default: as these say).
    prep_s: from the grant of a node until it is usable (default 0).
    write_s: from the end of the stall until a checkpoint is durable. stall_s: time a checkpoint blocks training (default 0).
    snapshots: when checkpoints are taken (default: back to back).
    reconfig_rule: whether an event during a pause restarts it (default), or extends it by another pause.
    warm_start: nodes of the first instant are ready, and the first pipelines built, at once (default).
    initial_saved: the last durable step at the start (default -1: none).
    tiers: fast tiers of checkpoints in front of these, the fastest first, on reserved clusters (default: none).
    loading: the supply of data, for which steps wait if it is slower than they compute (default: no limit).
    """

    depth: Count
    max_pipelines: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    step_s: dict[int, Positive]
    samples_per_step: Count
    min_pipelines: Count = 1
    reconfig_s: NotNegative = 0.0
    load_s: NotNegative = 0.0
    restart: RestartParts | None = None
    prep_s: NotNegative = 0.0
    write_s: NotNegative = 0.0
    stall_s: NotNegative = 0.0
    snapshots: Checkpoints = Checkpoints()
    reconfig_rule: Literal["restart", "extend"] = "restart"
    warm_start: bool = True
    initial_saved: Annotated[int, msgspec.Meta(ge=-1, description="-1: nothing is saved")] = -1
    tiers: tuple[Tier, ...] = ()
    loading: Loading | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Parts that go together, and a step time for every reachable world size."""
        load_s = f"{self.load_s} s is a part of reconfig_s, which is {self.reconfig_s} s"
        twice = self.restart is not None and bool(self.reconfig_s or self.load_s)
        pipelines = f"{self.min_pipelines} is above max_pipelines {self.max_pipelines}"
        problems = failing(
            [
                (self.load_s > self.reconfig_s, "load_s", load_s),
                (twice, "restart", "has the parts of reconfig_s and load_s: give it, or these"),
                (self.min_pipelines > self.max_pipelines, "min_pipelines", pipelines),
            ]
        )
        return problems or self._tier_problems() + self._missing_sizes()

    def _tier_problems(self) -> list[tuple[str, str]]:
        """Tiers in order: a slower one is rarer, and survives no less."""
        problems = []
        for i, (fast, slow) in enumerate(itertools.pairwise(self.tiers)):
            if slow.every_s <= fast.every_s:
                what = f"is every {slow.every_s:g} s, not rarer than {fast.name} before it, every {fast.every_s:g} s"
                problems.append((f"tiers[{i + 1}].every_s", what))
            if (fast.survives, slow.survives) == ("node", "process"):
                what = f"survives less than {fast.name} before it, which is faster"
                problems.append((f"tiers[{i + 1}].survives", what))
        names = [tier.name for tier in self.tiers]
        return problems + [
            ("tiers", f"two are named {name!r}") for name in sorted(set(names)) if names.count(name) > 1
        ]

    def _missing_sizes(self) -> list[tuple[str, str]]:
        """Reachable numbers of nodes without a step time."""
        sizes = range(self.min_pipelines * self.depth, self.max_pipelines * self.depth + 1, self.depth)
        missing = [size for size in sizes if size not in self.step_s]
        if not missing:
            return []
        shown = ", ".join(map(str, missing[:8])) + (" ..." if len(missing) > 8 else "")
        known = ", ".join(map(str, sorted(self.step_s)[:8]))
        return [("step_s", f"no step time at {shown} nodes, which the job can reach; given: {known}")]

    @property
    def pause_parts_s(self) -> tuple[float, float, float, float]:
        """A pause in the parts of a restart; without them, all but the load is the start of processes."""
        if self.restart is not None:
            return self.restart.parts_s
        return 0.0, self.reconfig_s - self.load_s, 0.0, self.load_s

    @property
    def pause_s(self) -> float:
        """The whole pause."""
        return math.fsum(self.restart.parts_s) if self.restart is not None else self.reconfig_s

    def with_pause(self, factor: float) -> JobSpec:
        """The job with all parts of its pause so many times as long."""
        names = RestartParts.__struct_fields__
        parts = RestartParts(**{name: part * factor for name, part in zip(names, self.pause_parts_s)})
        return self.with_(restart=parts, reconfig_s=0.0, load_s=0.0)

    @property
    def load_share(self) -> float:
        """Share of a pause that is loading the checkpoint."""
        return self.pause_parts_s[-1] / self.pause_s if self.pause_s else 0.0

    def read_supply(self) -> Supply | None:
        """The profile of the job's loader; None if it names none. Raises ProfileError for a file that is none."""
        return read_profile(self.loading.file, Supply) if self.loading is not None else None

    def supplied_step_s(self, supply: Supply | None) -> dict[int, float]:
        """Seconds a step by number of nodes, data's arrival included.

        Parameters
        ----------
        supply : as `read_supply` returns it.

        Raises ProfileError if it does not reach as many readers as the job has.
        """
        if self.loading is None or supply is None:
            return self.step_s
        most = self.max_pipelines * self.depth
        return {
            size: supply.step_s(
                seconds, self.samples_per_step, size // self.depth * self.loading.readers_per_pipeline
            )
            if self.depth <= size <= most
            else seconds
            for size, seconds in self.step_s.items()
        }

    def built(self, horizon_s: float, supply: Supply | None) -> TrainingJob:
        """The job of the simulator.

        Parameters
        ----------
        horizon_s : end of the run.
        supply : as `read_supply` returns it.
        """
        same = {name: getattr(self, name) for name in TrainingJob.__slots__ if name in self.__struct_fields__}
        changed = {
            "step_s": self.supplied_step_s(supply),
            "reconfig_s": self.pause_s,
            "load_s": self.pause_parts_s[-1],
        }
        return TrainingJob(**same | changed, checkpoint=self.snapshots, horizon_s=horizon_s)
