"""Groups of recurring submissions, as the Zeus project maps cluster traces to them (`alibaba_groups.csv`).

One row a submission: its group, when it started and ended, the data set it is mapped to, and its runtime over the
mean runtime of the jobs mapped to that data set. Submissions of a group may overlap, tie, or take no time at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog
from forerun.trace.rows import Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of, sort_rows

FIELDS = (
    Field(name="group", kind="text", meaning="the recurring job"),
    Field(name="start_s", column="start_time", unit="s", meaning="instant of submission"),
    Field(name="end_s", column="end_time", unit="s", meaning="instant at which it ended"),
    Field(name="dataset", kind="text", meaning="the measured workload it is mapped to"),
    Field(name="runtime_ratio", unit="", meaning="runtime over the mean of its data set"),
)


class EnergyGroups(TraceReader, tag="energy_groups", frozen=True, kw_only=True):
    """CSV `group,start_time,end_time,dataset,runtime_ratio`, seconds [You et al., NSDI 2023, section 6.3].

    `group` and `dataset` keep the rows of one group or data set; empty keeps all.
    """

    about: ClassVar[str] = "recurring submissions in groups, mapped to measured workloads (CSV, seconds)"
    makes: ClassVar[str] = "recurrences"

    group: str = ""
    dataset: str = ""

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("group", "start_time", "end_time", "runtime_ratio")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        complaints = Complaints()
        rows = gathered(read_rows(source, FIELDS, complaints=complaints))
        start, end, ratio = (rows.columns[name] for name in ("start_s", "end_s", "runtime_ratio"))
        for at in np.flatnonzero(end < start).tolist():
            where = source.at(int(rows.lines[at]), "end_time")
            complaints.add(where, f"{end[at]:g} s is before the start, {start[at]:g} s")
        for at in np.flatnonzero(ratio <= 0).tolist():
            complaints.add(source.at(int(rows.lines[at]), "runtime_ratio"), f"{ratio[at]:g} is not above 0")
        complaints.finish()
        columns = sort_rows(rows.columns, "start_s", lambda i: source.at(int(rows.lines[i])), repairs)
        kept = self._wanted(columns["group"], self.group, "group", source)
        kept &= self._wanted(columns["dataset"], self.dataset, "dataset", source)
        return Trace(
            "recurrences",
            schema_of(FIELDS),
            {name: values[kept] for name, values in columns.items()},
            time="start_s",
            provenance=self.provenance(source, repairs),
        )

    @staticmethod
    def _wanted(values: np.ndarray, name: str, what: str, source: Source) -> np.ndarray:
        from forerun.errors import Problem, TraceError, known_names

        if not name:
            return np.ones(len(values), bool)
        kept = np.array([value == name for value in values.tolist()])
        if not kept.any():
            known = sorted(set(values.tolist()))
            raise TraceError(Problem(source.name, f"holds no {what} {name!r}; {known_names(name, known)}"))
        return kept
