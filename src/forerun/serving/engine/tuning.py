"""Running a tuner: it is asked once a control period, between slices of the run and never inside one.

Control instants are j * period, j = 1, 2, ... up to the last arrival. At one the tuner sees every arrival up to it, and,
if it asks for them, the queues just before it; what takes effect at that instant comes before its arrivals. A tuner that
sees arrivals only is asked first and the pipeline run once; asking between slices gives the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from forerun.core.errors import PolicyError
from forerun.core.rng import stream
from forerun.serving.engine.outcome import Changes, Control, Decided, Run, TunerDecisions
from forerun.serving.inputs.clients import Clients
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import SOURCE, Floats, stretches
from forerun.serving.inputs.routing import incoming_edges
from forerun.serving.policy.handover import Handover
from forerun.serving.policy.tuning import FleetView, Keep, Scale, Tuner, TunerPolicy, Tuning

#: periods behind the last arrival in which a tuner may leave a stage without a replica
PATIENCE: Final = 1000


@dataclass
class _Fleet:
    """Replicas over time, as decided so far; by stage, unless said otherwise.

    Parameters
    ----------
    least : replicas that may be decided.
    decided : replicas paid for now.
    active : replicas at work or idle now.
    ahead : changes that have not taken effect.
    past : changes that have.
    paid : changes of the replicas paid for.
    decisions : those that changed something, of all stages.
    """

    tuner: Tuner
    names: tuple[str, ...]
    least: list[int]
    decided: list[int]
    active: list[int]
    ahead: list[list[tuple[float, int]]]
    past: list[list[tuple[float, int]]]
    paid: list[list[tuple[float, int]]]
    decisions: list[Decided] = field(default_factory=list)

    @classmethod
    def of(cls, tuner: Tuner, handover: Handover) -> _Fleet:
        """The replicas as planned."""
        names, planned = handover.pipeline.names, handover.replicas
        ahead, past, paid = (_no_changes(names) for _ in range(3))
        stopping = [tuner.sees == "requests" and stage.llm is not None for stage in handover.pipeline.stages]
        least = [0 if may_stop else 1 for may_stop in stopping]
        return cls(tuner, names, least, list(planned), list(planned), ahead, past, paid)

    def until(self, now_ms: float) -> None:
        """Changes up to `now_ms` take effect."""
        for s, changes in enumerate(self.ahead):
            while changes and changes[0][0] <= now_ms:
                self.past[s].append(changes.pop(0))
                self.active[s] = self.past[s][-1][1]

    def take(self, decision: Tuning, now_ms: float) -> bool:
        """Carry out a decision; whether it changed anything.

        More replicas are paid for from `now_ms` on and active `activation_s` later; fewer go at once.

        Parameters
        ----------
        decision : `Keep`, or replicas for every stage.
        now_ms : the control instant.

        Raises PolicyError for an impossible decision.
        """
        decided = self._checked(decision, now_ms)
        if decided is None or list(decided) == self.decided:
            return False
        assert isinstance(decision, Scale)
        active_ms = now_ms + self.tuner.activation_s * 1e3
        before = tuple(self.decided)
        for s, count in enumerate(decided):
            if count > self.decided[s]:
                self.ahead[s].append((active_ms, count))
            elif count < self.decided[s]:
                self._remove(s, now_ms, count)
            if count != self.decided[s]:
                self.paid[s].append((now_ms, count))
                self.decided[s] = count
        self.decisions.append(
            Decided(now_ms, before, decided, active_ms, float(decision.rate_rps), decision.why)
        )
        return True

    def asked(self, policy: TunerPolicy, view: FleetView) -> list[list[tuple[float, int]]]:
        """Ask the tuner, and do what it decides: by stage, the changes that are to come; empty if it changes nothing."""
        now_ms = view.now_ms
        coming = [[change for change in past if change[0] == now_ms] for past in self.past]
        if not self.take(policy.decide(view), now_ms):
            return []
        return [[*due, *ahead] for due, ahead in zip(coming, self.ahead)]

    def _remove(self, s: int, now_ms: float, count: int) -> None:
        """Replicas still coming up are given up first; of the active ones `count` stay."""
        coming = [(at_ms, min(n, count)) for at_ms, n in self.ahead[s]]
        known = self.active[s]
        remaining = []
        for at_ms, n in [(now_ms, min(known, count)), *coming]:
            if n != known:
                remaining.append((at_ms, n))
                known = n
        self.ahead[s] = remaining

    def _checked(self, decision: Tuning, now_ms: float) -> tuple[int, ...] | None:
        if isinstance(decision, Keep):
            return None
        if not isinstance(decision, Scale):
            raise self.impossible(now_ms, f"answers {decision!r}; Keep and Scale are possible")
        replicas = tuple(decision.replicas)
        if len(replicas) != len(self.names):
            raise self.impossible(now_ms, f"decides for {len(replicas)} stages; there are {len(self.names)}")
        for name, count, least in zip(self.names, replicas, self.least):
            if not isinstance(count, (int, np.integer)) or not least <= count <= self.tuner.max_replicas:
                what = f"gives {name} {count!r} replicas; {least} to {self.tuner.max_replicas} are possible"
                raise self.impossible(now_ms, what)
        return tuple(int(count) for count in replicas)

    def impossible(self, now_ms: float, what: str) -> PolicyError:
        return PolicyError.at(f"tuner {self.tuner.__struct_config__.tag!r} at {now_ms:g} ms", what)

    @property
    def stopped(self) -> bool:
        """Whether a stage is to have no replica."""
        return not all(self.decided)

    def view(self, now_ms: float, arrivals_ms: Floats) -> FleetView:
        """What the tuner may see now; queues are added by the caller where the tuner asks for them.

        Parameters
        ----------
        now_ms : the control instant.
        arrivals_ms : float64[n], those up to now, not to be written to.
        """
        return FleetView(now_ms, arrivals_ms, tuple(self.decided), tuple(self.active))

    def schedule(self) -> TunerDecisions:
        every = [tuple(past + ahead) for past, ahead in zip(self.past, self.ahead)]
        return TunerDecisions(tuple(self.decisions), tuple(every), tuple(tuple(paid) for paid in self.paid))


def _no_changes(names: Sequence[str]) -> list[list[tuple[float, int]]]:
    return [[] for _ in names]


def schedule_first(
    tuner: Tuner, policy: TunerPolicy, handover: Handover, arrivals_ms: Floats
) -> TunerDecisions:
    """Ask a tuner that sees arrivals only, over the whole trace.

    Parameters
    ----------
    policy : the tuner at work.
    handover : the pipeline as planned.
    arrivals_ms : float64[queries], ascending.

    Raises PolicyError for an impossible decision.
    """
    assert tuner.sees == "arrivals", "a tuner that sees queues is asked between slices"
    fleet, seen = _Fleet.of(tuner, handover), _readable(arrivals_ms)
    for now_ms, known in control_instants(arrivals_ms, tuner.period_s):
        fleet.until(now_ms)
        fleet.take(policy.decide(fleet.view(now_ms, seen[:known])), now_ms)
    return fleet.schedule()


def run_sliced(
    tuner: Tuner,
    policy: TunerPolicy,
    handover: Handover,
    arrivals_ms: Floats,
    slo_ms: float,
    *,
    record: str = "latency",
) -> tuple[TunerDecisions, Run]:
    """Ask any tuner between slices of the run; what it decided, and the run with it.

    Parameters
    ----------
    policy : the tuner at work.
    handover : the pipeline as planned, whose batching policies have a compiled form.
    arrivals_ms : float64[queries], ascending.
    slo_ms : latency above which a query misses.
    record : as of `simulate_stagewise`.

    Raises PolicyError for an impossible decision.
    """
    from forerun.serving.engine.stagewise import Stagewise
    from forerun.serving.llm.engine.pipeline import MixedRun

    pipeline, most = handover.pipeline, tuner.max_replicas
    fleet, seen = _Fleet.of(tuner, handover), _readable(arrivals_ms)
    queries, last_ms, looked_ms = len(arrivals_ms), float(arrivals_ms[-1]), 0.0
    state: MixedRun | Stagewise
    if pipeline.serves_models:
        state = MixedRun(pipeline, queries, slo_ms, keep=record == "full", most_replicas=most)
    else:
        state = Stagewise(pipeline, slo_ms, record=record, expected=queries, most_replicas=most)
    for now_ms in _instants(tuner.period_s):
        # Behind the last arrival it is asked while requests may come to a stage without a replica.
        lacking = fleet.stopped and (state.fed < queries or any(state.ongoing))
        if now_ms > last_ms and not lacking:
            break
        before, known = (
            int(np.searchsorted(arrivals_ms, now_ms, side="left")),
            int(np.searchsorted(arrivals_ms, now_ms, side="right")),
        )
        state.advance(arrivals_ms[state.fed : before], now_ms)
        fleet.until(now_ms)
        view = fleet.view(now_ms, seen[:known])
        if tuner.sees != "arrivals":
            view = replace(view, ongoing=state.ongoing, working=state.working)
        if tuner.sees == "requests" and isinstance(state, MixedRun):
            view = replace(view, models=state.seen(looked_ms))
        if changes := fleet.asked(policy, view):
            state.reschedule(changes)
        elif now_ms > last_ms + PATIENCE * tuner.period_s * 1e3:
            raise fleet.impossible(now_ms, "leaves requests without a replica for ever")
        looked_ms = now_ms
    state.advance(arrivals_ms[state.fed :])
    return fleet.schedule(), state.run() if isinstance(state, MixedRun) else state.run(arrivals_ms)


def run_with_clients(
    tuner: Tuner, policy: TunerPolicy, handover: Handover, clients: Clients
) -> TunerDecisions:
    """Ask a tuner of one language model while clients see its answers; what it decided.

    At a control instant it sees what was sent before. It is asked until the last session has ended.

    Parameters
    ----------
    policy : the tuner at work.
    handover : the pipeline as planned, of one stage.
    clients : what they send.

    Raises PolicyError for an impossible decision.
    """
    from forerun.serving.llm.engine.stage import LanguageStage

    (stage,) = handover.pipeline.stages
    assert stage.llm is not None
    server = LanguageStage(stage.llm, stage.replicas, keep=False, most=tuner.max_replicas)
    server.open_to(clients)
    fleet, looked_ms, lacking = _Fleet.of(tuner, handover), 0.0, 0
    for now_ms in _instants(tuner.period_s):
        server.advance(now_ms)
        sent = server.sent_by(clients)
        if sent.ended.all():
            break
        fleet.until(now_ms)
        view = fleet.view(now_ms, _readable(sent.sent_ms[sent.order]))
        view = replace(view, ongoing=(server.ongoing,), working=(server.working,))
        if tuner.sees == "requests":
            view = replace(view, models=(server.seen(looked_ms),))
        if changes := fleet.asked(policy, view):
            server.reschedule(changes[0])
        lacking = lacking + 1 if fleet.stopped and server.ongoing else 0
        if lacking > PATIENCE:
            raise fleet.impossible(now_ms, "leaves requests without a replica for ever")
        looked_ms = now_ms
    return fleet.schedule()


def control_instants(arrivals_ms: Floats, period_s: float) -> Iterator[tuple[float, int]]:
    """(instant ms, arrivals up to it): whole multiples of the period up to the last arrival, each by one
    multiplication, so that no rounding adds up.

    Parameters
    ----------
    arrivals_ms : float64[queries], ascending, at least one.
    period_s : time between two instants, in seconds; the first is one period after 0.
    """
    period_ms, last_ms = period_s * 1e3, float(arrivals_ms[-1])
    number = 1
    while number * period_ms <= last_ms:
        now_ms = number * period_ms
        yield now_ms, int(np.searchsorted(arrivals_ms, now_ms, side="right"))
        number += 1


def _instants(period_s: float) -> Iterator[float]:
    """Whole multiples of a period, in ms, without end."""
    return (number * (period_s * 1e3) for number in itertools.count(1))


def paid_replica_ms(
    replicas: Sequence[int], paid: Sequence[Changes], begin_ms: float, end_ms: float
) -> list[float]:
    """By stage, replicas paid for, summed over time, in replica-milliseconds.

    Parameters
    ----------
    replicas : by stage, how many there are at the beginning.
    paid : by stage, changes of how many are paid for; they count from the decision on, not from when they are active.
    begin_ms, end_ms : the time that is summed over.
    """
    return [
        float(sum(count * (to - at) for at, to, (count,) in stretches(begin_ms, end_ms, schedule)))
        for schedule in zip(replicas, paid)
    ]


def _readable(arrivals_ms: Floats) -> Floats:
    """The arrivals, not to be written to."""
    seen = arrivals_ms.view()
    seen.flags.writeable = False
    return seen


def handover_of(inputs: Inputs) -> Handover:
    """What the scenario's tuner is given. Shares are measured on the routes that queries take, drawn or recorded."""
    queries = len(inputs.arrivals_ms)
    visited: list[np.ndarray] = []
    edge_share: list[float] = []
    for incoming in incoming_edges(inputs.pipeline, queries):
        for parent, takes in incoming:
            came = queries if parent == SOURCE else int(visited[parent].sum())
            edge_share.append(float(takes.sum()) / came if came else 0.0)
        visited.append(np.logical_or.reduce([takes for _, takes in incoming]))
    return Handover(
        inputs.pipeline,
        inputs.prices_usd_per_h,
        inputs.carried_rps,
        tuple(float(here.mean()) for here in visited),
        tuple(edge_share),
        inputs.sample_ms,
        inputs.scenario.slo_ms,
        inputs.scenario.attainment,
    )


def controlled(inputs: Inputs) -> tuple[Inputs, Control]:
    """Ask the scenario's tuner over the whole trace; the inputs with its changes of replicas.

    Raises PolicyError for an impossible decision.
    """
    scenario, tuner, handover = inputs.scenario, inputs.scenario.tuner, handover_of(inputs)
    policy = tuner.build(handover, stream(scenario.seed, "tuner"))
    if inputs.clients is not None:
        schedule = run_with_clients(tuner, policy, handover, inputs.clients)
    elif tuner.sees == "arrivals":
        schedule = schedule_first(tuner, policy, handover, inputs.arrivals_ms)
    else:
        schedule, _ = run_sliced(
            tuner, policy, handover, inputs.arrivals_ms, scenario.slo_ms, record="counts"
        )
    return replace(inputs, pipeline=schedule.applied(inputs.pipeline)), Control(schedule, handover)
