"""Timelines: who was in which state, from when to when, and why.

Kept as arrays of codes, so that a million intervals are cheap. Exported as Chrome trace JSON, which Perfetto opens:
one track an entity, slices that nest, gzip where the name ends in .gz.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.core.errors import CheckFailed

#: slices in an exported file above which each track is thinned
MAX_SLICES: Final = 200_000


@dataclass(frozen=True, repr=False)
class Timeline:
    """Intervals [from, to) on tracks.

    entity, state, cause: int codes into `entities`, `states`, `causes` (cause -1: none). from_s, to_s: float64
    seconds. label: text of each interval, or an empty array. `groups` names the group (process) of each entity.
    """

    entities: tuple[str, ...]
    states: tuple[str, ...]
    entity: np.ndarray[Any, Any]
    state: np.ndarray[Any, Any]
    from_s: np.ndarray[Any, Any]
    to_s: np.ndarray[Any, Any]
    causes: tuple[str, ...] = ()
    cause: np.ndarray[Any, Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    label: np.ndarray[Any, Any] = field(default_factory=lambda: np.empty(0, dtype=object))
    groups: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<timeline of {len(self.entities)} tracks, {len(self)} intervals>"

    def __len__(self) -> int:
        return len(self.from_s)

    def check(self) -> None:
        """Intervals do not run backwards, and those of one track do not overlap. Raises CheckFailed."""
        if np.any(self.to_s < self.from_s):
            at = int(np.argmax(self.to_s < self.from_s))
            raise CheckFailed.at(
                "timeline", f"interval {at} ends at {self.to_s[at]} before it begins at {self.from_s[at]}"
            )
        order = np.lexsort((self.to_s, self.from_s, self.entity))
        same = self.entity[order][1:] == self.entity[order][:-1]
        late = self.to_s[order][:-1] > self.from_s[order][1:]
        if np.any(same & late):
            at = int(np.argmax(same & late))
            who = self.entities[int(self.entity[order][at])]
            raise CheckFailed.at(
                "timeline", f"two intervals of {who!r} overlap at {self.from_s[order][at + 1]} s"
            )

    def thinned(self, most: int) -> tuple[Timeline, int]:
        """At most about `most` intervals, and how many were dropped.

        On each track the longest intervals stay; the track's first and last stay too, so its span does not shrink.
        """
        if len(self) <= most:
            return self, 0
        share = most / len(self)
        keep = np.zeros(len(self), dtype=bool)
        for code in range(len(self.entities)):
            rows = np.flatnonzero(self.entity == code)
            if not len(rows):
                continue
            length = self.to_s[rows] - self.from_s[rows]
            longest = np.argsort(-length, kind="stable")[: max(2, int(share * len(rows)))]
            keep[rows[longest]] = True
            keep[rows[[np.argmin(self.from_s[rows]), np.argmax(self.to_s[rows])]]] = True
        return self._rows(np.flatnonzero(keep)), int(len(self) - keep.sum())

    def _rows(self, rows: np.ndarray[Any, Any]) -> Timeline:
        return Timeline(
            self.entities, self.states, self.entity[rows], self.state[rows], self.from_s[rows], self.to_s[rows],
            self.causes, self.cause[rows] if len(self.cause) else self.cause,
            self.label[rows] if len(self.label) else self.label, self.groups,
        )  # fmt: skip

    def write_chrome_trace(self, path: Path, *, max_slices: int = MAX_SLICES) -> int:
        """Write as Chrome trace JSON (gzip if the name ends in .gz); returns how many intervals were left out.

        Times are microseconds. The file says in `otherData` how many intervals were left out.
        """
        thin, dropped = self.thinned(max_slices)
        text = "".join(thin._chrome_lines(dropped)).encode()
        # A fixed time stamp and no file name: the same timeline gives the same bytes.
        path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
        return dropped

    def _chrome_lines(self, dropped: int) -> Iterator[str]:
        """The lines of a trace in the format of Chrome and Perfetto."""
        yield (
            '{"displayTimeUnit":"ms","otherData":'
            + json.dumps({"intervals_left_out": dropped})
            + ',"traceEvents":[\n'
        )
        groups = self.groups or ("tracks",) * len(self.entities)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(groups), start=1)}
        lines = [
            {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
            for name, number in numbers.items()
        ]
        for code, name in enumerate(self.entities):
            about = {"pid": numbers[groups[code]], "tid": code + 1}
            lines.append({"ph": "M", "name": "thread_name", **about, "args": {"name": name}})
            lines.append({"ph": "M", "name": "thread_sort_index", **about, "args": {"sort_index": code}})
        yield ",\n".join(json.dumps(line) for line in lines)
        for row in np.lexsort((self.from_s, self.entity)):
            yield ",\n" + json.dumps(self._slice(int(row), groups, numbers))
        yield "\n]}\n"

    def _slice(self, row: int, groups: Sequence[str], numbers: dict[str, int]) -> dict[str, Any]:
        code = int(self.entity[row])
        state = self.states[int(self.state[row])]
        args: dict[str, Any] = {"state": state}
        if len(self.cause) and self.cause[row] >= 0:
            args["cause"] = self.causes[int(self.cause[row])]
        start_us = round(float(self.from_s[row]) * 1e6, 3)
        # Both ends are rounded, not the length: neighbours keep touching and never overlap.
        length_us = round(round(float(self.to_s[row]) * 1e6, 3) - start_us, 3)
        return {
            "ph": "X", "name": str(self.label[row]) if len(self.label) else state, "cat": state,
            "pid": numbers[groups[code]], "tid": code + 1, "ts": start_us, "dur": length_us, "args": args,
        }  # fmt: skip
