"""The loops and laws against exact vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forerun.loading.engine import laws
from forerun.loading.engine.kernels.deliver import Pool, deliver, deliver_pooled
from forerun.loading.engine.model import CacheModel, Reader, StoreModel, batches_of
from forerun.loading.engine.threads import hits_of, open_caches, stream
from forerun.loading.policy import UNBOUNDED

from .reference import cached_rate, equal_batches_total_s, lru_hit_share, pinned_hit_share

Golden = Callable[[str], Any]
Limit = Callable[[float | None], float]


def close(ours: float | None, given: float | None, tolerance: float) -> bool:
    if given is None:
        return ours is None or math.isinf(ours)
    return ours is not None and abs(ours - given) <= tolerance * max(1.0, abs(given))


def test_threads_over_a_store(golden: Golden, unlimited: Limit) -> None:
    for case in golden("threads_vectors.json"):
        reader = Reader(
            [np.array(block, float) for block in case["blocks"]],
            threads=case["n_threads"],
            batch=case["batch"],
            step_s=case["consume_s"],
            decode_s=case["decode_s"],
            buffer_samples=case["buffer_samples"] or UNBOUNDED,
            drop_last=case["drop_last"],
        )
        store = StoreModel(
            conn_bytes_per_s=unlimited(case["conn_bw"]),
            shared_bytes_per_s=unlimited(case["shared_bw"]),
            slots=case["slots"] or 0,
            requests_per_s=unlimited(case["iops"]),
            burst=case["burst"] or 1,
            client_s=case["client_s"],
        )
        run = stream([reader], store, latency_s=case["latency_s"])
        job = run.jobs[0]
        assert close(job.total_s, case["total_s"], 1e-9)
        assert np.allclose(job.load_s, case["load_s"], rtol=1e-9, atol=1e-12)
        assert run.most_in_flight == case["max_in_flight"]
        assert run.bytes_requested == case["bytes_requested"]
        for row in case["requests"]:
            for name, ours in (
                ("ask_s", job.requests.taken_s),
                ("grant_s", job.requests.grant_s),
                ("first_byte_s", job.requests.first_byte_s),
                ("done_s", job.requests.done_s),
            ):
                assert close(ours[row["block"]], row[name], 1e-9), name


def test_delivery_by_workers(golden: Golden) -> None:
    for case in golden("wave_vectors.json"):
        plan = batches_of(
            case["samples"], case["batch"], case["workers"], case["partition"], drop_last=case["drop_last"]
        )
        assert len(plan) == case["steps"]
        build_s = case["build_s"] * plan.samples / case["batch"]
        on_order = case["workers"] * case["prefetch"]
        found = deliver(
            plan.worker, build_s, np.array([case["consume_s"]]), np.array(case["start_s"]), on_order
        )
        shown = "load_s_shown" in case
        loads = np.r_[found.load_s[:10], found.load_s[-2:]] if shown else found.load_s
        assert np.allclose(loads, case["load_s"], rtol=1e-9, atol=1e-12)
        assert close(found.total_s, case["total_s"], 1e-9)
        assert close(float(found.load_s.sum()), case["load_sum_s"], 1e-9)
        sizes = (
            np.r_[plan.samples[:10], plan.samples[-2:]]
            if len(case["batch_samples"]) < len(plan)
            else plan.samples
        )
        assert sizes.tolist() == case["batch_samples"]
        if "closed_form_total_s" in case:
            law = equal_batches_total_s(len(plan), case["workers"], case["build_s"], case["consume_s"])
            assert close(law, case["closed_form_total_s"], 1e-12)
            assert close(law, found.total_s, 1e-12)


def test_delivery_by_pooled_workers(golden: Golden) -> None:
    for case in golden("pool_vectors.json"):
        plan = batches_of(case["samples"], case["batch"], case["workers"], "contiguous", take_all=True)
        pool = Pool(
            case["threads"], case["block_samples"], case["read_fixed_s"], case["read_per_sample_s"],
            case["decode_s"], case["collate_fixed_s"], case["collate_per_sample_s"],
        )  # fmt: skip
        on_order = case["workers"] * case["prefetch"]
        found = deliver_pooled(
            plan.worker,
            plan.samples,
            np.array([case["consume_s"]]),
            np.zeros(case["workers"]),
            on_order,
            pool,
        )
        assert plan.samples.tolist() == case["batch_samples"]
        assert np.allclose(found.load_s, case["load_s"], rtol=1e-9, atol=1e-12)
        assert close(found.total_s, case["total_s"], 1e-9)


@pytest.mark.parametrize("policy", ["lru", "fifo", "clock", "pinned"])
def test_caches(golden: Golden, policy: Any) -> None:
    for case in golden("cache_vectors.json"):
        keys, sizes = zip(*case["sequence"])
        caches = open_caches([CacheModel(case["capacity"], policy)], max(keys) + 1)
        hits = hits_of(caches, 0, keys, sizes)
        assert hits.astype(int).tolist() == case[policy]["hits"]
        assert caches.about[0, 1] == case[policy]["most_held"]


def setting(given: dict[str, Any], unlimited: Limit) -> laws.Setting:
    return laws.Setting(
        threads=given["T"], block_samples=given.get("n", 1), sample_bytes=given["s"], latency_s=given["l"],
        decode_s=given["p"], step_s=given["c"], batch=given["B"], conn_bytes_per_s=unlimited(given["b"]),
        shared_bytes_per_s=unlimited(given.get("bs")), decode_cpu_s=given.get("p_cpu", 0.0),
        cores=unlimited(given.get("cores")), slots=given.get("M") or 0, requests_per_s=unlimited(given.get("R")),
    )  # fmt: skip


def check_hiding(found: laws.Hiding, given: dict[str, Any]) -> None:
    assert close(found.slack_s, given["denominator_s"], 1e-12)
    assert close(found.exact_samples, given["n_star"], 1e-12)
    assert found.blocks_of == given["n_blocks"]
    assert found.least_threads == (given["t_min"] or 0)


def test_laws(golden: Golden, unlimited: Limit) -> None:
    vectors = golden("law_vectors.json")
    for case in vectors["throughput"]:
        found = laws.explain(setting(case["given"], unlimited))
        assert found.terms.keys() == case["terms"].keys()
        assert all(close(found.terms[name], value, 1e-12) for name, value in case["terms"].items())
        assert found.bottleneck == case["bottleneck"]
        assert close(found.samples_per_s, case["samples_per_s"], 1e-12)
        assert close(found.in_flight, case["in_flight"], 1e-12)
        check_hiding(found.hiding, case["hide"])
    for case in vectors["hide_examples"]:
        check_hiding(laws.hiding(setting(case["given"], unlimited)), case["hide"])
    for case in vectors["cache"]:
        share = case["given"]["cache_share"]
        assert close(float(lru_hit_share(share)), case["lru_fresh_permutation"], 1e-12)
        assert close(float(pinned_hit_share(share)), case["pinned"], 1e-12)
    for case in vectors["cached_store"]:
        given = case["given"]
        assert close(
            cached_rate(given["f_star"], given["b_remote"], given["cache_share"]),
            case["throughput"],
            1e-12,
        )
    for case in vectors["payback"]:
        assert close(laws.payback_epochs(**case["given"]), case["payback_epochs"], 1e-12)
    for case in vectors["equal_batches_total"]:
        given = case["given"]
        total = equal_batches_total_s(given["N"], given["W"], given["build_s"], given["consume_s"])
        assert close(total, case["total_s"], 1e-12)
