"""vLLM's scheduler beside ours on drawn workloads, step for step.

python -m validation.vllm.differences [--newest 1000] [--earlier 100] [--from 0] [--record FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.serving.vllm_steps import Trace, forerun, minor, right

from forerun.serving.llm.policy.scheduling import scheduler_policies
from forerun.serving.llm.policy.vllm import Vllm
from validation.vllm.environment import prepare, steps
from validation.vllm.workloads import MODES, drawn

#: workloads that one process of vLLM is given
TOGETHER: Final = 500


@dataclass
class Count:
    """What was compared in one mode.

    Parameters
    ----------
    workloads : how many. different : of these, those that part somewhere. preempting : those in which somebody is preempted.
    steps : how many. full : of these, with a full budget or full seats.
    vllm_s, forerun_s : processor time of both schedulers.
    examples : where the first ones part.
    failed : workloads that vLLM itself gives up, where it does; they are not counted.
    """

    workloads: int = 0
    different: int = 0
    preempting: int = 0
    steps: int = 0
    full: int = 0
    vllm_s: float = 0.0
    forerun_s: float = 0.0
    examples: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def vllm(run: dict[str, Any]) -> Trace:
    """What the rig wrote."""
    return Trace([[row[0], *row[2:]] for row in run["steps"]], run["first"], run["last"])


def compare(version: str, seeds: range, modes: Sequence[str] = tuple(MODES)) -> dict[str, Count]:
    """A version beside ours on the workloads of each mode."""
    counts = {mode: Count() for mode in modes}
    every = [(mode, seed) for seed in seeds for mode in modes]
    for begin in range(0, len(every), TOGETHER):
        some = every[begin : begin + TOGETHER]
        workloads = [{**one, "right": right(one)} for one in (drawn(mode, seed) for mode, seed in some)]
        for (mode, seed), workload, run in zip(some, workloads, steps(workloads, version), strict=True):
            if run["failed"]:
                counts[mode].failed = (*counts[mode].failed, f"{mode} {seed}: {run['failed']}")
                continue
            mine, taken_s = forerun(workload, minor(version))
            count, rows = counts[mode], run["steps"]
            count.workloads += 1
            count.steps += len(rows)
            count.full += sum(
                row[1] >= workload["token_budget"] or row[4] >= workload["max_seqs"] for row in rows
            )
            count.preempting += rows[-1][-1] > 0
            count.vllm_s += run["processor_s"]
            count.forerun_s += taken_s
            where = mine.first_difference(vllm(run))
            if where:
                count.different += 1
                count.examples = (*count.examples, f"{mode} {seed}: {where}")[:3]
    return counts


def releases() -> list[str]:
    """Those that a scheduler of ours equals, the newest first."""
    kinds = [scheduler_policies().get(name) for name in scheduler_policies().names()]
    found = [kind.release for kind in kinds if issubclass(kind, Vllm)]
    return sorted(found, key=lambda one: tuple(map(int, one.split("."))), reverse=True)


def record(version: str, modes: Sequence[str], folder: Path) -> None:
    """Write short workloads with vLLM's steps for the ordinary suite.

    One of each mode in which somebody is preempted; of an earlier version, one that the newest answers differently.
    """
    kept, newest = [], minor(releases()[0])
    for mode in modes:
        every = [{**one, "right": right(one)} for one in (drawn(mode, seed) for seed in range(150))]
        some = [one for one in every if len(one["requests"]) <= 40]
        if minor(version) != newest:
            some = [one for one in some if forerun(one, newest)[0] != forerun(one, minor(version))[0]]
        ran = [(len(run["steps"]), one, run) for one, run in zip(some, steps(some, version), strict=True)]
        long = [one for one in ran if one[0] > 40 and one[2]["steps"][-1][-1]]
        for _, workload, run in sorted(long, key=lambda one: one[0])[:1]:
            kept.append({"mode": mode, "workload": {**workload, "right": []}, **vars(vllm(run))})
    text = json.dumps(kept, separators=(",", ":")).replace('{"mode"', '\n{"mode"')
    (folder / f"vllm-{version}.json").write_text(text + "\n")


def main() -> None:
    """Compare, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--newest", type=int, default=1000, help="workloads a mode for the newest version")
    parser.add_argument("--earlier", type=int, default=100, help="and for each earlier one")
    parser.add_argument("--from", dest="begin", type=int, default=0, help="the first seed")
    parser.add_argument("--record", type=Path, default=Path(__file__).with_name("record.json"))
    given = parser.parse_args()
    newest, *earlier = releases()
    prepare(newest)
    # The first run compiles.
    forerun(drawn("default", 0), minor(newest))
    found: dict[str, dict[str, Count]] = {}
    for version in (newest, *earlier):
        seeds = range(given.begin, given.begin + (given.newest if version == newest else given.earlier))
        found[version] = compare(version, seeds) if len(seeds) else {}
        for mode, count in found[version].items():
            ratio = count.vllm_s / count.forerun_s
            print(
                f"{version} {mode}: {count.different} of {count.workloads} differ, {ratio:.0f} times",
                flush=True,
            )
        rows = {one: {mode: vars(count) for mode, count in counts.items()} for one, counts in found.items()}
        given.record.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
