"""Whole sites whose truth is slurmctld: drawn as in `tests/site/reference`, exported as operators do, and asked about.

    python -m validation.slurm.sites [--seeds 4 6 8] [--jobs 700] [--days 5] [--plain] [--out FOLDER] [--json]

Each site is run by the daemon, its files are given to `forerun site`, and the waits of the scenario that this writes stand
beside the daemon's, by partition. Then the daemon runs again with one more node where jobs wait longest. `--out` keeps the
files; `--plain` draws no maintenance and no failures.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.site.reference.compare import Row, answered, compared, effect_s
from tests.site.reference.export import events as away
from tests.site.reference.export import node_list, partitions, reservations, sacct, slurm_conf
from tests.site.reference.past import Played
from tests.site.reference.scheduler import Attempt, Failure, Job, World, with_node
from tests.site.reference.sites import Limits, Site, draw

import forerun
from forerun.cluster.inputs.slurm_conf import node_names
from forerun.core.cli.main import run as forerun_command
from validation.slurm.daemon import build, launch, why_not

#: what `slurm.conf.in` of the tool has already, and what asks for a slurmdbd
_SET: Final = re.compile(
    r"(?m)^(?:ClusterName|SlurmctldHost|AuthType|SelectType|SelectTypeParameters|GresTypes|AccountingStorage\w+)=.*\n"
)
#: the last second is that of a submission, as `slurmctld` writes it
_HALF_S: Final = 0.5


def drawn(seed: int, jobs: int, days: int, *, plain: bool = False) -> Site:
    """A site that the daemon can be without slurmdbd: no limits of accounts and QOS; nobody is held.

    plain: whether nothing fails and nothing is maintained, and the log has all from the beginning.
    """
    site = draw(seed, jobs, days, hides=seed % 2 > 0)
    world = site.world
    maintenance = tuple(replace(one, known_s=0) for one in world.maintenance)
    partitions = tuple(replace(one, qos="") for one in world.partitions)
    jobs_of = tuple(replace(job, held=None) for job in world.jobs)
    world = replace(world, jobs=jobs_of, partitions=partitions, maintenance=maintenance, limits=())
    if plain:
        world, site = replace(world, maintenance=(), failures=()), replace(site, from_s=0)
    return replace(site, world=world, limits=Limits())


def files_conf(site: Site, sets: Mapping[str, str] | None = None) -> str:
    """The site's slurm.conf, without slurmdbd. sets: lines that are otherwise."""
    text = re.sub(r"(?m)^AccountingStorage\w+=.*\n", "", slurm_conf(site))
    text = text.replace(
        "PriorityType=", "AccountingStorageType=accounting_storage/none\nDefMemPerCPU=4096\nPriorityType=", 1
    )
    for name, value in (sets or {}).items():
        text, count = re.subn(rf"(?m)^{name}=.*$", f"{name}={value}", text)
        assert count == 1, name
    return text


def daemon_conf(conf: str) -> str:
    """The same for a daemon whose nodes are not there: each has an address of its own.

    Types of GPUs are features, which jobs ask for: without a slurmd a plan of slurmctld 22.05 never gets back the typed
    GPUs of a job that named no type.
    """
    at = 0

    def placed(match: re.Match[str]) -> str:
        nonlocal at
        first, at = at + 1, at + len(node_names(match[1], 1000))
        return f"NodeName={match[1]} NodeAddr=127.1.0.[{first}-{at}]"

    text = re.sub(
        r" CPUs=(\d+)", lambda one: f" CPUs={one[1]} CoresPerSocket={int(one[1]) // 2}", _SET.sub("", conf)
    )
    text = re.sub(r"Gres=gpu:(\w+):(\d+)", r"Gres=gpu:\2 Features=\1", text)
    return re.sub(r"(?m)^NodeName=(?!DEFAULT)(\S+)", placed, text)


def trace(site: Site) -> str:
    """The jobs for the driver."""
    rows = []
    for job in sorted(site.world.jobs, key=lambda one: one.submit_s):
        nodes, task = max(job.nodes, 1), job.id.partition("_")[2]
        cells: tuple[object, ...] = (
            job.id, job.submit_s + _HALF_S, job.run_s, nodes, job.each, -(-job.request_s // 60), 1001,
            ",".join(job.partitions), "-", "-", int(job.exclusive), 0, job.gpu_type or "-", -(-job.cpus // nodes),
            job.begin_s or -1, -1 if job.cancel_s is None else job.cancel_s, (job.after or ("-",))[0],
            job.array or "-", task or -1, job.array_limit,
        )  # fmt: skip
        rows.append("\t".join(map(str, cells)))
    return "\n".join(rows) + "\n"


def events(failures: Sequence[Failure]) -> str:
    """What happens to nodes."""
    rows = [(one.from_s, one.node, "DOWN") for one in failures]
    rows += [(one.to_s, one.node, "RESUME") for one in failures]
    return "".join(f"{at_s} {node} {what}\n" for at_s, node, what in sorted(rows))


def setup(world: World) -> str:
    """The commands that announce maintenance."""
    lines = ["set -e", "export TZ=UTC", "f() { date -u -d @$((T0 + $1)) +%Y-%m-%dT%H:%M:%S; }"]
    lines += [
        f"scontrol create reservation reservationname={one.name} starttime=$(f {one.from_s}) "
        f"duration={(one.to_s - one.from_s) // 60} users=root nodes={node_list(one.nodes)} flags=maint,ignore_jobs"
        for one in world.maintenance
    ]
    return "\n".join(lines) + "\n"


def happened(
    tool: Path, site: Site, folder: Path, sets: Mapping[str, str] | None = None
) -> tuple[Site, list[Attempt]]:
    """What the daemon does with a site, until its export is made; the site with the clock of the run.

    Parameters
    ----------
    tool, site, folder : the compiled tool, what is run, and where its files go, which need not exist.
    sets : lines of slurm.conf that are otherwise.
    """
    base = folder.with_suffix("")
    made = {suffix: base.with_suffix(suffix) for suffix in (".tsv", ".conf", ".sh", ".events")}
    texts = (trace(site), daemon_conf(files_conf(site, sets)), setup(site.world), events(site.world.failures))
    for path, text in zip(made.values(), texts, strict=True):
        path.write_text(text)
    launch(
        tool, made[".conf"], made[".tsv"], folder,
        LOCKSTEP_SETUP=str(made[".sh"]), LOCKSTEP_EVENTS=str(made[".events"]), LOCKSTEP_HORIZON=str(site.as_of_s),
        LOCKSTEP_EPOCH=str(site.origin_s), LIMIT="1500",
    )  # fmt: skip
    begins = re.search(r"the trace begins at ([0-9]+)", (folder / "lockstep.log").read_text())
    assert begins
    site = replace(site, origin_s=int(begins[1]))
    return site, Played(site.world, attempts(site, folder / "out.tsv")).run()


def attempts(site: Site, path: Path) -> list[Attempt]:
    """Each time that a job was in the queue, without its causes."""
    jobs, node = {job.id: job for job in site.world.jobs}, {one.name: one for one in site.world.nodes}
    with path.open() as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    found = []
    for row in rows:
        job = jobs[row["id"]]
        start_s, end_s = int(float(row["start_s"])), int(float(row["end_s"]))
        one = Attempt(job, int(float(row["submit_s"])), state=row["state"])
        if float(row["start_s"]) >= 0:
            names = node_names(row["nodes"], 1000)
            one.start_s, one.partition = start_s, row["partition"]
            one.eligible_s = max(int(float(row["eligible_s"])), one.submit_s)
            one.end_s = end_s if one.state != "OPEN" else start_s + min(job.run_s, job.request_s)
            one.place = {name: node[name].gpus if job.exclusive else job.each for name in names}
        elif one.state != "OPEN":
            one.end_s = end_s
            one.eligible_s = max(int(float(row["eligible_s"])), one.submit_s)
            one.eligible_s = one.eligible_s if one.eligible_s < end_s else None
        else:
            one.eligible_s = _eligible_s(job, one.submit_s)
        found.append(one)
    return sorted(found, key=lambda one: (one.submit_s, one.job.id))


def _eligible_s(job: Job, submit_s: int) -> int | None:
    return None if job.after else max(job.begin_s, submit_s)


def export(site: Site, truth: Sequence[Attempt], folder: Path) -> None:
    """The files that an operator has of a site."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "sacct.txt": sacct(site, truth), "slurm.conf": files_conf(site), "partitions.txt": partitions(site),
        "reservations.txt": reservations(site), "events.txt": away(site),
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Beside:
    """A site's answer beside its truth: waits, causes, and what one more node does, with the answer's interval."""

    row: Row
    node_in: str
    node_s: float
    node_said_s: tuple[float, float, float] | None

    @property
    def tops_right(self) -> int:
        """In how many partitions the top cause is right."""
        return sum(true == said for true, said in self.row.tops.values())


def asked(site: Site, truth: Sequence[Attempt], folder: Path) -> tuple[Row, dict[str, Any]]:
    """What `forerun site` makes of a site's files, beside the truth, and its answer as data."""
    export(site, truth, folder / "files")
    command = ["site", str(folder / "files"), "--zone", site.zone, "--names", "-q", "--changes", "2"]
    assert forerun_command([*command, "-o", str(folder / "answer")]) == 0
    answer = answered(forerun.simulate(forerun.load(folder / "answer" / "site.yaml")))
    merged = {
        name: {**causes, "order": causes["order"] + causes["promised"], "promised": 0.0}
        for name, causes in answer.causes.items()
    }  # who fits and does not start waits for the order in the truth, too
    content: dict[str, Any] = json.loads((folder / "answer" / "site.json").read_text())
    return compared(site, truth, replace(answer, causes=merged)), content


def beside(tool: Path, site: Site, folder: Path) -> Beside:
    """Run a site and ask about it; then with one more node in the partition whose jobs wait longest."""
    folder.mkdir(parents=True, exist_ok=True)
    site, truth = happened(tool, site, folder / "run")
    row, content = asked(site, truth, folder)
    waits = Counter[str]()
    for one in site.scored(truth).values():
        waits[one.partition] += one.queue_wait_s
    longest = waits.most_common(1)[0][0]
    _, after = happened(tool, replace(site, world=with_node(site.world, longest)), folder / "more")
    name = f"one more node in {longest}"
    said = next((one for one in content["changes"] if one["change"] == name), None)
    interval = None
    if said is not None and said["low_h"] is not None:
        interval = (3600 * said["difference_h"], 3600 * said["low_h"], 3600 * said["high_h"])
    return Beside(row, longest, effect_s(site, truth, after), interval)


def main() -> None:
    """Print a line for each site, or all as data."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[4, 6, 8])
    parser.add_argument("--jobs", type=int, default=700)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        tool = build(Path(temporary))
        for seed in options.seeds:
            site = drawn(seed, options.jobs, options.days, plain=options.plain)
            one = beside(tool, site, (options.out or Path(temporary)).resolve() / f"site-{seed}")
            rows.append({**asdict(one), "jobs": len(site.world.jobs), "nodes": len(site.world.nodes)})
            if not options.json:
                off = ", ".join(f"{name} {value:+.0%}" for name, value in one.row.off.items())
                print(
                    f"{seed}: mean wait {one.row.truth_s:.0f} s, answered {one.row.answer_s:.0f} s; {off}; same cycle "
                    f"{one.row.same_cycle:.2f}; top causes {one.tops_right} of {len(one.row.tops)}; one more node in "
                    f"{one.node_in}: {one.node_s:+.0f} s, answered {one.node_said_s}",
                    flush=True,
                )
    if options.json:
        print(json.dumps({"sites": rows}))


if __name__ == "__main__":
    main()
