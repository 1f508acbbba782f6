"""What each start came to: its parts fill its time, whatever was or was not observed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from forerun.live.answers import Freed
from forerun.live.engines.engine import Command, Drain, Kill, Start
from forerun.live.observation import Checkpointed, FirstStep, Gone, LeaseExpired, Left, Progressed, Seen
from forerun.live.spec import JobSpec
from forerun.live.stays import STATES, Stay, stays_of

SPEC = JobSpec(name="a", command=("true",), iterations=100)


def start(**changes: Any) -> Start:
    return Start(**{"job": "a", "epoch": 1, "slots": {"n": (0, 1)}, "spec": SPEC, **changes})


def observed(*events: tuple[float, Any]) -> tuple[list[Seen], list[tuple[int, float, Command]]]:
    """Observations and commands as a journal has them, from both in order."""
    seen: list[Seen] = []
    sent: list[tuple[int, float, Command]] = []
    for at_s, what in events:
        if isinstance(what, Start | Drain | Kill):
            sent.append((len(seen), at_s, what))
        else:
            seen.append(Seen(len(seen) + 1, at_s, what))
    return seen, sent


def test_an_orderly_stay() -> None:
    (stay,) = stays_of(
        *observed(
            (0.0, start()),
            (2.0, FirstStep(job="a", epoch=1, step=0)),
            (12.0, Checkpointed(job="a", epoch=1, step=40, file="f", sha256="0")),
            (20.0, Drain("a", 1, 30.0)),
            (21.0, Left(job="a", epoch=1, why="drained", step=80)),
            (22.0, Gone(job="a", epoch=1, node="n")),
        )
    )
    assert list(stay.parts("n", 30.0)) == [
        ("starting", 0.0, 2.0), ("useful", 2.0, 20.0), ("draining", 20.0, 22.0)
    ]  # fmt: skip
    assert (stay.count, stay.step, stay.lost_steps) == (2, 80, 0)


def test_a_failed_stay_loses_what_it_did_after_its_checkpoint() -> None:
    (stay,) = stays_of(
        *observed(
            (0.0, start()),
            (2.0, FirstStep(job="a", epoch=1, step=10)),
            (12.0, Checkpointed(job="a", epoch=1, step=40, file="f", sha256="0")),
            (15.0, Progressed(job="a", epoch=1, step=60)),
            (16.0, Left(job="a", epoch=1, why="failed", step=60)),
            (17.0, Gone(job="a", epoch=1, node="n")),
        )
    )
    assert list(stay.parts("n", 30.0)) == [
        ("starting", 0.0, 2.0), ("useful", 2.0, 12.0), ("lost", 12.0, 16.0), ("draining", 16.0, 17.0)
    ]  # fmt: skip
    assert stay.lost_steps == 20


def test_a_node_that_went_silent_loses_all_since_the_checkpoint() -> None:
    (stay,) = stays_of(
        *observed(
            (0.0, start(slots={"n": (0,), "m": (3,)})),
            (2.0, FirstStep(job="a", epoch=1, step=0)),
            (5.0, Progressed(job="a", epoch=1, step=30)),
            (6.0, Kill("a", 1)),
            (7.0, Gone(job="a", epoch=1, node="m")),
            (18.0, LeaseExpired(job="a", epoch=1, node="n")),
        )
    )
    assert list(stay.parts("m", 30.0)) == [("starting", 0.0, 2.0), ("lost", 2.0, 6.0), ("draining", 6.0, 7.0)]
    assert [part[0] for part in stay.parts("n", 30.0)] == ["starting", "lost", "draining"]
    assert stay.end_s("n", 30.0) == 18.0 and stay.lost_steps == 30


def test_a_stay_ends_with_its_lease_where_nobody_saw_it_end() -> None:
    """A controller that was away learns from the node that the slots are free."""
    seen, sent = observed((0.0, start()), (2.0, FirstStep(job="a", epoch=1, step=0)))
    freed = Freed(job="a", epoch=1, node="n", slots=(0, 1), how="released")
    (stay,) = stays_of(seen, [*sent, (1, 9.0, freed)])
    assert list(stay.parts("n", 30.0)) == [("starting", 0.0, 2.0), ("lost", 2.0, 9.0)]


def test_a_running_stay_is_useful_so_far() -> None:
    (stay,) = stays_of(*observed((0.0, start()), (2.0, FirstStep(job="a", epoch=1, step=0))))
    assert list(stay.parts("n", 9.0)) == [("starting", 0.0, 2.0), ("useful", 2.0, 9.0)]


def test_observations_of_other_epochs_do_not_count() -> None:
    first, second = stays_of(
        *observed(
            (0.0, start()),
            (1.0, Gone(job="a", epoch=1, node="n")),
            (2.0, start(epoch=2)),
            (2.0, start(epoch=2)),  # sent again: idempotent
            (3.0, FirstStep(job="a", epoch=1, step=9)),
            (4.0, FirstStep(job="a", epoch=3, step=9)),
            (4.0, FirstStep(job="b", epoch=2, step=9)),
        )
    )
    assert (first.epoch, second.epoch, second.first_step_s, second.start_s) == (1, 2, None, 2.0)


instants = st.none() | st.floats(0, 50, allow_nan=False)


@given(
    instants, instants, instants, instants, instants, st.sampled_from(["", "finished", "drained", "failed"])
)
def test_the_parts_fill_the_stay(
    first: float | None, saved: float | None, asked: float | None, left: float | None, free: float | None, why: str
) -> None:  # fmt: skip
    """From the start to the end there is one state at every instant, in the order of a stay, in whatever order came."""
    stay = Stay(
        "a",
        1,
        10.0,
        {"n": (0,)},
        first,
        0,
        5,
        saved,
        3,
        asked,
        left,
        why,
        {} if free is None else {"n": free},
    )
    parts = list(stay.parts("n", 40.0))
    end = max(10.0, stay.end_s("n", 40.0))
    at = 10.0
    for _, from_s, to_s in parts:
        assert from_s == at and to_s > from_s
        at = to_s
    assert at == end or (not parts and end == 10.0)
    order = [STATES.index(state) for state, _, _ in parts]
    assert order == sorted(set(order))
