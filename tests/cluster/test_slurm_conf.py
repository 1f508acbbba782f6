"""Machines from slurm.conf: names, defaults, partitions, included files, and what cannot be read."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forerun
from forerun.cluster.inputs.arrays import NodeGroup
from forerun.cluster.inputs.prepare import cluster_from
from forerun.cluster.inputs.slurm_conf import _Read, read_slurm_nodes
from forerun.cluster.scenario import Scenario
from forerun.core.errors import ScenarioError
from forerun.core.scenario.spec import content_id

CONF = r"""
# a site
ClusterName=site
SlurmctldHost=head "quoted words"
NodeName=DEFAULT CPUs=128 Gres=gpu:a100:8 State=UNKNOWN
NODENAME=gpu[01-03,10] RealMemory=1000 \
    Features=ib,big  # the continued line
NodeName=old[1-2] gres=gpu:v100:4(S:0-1),mps:400
NodeName=plain Gres=gpu
NodeName=spare Gres=gpu:h100:8 State=FUTURE
NodeName=broken Gres=gpu:h100:8 State=DOWN*
NodeName=login[1-2] Gres=
NodeSet=fast Feature=big
PartitionName=DEFAULT MaxTime=3-00:00:00 State=UP
PartitionName=main Nodes=ALL Default=YES
PartitionName=New Nodes=fast,plain
PartitionName=part Nodes=gpu[02-03],old1
"""


def written(folder: Path, text: str = CONF, name: str = "slurm.conf") -> Path:
    (folder / name).write_text(text)
    return folder / name


def counts(folder: Path, text: str = CONF, **options: object) -> dict[str, tuple[int, int, str]]:
    cluster, _ = read_slurm_nodes(written(folder, text), **options)  # type: ignore[arg-type]
    return {group.name: (group.count, group.gpus, group.gpu_type) for group in cluster.groups}


def test_lines_of_nodes_are_groups(tmp_path: Path) -> None:
    assert counts(tmp_path, gpu_type="A100") == {
        "gpu[01-03,10]": (4, 8, "A100"),  # the profile's spelling
        "old[1-2]": (2, 4, "v100"),
        "plain": (1, 1, "A100"),  # no type is said
    }


def test_a_node_with_several_types_is_a_node_for_each(tmp_path: Path) -> None:
    text = (
        "NodeName=a[1-2] Gres=gpu:a100:4,gpu:a30:2\nNodeName=b Gres=gpu:a100:8\nPartitionName=p Nodes=a2,b\n"
    )
    cluster, node_gpus = read_slurm_nodes(written(tmp_path, text))
    assert node_gpus == {"a1": 4, "a2": 4, "a1:a30": 2, "a2:a30": 2, "b": 8}
    assert cluster.partitions == {"p": (1, 3, 4)}
    assert cluster.node_types() == ("a100", "a100", "a30", "a30", "a100")
    assert any("a1, a2" in note for note in cluster.notes)


def test_nodes_as_scontrol_shows_them_are_machines(tmp_path: Path) -> None:
    """Those that are away as it is printed are there, as they may have been before."""
    text = "".join(
        f"NodeName={name} Arch=x86_64 CoresPerSocket=32\n   CPUAlloc=0 CPUTot=64\n   Gres=gpu:a100:4(S:0-1)\n"
        f"   State={state} ThreadsPerCore=1\n   Partitions={partitions}\n\n"
        for name, state, partitions in (("n1", "IDLE", "gpu"), ("n2", "MIXED+DRAIN", "gpu,short"))
    )
    cluster, node_gpus = read_slurm_nodes(written(tmp_path, text, "nodes.conf"))
    assert node_gpus == {"n1": 4, "n2": 4}
    assert cluster.partitions == {"gpu": (0, 1), "short": (1,)}


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        ("main", {"gpu[01-03,10]": 4, "old[1-2]": 2, "plain": 1}),
        ("NEW", {"gpu[01-03,10]": 4, "plain": 1}),  # a set by feature; names of partitions ignore case
        ("part", {"gpu[01-03,10]": 2, "old[1-2]": 1}),
    ],
)
def test_a_partition_has_its_nodes(tmp_path: Path, partition: str, expected: dict[str, int]) -> None:
    assert {name: row[0] for name, row in counts(tmp_path, partition=partition).items()} == expected


def test_included_files_are_read_where_they_are_named(tmp_path: Path) -> None:
    nodes = written(tmp_path, "NodeName=b Gres=gpu:2\n", "nodes.conf")
    text = "NodeName=a Gres=gpu:1\ninclude /etc/slurm/nodes.conf\nNodeName=c Gres=gpu:3\n"
    cluster, _ = read_slurm_nodes(written(tmp_path, text), included=[nodes])
    assert [group.name for group in cluster.groups] == ["a", "b", "c"]
    with pytest.raises(
        ScenarioError, match=r"slurm.conf:2: includes /etc/slurm/nodes.conf; give its copy, too"
    ):
        read_slurm_nodes(tmp_path / "slurm.conf")


def test_a_file_that_includes_itself_ends(tmp_path: Path) -> None:
    path = written(tmp_path, "Include slurm.conf\n")
    with pytest.raises(ScenarioError, match=r"slurm.conf:1: is the 9th Include within another"):
        read_slurm_nodes(path, included=[path])


@st.composite
def lists(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A list of names as people write it, and the names."""
    items, names = [], []
    for _ in range(draw(st.integers(1, 3))):
        text, parts = "", []
        for _ in range(draw(st.integers(1, 2))):
            word = draw(st.text("abcxyz-", min_size=1, max_size=3))
            text, parts = text + word, [*parts, [word]]
            if draw(st.booleans()):
                width, ranges, numbers = draw(st.integers(1, 3)), [], []
                for _ in range(draw(st.integers(1, 3))):
                    first = draw(st.integers(0, 9))
                    last = first + draw(st.integers(0, 4))
                    ranges.append(
                        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
                    )
                    numbers += [f"{number:0{width}d}" for number in range(first, last + 1)]
                text, parts = f"{text}[{','.join(ranges)}]", [*parts, numbers]
        items.append(text)
        names += ["".join(one) for one in itertools.product(*parts)]
    return ",".join(items), names


@given(lists())
def test_lists_of_names_are_written_out(drawn: tuple[str, list[str]]) -> None:
    text, names = drawn
    read = _Read({}, 100_000)
    assert read.names("here", text) == names and not read.problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NodeName=a[1-x] Gres=gpu:1\n", r"slurm.conf:1: \[1-x\] is no list of ranges"),
        ("NodeName=a[5-1] Gres=gpu:1\n", r"slurm.conf:1: \[5-1\] is no list of ranges"),
        ("NodeName=a[1-9999999] Gres=gpu:1\n", "slurm.conf:1: names more than 1,000,000 nodes"),
        ("NodeName=a[1-9999][1-9999] Gres=gpu:1\n", "slurm.conf:1: names more than 1,000,000 nodes"),
        ("NodeName=a[1-900000] Gres=gpu:8\n", "slurm.conf: has 7,200,000 GPUs; at most 1,000,000"),
        ("NodeName=a Gres=gpu:1\nNodeName=a Gres=gpu:1\n", "slurm.conf:2: node 'a' stands in slurm.conf:1 already"),
        ("NodeName=a Gres=mps:4\n", "slurm.conf: the file has no node with GPUs"),
        ('NodeName=a Gres=gpu:1 Reason="half\n', "slurm.conf:1: cannot be split into words"),
        ("\x00\xff garbage", "slurm.conf: the file has no node with GPUs"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as raised:
        read_slurm_nodes(written(tmp_path, text))
    assert len(raised.value.problems) == 1


def scenario(folder: Path, machines: str) -> Scenario:
    (folder / "jobs.csv").write_text("job_id,submission_time,duration,num_gpu\na,0,10,8\n")
    (folder / "scenario.yaml").write_text(
        f"domain: cluster\ntrace: {{file: jobs.csv}}\nmachines: {machines}\nprofile: [{{analytic: rigid}}]\npolicy: fifo\n"
    )
    loaded = forerun.load(folder / "scenario.yaml")
    assert isinstance(loaded, Scenario)
    return loaded


def test_a_scenario_names_the_configuration_and_a_partition(tmp_path: Path) -> None:
    written(tmp_path, CONF + "Include more.conf\n")
    more = written(tmp_path, "NodeName=more Gres=gpu:8\n", "more.conf")
    given = "{file: slurm.conf, partition: main, included: [more.conf]}"
    one = scenario(tmp_path, given)
    assert NodeGroup("more", 1, 8, "", cpus=128) in cluster_from(one).groups
    assert forerun.simulate(one).summary["makespan_s"] == 10
    more.write_text("NodeName=more Gres=gpu:4\n")
    assert content_id(scenario(tmp_path, given), "1") != content_id(one, "1"), "included files count"
    with pytest.raises(ScenarioError, match=r"slurm.conf: has no partition 'mian'; did you mean 'main'"):
        forerun.simulate(scenario(tmp_path, "{file: slurm.conf, partition: mian, included: [more.conf]}"))
    with pytest.raises(ScenarioError, match=r"machines\.partition: is of a Slurm configuration"):
        scenario(tmp_path, "{nodes: [{count: 1, gpus: 8}], partition: main}")


@pytest.mark.parametrize("policy", ["fifo", "easy", "slurm-backfill"])
def test_partitions_bound_their_jobs_without_another_file(tmp_path: Path, policy: str) -> None:
    """Three nodes of 8; `small` has one of them, and `both` the same and another: two jobs of `small` never run at once."""
    written(
        tmp_path,
        "NodeName=n[1-3] Gres=gpu:8\nPartitionName=small Nodes=n2\nPartitionName=both Nodes=n[2-3]\n"
        "PartitionName=all Nodes=ALL\n",
    )
    rows = ["a,0,100,8,100,small", "b,0,100,8,100,small", "c,0,100,8,100,both", "d,0,100,8,100,all"]
    (tmp_path / "jobs.csv").write_text(
        "\n".join(["job_id,submission_time,duration,num_gpu,requested_s,vc", *rows, ""])
    )
    (tmp_path / "scenario.yaml").write_text(
        "domain: cluster\ntrace: {file: jobs.csv}\nmachines: {file: slurm.conf}\nprofile: [{analytic: rigid}]\n"
        f"policy: {policy}\n"
    )
    result = forerun.simulate(forerun.load(tmp_path / "scenario.yaml"))
    jobs = result.tables["jobs"]
    starts = dict(zip(jobs["job"], jobs["end_s"] - 100, strict=True))
    assert abs(starts["a"] - starts["b"]) >= 100
    at_once_s = float(policy == "slurm-backfill")  # a second after they came
    assert starts["c"] == at_once_s
    assert starts["d"] == at_once_s or policy == "slurm-backfill", (
        "there c may take the node that d could do without"
    )


def test_a_partition_of_unknown_nodes_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "NodeName=n[1-2] Gres=gpu:8\nPartitionName=main Nodes=n[1-4],x\n")
    with pytest.raises(
        ScenarioError, match=r"slurm\.conf:2: partition main names nodes that no NodeName line has: n3, n4, x"
    ):
        read_slurm_nodes(path)


def test_what_scontrol_prints_of_a_partition_takes_the_place_of_its_nodes(tmp_path: Path) -> None:
    """slurm.conf may be older than what runs; a node that it does not know is an error with the line that names it."""
    written(tmp_path, "NodeName=n[1-3] Gres=gpu:8\nPartitionName=main Nodes=n[1-2] PriorityTier=3\n")
    printed = (
        "PartitionName=main\n   Nodes=n[2-3]\n   State=UP TotalNodes=2\nPartitionName=new\n   Nodes=n1\n"
    )
    written(tmp_path, printed, "partitions.txt")
    files = "{file: slurm.conf, site: [partitions.txt]}"
    assert cluster_from(scenario(tmp_path, files)).partitions == {"main": (1, 2), "new": (0,)}
    written(tmp_path, printed.replace("n[2-3]", "n[2-4]"), "partitions.txt")
    with pytest.raises(ScenarioError, match=r"partitions\.txt:1: partition main names nodes .* has: n4"):
        cluster_from(scenario(tmp_path, files))
