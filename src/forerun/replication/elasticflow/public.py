"""The public traces, cluster specifications and throughput tables of ElasticFlow, for reproductions and examples."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from forerun.cluster.inputs.arrays import ThroughputTable
from forerun.cluster.inputs.files import jobs_of, read_cluster, read_jobs, read_profile
from forerun.cluster.inputs.setting import Setting
from forerun.core.data.fetch import dataset


def public_path(name: str) -> Path:
    """A file or folder of the cluster domain's public data, from the offline mirror, the cache or its publisher.

    Parameters
    ----------
    name : path below the domain's data.

    Raises
    ------
    DataError : it cannot be had.
    """
    return dataset(f"cluster/{name}")


@cache
def public_profile(gpu_type: str) -> ThroughputTable:
    """The measured throughput of a GPU type, read once.

    Parameters
    ----------
    gpu_type : `A100` or `T4`.

    Raises
    ------
    DataError : the tables cannot be had.
    """
    return read_profile(public_path(f"throughputs_{gpu_type}"), gpu_type)


def public_setting(
    trace: str,
    cluster: str,
    slot_s: int,
    gpu_type: str = "A100",
    *,
    first: int = 0,
) -> Setting:
    """A setting of the public data: a trace on a cluster, with the measured throughput.

    Parameters
    ----------
    trace : path of the trace below the domain's data.
    cluster : name of a cluster specification, such as `n16g4`.
    slot_s : length of a scheduling slot [s].
    gpu_type : `A100` or `T4` (default: A100).
    first : only so many jobs of the trace (default: 0, all).

    Raises
    ------
    DataError : a file cannot be had.
    """
    profile = public_profile(gpu_type)
    jobs = jobs_of(read_jobs(public_path(trace)), profile)
    return Setting(
        jobs=jobs.take(range(min(first, len(jobs)))) if first else jobs,
        cluster=read_cluster(public_path(f"cluster_specs/{cluster}.csv"), gpu_type),
        profile=profile,
        slot_s=slot_s,
        gpu_type=gpu_type,
    )
