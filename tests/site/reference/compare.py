"""What the product answers on drawn sites, beside the truth.

    python -m tests.site.reference.compare [SITES] [JOBS] [DAYS] [hides]

All waits are from when a job became eligible, over the scored jobs (`Site.scored`), by the partition in which it ran. Same
cycle: of jobs that waited more than 34 s in either, those whose starts differ by at most 34 s. Reader: how far the reference
itself is off on what the files show (`seen`), which nobody can be asked to beat.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import forerun
from forerun.core.errors import ForerunError
from forerun.core.result.run import Result

from .export import write
from .past import NAMES
from .scheduler import Attempt, Rules, World, run, with_node
from .seen import seen
from .sites import Site, draw

CYCLE_S = 34
#: the product's causes of waiting since a job is eligible, by what the reference calls them
_CAUSE = {cause: name for cause, name in NAMES.items() if cause not in ("not eligible", "held")}
FILES = ("qos.txt", "assoc.txt", "partitions.txt", "res.txt", "events.txt")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the product says of a site.

    Parameters
    ----------
    wait_s : by job, from when it is eligible.
    causes : by job and cause, seconds.
    without : files that it refused, each with its words.
    """

    wait_s: Mapping[str, float]
    causes: Mapping[str, Mapping[str, float]]
    without: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """A site's answer beside its truth.

    Parameters
    ----------
    seed, scored : the site, and how many of its jobs count.
    truth_s, answer_s : mean waits.
    off : by partition with at least 5 % of the jobs, and `all`: how far the mean is off, as a share of the truth.
    same_cycle : share of the jobs.
    tops : by partition, the top cause of the truth, and that of the answer.
    without : files that the product refused.
    """

    seed: int
    scored: int
    truth_s: float
    answer_s: float
    off: Mapping[str, float]
    same_cycle: float
    tops: Mapping[str, tuple[str, str]]
    without: Mapping[str, str]


def scenario(site: Site, folder: Path, policy: str = "easy", files: Sequence[str] = FILES) -> Path:
    """The scenario of a site whose files lie in a folder."""
    path = folder / "site.yaml"
    path.write_text(
        "domain: cluster\n"
        f"trace: {{file: sacct.txt, format: sacct, options: {{timezone: {site.zone}}}}}\n"
        f"machines: {{file: slurm.conf, site: [{', '.join(files)}]}}\n"
        "placement: first-fit\n"
        f"policy: {{name: {policy}, order: {{name: multifactor}}}}\n"
    )
    return path


def ask(site: Site, folder: Path, *, policy: str = "easy", files: Sequence[str] = FILES) -> Answer:
    """Run the product on a site's files; a file of the site that it refuses is left out, and named."""
    without, left = dict[str, str](), list(files)
    while True:
        try:
            result = forerun.simulate(forerun.load(scenario(site, folder, policy, left)))
        except ForerunError as error:
            if "maintenance" not in str(error) or "res.txt" not in left:
                raise
            left.remove("res.txt")
            without["res.txt"] = str(error)
            continue
        break
    return answered(result, without)


def answered(result: Result, without: Mapping[str, str] | None = None) -> Answer:
    """What a run says. without: files that were refused."""
    jobs = result.tables["jobs"]
    names = [str(name) for name in jobs["job"]]
    causes = tuple(_CAUSE.values())
    waited = {cause: jobs[f"wait_{cause}_s"] for cause in causes}
    return Answer(
        dict(zip(names, (jobs["first_start_s"] - jobs["submit_s"]).tolist(), strict=True)),
        {name: {cause: float(waited[cause][at]) for cause in causes} for at, name in enumerate(names)},
        without or {},
    )


def best(site: Site, truth: Sequence[Attempt]) -> Answer:
    """What the reference says of what a site's files show."""
    first: dict[str, Attempt] = {}
    for one in run(seen(site, truth)):
        first.setdefault(one.job.id, one)
    started = {name: one for name, one in first.items() if one.start_s is not None}
    causes = {
        name: Counter[str]()
        + Counter({_CAUSE[cause]: s for cause, s in one.waited.items() if cause in _CAUSE})
        for name, one in started.items()
    }
    return Answer({name: one.queue_wait_s for name, one in started.items()}, causes, {})


def compared(site: Site, truth: Sequence[Attempt], answer: Answer) -> Row:
    """An answer beside the truth."""
    scored = {name: one for name, one in site.scored(truth).items() if name in answer.wait_s}
    parts: dict[str, list[str]] = {}
    for name, one in scored.items():
        parts.setdefault(one.partition, []).append(name)
    parts = {part: names for part, names in sorted(parts.items()) if len(names) >= 0.05 * len(scored)}

    def means(names: Sequence[str]) -> tuple[float, float]:
        return (
            statistics.fmean(scored[name].queue_wait_s for name in names),
            statistics.fmean(answer.wait_s[name] for name in names),
        )

    def off(names: Sequence[str]) -> float:
        true_s, said_s = means(names)
        return (said_s - true_s) / true_s if true_s >= 60 else 0.0 if said_s < 60 else math.inf

    tops = {}
    for part, names in parts.items():
        true, said = Counter[str](), Counter[str]()
        for name in names:
            true.update({_CAUSE[cause]: s for cause, s in scored[name].waited.items() if cause in _CAUSE})
            said.update(answer.causes[name])
        if any(true.values()):
            tops[part] = (
                max(true, key=lambda cause: true[cause]),
                max(said, key=lambda cause: said[cause], default=""),
            )
    waited = [name for name in scored if max(scored[name].queue_wait_s, answer.wait_s[name]) > CYCLE_S]
    same = [name for name in waited if abs(scored[name].queue_wait_s - answer.wait_s[name]) <= CYCLE_S]
    true_s, said_s = means(list(scored))
    return Row(
        site.seed, len(scored), true_s, said_s,
        {"all": off(list(scored)), **{part: off(names) for part, names in parts.items()}},
        len(same) / max(len(waited), 1), tops, answer.without,
    )  # fmt: skip


# -- what if -------------------------------------------------------------------------------------------------------------


def changes(site: Site, truth: Sequence[Attempt]) -> dict[str, tuple[Site, Rules, str]]:
    """Changes of a site by name: the site with it, the rules, and the product's policy."""
    waits = Counter[str]()
    for one in site.scored(truth).values():
        waits[one.partition] += one.queue_wait_s
    longest = waits.most_common(1)[0][0]
    world, weights = site.world, site.world.priorities
    made = {
        "no promises": (site, Rules(promises=0), "first-fit"),
        "age only": (
            _with(site, priorities=replace(weights, fairshare=0, job_size=0, partition=0, qos=0)),
            Rules(),
            "easy",
        ),
        "a node more": (replace(site, world=with_node(world, longest)), Rules(), "easy"),
    }
    if world.limits:
        rule = world.limits[0]
        name, column = rule.name.split(" ")[1].rstrip(":"), rule.name.rpartition(" ")[2]
        kept = {
            qos: {key: value for key, value in of.items() if (qos, key) != (name, column)}
            for qos, of in site.limits.qos.items()
        }
        accounts = {account: of for account, of in site.limits.accounts.items() if account != name}
        without = _with(site, limits=tuple(each for each in world.limits if each is not rule))
        limits = replace(site.limits, qos=kept, accounts=accounts)
        made["a limit less"] = (replace(without, limits=limits), Rules(), "easy")
    return made


def _with(site: Site, **parts: object) -> Site:
    return replace(site, world=replace(site.world, **parts))  # type: ignore[arg-type]


def jittered(world: World, seed: int) -> World:
    """The same jobs, each submitted up to a minute later."""
    rng = random.Random(f"jitter {seed}")
    return replace(
        world, jobs=tuple(replace(job, submit_s=job.submit_s + rng.randrange(60)) for job in world.jobs)
    )


def effect_s(site: Site, before: Sequence[Attempt], after: Sequence[Attempt]) -> float:
    """By how much the mean wait of the scored jobs changes."""
    scored = site.scored(before)
    then = {one.job.id: one for one in reversed(after) if one.start_s is not None}
    return statistics.fmean(
        then[name].queue_wait_s - one.queue_wait_s for name, one in scored.items() if name in then
    )


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change's effect on the mean wait: the truth with its noise (a standard deviation), and the answer."""

    seed: int
    change: str
    truth_s: float
    noise_s: float
    answer_s: float

    @property
    def counts(self) -> bool:
        """Whether the truth exceeds its noise."""
        return abs(self.truth_s) > max(2 * self.noise_s, 1.0)

    @property
    def right(self) -> bool:
        """Whether the answer has the truth's sign."""
        return self.truth_s * self.answer_s > 0


def what_ifs(
    site: Site, truth: Sequence[Attempt], base: Answer, folder: Path, shakes: int = 3
) -> list[WhatIf]:
    """Each change of a site, in truth and as the product says."""
    found = []
    scored = site.scored(truth)
    shaken = [(jittered(site.world, at), at) for at in range(shakes)]
    before = [run(world) for world, _ in shaken]
    for name, (changed, rules, policy) in changes(site, truth).items():
        true_s = effect_s(site, truth, run(changed.world, rules))
        effects = [
            effect_s(site, was, run(jittered(changed.world, at), rules))
            for was, (_, at) in zip(before, shaken, strict=True)
        ]
        write(changed, truth, folder)
        answer = ask(changed, folder, policy=policy)
        both = [each for each in scored if each in base.wait_s and each in answer.wait_s]
        said_s = statistics.fmean(answer.wait_s[each] - base.wait_s[each] for each in both)
        found.append(WhatIf(site.seed, name, true_s, statistics.stdev([true_s, *effects]), said_s))
    return found


# -- the table -----------------------------------------------------------------------------------------------------------


def main(sites: int, jobs: int, days: int, *, hides: bool) -> None:
    """Print both tables, row by row."""
    drawn = [draw(seed, jobs, days, hides=hides) for seed in range(sites)]
    rows = []
    print(
        "site  scored  truth s  answer s    off  worst partition      reader  same cycle  top causes  refused"
    )
    for site in drawn:
        truth = site.attempts()
        with tempfile.TemporaryDirectory() as made:
            write(site, truth, Path(made))
            row = compared(site, truth, ask(site, Path(made)))
        rows.append(row)
        worst = max((part for part in row.off if part != "all"), key=lambda part: abs(row.off[part]))
        right = sum(true == said for true, said in row.tops.values())
        reader = compared(site, truth, best(site, truth)).off["all"]
        print(
            f"{row.seed:4}  {row.scored:6}  {row.truth_s:7.0f}  {row.answer_s:8.0f}  {row.off['all']:+5.0%}  "
            f"{worst:>9} {row.off[worst]:+9.0%}  {reader:+9.1%}  {row.same_cycle:9.0%}  {right:4} of {len(row.tops)}  "
            f"{', '.join(row.without)}",
            flush=True,
        )
    near = sum(abs(row.off["all"]) <= 0.03 for row in rows)
    parts = sum(all(abs(each) <= 0.08 for each in row.off.values()) for row in rows)
    causes = sum(all(true == said for true, said in row.tops.values()) for row in rows)
    print(
        f"mean within 3 %: {near}; every partition within 8 %: {parts}; all top causes: {causes}; of {len(rows)} sites"
    )
    counted = []
    print("\nsite  change         truth s  noise s  answer s")
    for site in drawn:
        truth = site.attempts()
        with tempfile.TemporaryDirectory() as made:
            write(site, truth, Path(made))
            effects = what_ifs(site, truth, ask(site, Path(made)), Path(made))
        for one in effects:
            verdict = "" if not one.counts else "right" if one.right else "WRONG"
            print(
                f"{one.seed:4}  {one.change:12} {one.truth_s:+9.0f}  {one.noise_s:7.0f}  {one.answer_s:+8.0f}  {verdict}",
                flush=True,
            )
        counted += [one for one in effects if one.counts]
    print(f"sign right: {sum(one.right for one in counted)} of {len(counted)} that exceed their noise")


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:] if text != "hides"]
    main(*numbers, *(20, 900, 30)[len(numbers) :], hides="hides" in sys.argv)
