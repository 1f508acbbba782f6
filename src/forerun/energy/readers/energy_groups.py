"""Groups of recurring submissions, as the Zeus project maps cluster traces to them (`alibaba_groups.csv`).

One row a submission: its group, when it started and ended, the data set it is mapped to, and its runtime over the
mean runtime of the jobs mapped to that data set. Submissions of a group may overlap, tie, or take no time at all.
"""

from __future__ import annotations

from forerun.core.errors import TraceError, known_names
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Mask, Rows, TableReader

RATIO = Field(name="runtime_ratio", unit="", meaning="runtime over the mean of its data set")


class EnergyGroups(TableReader, tag="energy_groups", frozen=True, kw_only=True):
    """CSV `group,start_time,end_time,dataset,runtime_ratio`, seconds [You et al., NSDI 2023, section 6.3].

    `group` and `dataset` keep the rows of one group or data set; empty keeps all.
    """

    group: str = ""
    dataset: str = ""

    about = "recurring submissions in groups, mapped to measured workloads (CSV, seconds)"
    makes = "recurrences"
    signature = ("group", "start_time", "end_time", "runtime_ratio")
    columns = (
        Field(name="group", kind="text", meaning="the recurring job"),
        Field(name="start_s", column="start_time", unit="s", meaning="instant of submission"),
        Field(name="end_s", column="end_time", unit="s", meaning="instant at which it ended"),
        Field(name="dataset", kind="text", meaning="the measured workload it is mapped to"),
        RATIO,
    )
    time = "start_s"

    def settle(self, rows: Rows) -> None:
        start, end = rows["start_s"], rows["end_s"]
        rows.reject(
            end < start, "end_time", lambda row: f"{end[row]:g} s is before the start, {start[row]:g} s"
        )
        rows.reject_unless_positive([RATIO])
        rows.complaints.finish()
        rows.sort("start_s")
        rows.keep(_chosen(rows, "group", self.group) & _chosen(rows, "dataset", self.dataset))


def _chosen(rows: Rows, column: str, name: str) -> Mask:
    """The rows whose column has this name, all if it is empty. Raises TraceError if there are none."""
    matches: Mask = (rows[column] == name) | (not name)
    if name and not matches.any():
        known = known_names(name, set(rows[column].tolist()))
        raise TraceError.at(rows.source.name, f"contains no {column} {name!r}; {known}")
    return matches
