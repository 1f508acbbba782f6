"""Views and decisions as JSON lines: what another program is shown, and what it may answer (examples/deciders/README.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from forerun.cluster.decider.program import Fault
from forerun.cluster.policy import Allocation, OracleView, View
from forerun.core.errors import worded
from forerun.core.scenario.spec import Spec
from forerun.core.trace.objects import parse_json
from forerun.core.trace.repair import shown
from forerun.core.version import VERSION

#: name and version of the protocol; a program repeats it in its first line
PROTOCOL: Final = "forerun-decider/1"
_MOST: Final = 1 << 31
_Count = Annotated[int, msgspec.Meta(ge=0, lt=_MOST)]
_Text = Annotated[str, msgspec.Meta(max_length=1000)]

#: the columns of jobs by name, with what they mean, and what makes them of a view and the names of its jobs
Column = tuple[str, str, Callable[[Any, list[str]], list[Any]]]
_COLUMNS: Final[tuple[Column, ...]] = (
    ("id", "its name", lambda view, names: names),
    ("gpus", "GPUs that it asks for", lambda view, names: view.gpus.tolist()),
    ("has", "GPUs that it has; 0: it waits", lambda view, names: view.held.tolist()),
    ("gpu_type", "number of the GPU type that it has, or had last", lambda view, names: view.gpu_type.tolist()),
    ("user", "who submitted it", lambda view, names: [view.users[job] for job in view.job.tolist()]),
    ("submit_s", "when it was submitted", lambda view, names: view.submit_s.tolist()),
    ("requested_s", "time limit that it asked for; null: none", lambda view, names: view.requested_s.tolist()),
    ("deadline_s", "its deadline; null: none", lambda view, names: view.deadline_s.tolist()),
    ("best_effort", "1: it goes without a deadline", lambda view, names: view.best_effort.tolist()),
    ("starts", "how often it was given GPUs, or others", lambda view, names: view.starts.tolist()),
    ("changed_s", "when its GPUs last changed", lambda view, names: view.changed_s.tolist()),
    ("served_gpu_s", "GPU-seconds that it has had", lambda view, names: view.served_gpu_s.tolist()),
    ("owed_s", "seconds until it works, after a change of its GPUs", lambda view, names: view.owed_s.tolist()),
    ("kind", "its row of `rate`; -1: it runs on what it asks for only", lambda view, names: view.kind.tolist()),
)  # fmt: skip


def _label(name: str, meaning: str) -> Column:
    return name, meaning, lambda view, names: [getattr(view.labels, name)[job] for job in view.job.tolist()]


_LABELS: Final = tuple(_label(name, f"its {name}; empty: none") for name in ("account", "partition", "qos"))
_NODES: Final[Column] = (
    "nodes", "GPUs that it has, by number of the node",
    lambda view, names: [view.on_nodes(at) if has else {} for at, has in enumerate(view.held.tolist())],
)  # fmt: skip
_ORACLE: Final[tuple[Column, ...]] = (
    ("left_s", "seconds of work left, on what it asks for", lambda view, names: view.left_s.tolist()),
    ("work_s", "seconds of work in all, on what it asks for", lambda view, names: view.work_s.tolist()),
)


def columns_of(view: View) -> tuple[Column, ...]:
    """The columns of a run's views."""
    labels = _LABELS if view.labels is not None else ()
    nodes = (_NODES,) if len(view.node_gpus) else ()
    return (*_COLUMNS, *labels, *nodes, *(_ORACLE if isinstance(view, OracleView) else ()))


def hello_line(view: View, round_s: float, seed: int) -> bytes:
    """The first line to a program, before the first view of a run.

    Parameters
    ----------
    view : the first.
    round_s : seconds between decisions; 0: at every arrival and end.
    seed : for random numbers.
    """
    cluster: dict[str, Any] = {
        "gpus": view.total,
        "gpu_types": [
            {"name": name, "gpus": gpus}
            for name, gpus in zip(view.types, view.type_total.tolist(), strict=True)
        ],
    }
    if len(view.node_gpus):
        nodes = zip(view.node_gpus.tolist(), view.node_type.tolist(), strict=True)
        cluster["nodes"] = [{"gpus": gpus, "gpu_type": number} for gpus, number in nodes]
    if view.rate.any():
        cluster["rate"] = view.rate.tolist()
    return _line(
        {
            "protocol": PROTOCOL,
            "forerun": VERSION,
            "seed": seed,
            "round_s": round_s,
            "slot_s": view.slot_s,
            "cluster": cluster,
            "columns": {name: meaning for name, meaning, _ in columns_of(view)},
        }
    )


def view_line(view: View, number: int, names: list[str]) -> bytes:
    """A view as a line.

    Parameters
    ----------
    view : what is shown.
    number : of the view in the run, from 1.
    names : of its jobs.
    """
    data: dict[str, Any] = {"view": number, "now_s": float(view.now_s), "gpus": view.total, "free": view.free}
    if len(view.node_gpus):
        data |= {"node_gpus": view.node_gpus.tolist(), "node_free": view.node_free.tolist()}
    if view.windows:
        data["maintenance"] = [
            {"from_s": one.from_s, "to_s": one.to_s, "gpus": one.gpus} for one in view.windows
        ]
    return _line(data | {"jobs": {name: make(view, names) for name, _, make in columns_of(view)}})


def _line(data: dict[str, Any]) -> bytes:
    return msgspec.json.encode(data) + b"\n"  # what is not finite is null


class Hello(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a program answers first: the protocol that it speaks."""

    protocol: _Text


class Answer(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a program decides on a view.

    Parameters
    ----------
    view : its number.
    gpus : by name of the job, how many it has from now on, or how many of which node; others keep what they have.
    gpu_types : by name of the job, the number of the type that they are of (default: the simulator chooses).
    wake_s : when to be asked again even if nothing happens before (default: never).
    refused : by name of the job, why it will never run.
    """

    view: int
    gpus: dict[str, _Count | dict[_Count, _Count]] = {}
    gpu_types: dict[str, _Count] = {}
    wake_s: float | None = None
    refused: dict[str, _Text] = {}


def answered(line: bytes, kind: type[Any]) -> Any:
    """An answer, checked. Raises Fault for what is none.

    Parameters
    ----------
    line : as the program wrote it.
    kind : Hello or Answer.
    """
    try:
        return msgspec.convert(parse_json(line.decode()), kind, str_keys=True)
    except UnicodeDecodeError:
        raise Fault(f"answered {shown(line[:60])}, which is not UTF-8") from None
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise Fault(f"answered {shown(line.decode())}: {_plain(worded(error))[:300]}") from None


def _plain(text: str) -> str:
    """A text of the program's as it may stand on a terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def allocation_of(answer: Answer, number: int, view: View, names: list[str]) -> Allocation:
    """A decision as an allocation. Raises Fault for one on another view, or on jobs that are not in it.

    Parameters
    ----------
    answer : the decision.
    number, view, names : as of `view_line`.
    """
    if answer.view != number:
        raise Fault(f"answered view {answer.view}, where view {number} was asked")
    place = {name: at for at, name in enumerate(names)}
    for name in (*answer.gpus, *answer.gpu_types, *answer.refused):
        if name not in place:
            raise Fault(f"decided on job {shown(name)}, which is neither waiting nor running")
    gpus, types, nodes = view.held.copy(), view.gpu_type.copy(), {}
    for name, given in answer.gpus.items():
        at = place[name]
        if isinstance(given, dict):
            nodes[at], gpus[at] = given, sum(given.values())
        else:
            gpus[at] = given
    for name, of in answer.gpu_types.items():
        if of >= len(view.type_total):
            raise Fault(
                f"named GPU type {of} for job {shown(name)}; there are {len(view.type_total)}, from 0"
            )
        types[place[name]] = of
    wake_s = math.inf if answer.wake_s is None else answer.wake_s
    if answer.wake_s is not None and not math.isfinite(wake_s):
        raise Fault("answered a wake_s that is too large a number")
    jobs = view.job.tolist()
    return Allocation(
        gpus,
        types if answer.gpu_types else None,
        wake_s,
        nodes or None,
        refused={jobs[place[name]]: _plain(why) for name, why in answer.refused.items()} or None,
    )
