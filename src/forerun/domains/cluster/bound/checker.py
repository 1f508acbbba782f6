"""Check a certified bound of a cluster scenario in exact arithmetic, with Python's standard library alone.

`python checker.py CERTIFICATE GPUS FIRST TRACE TABLE...` (FIRST 0: all jobs). Exit code 0: proved; 4: the claim does not
follow from the certificate; 2: it cannot be checked. A job has one of its GPU counts at a time and is never faster there
than its table says; GPUs are alike; quotas, nodes and costs of changes are ignored, which makes no schedule worse.
"""

import csv
import hashlib
import io
import json
import math
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

SAYS = {
    "deadlines": "no schedule meets more than {} deadlines",
    "makespan": "no schedule ends all jobs before {} s",
    "max_slowdown": "no schedule has a largest slowdown below {}",
    "mean_completion": "no schedule has completion times that sum to less than {} s",
}
FORM = {str: "format objective claim slip_s", int: "gpus denominator", list: "edges_s price"}
FORM |= {dict: "work_value value inputs"}
WHOLE, DECIMAL = r"\d{1,40}", r"(\d{1,40}\.?\d{0,40}|\.\d{1,40})([eE][-+]?\d\d?)?"
FRACTION = r"\d{1,40}(\.\d{1,40}|/0{0,9}[1-9]\d{0,39})?"
MOST_BYTES, NONE, NEEDED = 1 << 22, ("", "nan"), ("submit_s", "iterations", "batch", "duration_s")
NAMES = "submit_time=submit_s submission_time=submit_s iteration=iterations num_iteration=iterations "
NAMES += "num_iterations=iterations model_name=model batch_size=batch duration=duration_s ddl=deadline_s "
NAMES += "deadline=deadline_s"


class Refused(ValueError):
    """Something cannot be checked: the text says what."""


class Job(NamedTuple):
    """A job of `work` iterations; `speed`: for each legal number of GPUs, iterations in `unit` seconds."""

    id: str
    release: int
    deadline: int | None
    work: int
    unit: int
    speed: tuple[tuple[int, int], ...]

    def alone(self) -> Fraction:
        """Seconds that it takes at its best speed."""
        return Fraction(self.work * self.unit, max(speed for _, speed in self.speed))

    def profit(self, worth: Any, price: Any) -> Any:
        """The most that `unit` seconds yield: iterations for `worth` each, on GPUs that cost `price` each."""
        return max(0, max(worth * speed - price * gpus for gpus, speed in self.speed))


class Prices(NamedTuple):
    """Prices of GPU-seconds in 1 / denominator: `price[i]` until `edges[i]`; zero before the first edge and at last."""

    gpus: int
    denominator: int
    edges: tuple[int | Fraction, ...]
    price: tuple[int, ...]

    def whole(self) -> Fraction:
        """What all GPUs cost over all time."""
        total: Any = sum((b - a) * price for (a, b), price in zip(pairwise(self.edges), self.price[1:]))
        return Fraction(self.gpus * total) / self.denominator

    def spans(self, start: Any, end: Any) -> Iterator[tuple[Any, Any, int]]:
        """(from, to, price) of a time span; `end` may be infinity."""
        for at in range(bisect_right(self.edges, start), len(self.price)):
            until = min(end, *self.edges[at : at + 1], math.inf)
            if start < until:
                yield start, until, self.price[at]
            start = until

    def owes(self, job: Job, worth: int, end: Any) -> Fraction:
        """The least that a job pays for ending by `end`; negative: nothing.

        Its iterations are worth `worth` each. No second yields more than the profit, so the rest of their worth is paid.
        """
        paid = job.unit * worth * job.work
        paid -= sum((b - a) * job.profit(worth, c * job.unit) for a, b, c in self.spans(job.release, end))
        return Fraction(paid) / (job.unit * self.denominator)

    def pays(self, job: Job, worth: int, end: Any) -> Fraction:
        """The least that a job pays for ending by `end`."""
        return max(Fraction(0), self.owes(job, worth, end))

    def waits(self, job: Job, worths: Sequence[int]) -> Fraction:
        """The least that a job pays plus its completion time, for any worth of its iterations, whenever it ends."""
        alone, scale, mean = job.alone(), job.unit * self.denominator, Fraction(0)
        # Its iterations are done, on average, half its shortest duration before its end or earlier: each costs its
        # instant too. The profit is convex in time, so the chord between two edges is not below it.
        for a, b, price in self.spans(job.release, math.inf) if len(worths) == 1 else ():
            first, cost = worths[0] * job.work - self.denominator * a, price * job.unit * job.work
            if b == math.inf:  # a triangle
                b = a + Fraction(max(0, first), self.denominator)
            last = first - self.denominator * (b - a)
            mean += (b - a) * (job.profit(first, cost) + job.profit(last, cost)) / Fraction(2)
        by_mean = Fraction(worths[0] * job.work, self.denominator) + alone / 2 - job.release
        by_mean = by_mean - mean / (scale * job.work) if len(worths) == 1 else alone
        # What it owes for ending by an instant falls at a constant rate between edges, until it is nothing: between two
        # edges, its time and debt together are least at one of them, or where the debt is nothing.
        start = job.release + alone
        owes: list[Any] = [self.owes(job, worth, start) * scale for worth in worths]
        by_end: Any = math.inf
        for a, b, price in self.spans(start, math.inf):
            best: Any = 0
            for at, worth in enumerate(worths):
                rate, before, time = job.profit(worth, price * job.unit), owes[at], (a - job.release) * scale
                if before > 0:
                    free = b == math.inf or before <= rate * (b - a)
                    owes[at] = 0 if free else before - rate * (b - a)
                    later = Fraction(before * scale, rate) if free else owes[at] + (b - a) * scale
                    time += min(before, later)
                best = max(best, time)
            by_end = min(by_end, best)
            if max(owes) <= 0:
                break
        return max(by_mean, Fraction(by_end) / scale)


def limit(objective: str, jobs: Sequence[Job], prices: Prices, worth: Sequence[Any]) -> Fraction:
    """The most deadlines met, or the least sum of completion times, that prices prove for every schedule."""
    if objective == "mean_completion":
        worths = [one if isinstance(one, list) else [one] for one in worth]
        return sum(map(prices.waits, jobs, worths), -prices.whole())
    able = [job.deadline is not None and job.release + job.alone() <= job.deadline for job in jobs]
    paid = [1 - prices.pays(job, one, job.deadline) for job, one, can in zip(jobs, worth, able) if can]
    return Fraction(math.floor(sum((max(Fraction(0), one) for one in paid), prices.whole())))


def impossible(
    objective: str, jobs: Sequence[Job], prices: Prices, worth: Sequence[int], x: Fraction
) -> bool:
    """Whether prices prove that no schedule has a makespan, or a largest slowdown, below x."""
    scaled = objective == "max_slowdown"
    if x <= (1 if scaled else max(job.release + job.alone() for job in jobs)):
        return True
    ends = [job.release + x * job.alone() if scaled else x for job in jobs]
    return sum(map(prices.pays, jobs, worth, ends)) > prices.whole()


def proved(c: dict[str, Any], jobs: Sequence[Job]) -> bool:
    """Whether a certificate proves its claim about these jobs."""
    edges = tuple(int(e) if e.denominator == 1 else e for e in map(number, c["edges_s"]))
    prices = Prices(c["gpus"], c["denominator"], edges, (0, *c["price"], 0))
    objective, claim = c["objective"], number(c["claim"])
    worth = [c["work_value"].get(job.id, 0) for job in jobs]
    if objective in ("makespan", "max_slowdown"):
        return impossible(objective, jobs, prices, worth, claim)
    proven = limit(objective, jobs, prices, worth)
    return proven <= claim if objective == "deadlines" else proven >= claim


def require(holds: object, what: str) -> None:
    """Raise Refused unless something holds."""
    if not holds:
        raise Refused(what)


def number(text: Any, where: str = "", form: str = FRACTION) -> Fraction:
    """A number in a text of a form."""
    fits = isinstance(text, str) and re.fullmatch(form, text, re.ASCII)
    require(fits, f"{where or 'certificate'}: {str(text)[:40]!r} is not a usable number here")
    return Fraction(text)


def natural(text: str) -> int:
    """A number in JSON, which must be whole and not negative."""
    return int(number(text, form=WHOLE))


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all different, and whose values are not true, false or null."""
    require(len(dict(pairs)) == len(pairs), "has a key twice in one object")
    require(all(type(value) in FORM for _, value in pairs), "has true, false or null")
    return dict(pairs)


def read(content: bytes) -> dict[str, Any]:
    """A certificate, every field of the type that it must have."""
    require(len(content) <= MOST_BYTES, f"has {len(content)} bytes; at most {MOST_BYTES} are read")
    hooks: Any = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), natural)
    try:
        c = json.loads(content, **hooks, object_pairs_hook=unique)
    except (RecursionError, ValueError) as error:
        raise Refused(f"is not usable: {error}") from None
    require(isinstance(c, dict) and c.get("format") == "forerun-bound/1", "is no certificate of a bound")
    c = {"value": {}, "slip_s": "0", **c}
    form = {key: kind for kind, keys in FORM.items() for key in keys.split()}
    wrong = sorted(key for key in c.keys() | form if type(c.get(key)) is not form.get(key))
    require(not wrong, f"lacks, or has unknown or wrong: {', '.join(wrong)[:99]}")
    require(
        c["objective"] in SAYS and c["gpus"] and c["denominator"], "objective, gpus or denominator is wrong"
    )
    several = c["objective"] == "mean_completion"
    lists = [one if several and type(one) is list else [one] for one in c["work_value"].values()]
    values = [*c["price"], *(value for one in lists for value in one)]
    require(all(type(value) is int for value in values), "price and work_value must be whole numbers from 0")
    require(all(lists), "work_value has an empty list")
    require(len(c["edges_s"]) == len(c["price"]) + 1 > 1, "edges_s must have one edge more than price")
    require(all(a < b for a, b in pairwise(map(number, c["edges_s"]))), "edges_s must rise")
    require(not c["value"] and c["slip_s"] == "0", "has values of jobs or a slip, which no scenario has")
    digests = {"profile_sha256": {}, "trace_sha256": "", "first": 0} | c["inputs"]
    fits = [type(one) for one in digests.values()] == [dict, str, int]
    require(fits, "inputs must have trace_sha256 and profile_sha256, may have first, and nothing else")
    return {**c, "inputs": digests}


def rows_of(content: bytes, name: str) -> list[list[str]]:
    """The rows of a CSV file that are not empty, header first."""
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"{name} is no UTF-8 table: {error}") from None
    require(rows, f"{name} is empty")
    return [[cell.strip() for cell in row] for row in rows if any(map(str.strip, row))]


def read_jobs(trace: bytes, tables: Mapping[str, bytes], gpus: int, first: int = 0) -> list[Job]:
    """The jobs of a log by submission (the first ones; 0: all), with their speeds on up to so many GPUs."""
    speeds, jobs = {}, []
    for model, content in tables.items():
        (_, *counts), *rows = rows_of(content, model)
        for size, *cells in rows:
            known = [(int(n), cell) for n, cell in zip(counts, cells) if cell.lower() not in NONE]
            legal = {n: number(cell, model, DECIMAL) for n, cell in known if 0 < n <= gpus}
            unit = math.lcm(*(speed.denominator for speed in legal.values()))
            scaled = tuple((n, int(speed * unit)) for n, speed in legal.items() if speed)
            speeds[model, int(size)] = unit, scaled
    names = dict(word.split("=") for word in NAMES.split())
    header, *rows = rows_of(trace, "job log")
    for row in rows:
        cell = dict(zip((names.get(name, name) for name in header), row))
        name, due = re.sub(r"^0+(?=\d+$)", "", cell.get("job_id", "")), cell.get("deadline_s", "").lower()
        release, work, batch, duration = (int(number(cell.get(key), f"job {name}", WHOLE)) for key in NEEDED)
        free = due in NONE or cell.get("best_effort") == "1"
        unit, scaled = speeds.get((cell.get("model", ""), batch), (1, ()))
        require((scaled and work) or not duration, f"job {name} cannot run on {gpus} GPUs")
        deadline = None if free else int(number(due, f"job {name}", WHOLE))
        jobs += [Job(name, release, deadline, work, unit, scaled)] * (duration > 0)
    jobs = sorted(jobs, key=lambda job: job.release)[: first or None]
    require(len({job.id for job in jobs}) == len(jobs) > 0, "the job log has a job twice, or none")
    return jobs


def check(
    content: bytes, trace: bytes, tables: Mapping[str, bytes], gpus: int, first: int
) -> tuple[bool, str]:
    """Whether a certificate proves its claim about a scenario, and what it says.

    Raises Refused if it is no certificate, or one of another scenario: of other GPUs, jobs or tables.
    """
    c = read(content)
    inputs, used = c["inputs"], {name: tables.get(name, b"") for name in c["inputs"]["profile_sha256"]}
    require(c["gpus"] == gpus, f"is about {c['gpus']} GPUs; the scenario has {gpus}")
    require(inputs["trace_sha256"] == hashlib.sha256(trace).hexdigest(), "is about another job log")
    require(inputs["first"] == first, f"is about the first {inputs['first']} jobs, not {first} (0: all)")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in used.items()}
    require(inputs["profile_sha256"] == digests, "is about other tables of throughput")
    jobs = read_jobs(trace, used, gpus, first)
    unknown = sorted(c["work_value"].keys() - {job.id for job in jobs})
    require(not unknown, f"names a job that is not in the scenario: {unknown[:1]}")
    lacking = c["objective"] == "mean_completion" and len(jobs) - len(c["work_value"])
    require(not lacking, f"lacks {lacking} jobs of the scenario")
    return proved(c, jobs), f"{SAYS[c['objective']].format(c['claim'])} ({len(jobs)} jobs, {gpus} GPUs)"


if __name__ == "__main__":
    try:
        path, size, head, log, *profiles = sys.argv[1:]
        contents = {Path(name).stem: Path(name).read_bytes() for name in profiles}
        holds, says = check(Path(path).read_bytes(), Path(log).read_bytes(), contents, int(size), int(head))
    except (OSError, ValueError) as error:
        sys.exit(sys.stderr.write(f"{' '.join(sys.argv[1:2])}: {error}\n") and 2)
    sys.stdout.write(f"{'proved' if holds else 'NOT proved'}: {says}\n")
    sys.exit(0 if holds else 4)
