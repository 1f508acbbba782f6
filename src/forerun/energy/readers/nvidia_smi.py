"""Power as `nvidia-smi --query-gpu=... --format=csv -l 1` prints it."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from forerun.core.trace.repair import shown
from forerun.core.trace.rows import Field, parse_instant
from forerun.core.trace.tabular import Rows, TableReader

_WATTS: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) W")


class NvidiaSmi(TableReader, tag="nvidia_smi", frozen=True, kw_only=True):
    """CSV `timestamp, index, ..., power.draw [W]`, one row a sample of a GPU; times are local, without a zone.

    A sample without a reading (`[N/A]`) is dropped and counted.
    """

    about = "nvidia-smi samples of power (CSV, local time, W)"
    makes = "power"
    signature = ("timestamp", "power.draw [W]")
    columns = (
        Field(name="at", column="timestamp", kind="text"),
        Field(name="gpu", column="index", kind="int", minimum=0, required=False, meaning="number of the GPU"),
        Field(name="power", column="power.draw [W]", kind="text"),
    )
    schema = (
        Field(name="t_s", unit="s", meaning="time since the first sample"),
        columns[1],
        Field(name="power_w", unit="W", meaning="power drawn"),
    )
    time = "t_s"

    def settle(self, rows: Rows) -> None:
        texts = rows["power"].tolist()
        rows.drop(
            np.array([text in ("[N/A]", "N/A", "[Not Supported]") for text in texts]),
            "sample without power dropped",
        )
        found = [_WATTS.fullmatch(text) for text in rows["power"].tolist()]
        wrong = np.array([match is None for match in found], np.bool_)
        rows.reject(
            wrong, "power.draw [W]", lambda row: f"{shown(rows['power'][row])} is no power such as 71.5 W"
        )
        instants = np.zeros(len(rows))
        for row, text in enumerate(rows["at"].tolist()):
            try:
                instants[row] = parse_instant(text.replace("/", "-")) / 1e9
            except ValueError as error:
                rows.complaints.add(rows.at(row, "timestamp"), str(error))
        if not len(rows):
            rows.complaints.add(rows.source.name, "no sample has a power")
        rows.complaints.finish()
        rows["power_w"] = np.array([float(match[1]) for match in found if match])
        rows["t_s"] = instants - instants.min()
