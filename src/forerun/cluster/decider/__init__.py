"""A scheduler in another process: a policy whose decisions another program makes, over a pipe, in JSON lines.

A scenario never names a program. Who runs it gives one, and the run's id has the digests of its files, and its arguments.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

import msgspec
import numpy as np

from forerun.cluster.decider.program import Fault, Process
from forerun.cluster.decider.protocol import (
    PROTOCOL,
    Answer,
    Hello,
    allocation_of,
    answered,
    hello_line,
    view_line,
)
from forerun.cluster.policy import Allocation, Allocator, OracleView, Policy, View
from forerun.core.domain import Program
from forerun.core.errors import PolicyError, UsageError
from forerun.core.registry import member_name
from forerun.core.regular import unreadable
from forerun.core.result.run import SavedRun
from forerun.core.scenario.spec import Input, file_digest, to_data
from forerun.core.scenario.text import Document
from forerun.core.scenarios import build

#: seconds that an answer may take, where the command line does not say
ANSWER_S: Final = 60.0


class Decider(Allocator, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="decider"):
    """Another program decides, in the place of a policy, on the inputs and at the instants of that policy.

    Parameters
    ----------
    argv : the program and its arguments.
    files : those among them, the program first, pinned by their digests.
    stands_for : the policy whose inputs and rounds it gets.
    oracle : whether it is shown the work of jobs, which no real scheduler knows (default: no).
    answer_s : seconds that an answer may take (default: ANSWER_S); the run ends if one takes longer.
    """

    added_later: ClassVar[tuple[str, ...]] = ("answer_s",)

    argv: tuple[str, ...]
    files: tuple[Input, ...]
    stands_for: Policy
    oracle: bool = False
    answer_s: Annotated[float, msgspec.Meta(gt=0)] | None = None

    @classmethod
    def of(
        cls, argv: Sequence[str], stands_for: Policy, *, oracle: bool = False, answer_s: float | None = None
    ) -> Self:
        """The policy of a program. Raises UsageError for one that cannot be run, or a file that cannot be read."""
        if os.name != "posix":
            raise UsageError.at("--decider", "needs Linux or macOS")
        if not argv or "\0" in "".join(argv):
            raise UsageError.at("--decider", "needs a program: --decider -- PROGRAM ARGUMENTS...")
        found = [_executable(argv[0])]
        for word in argv[1:]:  # FILE, or --option=FILE
            found += [text for text in dict.fromkeys((word, word.partition("=")[2])) if _is_file(text)]
        files = []
        for path in found:
            try:
                files.append(Input(path=str(Path(path).resolve()), sha256=file_digest(Path(path))))
            except OSError as error:
                raise UsageError.at("--decider", f"{path} {unreadable(error)}") from None
        rounds = stands_for.round_s if isinstance(stands_for, Allocator) else 0.0
        return cls(
            argv=tuple(argv), files=tuple(files), stands_for=stands_for, oracle=oracle, answer_s=answer_s,
            round_s=rounds,
        )  # fmt: skip

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns that the policy uses in whose place it stands."""
        return self.stands_for.needs

    @property
    def keeps_requests(self) -> bool:
        """Whether that policy keeps jobs on the GPUs that they ask for."""
        return self.stands_for.keeps_requests

    @property
    def places(self) -> bool:  # type: ignore[override]
        """Whether that policy names nodes."""
        return isinstance(self.stands_for, Allocator) and self.stands_for.places

    @property
    def sees(self) -> type[View]:  # type: ignore[override]
        """The type of its views."""
        return OracleView if self.oracle else View

    @property
    def label(self) -> str:
        """The program in short."""
        return f"decider({Path(self.files[-1 if len(self.files) == 2 else 0].path).name})"

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result must know."""
        files = ", ".join(f"{Path(one.path).name} (SHA-256 {one.sha256[:12]})" for one in self.files)
        notes = [f"decided by another program in the place of {member_name(type(self.stands_for))}: {files}"]
        if self.oracle:
            notes.append("the program was shown how long jobs take, which no real scheduler knows")
        return tuple(notes)

    def build(self, rng: np.random.Generator) -> DeciderScheduler:
        """A scheduler that starts the program when it is first asked."""
        return DeciderScheduler(self, int(rng.integers(1 << 53)))


class DeciderScheduler:
    """A program at work in one run."""

    def __init__(self, policy: Decider, seed: int) -> None:
        self.policy, self.seed = policy, seed
        self._process: Process | None = None
        self._views = 0
        #: names of jobs by number, and those that are taken: ids may repeat in a log
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()

    def allocate(self, view: View) -> Allocation:
        """Show the program a view, and read its decision. Raises PolicyError where it gives none that may be read."""
        try:
            if self._process is None:
                self._process = self._started(view)
            self._views += 1
            names = [self._name(job, view) for job in view.job.tolist()]
            line = self._process.ask(view_line(view, self._views, names))
            return allocation_of(answered(line, Answer), self._views, view, names)
        except Fault as fault:
            self.close()
            raise PolicyError.at(f"t={view.now_s:g} s, {self.policy.label}", str(fault)) from None

    def close(self) -> None:
        """End the program."""
        if self._process is not None:
            self._process.close()

    def _started(self, view: View) -> Process:
        policy = self.policy
        for file in policy.files:
            try:
                same = file_digest(Path(file.path)) == file.sha256
            except OSError:
                same = False
            if not same:
                raise Fault(f"{file.path} has changed since it was named")
        process = Process(policy.argv, _executable(policy.argv[0]), policy.answer_s or ANSWER_S)
        self._process = process  # from here on it is closed, whatever comes
        hello = answered(process.ask(hello_line(view, policy.round_s, self.seed)), Hello)
        if hello.protocol != PROTOCOL:
            raise Fault(f"speaks {hello.protocol!r}; {PROTOCOL} is spoken here")
        return process

    def _name(self, job: int, view: View) -> str:
        if job not in self._names:
            text = str(view.ids[job])
            self._names[job] = text if text not in self._taken else f"{text}#{job}"
            self._taken.add(self._names[job])
        return self._names[job]


def decided_again(run: SavedRun, program: Program) -> SavedRun:
    """A run with the program that decided it, so that it can be simulated again. Raises UsageError for another program."""
    kept = run.scenario.get("policy")
    if not isinstance(kept, dict) or kept.get("name") != member_name(Decider):
        raise UsageError.at(run.folder, "was not decided by another program; leave --decider out")
    own = {**run.scenario, "policy": kept.get("stands_for")}
    scenario = build(Document(str(run.folder / "scenario.json"), own), base=Path.cwd())
    policy = Decider.of(
        program.argv, scenario.policy, oracle=bool(kept.get("oracle")), answer_s=program.answer_s
    )
    require_same(kept, policy, run.folder)
    return replace(run, scenario={**run.scenario, "policy": policy})


def require_same(kept: Mapping[str, Any], policy: Decider, where: object) -> None:
    """Raise UsageError unless a policy runs the program that a run has kept as plain data, with the same arguments."""
    now = to_data(policy)
    digests = [[one.get("sha256") for one in data.get("files", [])] for data in (kept, now)]
    if digests[0] != digests[1] or kept.get("argv", [])[1:] != now["argv"][1:]:
        what = "was decided by another program, or with other arguments, than are given"
        raise UsageError.at(where, what)


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # such as a word that is too long for a name
        return False


def _executable(word: str) -> str:
    """The file that a program's name stands for. Raises UsageError where there is none that can be run."""
    found = shutil.which(word)
    if found is None:
        what = "is not executable" if _is_file(word) else "is no program here"
        raise UsageError.at("--decider", f"{word!r} {what}")
    return str(Path(found).absolute())  # links are not followed: programs look at their own names
