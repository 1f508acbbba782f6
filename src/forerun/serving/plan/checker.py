"""Believe no planner: verify that a plan is the cheapest, from its certificate and the arrivals alone.

Shares no code with the rest. Verified: digests, the arithmetic of the cost, by simulation the misses of the plan and of
every refuted part, and that each cheaper configuration (by a part in 10^9) contains one. A part contains the ancestors of
its stages; its misses are queries that a stage completes too late even if what follows takes the least time in the tables.
"""

import hashlib
from collections import deque
from typing import Any

import numpy as np


class Rejected(Exception):
    """The certificate claims something that is not so."""


def demand(is_true: Any, claim: str, part: Any = ()) -> None:
    """Reject unless the claim is true. part: the choices that it is about, as pairs with their stages."""
    if not is_true:
        words = (f"{name} on {hw}, batch {b}, {n} replica{'s' * (n != 1)}" for name, (hw, b, n) in part)
        raise Rejected(f"stage {'; stage '.join(words)}: {claim}" if part else claim)


def check(certificate: Any, arrival_ms: Any, routing: Any = None) -> None:
    """Verify a certificate on ascending float64[n] arrivals; routing: bool[n] by (parent, stage), in edge order, of the
    edges that not all take. Raises Rejected, naming the claim that does not hold."""
    try:
        _Checked(certificate, np.asarray(arrival_ms, dtype="<f8"), routing or {}).all()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = f"no key {error.args[0]}" if type(error) is KeyError else "a value is of the wrong kind"
        raise Rejected(f"malformed: {what}") from error


class _Checked:
    def __init__(self, c: Any, arrivals: Any, routing: Any) -> None:
        self.c, self.arrivals, self.routing = c, arrivals, routing
        self.stage = {stage["stage"]: stage for stage in c["stages"]}
        self.names, self.none = list(self.stage), np.zeros(len(arrivals), dtype=bool)
        self.known: Any = {("source",): (arrivals, range(len(arrivals)))}
        self.above: Any = {"source": set()}
        for name, stage in self.stage.items():
            self.above[name] = {name}.union(*(self.above[parent] for parent in stage["parents"]))

    def all(self) -> None:
        """Every claim, the quick ones first."""
        c, allowed, claims = self.c, self.form(), {}
        plan = {name: self.choice(name, c["plan"][name]) for name in self.names}
        cost = sum(c["costs"][hardware] * replicas for hardware, _, replicas in plan.values())
        demand(abs(cost - c["cost"]) <= 1e-9 * max(1.0, cost), f"the plan costs {cost}, not {c['cost']}")
        for entry in c["refuted"]:
            part = {name: self.choice(name, entry["stages"][name]) for name in entry["stages"]}
            closed = part and all(self.above[name] <= {*part} for name in part)
            key = tuple((name, part[name]) for name in self.names if name in part)
            demand(closed and key not in claims and entry["misses_at_least"] > allowed, "no refutation", key)
            claims[key] = entry["misses_at_least"]
        self.cover(claims, cost - 1e-9 * max(1.0, cost))
        demand(self.misses(plan) == c["misses"] <= allowed, "the plan does not miss as claimed, or too often")
        for key, late in claims.items():
            demand(self.misses(dict(key)) == late, f"this does not force {late} misses", key)

    def form(self) -> int:
        """Schema, digests, numbers in range, a choice a stage; returns the allowance."""
        c, a, counts = self.c, self.arrivals, ("max_replicas", "misses", "allowed_misses")
        demand(c["schema"] == "forerun.serving.certificate/1", f"unknown schema {c['schema']}")
        demand(all(type(c[name]) is int and c[name] >= 0 for name in counts), "counts are whole numbers")
        demand(c["slo_ms"] > 0 and (np.diff(a) >= 0).all(), "time does not ascend")
        claimed = (c["trace"]["arrivals"], c["trace"]["arrival_ms_sha256"])
        demand(claimed == (len(a), hashlib.sha256(a.tobytes()).hexdigest()), "these are not the arrivals")
        columns = b"".join(np.asarray(taken, dtype=np.uint8).tobytes() for taken in self.routing.values())
        known = hashlib.sha256(columns).hexdigest() if columns else None
        demand(c.get("routing_sha256") == known, "this is not the routing")
        demand([len(c["stages"]), {*c["plan"]}] == [len(self.names), {*self.names}], "not a choice a stage")
        for name, stage in self.stage.items():
            demand(stage["parents"] and name != "source", f"{name} has no parent")
            for hardware, sizes in stage["options"].items():
                table = stage["service_ms"][hardware]
                positive = all(0 < ms < np.inf for ms in table[1:]) and 0 <= c["costs"][hardware] < np.inf
                demand(positive, f"{name} on {hardware}: a price or time is out of range")
                demand(all(type(n) is int and 1 <= n < len(table) for n in sizes), "a batch has no time")
        return int(c["allowed_misses"])

    def choice(self, name: str, chosen: Any) -> Any:
        hw, batch, replicas = chosen
        fits = batch in self.stage[name]["options"].get(hw, ()) and 0 < replicas <= self.c["max_replicas"]
        demand(fits and type(batch) is type(replicas) is int, "this is not in the space", [(name, chosen)])
        return tuple(chosen)

    def cover(self, refuted: Any, limit: float) -> None:
        """Every configuration below the limit contains a refuted part; stages near the source are chosen first."""
        order, costs = sorted(self.names, key=lambda name: len(self.above[name])), self.c["costs"]
        least = [min(costs[hardware] for hardware in self.stage[name]["options"]) for name in order]
        bases = {tuple(name for name, _ in part) for part in refuted}

        def go(k: int, chosen: Any, cost: float) -> None:
            demand(k < len(order), "this is cheaper and not refuted", chosen.items())
            ending = [base for base in bases if order[k] in base and {*base} <= {*order[: k + 1]}]
            for hardware, sizes in self.stage[order[k]]["options"].items():
                for replicas in range(1, self.c["max_replicas"] + 1):
                    total = cost + costs[hardware] * replicas
                    for batch in sizes if total + sum(least[k + 1 :]) < limit else ():
                        now = {**chosen, order[k]: (hardware, batch, replicas)}
                        if not any(tuple((name, now[name]) for name in base) in refuted for base in ending):
                            go(k + 1, now, total)

        go(0, {}, 0.0)

    def misses(self, part: Any) -> int:
        """Queries that are late at some stage of the part whatever follows; of a whole configuration, its misses."""
        late = self.none
        for end, tail in ((self.ends(name, part)[0], self.tail(name)) for name in part):
            late = late | (end + tail - self.arrivals > self.c["slo_ms"] + 1e-6 * (tail > 0))  # rounding
        return int(np.count_nonzero(late))

    def tail(self, name: str) -> Any:
        """float64[n]: the least time behind a stage, along the edges that a query takes."""
        tail = np.zeros(len(self.arrivals))
        for after in (after for after in self.names if name in self.stage[after]["parents"]):
            least = min(min(table[1:]) for table in self.stage[after]["service_ms"].values())
            takes = self.routing.get((name, after), ~self.none)
            tail = np.maximum(tail, np.where(takes, least + self.tail(after), 0.0))
        return tail

    def ends(self, name: str, part: Any) -> Any:
        """When a stage completes each query (-inf: it does not come by), and the queries in order of completion."""
        key = (name, *((stage, part[stage]) for stage in self.names if stage in self.above[name]))
        if key not in self.known:
            last: Any = {}
            for p, parent in enumerate(self.stage[name]["parents"]):
                ends, order = self.ends(parent, part)
                times, takes = ends.tolist(), self.routing.get((parent, name), ~self.none).tolist()
                for rank, q in enumerate(order):
                    if takes[q] and (q not in last or (times[q], p) > last[q][:2]):
                        last[q] = (times[q], p, rank, q)
            self.known[key] = self.queue(sorted(last.values()), self.stage[name], *part[name])
        return self.known[key]

    def queue(self, entries: Any, stage: Any, hardware: str, most: int, replicas: int) -> Any:
        """One queue: whenever a replica is idle, the oldest min(batch, queued) start on it."""
        waiting, running, done, at_ms = deque(entries), [], [], -np.inf  # type: ignore[var-annotated]
        while waiting:
            at_ms = max(at_ms, waiting[0][0], min(running)[0] if len(running) == replicas else -np.inf)
            running, batch = [other for other in running if other[0] > at_ms], [waiting.popleft()[3]]
            while waiting and waiting[0][0] <= at_ms and len(batch) < most:
                batch.append(waiting.popleft()[3])
            done.append((at_ms + stage["service_ms"][hardware][len(batch)], len(done), batch))
            running.append(done[-1])
        end = {q: end_ms for end_ms, _, batch in sorted(done) for q in batch}
        return np.array([end.get(q, -np.inf) for q in range(len(self.arrivals))]), list(end)
