"""`forerun site`: from the files of a site to one page, without a scenario and without a name of anybody."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from forerun.cluster.inputs.slurm_conf import read_slurm_nodes
from forerun.core.cli.main import run
from forerun.core.domain import Units
from forerun.core.errors import StoreError, UsageError
from forerun.core.trace.reader import read_trace
from forerun.site.survey import collect
from forerun.site.survey.changes import Change
from forerun.site.survey.copies import copy_of
from forerun.site.survey.document import DOCUMENT
from forerun.site.survey.effects import cheapest, difference, effect_of, verdict_of, waits
from forerun.site.survey.files import Kind, listed, of_this_site, recognised
from forerun.site.survey.identify import identified
from forerun.site.survey.pseudonyms import Pseudonyms, read_key

from .reference.export import write
from .reference.sites import draw

KEY = b"0123456789abcdef0123456789abcdef"


def called(names: list[str]) -> dict[str, str]:
    """Names that occur in no other text."""
    return {name: f"{name}Zq{at}" for at, name in enumerate(names)}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, frozenset[str], str]:
    """The files of a drawn site, the names of its users and accounts, and its zone."""
    site = draw(1, 300, 14)
    accounts = {job.account for job in site.world.jobs} | set(site.world.priorities.accounts)
    accounts -= {"root"}
    users = {job.user for job in site.world.jobs}
    other = called(sorted(accounts | users))
    folder = tmp_path_factory.mktemp("site")
    write(site, site.attempts(), folder)
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        for name in sorted(other, key=len, reverse=True):
            text = re.sub(rf"(?<![A-Za-z0-9-]){name}(?![A-Za-z0-9-])", other[name], text)
        if path.name == "res.txt":
            text = text.replace("Users=root", f"Users={other[min(users)]}").replace(
                "maint_day", f"{other[min(users)]}_7"
            )
        path.write_text(text, encoding="utf-8")
    return folder, frozenset(other[name] for name in accounts | users), site.zone


def everything(folder: Path) -> Iterator[tuple[str, str]]:
    """The text of each file of a folder, by name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.name, path.read_bytes().decode("utf-8", "replace")


@pytest.fixture(scope="module")
def answered(
    drawn: tuple[Path, frozenset[str], str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], str]:
    """The output folder for the drawn site, its answer, and what the command printed."""
    folder, _, zone = drawn
    out = tmp_path_factory.mktemp("answers") / "out"
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "forerun",
            "site",
            str(folder),
            "--zone",
            zone,
            "--changes",
            "3",
            "-o",
            str(out),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return out, json.loads((out / "site.json").read_text()), ran.stdout + ran.stderr


def test_a_folder_becomes_one_page_a_scenario_and_an_answer(
    answered: tuple[Path, dict[str, Any], str],
) -> None:
    out, content, printed = answered
    assert {path.name for path in out.iterdir()} == {*content["written"], "site.json", "names.key"}
    assert {row["is"] for row in content["files"]} >= {
        kind.value for kind in (Kind.CONF, Kind.QOS, Kind.EVENTS)
    }
    assert {row["jobs of"] for row in content["history"]} > {"all jobs"}
    assert len(content["changes"]) == 3 and all(
        row["low_h"] <= row["difference_h"] <= row["high_h"] for row in content["changes"]
    )
    assert all(row["even_odds_h"] <= row["nine_in_ten_h"] for row in content["starts"])
    page = (out / "site.html").read_text()
    for heading in (
        "Why partitions wait",
        "How well the last month is reproduced",
        "When a job would start",
        "Files",
    ):
        assert f"<h2>{heading}</h2>" in page
        assert heading in printed
    assert f"why: {content['why']}" in " ".join(printed.split())
    assert ".forerun-" not in json.dumps(content)
    assert oct((out / "names.key").stat().st_mode)[-3:] == "600"


def test_no_file_and_no_line_names_anybody(
    drawn: tuple[Path, frozenset[str], str], answered: tuple[Path, dict[str, Any], str]
) -> None:
    _, names, _ = drawn
    out, _, printed = answered
    key = (out / "names.key").read_text().strip()
    for where, text in [*everything(out), ("the terminal", printed)]:
        assert not [name for name in names if name in text], where
        assert where == "names.key" or key not in text, where


def test_a_user_has_one_pseudonym_in_all_files(
    drawn: tuple[Path, frozenset[str], str], answered: tuple[Path, dict[str, Any], str]
) -> None:
    folder, _, _ = drawn
    out, _, _ = answered
    of = Pseudonyms(read_key(out / "names.key"))
    with (out / "jobs.csv").open() as file:
        next(file)
        jobs = {row["job_id"]: row for row in csv.DictReader(file)}
    for row in csv.DictReader((folder / "sacct.txt").open(), delimiter="|"):
        if row["JobID"] in jobs:
            assert jobs[row["JobID"]]["user"] == of.user(row["User"])
            assert jobs[row["JobID"]]["account"] == of.account(row["Account"])
    known = {row["User"] for row in csv.DictReader((out / "assoc.txt").open(), delimiter="|")}
    assert {row["user"] for row in jobs.values()} <= known


def test_the_scenario_runs_by_itself_and_names_change_nothing(
    drawn: tuple[Path, frozenset[str], str],
    answered: tuple[Path, dict[str, Any], str],
    tmp_path: Path,
    capsys: Any,
) -> None:
    folder, names, zone = drawn
    out, content, _ = answered
    scenario = yaml.safe_load((out / "site.yaml").read_text())
    # the files say slurm-backfill, and the log was made by EASY
    assert scenario["policy"]["name"] == "easy" and scenario["policy"]["order"] == {"name": "multifactor"}
    assert any("the policy is easy, in the same order" in note for note in content["notes"])
    assert run(["simulate", str(out / "site.yaml"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["wait_p90_s"] / 3600 == pytest.approx(content["facts"]["wait_p90_h"])
    named = tmp_path / "named"
    assert (
        run(["site", str(folder), "--zone", zone, "--changes", "1", "--names", "--json", "-o", str(named)])
        == 0
    )
    other = json.loads(capsys.readouterr().out)
    assert other["history"] == content["history"] and other["waiting"] == content["waiting"]
    assert any(name in text for name in names for _, text in everything(named))
    assert not (named / "names.key").exists()


def test_a_second_run_replaces_the_first_and_nothing_else(
    drawn: tuple[Path, frozenset[str], str],
    answered: tuple[Path, dict[str, Any], str],
    tmp_path: Path,
    capsys: Any,
) -> None:
    folder, _, zone = drawn
    out = tmp_path / "again"
    shutil.copytree(answered[0], out)
    (out / "mine.txt").write_text("mine")
    command = ["site", str(folder), "--zone", zone, "--changes", "3", "-q", "-o", str(out)]
    assert run(command) == 0
    assert (out / "mine.txt").read_text() == "mine"
    assert (out / "site.json").read_text() == (
        answered[0] / "site.json"
    ).read_text()  # the same key, the same bytes
    edited = (out / "site.yaml").read_text() + "# edited\n"
    (out / "site.yaml").write_text(edited)
    capsys.readouterr()
    assert run(command) == 2
    assert "site.yaml: was changed since forerun site wrote it" in capsys.readouterr().err
    assert (out / "site.yaml").read_text() == edited
    assert not list(tmp_path.glob(".forerun-*"))


def test_a_page_can_be_made_again_from_the_answer(
    answered: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    out, content, _ = answered
    assert run(["report", str(out / "site.json"), "-o", str(tmp_path / "page.html"), "-q"]) == 0
    first = list(DOCUMENT.read("s", {**content, "reproduced": False}).tables)[0]
    assert first == "how well the last month is reproduced"
    with pytest.raises(StoreError, match="history"):
        DOCUMENT.read("s", {**content, "history": 3})


HEAD = "JobID|User|Account|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|NNodes\n"
ROW = "{}|zed|lab|gpu|2025-03-03T01:00:00|{}|{}|{}|3600|gres/gpu=4|02:00:00|1\n"
NEVER = HEAD + ROW.format(1, "Unknown", "2025-03-03T02:00:00", "CANCELLED by 7")
BAD: dict[str, tuple[dict[str, str], str]] = {
    "no files": ({}, "nothing: no log of jobs is among the files"),
    "only what nobody knows": ({"notes.md": "# to do\n"}, r"notes\.md: no log of jobs is among the files"),
    "no log": ({"qos.txt": "Name|Priority\nnormal|1\n"}, r"qos\.txt: no log of jobs.*--collect"),
    "a log without starts": ({"sacct.txt": NEVER}, "no usable job is left|no job with a start"),
    "a row that is cut": ({"sacct.txt": HEAD + ROW.format(1, "", "", "") + "2|zed\n"}, r"sacct\.txt:3: has 2 fields"),
    "a time that is none": (
        {"sacct.txt": HEAD + ROW.format(1, "zed's o'clock", "2025-03-03T02:00:00", "COMPLETED")},
        r"sacct\.txt:2:Start: .*u-[a-z2-7]{8}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_one_line_and_leaves_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, says = BAD[name]
    folder = tmp_path / "files"
    folder.mkdir()
    for file, text in files.items():
        (folder / file).write_text(text)
    assert run(["site", str(folder), "-q", "-o", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert re.search(says, line)
    assert "zed" not in line
    assert [path.name for path in tmp_path.iterdir()] == ["files"]


def test_a_folder_of_somebody_else_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("mine")
    assert run(["site", str(tmp_path / "nowhere"), "-o", str(out)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    for arguments, says in (
        (["site"], "FILES: name files of a site"),
        (["site", str(tmp_path / "nowhere"), "-o", str(tmp_path / "new")], "no such file or folder"),
        (["site", ".", "--zone", "Mars/Phobos"], "no time zone 'Mars/Phobos'"),
        (["site", ".", "--names", "--key", "k"], "--key: is of pseudonyms"),
        (
            ["site", ".", "--key", str(out / "thesis.tex"), "-o", str(tmp_path / "new")],
            "a key has at least 16",
        ),
    ):
        assert run(arguments) == 2
        assert says in capsys.readouterr().err


KINDS = {
    Kind.LOG: HEAD,
    Kind.CONF: "# ours\nClusterName=a\nNodeName=n1 Gres=gpu:4\n",
    Kind.PARTITIONS: "PartitionName=gpu\n   Nodes=n1\n   TotalNodes=1\n",
    Kind.RESERVATIONS: "ReservationName=day StartTime=2025-03-03T06:00:00\n   Nodes=n1\n",
    Kind.NODES: "NodeName=n1 Arch=x86_64\n   CPUTot=64 Gres=gpu:4\n",
    Kind.QOS: "Name|Priority|MaxTRESPU\nnormal|1|\n",
    Kind.ASSOCIATIONS: "Cluster|Account|User|Share\na|root||1\n",
    Kind.EVENTS: "Cluster|NodeName|TimeStart|TimeEnd|State\na|n1|2025-03-03T06:00:00|Unknown|DOWN\n",
    Kind.QUEUE: "JOBID|USER|PARTITION|NODES|TIME_LIMIT|STATE|SUBMIT_TIME|START_TIME|TIME\n",
    Kind.KUEUE: "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: q}\n",
    Kind.UNKNOWN: "NodeName=n1 Name=gpu File=/dev/nvidia[0-3]\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_file_is_known_by_its_content(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "some.file"
    path.write_text(KINDS[kind])
    assert recognised(path).kind is kind


def test_files_of_another_cluster_are_named_and_set_aside(tmp_path: Path) -> None:
    texts = {
        "slurm.conf": KINDS[Kind.CONF],
        "assoc.txt": KINDS[Kind.ASSOCIATIONS].replace("a|root", "b|root"),
        "partitions.txt": KINDS[Kind.PARTITIONS].replace("n1", "c[01-40]"),
        "res.txt": KINDS[Kind.RESERVATIONS],
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = {one.name: one for one in of_this_site(map(recognised, listed([tmp_path])))}
    assert found["assoc.txt"].unused == "is of cluster b; slurm.conf is of a"
    assert (
        found["partitions.txt"].unused
        == "is of another cluster: slurm.conf has no node c01 nor any other of it"
    )
    assert found["res.txt"].kind is Kind.RESERVATIONS
    with pytest.raises(UsageError, match="no such file or folder"):
        listed([tmp_path / "nowhere"])


def test_copies_keep_lines_and_lose_names_and_free_text(tmp_path: Path) -> None:
    texts = {
        "slurm.conf": "# by zed\nClusterName=a\nAccountingStoragePass=secret\nAccountingStorageType=a/none\n"
        "NodeName=n[1-2] \\\n  Gres=gpu:4  # zed's\n"
        "PartitionName=gpu Nodes=ALL AllowAccounts=lab,root AllowGroups=zeds\n",
        "nodes.txt": "NodeName=n1 Arch=x\n   CPUTot=8 Reason=zed broke it [zed@2025-01-01]\n   Gres=gpu:4\n",
        "res.txt": "ReservationName=zed_7 Flags=MAINT\n   Users=zed,-root Accounts=lab Comment=for zed\n",
        "qos.txt": "Name|Priority|Descr\nlab-high|1|for zed\n",
        "assoc.txt": "Cluster|Account|User|Share\na|root||1\na| lab||1\na| lab|zed|1\n",
    }
    of = Pseudonyms(KEY)
    user, account = of.user("zed"), of.account("lab")
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        copied = copy_of(recognised(tmp_path / name), of)
        assert len(copied.splitlines()) == len(text.splitlines())
        assert not re.search(r"zed|lab|secret", copied), name
    conf, res, assoc = (
        copy_of(recognised(tmp_path / name), of) for name in ("slurm.conf", "res.txt", "assoc.txt")
    )
    assert "AccountingStorageType=a/none" in conf  # without slurmdbd some weights weigh nothing
    assert "Gres=gpu:4" in conf and f"AllowAccounts={account},root" in conf
    assert f"ReservationName={user}_7 " in res and f"Users={user},-root" in res
    assert assoc.splitlines()[-1] == f"a| {account}|{user}|1"


def test_pseudonyms_hang_on_the_key_and_the_kind() -> None:
    one, other = Pseudonyms(KEY), Pseudonyms(KEY[::-1])
    assert one.user("zed") == Pseudonyms(KEY).user("zed") != other.user("zed")
    assert one.user("lab") != one.account("lab")
    assert one.user("") == "" and one.account("root") == "root"
    assert one.job("123_4") == "123_4" and one.job("team/train-bert") != "team/train-bert"
    assert one.label("zed@host and zedd") == f"{one.user('zed')}@host and zedd"
    assert Pseudonyms(b"").user("zed") == "zed"


# -- effects -------------------------------------------------------------------------------------------------------------


def queue(shift_s: float = 0.0, jobs: int = 2_000) -> Units:
    """Waits of jobs over twenty days, each of about so many seconds more."""
    rng = np.random.default_rng(0)
    submit_s = np.sort(rng.uniform(0, 20 * 86_400.0, jobs))
    wait_s = 7_200.0 + rng.exponential(3_600.0, jobs) + shift_s * rng.uniform(0.5, 1.5, jobs)
    return waits(submit_s, submit_s + wait_s)


def test_a_difference_carries_the_error_of_the_setting() -> None:
    base, other = queue(), queue(-1_800.0)
    gap_s, exact = difference(other, base, 0.0, reproduced=True)
    _, near = difference(other, base, 0.1, reproduced=True)
    _, far = difference(other, base, 0.3, reproduced=False)
    assert exact is not None and near is not None and far is not None
    assert exact.high - exact.low < near.high - near.low < far.high - far.low
    assert far.high - far.low > 2 * 0.3 * 10_000.0
    assert verdict_of(gap_s, near, 10_800.0) == "better"
    assert verdict_of(gap_s, far, 10_800.0) == "not separated"
    short = queue(jobs=50)
    assert difference(short, short, 0.0, reproduced=True) == (0.0, None)


def test_ties_are_marked_and_the_free_one_comes_first() -> None:
    base, partition = queue(), ["gpu"] * 1_000 + ["short"] * 1_000
    shifts_s = {"node": -1_810.0, "free": -1_800.0, "little": -400.0, "worse": 900.0, "same": 1.0}
    made = [
        effect_of(Change(name, {}, name == "node"), queue(shift_s), base, partition, 0.02, reproduced=True)
        for name, shift_s in shifts_s.items()
    ]
    assert [one.verdict for one in made] == ["better", "better", "better", "worse", "equivalent"]
    assert made[3].worst[0] in partition and made[3].worst[1] > 800
    first = [("free", True), ("little", False), ("node", False)]
    assert [(one.change.name, one.tie) for one in cheapest(made, 0.02, reproduced=True)] == first
    assert cheapest(made[3:], 0.02, reproduced=True) == []


# -- collect -------------------------------------------------------------------------------------------------------------

STUB = """#!{python}
import csv, sys
files = {files!r}
words = " ".join(sys.argv[1:])
name = next(file for key, file in files.items() if key in words or key == "sacct" and sys.argv[0].endswith("sacct"))
text = open({folder!r} + "/" + name).read()
asked = [word.partition("=")[2] for word in sys.argv if word.lstrip("-").startswith("format=")]
if not asked:
    print(text, end="")
else:
    columns = asked[0].split(",")
    rows = list(csv.reader(text.splitlines(), delimiter="|"))
    print("|".join(columns))
    for row in rows[1:]:
        cells = dict(zip(rows[0], row))
        print("|".join(cells.get(column, "") for column in columns))
"""


def test_what_the_printed_commands_make_is_read(
    drawn: tuple[Path, frozenset[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, zone = drawn
    assert run(["site", "--collect"]) == 0
    script = (
        capsys.readouterr()
        .out.partition("# Kueue")[0]
        .replace("/etc/slurm/slurm.conf", str(folder / "slurm.conf"))
    )
    assert not re.search(r"JobName|SubmitLine|WorkDir|Comment|AdminComment", script)
    source = tmp_path / "source"
    shutil.copytree(folder, source)
    (source / "nodes.txt").write_text(
        KINDS[Kind.NODES] + "   State=IDLE Partitions=gpu Reason=zed [zed@now]\n"
    )
    (source / "queue.txt").write_text(KINDS[Kind.QUEUE])
    files = {
        "show partition": "partitions.txt", "show res": "res.txt", "show node": "nodes.txt", "show qos": "qos.txt",
        "show assoc": "assoc.txt", "show event": "events.txt", "-r -o": "queue.txt", "sacct": "sacct.txt",
    }  # fmt: skip
    made = tmp_path / "bin"
    made.mkdir()
    for name in ("sacct", "scontrol", "sacctmgr", "squeue"):
        (made / name).write_text(STUB.format(python=sys.executable, files=files, folder=str(source)))
        (made / name).chmod(0o755)
    out = tmp_path / "collected"
    out.mkdir()
    path = f"{made}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-e"], input=script, text=True, cwd=out, env={**os.environ, "PATH": path}, check=True
    )
    found = {one.name: one.kind for one in map(recognised, listed([out]))}
    assert found == {
        "sacct.txt": Kind.LOG, "slurm.conf": Kind.CONF, "partitions.txt": Kind.PARTITIONS,
        "reservations.txt": Kind.RESERVATIONS, "nodes.txt": Kind.NODES, "qos.txt": Kind.QOS,
        "associations.txt": Kind.ASSOCIATIONS, "events.txt": Kind.EVENTS, "queue.txt": Kind.QUEUE,
    }  # fmt: skip
    assert "zed" not in (out / "nodes.txt").read_text()
    assert (
        run(["site", str(out), "--zone", zone, "--changes", "1", "-q", "-o", str(tmp_path / "answer")]) == 0
    )


def kueue_site(jobs: int = 320) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Workloads of three teams, and their queues: eight GPUs that one job holds at a time."""
    rng = np.random.default_rng(3)
    at_s, free_s, workloads = 1_740_000_000.0, 0.0, []

    def stamp(instant_s: float) -> str:
        return str(np.datetime64(int(instant_s), "s")) + "Z"

    for number in range(jobs):
        at_s += float(rng.exponential(4_000.0))
        start_s = max(at_s, free_s)
        free_s = start_s + float(rng.uniform(600, 6_000))
        team = f"teamZq{number % 3}"
        workloads.append(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
                "metadata": {"namespace": team, "name": f"job-secretZq-{number}", "uid": f"1-{number}",
                             "creationTimestamp": stamp(at_s)},
                "spec": {
                    "queueName": f"lineZq{number % 3}", "priority": 0 if number % 2 else 1_000_000,
                    "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [
                        {"name": "c", "env": [{"name": "TOKEN", "value": "hushZq"}], "command": ["runZq"],
                         "resources": {"requests": {"nvidia.com/gpu": "8"}}}]}}}],
                },
                "status": {
                    "admission": {"clusterQueue": "shared", "podSetAssignments": [
                        {"name": "main", "count": 1, "flavors": {"nvidia.com/gpu": "h100"},
                         "resourceUsage": {"nvidia.com/gpu": "8"}}]},
                    "conditions": [
                        {"type": "Admitted", "status": "True", "lastTransitionTime": stamp(start_s), "message": "hushZq"},
                        {"type": "Finished", "status": "True", "lastTransitionTime": stamp(free_s)},
                    ],
                },
            }
        )  # fmt: skip
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [
        {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}]}  # fmt: skip
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta1"}
    queues = [
        {**kueue, "kind": "ResourceFlavor", "metadata": {"name": "h100"}, "spec": {"nodeLabels": {"gpu": "h100"}}},
        {**kueue, "kind": "ClusterQueue", "metadata": {"name": "shared"}, "spec": {"resourceGroups": [group]}},
        *({**kueue, "kind": "LocalQueue", "metadata": {"namespace": f"teamZq{at}", "name": f"lineZq{at}"},
           "spec": {"clusterQueue": "shared"}} for at in range(3)),
    ]  # fmt: skip
    return workloads, queues


def printed_by_kubectl(items: list[dict[str, Any]], command: str, tmp_path: Path) -> str:
    """What kubectl prints of some objects by the template of a command."""
    held = {"apiVersion": "x.io/v1", "kind": "Held", "metadata": {"name": "n"}, "spec": {"items": items}}
    (tmp_path / "held.json").write_text(json.dumps(held))
    template = (
        command.partition("go-template='")[2].removesuffix("'").replace("range .items", "range .spec.items")
    )
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl, whose templates are tried, is not installed")
    words = [
        kubectl,
        "label",
        "--local",
        "-f",
        str(tmp_path / "held.json"),
        "a=b",
        "-o",
        f"go-template={template}",
    ]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_what_kubectl_prints_by_the_templates_is_the_projection(tmp_path: Path) -> None:
    workloads, queues = kueue_site(6)
    for items, command, shape in (
        (workloads, collect.KUEUE["workloads.json"], collect.WORKLOAD),
        (queues, collect.KUEUE["queues.json"], collect.QUEUE),
    ):
        text = printed_by_kubectl(items, command, tmp_path)
        assert json.loads(text)["items"] == [collect.projected(one, shape) for one in items]
        assert not re.search("secretZq|hushZq|runZq", text)


def test_a_kueue_site_is_answered_from_what_kubectl_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workloads, queues = kueue_site()
    folder = tmp_path / "files"
    folder.mkdir()
    for name, items, shape in (("w.json", workloads, collect.WORKLOAD), ("q.json", queues, collect.QUEUE)):
        made = [collect.projected(one, shape) for one in items]
        (folder / name).write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    out = tmp_path / "out"
    assert run(["site", str(folder), "-o", str(out), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["scenario"]["policy"]["name"] == "kueue"
    assert content["reproduced"]
    for where, text in everything(out):
        assert not re.search("teamZq|lineZq|secretZq", text), where


def test_the_nodes_of_a_log_alone_become_a_configuration(
    drawn: tuple[Path, frozenset[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, zone = drawn
    command = [
        "site",
        str(folder / "sacct.txt"),
        "--zone",
        zone,
        "--changes",
        "1",
        "-o",
        str(tmp_path / "out"),
    ]
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scenario"]["machines"]["file"]["path"] == "inferred.conf"
    inferred, _ = read_slurm_nodes(tmp_path / "out" / "inferred.conf")
    given, _ = read_slurm_nodes(folder / "slurm.conf")
    assert inferred.gpus <= given.gpus
    assert {name for name, nodes in inferred.partitions.items() if nodes} <= set(given.partitions)


def test_a_log_alone_is_answered_with_what_history_identifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(5)
    lines, free_s, at_s = ["id,submit_s,start_s,end_s,nodes,requested_s,user"], [0.0] * 4, 1_700_000_000.0
    for number in range(700):
        at_s += float(rng.exponential(1_800.0))
        free_s.sort()
        start_s = max(at_s, free_s[0])
        free_s[0] = start_s + float(rng.uniform(600, 12_000))
        lines.append(f"{number},{at_s:.0f},{start_s:.0f},{free_s[0]:.0f},1,14400,zed{number % 5}Zq")
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    assert (
        run(["site", str(tmp_path / "log.csv"), "--changes", "2", "--json", "-o", str(tmp_path / "out")]) == 0
    )
    content = json.loads(capsys.readouterr().out)
    assert content["scenario"]["machines"]["nodes"][0]["count"] == 4
    assert content["reproduced"]
    assert any(note.startswith("no file says it, the log does") for note in content["notes"])
    assert any("no file names the policy" in note for note in content["notes"])
    assert all("Zq" not in text for _, text in everything(tmp_path / "out"))


def test_a_log_of_whole_nodes_has_their_gpus(tmp_path: Path) -> None:
    """Jobs that share no node hold nodes in a replay; a scenario counts GPUs."""
    rows = ["id,submit_s,start_s,end_s,nodes,gpus,requested_s,node_list"]
    rows += [
        f"{at},{1e9 + 600 * at:.0f},{1e9 + 600 * at:.0f},{1e9 + 600 * at + 1100:.0f},1,4,7200,n{at % 2 + 1}"
        for at in range(300)
    ]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(rows) + "\n")
    found = identified(path, "job_history", "", read_trace(path, "job_history"))
    assert sum(one["count"] * one["gpus"] for one in found.nodes) == 8
