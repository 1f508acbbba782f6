"""Check a certified bound of a cluster scenario in exact arithmetic, with Python's standard library alone.

`python checker.py CERTIFICATE GPUS FIRST TRACE TABLE...` (FIRST 0: all jobs). Exit code 0: proved; 4: the claim does not
follow from the certificate; 2: it cannot be checked. A job has one of its GPU counts at a time and is never faster there
than its table says; GPUs are alike; quotas, nodes and costs of changes are ignored, which makes no schedule worse.
"""

import csv
import json
import math
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

SAYS = {
    "deadlines": "no schedule meets more than {} deadlines",
    "makespan": "no schedule ends all jobs before {} s",
    "max_slowdown": "no schedule has a largest slowdown below {}",
    "mean_completion": "no schedule has completion times that sum to less than {} s",
}
FIELDS = dict[str, Any](format=str, objective=str, claim=str, slip_s=str, gpus=int, denominator=int)
FIELDS |= {"edges_s": list, "price": list, "work_value": dict, "value": dict, "inputs": dict}
NUMBER, MOST, MOST_BYTES = r"\d{1,40}(\.\d{1,40}|/0{0,9}[1-9]\d{0,39})?", 10**40, 1 << 22
NAMES = "submit_time=submit_s submission_time=submit_s num_iteration=iteration deadline_s=ddl deadline=ddl "
NAMES += "iterations=iteration num_iterations=iteration model_name=model batch_size=batch duration_s=duration"


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
        return max([0, *[worth * speed - price * gpus for gpus, speed in self.speed]])


class Prices(NamedTuple):
    """Prices of GPU-seconds in 1 / denominator: `price[i]` until `edges[i]`; zero before the first edge and at last."""

    gpus: int
    denominator: int
    edges: tuple[int | Fraction, ...]
    price: tuple[int, ...]

    def spans(self, start: Any, end: Any) -> Iterator[tuple[Any, Any, int]]:
        """(from, to, price) of a time span, one after the other; of no time if it ends before its start."""
        low, high = bisect_right(self.edges, start), bisect_left(self.edges, max(start, end))
        edges = (start, *self.edges[low:high], max(start, end))
        return zip(edges, edges[1:], self.price[low : high + 1])

    def pays(self, job: Job, worth: int, end: Any) -> Fraction:
        """The least that a job pays for ending by `end`.

        Its iterations are worth `worth` each. No second yields more than the profit, so the rest of their worth is paid.
        """
        most = sum((b - a) * job.profit(worth, c * job.unit) for a, b, c in self.spans(job.release, end))
        return Fraction(max(0, worth * job.work * job.unit - most)) / (job.unit * self.denominator)

    def by_edge(self, job: Job, worth: int) -> Iterator[Any]:
        """The least that a job pays plus its completion time, for an end between two edges each, times unit * denominator.

        What it owes falls at a constant rate there: time and debt together are least at an edge, or where the debt is
        nothing. Rounded down.
        """
        scale, start = job.unit * self.denominator, job.release + math.floor(job.alone())
        debt = math.floor(self.pays(job, worth, start) * scale)
        # Where nothing has a price, no debt is left after the shortest duration: later ends are only later.
        for a, b, price in self.spans(start, max(start, self.edges[-1]) + math.ceil(job.alone())):
            rate = job.profit(worth, price * job.unit) if debt > 0 else 0
            least = min(debt, max(debt * scale // max(rate, 1), debt - (rate - scale) * (b - a)))
            yield (a - job.release) * scale + max(0, least)
            debt -= rate * (b - a)

    def waits(self, job: Job, worth: Any) -> Fraction:
        """The least that a job pays plus its completion time. worth: several, for ends; or one, which includes instants."""
        scale = job.unit * self.denominator
        if isinstance(worth, list):
            return Fraction(min(map(max, zip(*(self.by_edge(job, one) for one in worth))))) / scale
        # Its iterations are done, on average, half its shortest duration before its end or earlier: each costs its
        # instant. The profit is convex in time, so the chord between two edges is not below it.
        end, twice = Fraction(worth * job.work, self.denominator), 0
        for a, b, price in self.spans(job.release, end):
            for at in (a, b):
                left = worth * job.work - self.denominator * at
                twice += (b - a) * job.profit(left, price * job.unit * job.work)
        mean = end - job.release - Fraction(twice) / (2 * scale * job.work)
        return max(job.alone(), mean + job.alone() / 2)


def proves(objective: str, jobs: Sequence[Job], prices: Prices, worth: Sequence[Any], claim: Any = 0) -> Any:
    """What prices prove for every schedule: the most deadlines met, or the least sum of completion times.

    Of a makespan or largest slowdown: the claim, if they prove it, or else 0.
    """
    spans = prices.spans(prices.edges[0], prices.edges[-1])
    whole = prices.gpus * sum((b - a) * price for a, b, price in spans) / Fraction(prices.denominator)
    if objective == "mean_completion":
        return sum(map(prices.waits, jobs, worth), -whole)
    first = [job.release + job.alone() for job in jobs]
    if objective == "deadlines":
        able = [(job, one) for job, one, end in zip(jobs, worth, first) if end <= (job.deadline or 0)]
        gains = (max(Fraction(0), 1 - prices.pays(job, one, job.deadline)) for job, one in able)
        return math.floor(min(sum(gains, whole), len(able)))
    ends = [claim if objective == "makespan" else job.release + claim * job.alone() for job in jobs]
    early = any(end <= soonest for end, soonest in zip(ends, first))
    return claim * (early or sum(map(prices.pays, jobs, worth, ends)) > whole)


def require(holds: object, what: str) -> None:
    """Raise ValueError unless something holds."""
    if not holds:
        raise ValueError(what)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, whose keys must all be different."""
    require(len(dict(pairs)) == len(pairs), "has a key twice in one object")
    return dict(pairs)


def exact(text: Any) -> Any:
    """A number in a text."""
    require(type(text) is str and re.fullmatch(NUMBER, text, re.ASCII), f"has {text!r:.40} as a number")
    return Fraction(text) if Fraction(text).denominator > 1 else int(Fraction(text))


def certificate(content: bytes) -> dict[str, Any]:
    """A certificate in which everything is as it must be, with exact numbers for those in texts."""
    require(len(content) <= MOST_BYTES, f"has {len(content)} bytes; at most {MOST_BYTES} are read")
    read: Any = json.loads(content, object_pairs_hook=unique)
    c: dict[str, Any] = {"value": {}, "slip_s": "0"} | (read if isinstance(read, dict) else {})
    wrong = sorted(key for key in c.keys() | FIELDS if type(c.get(key)) is not FIELDS.get(key))
    require(not wrong, f"lacks, or has unknown or wrong: {', '.join(wrong)[:99]}")
    require(c["format"] == "forerun-bound/1" and c["objective"] in SAYS, "has an unknown format or objective")
    require(not c["value"] and c["slip_s"] == "0", "has values of jobs or a slip, which no scenario has")
    numbers = [c["gpus"], c["denominator"], c["inputs"].get("first", 0), *c["price"]]
    for worth in c["work_value"].values():
        numbers += worth if worth and type(worth) is list and c["objective"] == "mean_completion" else [worth]
    require(all(type(one) is int and 0 <= one < MOST for one in numbers), "has an unusable whole number")
    edges = tuple(map(exact, c["edges_s"]))
    rise = 2 <= len(edges) == len(c["price"]) + 1 <= 10_000 and list(edges) == sorted(set(edges))
    require(rise and c["denominator"], "must have a denominator, and edges that rise, one more than prices")
    return c | {"claim": exact(c["claim"]), "edges_s": edges}


def rows_of(content: bytes) -> list[dict[str, str]]:
    """The rows of a CSV file that are not empty, by the names in its header."""
    rows = csv.reader(content.decode("utf-8-sig").splitlines(keepends=True))
    header, *rest = ([cell.strip() for cell in row] for row in rows if any(map(str.strip, row)))
    return [dict(zip(header, row)) for row in rest]


def read_jobs(log: bytes, tables: Mapping[str, bytes], gpus: int, first: int = 0) -> list[Job]:
    """The jobs of a log by submission (the first ones; 0: all), with their speeds on up to so many GPUs."""
    speeds, jobs, names = {}, list[Job](), dict(word.split("=") for word in NAMES.split())
    try:
        for model, content in tables.items():
            for (_, size), *cells in (row.items() for row in rows_of(content)):
                known = {int(n): Fraction(text) for n, text in cells if text.lower() not in ("", "nan")}
                unit = math.lcm(*(speed.denominator for speed in known.values()))
                legal = tuple((n, int(known[n] * unit)) for n in known if n <= gpus and known[n])
                speeds[model, int(size)] = unit, legal
        for row in rows_of(log):
            cell = {"ddl": "", "best_effort": "", **{names.get(name, name): row[name] for name in row}}
            free = cell["ddl"].lower() in ("", "nan") or cell["best_effort"] == "1"
            due, name = None if free else int(cell["ddl"]), re.sub(r"^0+(?=\d+$)", "", cell["job_id"])
            if int(cell["duration"]) > 0:
                speed = speeds.get((cell["model"], int(cell["batch"])), (1, ()))
                require(speed[1], f"job {name} cannot run on {gpus} GPUs")
                jobs.append(Job(name, int(cell["submit_s"]), due, int(cell["iteration"]), *speed))
    except (KeyError, ValueError, csv.Error) as error:
        raise ValueError(f"the job log or a table is not usable: {error}") from None
    return sorted(jobs, key=lambda job: job.release)[: first or None]


def check(proof: bytes, log: bytes, tables: Mapping[str, bytes], gpus: int, first: int) -> tuple[bool, str]:
    """Whether a certificate proves its claim about a scenario, and what it says.

    Raises ValueError or RecursionError if it is none, or one of another scenario: of other GPUs, jobs or tables.
    """
    c = certificate(proof)
    listed = c["inputs"].get("profile_sha256")
    used = {name: table for name, table in tables.items() if isinstance(listed, dict) and name in listed}
    digests = {name: sha256(table).hexdigest() for name, table in used.items()}
    own = {"trace_sha256": sha256(log).hexdigest(), "profile_sha256": digests, "first": first}
    require({"first": 0} | c["inputs"] == own, "is about another job log, other tables or other first jobs")
    require(c["gpus"] == gpus, f"is about {c['gpus']} GPUs; the scenario has {gpus}")
    jobs, worths = read_jobs(log, used, gpus, first), c["work_value"]
    complete = c["objective"] != "mean_completion" or len(worths) == len(jobs)
    require(complete and worths.keys() <= {job.id for job in jobs}, "names or lacks other jobs than the log")
    prices = Prices(gpus, c["denominator"], c["edges_s"], (0, *c["price"], 0))
    proved = proves(c["objective"], jobs, prices, [worths.get(job.id, 0) for job in jobs], c["claim"])
    holds = proved <= c["claim"] if c["objective"] == "deadlines" else proved >= c["claim"]
    return holds, f"{SAYS[c['objective']].format(c['claim'])} ({len(jobs)} jobs, {gpus} GPUs)"


if __name__ == "__main__":
    try:
        path, gpus, first, log, *names = sys.argv[1:]
        tables = {Path(name).stem: Path(name).read_bytes() for name in names}
        holds, says = check(Path(path).read_bytes(), Path(log).read_bytes(), tables, int(gpus), int(first))
    except (OSError, RecursionError, ValueError) as error:
        sys.exit(sys.stderr.write(f"{' '.join(sys.argv[1:2])}: {error}\n") and 2)
    sys.stdout.write(f"{'proved' if holds else 'NOT proved'}: {says}\n")
    sys.exit(0 if holds else 4)
