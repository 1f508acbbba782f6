"""An engine of one node without leases, for tests: its groups are real ranks, under the harness of `ranks`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.live.ranks import Group

from forerun.live import rank_messages as said
from forerun.live.engines.engine import Command, Drain, Heartbeat, Kill, Start
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    Left,
    Observation,
    Progressed,
    Started,
)


class GroupEngine:
    """See the module. folder: of the jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts: list[Start] = []
        self._group: Group | None = None
        self._read = 0
        self._left = False

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        start = self.starts[-1] if self.starts else None
        held = {start.job: start.epoch} if self._group is not None and start is not None else {}
        got: list[Observation | Heartbeat] = [Heartbeat("node", "boot", time.monotonic(), held)]
        if self._group is None or start is None:
            return got
        self._group._listen()
        ended = all(rank.poll() is not None for rank in self._group.ranks)
        if ended:
            self._group.ended()
        of = {"job": start.job, "epoch": start.epoch}
        for rank, one in self._group.said[self._read :]:
            match one:
                case said.Hello() if rank == 0:
                    got.append(Started(**of, node="node"))
                case said.FirstStep(step=step):
                    got.append(FirstStep(**of, step=step))
                case said.Progress(step=step, rate=rate):
                    got.append(Progressed(**of, step=step, rate=rate))
                case said.Saved(step=step, file=file, sha256=sha256):
                    got.append(Checkpointed(**of, step=step, file=file, sha256=sha256))
                case said.Leaving(why=why, step=step, detail=detail) if not self._left:
                    self._left = True
                    got.append(Left(**of, why=why, step=step, detail=detail))
        self._read = len(self._group.said)
        if ended:
            self._group.__exit__()
            self._group = None
            got.append(Gone(**of, node="node"))
        return got

    def wake(self) -> None:
        pass

    def send(self, command: Command) -> None:
        match command:
            case Start(spec=spec, slots=slots):
                assert self._group is None, "two groups at once"
                self.starts.append(command)
                ranks = len(slots["node"])
                arguments = spec.command[spec.command.index(sys.executable) + 1 :]
                self._read, self._left = 0, False
                self._group = Group(
                    self.folder / spec.name, arguments, ranks, epoch=command.epoch, iterations=spec.iterations,
                    batch=spec.batch, checkpoint=command.checkpoint, older=command.older, report_s=command.report_s,
                )  # fmt: skip
            case Drain():
                assert self._group is not None
                self._group.tell(said.Drain())
            case Kill():
                assert self._group is not None
                for rank in self._group.ranks:
                    rank.kill()

    def renew(self, beat: Heartbeat, term_s: float, groups: Mapping[str, int]) -> None:
        if beat.holds != groups and self._group is not None:
            for rank in self._group.ranks:
                rank.kill()

    def close(self) -> None:
        if self._group is not None:
            self._group.__exit__()
