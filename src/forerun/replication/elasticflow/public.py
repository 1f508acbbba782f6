"""The public traces, cluster specifications and throughput tables of ElasticFlow, for reproductions and examples."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from forerun.data import dataset
from forerun.domains.cluster.inputs.files import jobs_of, read_cluster, read_jobs, read_profile
from forerun.domains.cluster.inputs.setting import Setting, ThroughputTable


def public_path(name: str) -> Path:
    """A file or folder of the cluster domain's public data, from the offline mirror, the cache or its publisher.

    Raises DataError if it cannot be had.
    """
    return dataset(f"cluster/{name}")


@cache
def public_profile(gpu_type: str) -> ThroughputTable:
    """The measured throughput of a GPU type (A100 or T4)."""
    return read_profile(public_path(f"throughputs_{gpu_type}"), gpu_type)


def public_setting(
    trace: str,
    cluster: str,
    slot_s: int,
    gpu_type: str = "A100",
    *,
    first: int = 0,
    corrected: frozenset[str] = frozenset(),
) -> Setting:
    """A setting of the public data: the path of a trace, the name of a cluster specification; `first` jobs only."""
    profile = public_profile(gpu_type)
    jobs = jobs_of(read_jobs(public_path(trace)), profile)
    return Setting(
        jobs=jobs.take(range(min(first, len(jobs)))) if first else jobs,
        cluster=read_cluster(public_path(f"cluster_specs/{cluster}.csv"), gpu_type),
        profile=profile,
        slot_s=slot_s,
        gpu_type=gpu_type,
        corrected=corrected,
    )
