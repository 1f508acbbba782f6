"""How good any scheduler can be: an upper bound by prices on GPU time, a schedule that comes near it, certificates.

Whoever schedules, all GPU time together costs what its prices say, and a job that meets its deadline pays at least what its
work costs at these prices. Where deadlines are worth less than that, they are not met (weak duality). `prove` searches for
prices, `insertion` for schedules, and `checker` verifies prices: it is one file that imports nothing of forerun.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forerun.cluster.bound import checker
from forerun.cluster.bound.files import Files, files_of
from forerun.cluster.bound.world import pools_of, world_of
from forerun.cluster.inputs.prepare import Inputs, prepare
from forerun.cluster.scenario import Scenario
from forerun.core.errors import CheckFailed, StoreError, UnknownName
from forerun.core.regular import read_regular, unreadable
from forerun.core.result.bound import Bounded, Bounder, Bracket

if TYPE_CHECKING:
    from forerun.cluster.bound.prove import Proof

#: what a bound takes for granted, for the reader
ASSUMED: Final = (
    "a job has one of its GPU counts at a time and is never faster there than its table says; GPUs are alike; quotas, "
    "nodes and costs of changes are ignored, which makes no schedule worse"
)


class ClusterBounder(Bounder[Scenario]):
    """Bounds of cluster scenarios."""

    objectives = ("deadlines", "mean", "makespan", "slowdown")
    figures: Mapping[str, Bounded] = {
        "deadline_ratio": Bounded("deadlines", share=True),
        "deadlines_met": Bounded("deadlines"),
        "jct_mean_s": Bounded("mean"),
        "makespan_s": Bounded("makespan"),
    }

    def search(self, scenario: Scenario, objective: str = "", gpus: int = 0) -> Iterator[Bracket]:
        """Closer and closer brackets; see `Bounder.search`."""
        from forerun.cluster.bound.search import SEARCHES  # here: it brings the solver

        objective = objective or self.objectives[0]
        if objective not in SEARCHES:
            raise UnknownName.among("objective", objective, SEARCHES, "--objective")
        inputs = prepare(scenario)
        own = inputs.setting.cluster.gpus
        if not gpus and _has_several_types(inputs):
            yield from _of_several_types(inputs, objective)
            return
        world = world_of(inputs, gpus or own)
        notes = [f"assumed: {ASSUMED}"]
        if world.why_not:
            notes.append(f"no certificate can be written: {world.why_not}")
        files = None if world.why_not or world.gpus != own else files_of(scenario)
        search = SEARCHES[objective](world)
        hour, unit = _per_hour(objective, len(world.jobs))
        for _ in search.run():
            proof = None
            if files is not None:
                proof = search.proof.certificate(files, world, search.objective, search.claim)
            yield Bracket(
                figure=search.figure,
                title=search.title,
                impossible=search.impossible,
                better=search.better,
                reached=None if search.reached is None else float(search.reached),
                bound=float(search.bound),
                gpus=world.gpus,
                jobs=len(world.jobs),
                of=sum(job.deadline is not None for job in world.jobs) if search.better == "higher" else 0,
                schedule=search.schedule.rows(world),
                certificate=proof,
                notes=tuple(notes),
                prices=_prices(search.proof, hour) if hour else (),
                price_unit=unit,
            )

    def key(self, scenario: Scenario) -> Hashable:
        """The jobs, how fast they are on how many GPUs, and the GPUs; by type, if there are several."""
        inputs = prepare(scenario)
        several = _has_several_types(inputs)
        worlds = pools_of(inputs) if several else (world_of(inputs, inputs.setting.cluster.gpus),)
        return tuple((world.jobs, world.gpus) for world in worlds)

    def not_about(self, figure: str, summary: Mapping[str, Any]) -> str:
        """Completion times are bounded for schedules that end all jobs."""
        jobs, ended = summary["jobs"], summary["finished_jobs"]
        if self.figures[figure].objective == "deadlines" or ended == jobs:
            return ""
        return f"{jobs - ended:.4g} of {jobs:.4g} jobs never end under it, and the bound is for schedules that end all"

    def check(self, certificate: Path, scenario: Scenario, gpus: Sequence[int] = ()) -> str:
        """Verify the certificate in a file, and say what was verified.

        Its prices prove something about any number of GPUs: with `gpus`, that is worked out anew, with the counts of GPUs
        that are legal there.

        Raises
        ------
        CheckFailed
            Its claim does not follow from its prices.
        StoreError
            It is no certificate, or is about other jobs, tables or GPUs.
        UsageError
            The scenario is not one of a job log and tables.
        """
        files = files_of(scenario)
        prepare(scenario)  # reads the files as a simulation does, and rejects more than the checker
        try:
            content = read_regular(certificate, most_bytes=checker.MOST_BYTES)
            own = checker.certificate(content)["gpus"]
            if own != files.gpus and not gpus:
                what = f"is about {own} GPUs; the scenario has {files.gpus} (--gpus N: what it proves there)"
                raise StoreError.at(certificate, what)
            holds, says = checker.check(content, files.trace, files.tables, own, files.first)
            others = [_proved(content, files, count) for count in gpus if count != own]
        except OSError as error:
            raise StoreError.at(certificate, unreadable(error)) from error
        except (ValueError, RecursionError) as error:
            raise StoreError.at(certificate, str(error)) from error
        if not holds:
            raise CheckFailed.at(certificate, f"its prices do not prove that {says}")
        return f"verified in exact arithmetic: {'; '.join((says, *others))}; assumed: {ASSUMED}"


def _has_several_types(inputs: Inputs) -> bool:
    return len(set(inputs.setting.cluster.node_types())) > 1


def _of_several_types(inputs: Inputs, objective: str) -> Iterator[Bracket]:
    """Closer and closer brackets of a cluster with GPUs of several types."""
    from forerun.cluster.bound.mixed import apart, searches
    from forerun.cluster.bound.search import SEARCHES

    kind, pools = SEARCHES[objective], pools_of(inputs)
    known = apart(pools) if objective == "deadlines" else None
    for search, bound in searches(kind, pools):
        reached = None if known is None else float(known.met)
        yield Bracket(
            figure=search.figure,
            title=search.title,
            impossible=search.impossible,
            better=search.better,
            reached=reached,
            bound=float(bound),
            gpus=inputs.setting.cluster.gpus,
            jobs=len(inputs.setting.jobs),
            of=sum(job.deadline is not None for job in pools[0].jobs) if search.better == "higher" else 0,
            schedule=() if known is None else known.rows(pools),
            certificate=None,
            notes=(
                f"assumed: {ASSUMED}".replace(
                    "GPUs are alike", "GPUs of a type are alike, and a job has one type at a time"
                ),
                "GPU time of each type has its own price, in a fixed proportion; the schedule keeps each job on one type",
                "no certificate can be written: the cluster has GPUs of several types",
            ),
        )
        if reached == float(bound):
            return


def _per_hour(objective: str, jobs: int) -> tuple[float, str]:
    """What a price of a GPU-second says of a GPU-hour, and its unit; 0 where it only says which hours are dearer."""
    if objective == "deadlines":
        return 3600.0, "deadlines per GPU-h"
    return (3600.0 / max(1, jobs), "s per GPU-h") if objective == "mean" else (0.0, "")


def _prices(proof: Proof, hour: float) -> tuple[tuple[float, float, float], ...]:
    """From [s], to [s] and the price of each interval, multiplied by `hour`."""
    edges_s = proof.edges_s.tolist()
    return tuple(zip(edges_s, edges_s[1:], (hour * proof.price).tolist()))


def _proved(content: bytes, files: Files, gpus: int) -> str:
    """What the prices of a certificate prove about another number of GPUs, with the counts that are legal there."""
    c = checker.certificate(content)
    jobs = checker.read_jobs(files.trace, files.tables, gpus, files.first)
    prices = checker.Prices(gpus, c["denominator"], c["edges_s"], (0, *c["price"], 0))
    worth = [c["work_value"].get(job.id, 0) for job in jobs]
    proved = checker.proves(c["objective"], jobs, prices, worth, c["claim"])
    says = checker.SAYS[c["objective"]].format(proved) if proved else "nothing is proved"
    return f"{says} ({len(jobs)} jobs, {gpus} GPUs)"
