"""The slow reference implementation of ElasticFlow and EDF as published: dictionaries, lists and plain loops, written
from the rules.

Nothing here is shared with the kernels. It returns what a run must leave behind: per job the fate, and the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf, log2
from typing import Any

from forerun.cluster.inputs.arrays import NO_DEADLINE_S
from forerun.cluster.inputs.setting import Setting

CLASSES = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 88, 128, 256]


@dataclass(eq=False)
class Job:
    row: int
    submit: int
    ddl: int
    left: float
    rate: dict[int, float]
    max_gpus: int
    num: int = 0
    end: Any = None
    old_end: Any = None
    real: Any = None
    overhead: int = 0
    alloc: dict[int, int] = field(default_factory=dict)
    slo: bool = True
    state: str = "new"
    next: int = 0
    trial: Any = None
    marginal: float = 0.0
    set: Any = None


@dataclass(eq=False)
class Event:
    t: int
    starts: list[Job] = field(default_factory=list)
    ends: list[Job] = field(default_factory=list)


def tidy(profile: dict[int, int]) -> dict[int, int]:
    kept: dict[int, int] = {}
    last = None
    for t in sorted(profile):
        if profile[t] != last:
            kept[t] = profile[t]
        last = profile[t]
    return kept


def in_force(profile: dict[int, int], t: int) -> int:
    """The value at the last key before t."""
    return profile[max(k for k in profile if k < t)]


class Nodes:
    """Buddy placement."""

    def __init__(self, setting: Setting) -> None:
        self.gpn = setting.cluster.gpus_per_node
        self.per_switch = setting.cluster.nodes_per_switch
        self.all_nodes = list(range(setting.cluster.nodes))
        self.free = list(self.all_nodes)
        self.lists: dict[int, list[dict[str, Any]]] = {c: [] for c in CLASSES}
        self.known: set[tuple[int, int]] = set()

    def clear_list(self, which: int) -> None:
        self.lists[which].sort(key=lambda s: s["used"])

    def class_of(self, f: int) -> int:
        return max(c for c in CLASSES if c <= f and f % c == 0)

    def move(self, s: dict[str, Any], to: int) -> None:
        if s["list"] is not None:
            self.lists[s["list"]].remove(s)
            self.clear_list(s["list"])
        s["list"] = to
        if to is not None:
            self.lists[to].append(s)
            self.clear_list(to)

    def place(self, job: Job, n: int) -> None:
        for c in [n] + [c for c in sorted(CLASSES, reverse=True) if c > n]:
            if self.lists.get(c):
                s = self.lists[c].pop(0)
                if s["cap"] - s["used"] < n:
                    self.lists[c].append(s)
                    continue
                self.lists[c].insert(0, s)
                s["jobs"].append(job)
                s["used"] += n
                f = s["cap"] - s["used"]
                self.move(s, n if f == 0 else self.class_of(f))
                job.set = s
                return
        k = ceil(n / self.gpn)
        assert k <= len(self.free), "no nodes left"
        nodes, self.free = self.free[:k], self.free[k:]
        s = {"nodes": nodes, "cap": k * self.gpn, "used": n, "jobs": [job], "list": None}
        f = s["cap"] - n
        self.move(s, n if f == 0 else self.class_of(f))
        job.set = s

    def release(self, job: Job, n: int) -> None:
        s = job.set
        job.set = None
        s["used"] -= n
        s["jobs"].remove(job)
        if s["used"] == 0:
            self.free += s["nodes"]
            self.free.sort(key=lambda node: node % self.per_switch)
            self.move(s, None)
            return
        f = s["cap"] - s["used"]
        c = self.class_of(f)
        if f != s["list"]:
            self.move(s, c)

    def hits(self, placed: dict[Any, int]) -> dict[Job, bool]:
        """Walk the nodes, make keys, tell which were known, then learn them."""
        at: dict[int, dict[str, Any]] = {}
        for job in placed:
            for node in job.set["nodes"]:
                at[node] = job.set
        p = 0
        keys: dict[Job, tuple[int, int]] = {}
        for node in self.all_nodes:
            s = at.get(node)
            if s is None:
                p += self.gpn
                continue
            if s["cap"] > self.gpn or placed[s["jobs"][0]] >= self.gpn:
                job = s["jobs"][0]
                if job not in keys:
                    keys[job] = (p, placed[job])
                p += self.gpn
            else:
                start = p
                for job in s["jobs"]:
                    keys[job] = (p, placed[job])
                    p += placed[job]
                p = start + self.gpn
        result = {job: key in self.known for job, key in keys.items()}
        self.known |= set(keys.values())
        return result


class Reference:
    def __init__(self, setting: Setting, schedule: str) -> None:
        self.setting, self.schedule = setting, schedule
        self.S, self.N = setting.slot_s, setting.cluster.gpus
        self.levels = [int(x) for x in setting.profile.levels]
        rate_at = setting.profile.rate_at()
        j = setting.jobs
        self.jobs = []
        for row in range(len(j)):
            k = int(j.kind[row])
            rate = {n: float(rate_at[k, n]) for n in self.levels}
            model, batch = setting.profile.kinds[k]
            if schedule.startswith("ef"):
                most = published_max(model, batch, setting.gpu_type)
            else:
                most = min(int(setting.profile.largest_column[k]), 64, batch)
            self.jobs.append(
                Job(
                    row,
                    int(j.submit_s[row]),
                    int(j.deadline_s[row]),
                    float(j.iterations[row]),
                    rate,
                    most,
                    slo=bool(j.deadline_s[row] < NO_DEADLINE_S),
                )
            )
        self.E: list[Event] = []
        for job in self.jobs:
            if not self.E or self.E[-1].t != job.submit:
                self.E.append(Event(job.submit))
            self.E[-1].starts.append(job)
        self.runnable: list[Job] = []
        self.pending: list[Job] = []
        self.running: list[Job] = []
        self.nodes = Nodes(setting)
        self.k = 0
        self.accepted = 0
        self.declined: set[int] = set()
        self.refused: set[int] = set()
        self.end: dict[int, int] = {}
        self.real: dict[int, float] = {}
        self.log: list[tuple[int, dict[int, int], float]] = []

    # -- the machine ---------------------------------------------------------------------------------------------
    def align(self, a: int, t: int) -> int:
        return a + self.S * ceil((t - a) / self.S)

    def event_at(self, t: int) -> Event | None:
        return next((e for e in self.E if e.t == t), None)

    def set_end(self, job: Job) -> None:
        if job.old_end == job.end:
            return
        old = self.event_at(job.old_end)
        if old is not None and job in old.ends:
            old.ends.remove(job)
            if not old.starts and not old.ends:
                self.E.remove(old)
        self.register(job)

    def register(self, job: Job) -> None:
        event = self.event_at(job.end)
        if event is None:
            event = Event(job.end)
            self.E.append(event)
        event.ends.append(job)

    def merge(self, cur: int, ends: bool = True) -> int:
        self.E.sort(key=lambda e: e.t)
        nt = self.E[0].t
        while nt - cur <= self.S and len(self.E) > 1:
            self.E[0].t = cur + self.S
            if self.E[1].t - cur > self.S:
                break
            nt = self.E[1].t
            self.E[0].starts += self.E[1].starts
            if ends:
                self.E[0].ends += self.E[1].ends
            del self.E[1]
        return self.E[0].t

    def progress(self, dt: int, cur: int) -> None:
        for job in self.runnable:
            if job.num <= 0:
                continue
            rt = dt
            e = job.real if job.real is not None else job.end
            if cur > e:
                rt -= cur - e
            rt = max(0, rt - job.overhead)
            it = rt * job.rate[job.num]
            if job.left <= it and job.end > cur:
                job.old_end = job.end
                e2 = cur - dt + ceil(job.left / job.rate[job.num])
                rt = job.end - cur + dt
                job.end = cur
                it = rt * job.rate[job.num]
                self.set_end(job)
                job.end = e2
            job.left -= it
            job.overhead = 0

    def tick(self) -> bool:
        r = self.k > 0 and self.k % self.S == 0
        self.k += 1
        if r:
            self.nodes.known = set()
        return r

    def ov(self, n: int, r: bool, hit: bool) -> int:
        o = 7 if self.N >= 256 else 2
        if hit:
            return o
        if r:
            o += 47 if self.N >= 256 else 27
        return o + int(2 * (log2(n) + 1))

    def snapshot(self, now: int) -> None:
        held = {job.row: job.num for job in self.running if job.num > 0}
        ce = sum(job.rate[job.num] / job.rate[1] for job in self.running if job.num > 0) / self.N
        self.log.append((now, held, ce))

    def start(self, job: Job) -> None:
        self.pending.remove(job)
        self.running.append(job)
        if job.slo:
            self.accepted += 1

    def take_in(self, jobs: list[Job]) -> None:
        self.pending += jobs
        self.runnable += jobs

    def finish(self, job: Job, late: bool) -> None:
        self.runnable.remove(job)
        self.running.remove(job)
        self.nodes.release(job, job.num)
        self.end[job.row] = job.end
        if job.real is not None:
            self.real[job.row] = job.real
        if late:
            self.declined.add(job.row)
            self.accepted -= 1

    def floor(self, job: Job, x: int, cap: int | None = None) -> int:
        top = job.max_gpus if cap is None else min(job.max_gpus, cap)
        return max((n for n in self.levels if n <= min(x, top)), default=0)

    def next_level(self, job: Job, n: int) -> int:
        return min((m for m in self.levels if n < m <= job.max_gpus), default=n)

    # -- ElasticFlow ---------------------------------------------------------------------------------------------
    def plan(self, job: Job, now: int, P0: dict[int, int], assign: int | None = None):
        P = dict(P0)
        tp = job.rate
        ddl = job.ddl
        left = job.left
        t0 = now
        alloc = {now: 0}
        A = self.align(now, ddl)
        if A not in P and now <= A:
            P[A] = in_force(P, A)
        N = self.N

        def done(end, real):
            return alloc, end, real, tidy(P), real <= ddl

        if assign is not None:
            q = assign
            ft = min((k for k in P0 if k > t0), default=A)
            alloc[t0] = q
            real = ceil(t0 + left / tp[q])
            end = self.align(now, real)
            if ft >= end and ddl >= real:
                last = None
                for k in sorted(P0):
                    if t0 <= k < end:
                        last = P[k]
                        P[k] -= q
                if end not in P0:
                    P[end] = last
                return done(end, real)
            left -= ((ddl - t0) if ft == A else (ft - t0)) * tp[q]
            P[t0] -= q
            t0 = ft
            alloc[t0] = 0
        keys = sorted(P)
        lq = 0
        found = None
        top = [n for n in self.levels if n <= job.max_gpus and n <= N]
        for q in top:
            for k in keys:
                if k < A and k not in alloc:
                    alloc[k] = 0
            pe = A
            it = 0.0
            for k in reversed(keys):
                if not t0 <= k < A:
                    continue
                a = q if P[k] >= q else self.floor(job, P[k], q)
                if a == 0:
                    pe = k
                    continue
                it += ((ddl - k) if pe == A else (pe - k)) * tp[a]
                if it >= left:
                    found = k
                    break
                pe = k
            if found is not None:
                break
            lq = q
        if found is not None:
            k = found

            def use(e: int) -> int:
                return min(q if e >= k else lq, self.floor(job, P[e]))

            lat = None
            stopped = False
            la = 0
            for e in keys:
                if not t0 <= e <= A:
                    continue
                if lat is None:
                    lat, la = e, use(e)
                    continue
                nxt = use(e)
                alloc[lat] = la
                P[lat] -= la
                if la:
                    itr = ((ddl - lat) if e == A else (e - lat)) * tp[la]
                    if lat < k or itr < left:
                        left -= itr
                    else:
                        rl = ceil(left / tp[la])
                        end = lat + self.align(0, rl)
                        real = lat + rl
                        stopped = True
                        break
                lat, la = e, nxt
            if not stopped:
                alloc[lat] = la
                P[lat] -= la
                rl = (
                    ceil(left / tp[la]) if la else 0
                )  # rounding may leave a last crumb at the deadline's slot
                end = lat + self.align(0, rl)
                real = lat + rl
            if end not in P0:
                before = [x for x in P0 if t0 <= x < end]
                P[end] = P0[max(before)] if before else N
            return done(end, real)
        # late
        walk = [e for e in keys if t0 <= e <= A]
        lat = None
        for e in walk:
            if lat is None:
                lat = e
                continue
            la = min(lq, self.floor(job, P[lat]))
            alloc[lat] = la
            P[lat] -= la
            if la:
                left -= ((ddl - lat) if e == A else (e - lat)) * tp[la]
            lat = e
        lat = max(A, t0)
        for e in [x for x in keys if x > A]:
            q = self.floor(job, P[lat])
            alloc[lat] = q
            if q == 0:
                lat = e
                continue
            if (e - lat) * tp[q] >= left:
                real = ceil(lat + left / tp[q])
                end = self.align(now, real)
                inside = [x for x in P0 if A <= x < end]
                last = P0[max(inside)] if inside else in_force({-1: N, **P0}, A)
                for x in list(P):
                    if lat <= x < end:
                        P[x] -= q
                if lat != end:
                    P[lat] = last - q
                if end not in P0:
                    P[end] = last
                return done(end, real)
            left -= (e - lat) * tp[q]
            for x in list(P):
                if lat <= x < e:
                    P[x] -= q
            lat = e
        q = self.floor(job, N) or assign
        alloc[lat] = q
        real = ceil(lat + left / tp[q])
        end = self.align(now, real)
        P[lat] = N - q
        P[end] = N
        return done(end, real)

    def commit(self, job: Job, planned) -> dict[int, int]:
        alloc, job.end, job.real, P, _ = planned
        job.alloc = tidy(alloc)
        return P

    def plan_all(self, L: list[Job], now: int, record: bool = True) -> bool:
        L.sort(key=lambda j: j.ddl)
        if record:
            for job in L:
                job.old_end = job.end
        for job in L:
            if job.set is not None:
                self.nodes.release(job, job.num)
        P = {now: self.N}
        fine = True
        for job in L:
            planned = self.plan(job, now, P)
            fine &= planned[4]
            P = self.commit(job, planned)
        self.profile = P
        return fine

    def release_all(self) -> None:
        for job in self.runnable:
            if job.set is not None:
                self.nodes.release(job, job.num)

    def gputime(self, alloc: dict[int, int], end: int) -> int:
        keys = sorted(alloc)
        return sum(alloc[k] * ((keys[i + 1] if i + 1 < len(keys) else end) - k) for i, k in enumerate(keys))

    def boost(self, cur: int, P: dict[int, int]) -> None:
        for job in self.runnable:
            job.next = self.next_level(job, job.num)
        g = self.N - sum(job.num for job in self.runnable)
        if g == 0:
            return

        def marginal(job: Job) -> None:
            if job.next == job.num or job.next - job.num > g:
                job.marginal = -inf
                return
            T = dict(P)
            keys = sorted(job.alloc)
            for key in [*keys, job.end]:
                if key not in T:
                    T[key] = in_force(T, key)
            for i, key in enumerate(keys):
                to = keys[i + 1] if i + 1 < len(keys) else job.end
                for x in T:
                    if key <= x < min(to, job.end):
                        T[x] += job.alloc[key]
            T = tidy(T)
            job.trial = self.plan(job, cur, T, job.next)
            grow = self.gputime(tidy(job.trial[0]), job.trial[1]) - self.gputime(job.alloc, job.end)
            job.marginal = inf if job.num == 0 else grow / (job.next - job.num)

        for job in self.runnable:
            marginal(job)
        self.runnable.sort(key=lambda j: -j.marginal)
        while g > 0:
            chosen = next((j for j in self.runnable if j.next > j.num and j.next - j.num <= g), None)
            if chosen is None:
                break
            chosen.old_end = chosen.end
            P.clear()
            P.update(self.commit(chosen, chosen.trial))
            g -= chosen.next - chosen.num
            chosen.num = chosen.next
            if chosen in self.pending:
                self.start(chosen)
                if self.schedule == "ef-accessctrl":
                    self.register(chosen)
                else:
                    self.set_end(chosen)
            else:
                self.set_end(chosen)
            chosen.next = self.next_level(chosen, chosen.num)
            for job in self.runnable:
                if job.next > job.num:
                    marginal(job)
            self.runnable.sort(key=lambda j: -j.marginal)

    def wake(self, jobs: list[Job], cur: int) -> None:
        first = min((k for job in jobs for k in job.alloc if k > cur), default=None)
        if first is None:
            return
        self.E.sort(key=lambda e: e.t)
        if (not self.E or first < self.E[0].t) and self.event_at(first) is None:
            self.E.append(Event(first))

    def place(self, jobs: list[Job]) -> dict[Job, bool]:
        gpn = self.nodes.gpn
        held = [job for job in jobs if job.num > 0]
        for job in held:
            if job.num >= gpn:
                self.nodes.place(job, job.num)
        for c in sorted([c for c in CLASSES if c < gpn], reverse=True):
            for job in held:
                if job.num == c:
                    self.nodes.place(job, c)
        return self.nodes.hits({job: job.num for job in held})

    def charge(self, jobs: list[Job], hits: dict[Job, bool]) -> None:
        r = self.tick()
        for job in jobs:
            if job.num > 0:
                job.overhead = self.ov(job.num, r, hits[job])
                job.old_end = job.end
                job.end += job.overhead
                self.set_end(job)

    def admit(self, starts: list[Job], cur: int) -> None:
        new = False
        if starts:
            if self.plan_all(self.runnable + starts, cur):
                self.take_in(starts)
                new = True
            else:
                self.take_in([job for job in starts if not job.slo])
                for job in starts:
                    if job.slo:
                        self.refused.add(job.row)
                        self.declined.add(job.row)
        if not new:
            self.plan_all(self.runnable, cur, record=not starts)

    def run_ef_accessctrl(self) -> None:
        cur, dt = self.E[0].t, 0
        while self.E or self.pending or self.running:
            self.progress(dt, cur)
            ev = self.event_at(cur)
            assert ev is not None
            self.E.remove(ev)
            if not ev.starts and not ev.ends and not self.pending and not self.running:
                if not self.E:
                    break
                old, cur = cur, self.merge(cur)
                dt = cur - old
                continue
            for job in list(ev.ends):
                if job.set is not None:
                    self.finish(job, job.slo and job.real > job.ddl)
            for job in self.runnable:
                job.old_end = job.end
            self.admit(ev.starts, cur)
            P = {cur: self.N}
            self.runnable.sort(key=lambda j: j.ddl)
            for job in self.runnable:
                job.num = job.alloc[cur]
                if job in self.running:
                    self.set_end(job)
                job.old_end = job.end
                P = self.commit(job, self.plan(job, cur, P))
            for job in list(self.pending):
                job.num = job.alloc[cur]
                first = min((k for k, n in job.alloc.items() if n > 0))
                if first <= cur:
                    self.start(job)
                    self.register(job)
            self.boost(cur, P)
            self.runnable.sort(key=lambda j: -j.num)
            hits = self.place(self.runnable)
            self.snapshot(cur)
            self.wake(self.runnable, cur)
            self.charge(self.runnable, hits)
            if not self.E:
                break
            old, cur = ev.t, self.merge(cur)
            dt = cur - old

    def run_ef(self) -> None:
        cur, dt = self.E[0].t, 0
        while self.E or self.pending or self.running:
            self.progress(dt, cur)
            ev = self.event_at(cur)
            if ev is not None:
                self.E.remove(ev)
            else:
                ev = Event(cur)
            for job in list(ev.ends):
                if job.set is not None:
                    self.finish(job, job.slo and job.end > job.ddl)
            self.take_in(ev.starts)
            self.plan_all(self.runnable, cur)
            for job in self.runnable:
                job.num = job.alloc[cur]
                self.set_end(job)
                job.old_end = job.end
            P = self.profile
            for job in list(self.pending):
                first = min((k for k, n in job.alloc.items() if n > 0))
                if first <= cur:
                    self.start(job)
                elif self.event_at(first) is None:
                    self.E.append(Event(first))
            self.boost(cur, P)
            hits = self.place(self.running)
            self.snapshot(cur)
            for job in self.running:
                first = min((k for k in job.alloc if k > cur), default=None)
                if first is not None and self.event_at(first) is None:
                    self.E.append(Event(first))
            self.charge(self.running, hits)
            if not self.E:
                cur, dt = cur + 10, 10
                continue
            old, cur = cur, self.merge(cur)
            dt = cur - old

    # -- EDF -----------------------------------------------------------------------------------------------------
    def edf_plan(self, job: Job, now: int, P0: dict[int, int]):
        P = dict(P0)
        q = min(job.max_gpus, self.N)
        left, t, avail = job.left, now, P0[now]
        alloc: dict[int, int] = {}
        for ft in sorted(k for k in P0 if k > now):
            g = q if avail >= q else self.floor(job, avail)
            alloc[t] = g
            if g:
                end = ceil(t + left / job.rate[g])
                if ft >= end:
                    before = None
                    for k in sorted(P0):
                        if t <= k < end:
                            before = P[k]
                            P[k] -= g
                    if not (g == q and t == end):
                        P[t] = avail - g
                    if end not in P0:
                        P[self.align(now, end)] = before
                    return alloc, end, tidy(P)
            left -= (ft - t) * job.rate[g] if g else 0.0
            P[t] -= g
            avail, t = P[ft], ft
        alloc[t] = q
        end = ceil(t + left / job.rate[q])
        P[t] = self.N - q
        P[self.align(now, end)] = self.N
        return alloc, end, tidy(P)

    def edf_all(self, L: list[Job], now: int) -> dict[Job, tuple[dict[int, int], int]]:
        L.sort(key=lambda j: j.ddl)
        P = {now: self.N}
        plans = {}
        for job in L:
            alloc, end, P = self.edf_plan(job, now, P)
            plans[job] = (alloc, end)
        return plans

    def run_edf(self) -> None:
        cur, dt = self.E[0].t, 0
        while self.E:
            self.progress(dt, cur)
            ev = self.event_at(cur)
            assert ev is not None
            self.E.remove(ev)
            for job in list(ev.ends):
                if job.set is not None:
                    self.finish(job, job.slo and job.end > job.ddl)
            plans = self.edf_all(self.runnable + ev.starts if ev.starts else self.runnable, cur)
            self.take_in(ev.starts)
            self.release_all()
            for job in self.runnable:
                job.num = plans[job][0][cur]
                job.old_end = job.end
                job.end = plans[job][1]
                if job in self.running:
                    self.set_end(job)
                elif job.num > 0:
                    self.start(job)
                    self.register(job)
            self.place_by_num()
            self.snapshot(cur)
            self.tick()
            if not self.E:
                break
            old, cur = ev.t, self.merge(cur)
            dt = cur - old

    def place_by_num(self) -> None:
        for job in sorted((job for job in self.runnable if job.num > 0), key=lambda j: -j.num):
            self.nodes.place(job, job.num)

    def run_edf_accessctrl(self) -> None:
        cur, dt = self.E[0].t, 0
        while self.E:
            self.progress(dt, cur)
            ev = self.event_at(cur)
            assert ev is not None
            self.E.remove(ev)
            for job in self.runnable:
                job.old_end = job.end
            ended = [job for job in ev.ends if job.set is not None]
            for job in ended:
                self.finish(job, job.slo and job.end > job.ddl)
            self.release_all()
            accepted = False
            for x in ev.starts:
                plans = self.edf_all(self.runnable + [x], cur)
                if any(end > job.ddl for job, (_, end) in plans.items() if job.slo):
                    self.refused.add(x.row)
                    self.declined.add(x.row)
                    continue
                accepted = True
                self.take_in([x])
                self.take_plans(plans, cur, only_placed=False)
            if not accepted:
                self.take_plans(self.edf_all(self.runnable, cur), cur, only_placed=True)
            for job in self.runnable:
                if job.num > 0:
                    self.nodes.place(job, job.num)
            hits = self.nodes.hits({job: job.num for job in self.runnable if job.num > 0})
            self.snapshot(cur)
            self.charge(self.running, hits)
            if not self.E:
                break
            old, cur = ev.t, self.merge(cur)
            dt = cur - old

    def take_plans(self, plans, cur: int, only_placed: bool) -> None:
        for job in list(self.runnable):
            job.num = plans[job][0][cur]
            if only_placed and job.num == 0:
                continue
            job.end = plans[job][1]
            if job in self.running:
                self.set_end(job)
                job.old_end = job.end
            elif job.num > 0:
                self.start(job)
                self.register(job)
                job.old_end = job.end


def published_max(model: str, batch: int, gpu: str) -> int:
    if gpu == "A100":
        if model == "gpt2":
            return {128: 16, 256: 32}[batch]
        if model == "bert":
            return 8 if batch == 64 else 16
        if model == "inception3":
            return {64: 16, 128: 32}[batch]
        if (model, batch) in (("resnet50", 64), ("vgg16", 64)):
            return 32
        return batch if model == "deepspeech2" else min(batch, 64)
    if model in ("bert", "cifar10"):
        return 16
    if model == "deepspeech2" and batch == 320:
        return 32
    return {"yolov3": 4, "ncf": 1}.get(model, 64)
