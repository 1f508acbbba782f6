"""A scheduler in another process: the same policies give the same bytes, and no bad program does harm."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster import processes
from forerun.cluster.decider import Decider
from forerun.cluster.decider.program import MOST_MEMORY_BYTES
from forerun.cluster.decider.protocol import PROTOCOL, Answer, Hello, answered
from forerun.cluster.domain import DOMAIN
from forerun.cluster.engine.allocator import AllocatorRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome, run_rules, terms_of
from forerun.cluster.policies.priority import Fifo
from forerun.cluster.policy import Allocator, schedulers
from forerun.core.cli.main import run as command
from forerun.core.domain import Program
from forerun.core.errors import PolicyError, UsageError
from forerun.core.rng import stream
from forerun.core.study.explain import scenario_of
from forerun.live.processes import is_running

from ..conftest import ROOT, cases
from .test_named_nodes import Spread

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other programs decide on Linux and macOS")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the system limits and lists no others' processes")
HERE = Path(__file__).parent
#: begins a program: the first line, and an answer that keeps everything as it is
PREAMBLE = """
import json, os, sys, time
hello = json.loads(sys.stdin.readline())
def say(data):
    print(data if isinstance(data, str) else json.dumps(data), flush=True)
def fifo(view):
    free, start, jobs = view["free"], {}, view["jobs"]
    for name, gpus, has in zip(jobs["id"], jobs["gpus"], jobs["has"]):
        if not has and gpus > free:
            break
        if not has:
            start[name], free = gpus, free - gpus
    return {"view": view["view"], "gpus": start}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Any:
    """Forty jobs with requested times that compete for sixteen GPUs of two nodes."""
    rng = np.random.default_rng(5)
    rows = ["job_id,submission_time,duration,num_gpu,requested_s,user"]
    at_s = 0
    for number in range(40):
        at_s += int(rng.integers(0, 120))
        duration = int(rng.integers(30, 2000))
        rows.append(f"j{number},{at_s},{duration},{rng.choice([1, 2, 4, 8])},{2 * duration},u{number % 3}")
    (tmp_path / "jobs.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "s.yaml").write_text(
        "{domain: cluster, policy: fifo, trace: jobs.csv, machines: {nodes: [{name: a, count: 2, gpus: 8}]}}"
    )
    return forerun.load(tmp_path / "s.yaml")


def program(folder: Path, body: str) -> tuple[str, ...]:
    """The words that run a program whose first line is answered already."""
    path = folder / "decider.py"
    path.write_text(PREAMBLE + textwrap.dedent(body))
    return sys.executable, "-S", str(path)


def same_jobs(one: Any, other: Any) -> bool:
    """Whether two runs give the jobs the same; a decision that changes nothing is an event in the compiled queue alone."""
    return bool(one.frame("jobs").equals(other.frame("jobs")))


#: answers the first line
GREETED = 'say({"protocol": hello["protocol"]})\n'


def bytes_of(scenario: Any, policy: Allocator, folder: Path) -> dict[str, bytes]:
    """The tables of a run in which the policy decides through views."""
    scenario = scenario.with_(policy=policy)
    inputs = DOMAIN.prepare(scenario)
    record, setting = Record(inputs.setting), inputs.setting
    built = policy.build(stream(scenario.seed, "policy"))
    rules = AllocatorRules(setting, record, policy, built, terms_of(scenario, setting))
    run_rules(rules)
    rules.close()
    DOMAIN.summarize(Outcome(inputs, record)).save(folder)
    return {name: (folder / f"{name}.parquet").read_bytes() for name in ("jobs", "allocations", "events")}


@pytest.mark.parametrize(
    "name",
    ["fifo", "easy", "srtf", "tiresias", "las on two types", "nodes"],
)
def test_the_same_policy_gives_the_same_bytes(scenario: Any, tmp_path: Path, name: str) -> None:
    policy: Any = Spread() if name == "nodes" else schedulers().get(name.partition(" ")[0])()
    if name == "las on two types":
        nodes = [{"name": kind, "count": 1, "gpus": 8, "gpu_type": kind} for kind in ("slow", "fast")]
        text = json.dumps({"domain": "cluster", "trace": "jobs.csv", "machines": {"nodes": nodes}})
        scenario = forerun.loads(text, base=tmp_path)
    asked = f"{Spread.__module__}:Spread" if name == "nodes" else name.partition(" ")[0]
    argv = (sys.executable, str(HERE / "deciders" / "built_in.py"), asked)
    argv += (os.environ["FORERUN_CACHE_DIR"],) if "FORERUN_CACHE_DIR" in os.environ else ()
    here = bytes_of(scenario, policy, tmp_path / "here")
    there = Decider.of(argv, policy, oracle=name == "srtf")
    assert bytes_of(scenario, there, tmp_path / "there") == here


def test_a_program_refuses_jobs_and_asks_to_be_woken(scenario: Any, tmp_path: Path) -> None:
    body = f"""
{GREETED}seen = open(sys.argv[1], "w")
for line in sys.stdin:
    view = json.loads(line)
    print(view["now_s"], *view["jobs"]["id"], file=seen, flush=True)
    if view["view"] == 1:
        say({{"view": 1, "wake_s": view["now_s"] + 0.25}})
    elif view["view"] == 2:
        say({{"view": 2, "refused": {{"j0": "not today\\x1b[2J"}}}})
    else:
        say(fifo(view))
"""
    argv = (*program(tmp_path, body), str(tmp_path / "seen"))
    result = forerun.simulate(scenario, policy=DOMAIN.decider(scenario, Program(argv)))
    first, second = (line.split() for line in (tmp_path / "seen").read_text().splitlines()[:2])
    assert first[1:] == second[1:] == ["j0"]
    assert float(second[0]) == float(first[0]) + 0.25
    assert result.summary["refused_jobs"] == 1
    assert any("not today\\x1b[2J" in note for note in result.notes), "escaped"


# ------------------------------------------------------------------------------------------------- bad programs

#: what a program may do in place of its first line or an answer, and what is said of it then
BAD = {
    "dies": ("os._exit(3)", "ended with exit code 3 before it answered"),
    "is killed": ("os.kill(os.getpid(), 15)", "was ended by signal 15 before it answered"),
    "hangs": ("time.sleep(1e6)", "did not answer within"),
    "closes its output": ("os.close(1); time.sleep(1e6)", "closed its standard input or output"),
    "talks": ("say('starting up ...')", "is not JSON"),
    "says half a line": ("print('{\"view\": 1', end='', flush=True); os._exit(0)", "ended with exit code 0"),
    "says a list": ("say('[1, 2]')", "expected `object`, got `array`"),
    "says a key twice": ("say('{\"view\": 1, \"view\": 1}')", "stands twice"),
    "says what nobody knows": ("say({'view': 1, 'start': []})", "unknown field"),
    "says no UTF-8": ("os.write(1, b'\\xff\\xfe\\n')", "not UTF-8"),
    "nests": ("say('[' * 100000)", "nested more than 64 deep"),
    "never ends a line": ("[os.write(1, b'x' * 65536) for _ in iter(int, 1)]", "a line of more than 16 MiB"),
    "says NaN": ("say('{\"view\": NaN}')", "NaN is not a JSON number"),
    "says a huge number": ("say('{\"view\": 1' + '0' * 9999 + '}')", "is not usable JSON"),
    "tries the terminal": (
        "sys.stderr.write('\\x1b[31mred\\u202e\\n'); sys.stderr.flush(); os._exit(1)", r"\x1b[31mred\u202e",
    ),
}  # fmt: skip
#: what a program may answer to a view, and what is said of it then
WRONG = {
    "another view": ('{"view": view["view"] + 1}', "where view"),
    "too many": ('{"view": view["view"], "gpus": {view["jobs"]["id"][0]: 99}}', "99 GPUs"),
    "more than there is": (
        '{"view": view["view"], "gpus": dict(zip(view["jobs"]["id"], view["jobs"]["gpus"]))}',
        "more than the 16",
    ),
    "fewer than none": ('{"view": view["view"], "gpus": {view["jobs"]["id"][0]: -1}}', ">= 0"),
    "half a GPU": ('{"view": view["view"], "gpus": {view["jobs"]["id"][0]: 1.5}}', "got `float`"),
    "a job that is not there": ('{"view": view["view"], "gpus": {"nobody": 1}}', "job 'nobody', which is neither"),
    "a type that is not there": (
        '{"view": view["view"], "gpu_types": {view["jobs"]["id"][0]: 7}}', "GPU type 7",
    ),
    "nodes that are not tracked": (
        '{"view": view["view"], "gpus": {view["jobs"]["id"][0]: {"0": 1}}}', "the policy names nodes",
    ),
    "to wake at an endless time": (
        json.dumps('{"view": VIEW, "wake_s": 1e999}') + '.replace("VIEW", str(view["view"]))', "too large a number",
    ),
    "a refusal of one that runs": (
        '{"view": view["view"], "gpus": {view["jobs"]["id"][0]: 1}, "refused": {view["jobs"]["id"][0]: "no"}}',
        "only a job that never ran can be refused",
    ),
}  # fmt: skip


def fault_of(scenario: Any, argv: tuple[str, ...], answer_s: float = 60.0) -> str:
    """What ends the run of a program, in one line; nothing that carries a mark of a program is left."""
    policy = DOMAIN.decider(scenario, Program(argv, answer_s=answer_s))
    with pytest.raises(PolicyError) as caught:
        forerun.simulate(scenario, policy=policy)
    said = str(caught.value)
    assert said.isprintable(), "one line, which may stand on a terminal"
    assert len(said) < 1200
    if sys.platform == "linux":
        assert not processes.marked(f"decider/{os.getpid()}/")
    return said


@pytest.mark.parametrize(
    ("name", "first"),
    [
        *((name, False) for name in BAD),
        *((name, True) for name in ("dies", "talks", "says half a line", "nests")),
    ],
)
def test_a_bad_program_ends_the_run_in_one_line(
    scenario: Any, tmp_path: Path, name: str, first: bool
) -> None:
    act, said = BAD[name]
    body = act if first else f"{GREETED}for line in sys.stdin:\n    {act}"
    answer_s = 0.3 if name == "hangs" else 60.0
    found = fault_of(scenario, program(tmp_path, body + "\nsys.stdin.read()"), answer_s)
    said = said.replace("`", "")
    assert said in found
    assert "decider.py" in found, "it names the program"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_ends_the_run_in_one_line(scenario: Any, tmp_path: Path, name: str) -> None:
    answer, said = WRONG[name]
    body = f"{GREETED}for line in sys.stdin:\n    view = json.loads(line)\n    say({answer})"
    assert said.replace("`", "") in fault_of(scenario, program(tmp_path, body))


@pytest.mark.parametrize("number", range(cases(8)))
def test_a_program_that_turns_bad_leaves_what_it_decided_before(
    scenario: Any, tmp_path: Path, number: int
) -> None:
    """Answers without fault up to a drawn view; then a drawn fault. The run until then is that of a good program."""
    draw = np.random.default_rng(number)
    good, acts = int(draw.integers(0, 20)), [act for name, (act, _) in BAD.items() if name != "hangs"]
    wrong = [f"say({answer})" for answer, _ in WRONG.values()]
    act = str(draw.choice([*acts, *wrong]))
    body = f"""
{GREETED}for line in sys.stdin:
    view = json.loads(line)
    if view["view"] > {good}:
        {act}
    else:
        say(fifo(view))
"""
    (tmp_path / "decider.py").write_text(PREAMBLE + body)
    argv = (sys.executable, "-S", str(tmp_path / "decider.py"))
    with pytest.raises(PolicyError) as caught:
        forerun.simulate(scenario, policy=DOMAIN.decider(scenario, Program(argv)))
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).isprintable()
    so_far = caught.value.so_far.table("jobs")
    whole = forerun.simulate(scenario, policy=Fifo()).table("jobs")
    ended = so_far["end_s"] >= 0
    at_s = float(str(caught.value).partition("=")[2].partition(" ")[0])
    assert (so_far["end_s"][ended] == whole["end_s"][ended]).all()
    assert (whole["end_s"][~ended] >= at_s).all(), "it is the run up to the fault, not less of it"


def test_a_program_may_talk_on_standard_error_as_much_as_it_likes(scenario: Any, tmp_path: Path) -> None:
    body = f"""
{GREETED}for line in sys.stdin:
    sys.stderr.write("x" * 300_000)
    say(fifo(json.loads(line)))
    sys.stderr.write("y" * 300_000)
"""
    result = forerun.simulate(scenario, policy=DOMAIN.decider(scenario, Program(program(tmp_path, body))))
    assert same_jobs(result, forerun.simulate(scenario))


@LINUX
@pytest.mark.parametrize("end", ["os._exit(0)", "pass"], ids=["leaves", "stays"])
def test_no_process_is_left_behind(scenario: Any, tmp_path: Path, end: str) -> None:
    """A child in a session of its own, which holds the pipes open, whether its parent leaves or serves to the end."""
    body = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(tmp_path / "child")!r}, "w").write(str(os.getpid()))
    time.sleep(1e6)
while not os.path.exists({str(tmp_path / "child")!r}):
    time.sleep(0.001)
{GREETED}{end}
for line in sys.stdin:
    say(fifo(json.loads(line)))
"""
    argv = program(tmp_path, body)
    if end == "pass":
        forerun.simulate(scenario, policy=DOMAIN.decider(scenario, Program(argv)))
    else:
        assert "ended with exit code 0" in fault_of(scenario, argv)
    assert not is_running(int((tmp_path / "child").read_text()))
    assert not processes.marked(f"decider/{os.getpid()}/")


@LINUX
def test_a_program_has_a_limit_of_memory_and_no_environment(scenario: Any, tmp_path: Path) -> None:
    fault = fault_of(scenario, program(tmp_path, f"bytearray({MOST_MEMORY_BYTES})"))
    assert "MemoryError" in fault
    body = "sys.stderr.write(','.join(sorted(set(os.environ) - {'LC_CTYPE'})) + '\\n')\nos._exit(1)"
    names = fault_of(scenario, program(tmp_path, body)).rpartition(": ")[2].strip("'").split(",")
    assert set(names) <= {"PATH", "LANG", processes.MARK_VARIABLE}


# ------------------------------------------------------------------------------------------------ commands and ids


def test_the_run_id_is_that_of_the_files_and_arguments(scenario: Any, tmp_path: Path) -> None:
    def run_id(*more: str, oracle: bool = False) -> str:
        policy = DOMAIN.decider(scenario, Program((sys.executable, "-S", str(path), *more), oracle))
        return str(forerun.simulate(scenario, policy=policy).id)

    path = tmp_path / "decider.py"
    program(tmp_path, f"{GREETED}for line in sys.stdin: say(fifo(json.loads(line)))")
    (tmp_path / "site.conf").write_text("a")
    ids = [run_id(), run_id("-x"), run_id(f"--conf={tmp_path / 'site.conf'}"), run_id(oracle=True)]
    (tmp_path / "site.conf").write_text("b")
    ids += [run_id(f"--conf={tmp_path / 'site.conf'}"), str(forerun.simulate(scenario).id)]
    path.write_text(path.read_text() + "\n")
    ids.append(run_id())
    assert len(set(ids)) == len(ids)
    assert run_id() == ids[-1]


def test_a_program_that_changes_before_it_is_run_is_not_run(scenario: Any, tmp_path: Path) -> None:
    argv = program(tmp_path, GREETED)
    policy = DOMAIN.decider(scenario, Program(argv))
    (tmp_path / "decider.py").write_text("")
    with pytest.raises(PolicyError, match="has changed since it was named"):
        forerun.simulate(scenario, policy=policy)


def test_what_is_no_program_is_refused(scenario: Any, tmp_path: Path) -> None:
    path = tmp_path / "plain.txt"
    path.write_text("")
    for argv, said in (
        ((), "needs a program"), (("no-such-program",), "is no program here"), ((str(path),), "is not executable"),
        (("a\0b",), "needs a program"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            DOMAIN.decider(scenario, Program(argv))
    long = DOMAIN.decider(scenario, Program((sys.executable, "x" * 10_000, f"--conf={'y' * 10_000}")))
    assert len(long.files) == 1
    path.chmod(0o755)
    with pytest.raises(PolicyError, match=r"cannot be started: Exec format error|ended with exit code"):
        forerun.simulate(scenario, policy=DOMAIN.decider(scenario, Program((str(path),))))


def test_no_file_names_a_program(scenario: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a scenario nor the one that a run has kept; commands take it after `--`, and only there."""
    argv = program(tmp_path, f"{GREETED}for line in sys.stdin: say(fifo(json.loads(line)))")
    given, out = str(tmp_path / "s.yaml"), str(tmp_path / "run")
    decider = ("--decider", "--", *argv)
    assert command(["simulate", given, "-q", "-o", out, "--oracle", *decider]) == 0
    assert "was shown how long jobs take" in capsys.readouterr().out
    kept = json.loads((tmp_path / "run" / "scenario.json").read_text())
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    for words in (
        ["simulate", given, "--set", "policy=decider"],
        ["simulate", str(tmp_path / "kept.json")],
        ["simulate", str(tmp_path / "kept.json"), *decider],
        ["explain", out],
        ["plan", str(tmp_path / "kept.json")],
    ):
        assert command(words) == 2, words
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "another program decided" in said
    for words, reason in (
        (["simulate", given, *argv[:1]], "unexpected extra argument"),
        (["simulate", given, "--decider"], "needs a program"),
        (["simulate", given, "--oracle"], "is for --decider"),
        (["simulate", given, "--answer-within", "0", *decider], "0 is not in the range"),
        (
            ["simulate", forerun.demo("spot").scenario, *decider],
            "no other program can decide in the spot domain",
        ),
        (["explain", out, "--decider", "--", sys.executable], "was decided by another program"),
    ):
        assert command([str(word) for word in words]) == 2, words
        assert reason in capsys.readouterr().err
    again = DOMAIN.decided_again(forerun.load_result(out), Program(argv))
    assert forerun.simulate(scenario_of(again)).id == again.id


def test_a_program_is_compared_with_policies(scenario: Any, tmp_path: Path) -> None:
    argv = program(tmp_path, f"{GREETED}for line in sys.stdin: say(fifo(json.loads(line)))")
    own = DOMAIN.decider(scenario, Program(argv))
    assert pickle.loads(pickle.dumps(own)) == own, "it goes to other processes"
    found = forerun.compare(scenario, ["fifo", own], objective="jct_mean_s", seeds=1)
    values = {one.variant.name: one.value for one in found.standings}
    assert values["decider(decider.py)"] == values["fifo"]
    assert not found.failed


# ------------------------------------------------------------------------------------------------------- examples


def test_the_page_shows_lines_of_the_protocol(scenario: Any, tmp_path: Path) -> None:
    """Its answers can be read, and its lines of ours have keys that are written."""
    page = (ROOT / "examples" / "deciders" / "README.md").read_text()
    hello, greeting, view, answer = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert answered(greeting.encode(), Hello) == Hello(protocol=PROTOCOL)
    decision = json.loads(answer)
    assert set(decision) == set(Answer.__struct_fields__)
    assert answered(answer.encode(), Answer).gpus["j1"] == {0: 1, 1: 1}
    body = "open(sys.argv[1], 'w').write(json.dumps(hello) + chr(10) + sys.stdin.readline())"
    argv = (*program(tmp_path, f"{GREETED}{body}"), str(tmp_path / "seen"))
    assert "ended with exit code 0" in fault_of(scenario, argv)
    first, second = map(json.loads, (tmp_path / "seen").read_text().splitlines())
    assert json.loads(hello).keys() == first.keys()
    assert json.loads(hello)["columns"].items() <= first["columns"].items()
    assert json.loads(view).keys() == second.keys()
    assert second["jobs"].keys() == first["columns"].keys() >= json.loads(view)["jobs"].keys()


@pytest.mark.parametrize("language", ["python", "node"])
def test_the_examples_are_first_come_first_served(scenario: Any, language: str) -> None:
    name, path = (
        (sys.executable, "decider.py")
        if language == "python"
        else (shutil.which("node") or "", "decider.mjs")
    )
    if not name:
        pytest.skip("node is not installed")
    policy = DOMAIN.decider(scenario, Program((name, str(ROOT / "examples" / "deciders" / path))))
    assert same_jobs(forerun.simulate(scenario, policy=policy), forerun.simulate(scenario))
