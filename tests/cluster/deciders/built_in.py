"""A program that lets a policy of forerun's own decide: python built_in.py NAME|MODULE:CLASS [CACHE]."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

if sys.argv[2:]:  # nothing of the environment comes here
    os.environ["FORERUN_CACHE_DIR"] = sys.argv[2]
sys.path.insert(0, str(Path(__file__).parents[3]))

from forerun.cluster.policy import Allocation, View, schedulers

INF = float("inf")


def policy_of(name: str) -> Any:
    """A policy by name, or by module and class."""
    module, colon, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)() if colon else schedulers().get(name)()


def numbers(values: list[Any]) -> list[float]:
    """Numbers of a column, in which null is infinite."""
    return [INF if value is None else value for value in values]


class Shown:
    """The views of a run, as they came over the pipe."""

    def __init__(self, policy: Any, hello: dict[str, Any]) -> None:
        cluster = hello["cluster"]
        types = np.array([each["gpus"] for each in cluster["gpu_types"]])
        rate = np.array(cluster.get("rate", np.zeros((len(types), 1, 1))))
        self.view: View = policy.sees(cluster["gpus"], rate, types)
        self.view.slot_s = hello["slot_s"]
        self.nodes = cluster.get("nodes", ())
        self.number: dict[str, int] = {}

    def of(self, data: dict[str, Any]) -> View:
        """The view of a line."""
        view, jobs = self.view, data["jobs"]
        for name in jobs["id"]:
            self.number.setdefault(name, len(self.number))
        view.now_s, view.total, view.free, view.count = (
            data["now_s"],
            data["gpus"],
            data["free"],
            len(jobs["id"]),
        )
        view.ids = tuple(self.number)
        rows = [self.number[name] for name in jobs["id"]]
        users = list(dict.fromkeys(jobs["user"]))
        if self.nodes:
            view.node_gpus, view.node_free = np.array(data["node_gpus"]), np.array(data["node_free"])
            view.node_type = np.array([node["gpu_type"] for node in self.nodes])
            held = {row: {int(node): n for node, n in on.items()} for row, on in zip(rows, jobs["nodes"])}
            view.nodes_of_job = held.__getitem__
        nothing = [0.0] * view.count
        view.float_columns = np.array(
            [
                jobs["submit_s"], numbers(jobs["deadline_s"]), jobs["served_gpu_s"],
                [data["now_s"] - at_s for at_s in jobs["changed_s"]], jobs.get("left_s", nothing),
                jobs.get("work_s", nothing), numbers(jobs["requested_s"]), jobs["changed_s"], jobs["owed_s"],
            ]
        )  # fmt: skip
        view.int_columns = np.array(
            [
                rows, jobs["gpus"], jobs["has"], jobs["kind"], [users.index(name) for name in jobs["user"]],
                jobs["best_effort"], jobs["gpu_type"], [0] * view.count, jobs["starts"],
            ]
        )  # fmt: skip
        return view


def answer_of(allocation: Allocation, view: View, data: dict[str, Any]) -> dict[str, Any]:
    """An allocation as a line."""
    names, gpus = data["jobs"]["id"], allocation.gpus.tolist()
    given: dict[str, Any] = dict(zip(names, gpus, strict=True))
    for at, on in (allocation.nodes or {}).items():
        given[names[at]] = {str(node): count for node, count in on.items()}
    answer: dict[str, Any] = {"view": data["view"], "gpus": given}
    if allocation.gpu_type is not None:
        answer["gpu_types"] = dict(zip(names, allocation.gpu_type.tolist(), strict=True))
    if allocation.wake_s < INF:
        answer["wake_s"] = float(allocation.wake_s)
    jobs = view.job.tolist()
    answer["refused"] = {names[jobs.index(job)]: why for job, why in (allocation.refused or {}).items()}
    return answer


def main() -> None:
    """Speak the protocol until the input ends."""
    hello = json.loads(sys.stdin.readline())
    policy = policy_of(sys.argv[1])
    scheduler = policy.build(np.random.default_rng(hello["seed"]))
    shown = Shown(policy, hello)
    print(json.dumps({"protocol": hello["protocol"]}), flush=True)
    for line in sys.stdin:
        data = json.loads(line)
        view = shown.of(data)
        print(json.dumps(answer_of(scheduler.allocate(view), view, data)), flush=True)


if __name__ == "__main__":
    main()
