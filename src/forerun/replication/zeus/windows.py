"""Windows measured by a live profiler of power limits, in the format of the Zeus project.

One row a window, `start_time,window_name,elapsed_time,gpu0_energy,...`: the same number of training steps each, the
limit in watts at the end of the name, highest first; joules a GPU. Other windows in the file are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from forerun.core.errors import Problem, TraceError
from forerun.core.regular import open_regular
from forerun.core.trace.repair import Complaints, RepairLog
from forerun.core.trace.rows import Field, gathered, read_rows
from forerun.core.trace.source import Source
from forerun.energy.policy.live import Window

_LIMIT: Final = re.compile(r"_(\d+)$")
_GPU: Final = re.compile(r"gpu[0-9]{1,9}_energy")


@dataclass(frozen=True)
class Windows:
    """What was measured, in file order.

    Parameters
    ----------
    windows : limit [W], energy of all GPUs [J] and time of the job [s] of each window.
    gpus : on how many GPUs.
    """

    windows: tuple[Window, ...]
    gpus: int


def read_windows(path: str | Path, repairs: RepairLog | None = None) -> Windows:
    """The windows in a CSV; others than those of the profiler are left out.

    Parameters
    ----------
    path : the file.
    repairs : what was mended while reading is noted here (default: not kept).

    Raises
    ------
    TraceError : the file cannot be read or has no windows; the message names file, line and column.
    """
    source = Source(Path(path), repairs=repairs if repairs is not None else RepairLog())
    gpus = sorted(set(_GPU.findall(_header(Path(path)))), key=lambda name: int(name[3:-7]))
    if not gpus:
        raise TraceError(Problem(source.at(1), "has no column of joules, gpu0_energy, gpu1_energy ..."))
    fields = [
        Field(name="window_name", kind="text", meaning="ends in the limit in watts"),
        Field(name="time_s", column="elapsed_time", unit="s", meaning="time of the window"),
        *(Field(name=gpu, unit="J", meaning="energy of one GPU") for gpu in gpus),
    ]
    complaints = Complaints()
    rows = gathered(read_rows(source, fields, complaints=complaints))
    total = np.sum([rows.columns[gpu] for gpu in gpus], axis=0)
    windows = []
    for at, name in enumerate(rows.columns["window_name"].tolist()):
        limit = _LIMIT.search(name)
        if limit is None:
            continue
        seconds, joules = float(rows.columns["time_s"][at]), float(total[at])
        for value, column in ((seconds, "elapsed_time"), (joules, gpus[0])):
            if not value > 0:
                complaints.add(source.at(int(rows.lines[at]), column), f"{value:g} is not above 0")
        windows.append(Window(float(limit.group(1)), joules, seconds))
    complaints.finish()
    if not windows:
        raise TraceError(
            Problem(source.name, "has no window whose name ends in a limit, such as profile_250")
        )
    return Windows(tuple(windows), len(gpus))


def _header(path: Path) -> str:
    """The first line, empty if there is none that can be read; reading the rows reports what is wrong with the file."""
    try:
        with open_regular(path) as file:
            return file.readline(1 << 16).decode("utf-8", "replace")
    except OSError:
        return "gpu0_energy"
