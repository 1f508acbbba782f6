"""Code outside forerun that decides a result is part of its id, of its provenance and of a study's store."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.cluster.readers.swf import Swf
from forerun.core import domain
from forerun.core.cli import main
from forerun.core.errors import PolicyError, StoreError, UsageError
from forerun.core.scenario.spec import NamedSpec
from forerun.core.sources import identity
from forerun.core.trace.reader import readers
from forerun.energy.policy import policy_registry
from forerun.serving.policy.batching import batching_policies

DEMO = forerun.demo("serving").scenario
SMALL = ["trace.queries=200", "configuration.LogReg.batching=patient"]

POLICY = """
from forerun.serving.policy.batching import Batching, Start, Wait

class Patient(Batching, tag="patient", frozen=True, kw_only=True):
    factor: float = 1.0

    def build(self, rng):
        return self

    def decide(self, view):
        from .helper import patience_ms
        until_ms = view.oldest_ms + self.factor * patience_ms()
        return Start() if view.queued and view.now_ms >= until_ms else Wait(until_ms)
"""

RUN = f"""
import json, sys
import forerun
result = forerun.simulate(forerun.load({str(DEMO)!r}, {SMALL!r}))
saved = forerun.load_result(result.save(sys.argv[1]))
assert saved.id == result.id
try:
    cell = forerun.run_study("study.yaml", store="study.sqlite").points[0].means["latency_mean_ms"]
except forerun.ForerunError as error:
    cell = str(error)
try:
    forerun.explain(forerun.load_result("first"))
    explained = ""
except forerun.ForerunError as error:
    explained = str(error)
print(json.dumps([result.summary["latency_mean_ms"], result.id, saved.provenance["code"], cell, explained]))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installed package, as `pip` leaves it: a policy that reaches two more modules, and what announces it."""
    site = tmp_path / "lib" / "site-packages"
    info = site / "patient-1.5.dist-info"
    for name, text in {
        "patient/__init__.py": "from .policy import Patient\n",
        "patient/policy.py": POLICY,
        "patient/helper.py": "import patient.deep as deep\ndef patience_ms(): return deep.MS\n",
        "patient/deep.py": "MS = 5.0\n",
        "patient/apart.py": "MS = 1.0\n",
        "other.py": "",
        f"{info.name}/METADATA": "Metadata-Version: 2.1\nName: patient\nVersion: 1.5\n",
        f"{info.name}/top_level.txt": "patient\n",
        f"{info.name}/entry_points.txt": "[forerun.serving.batching]\npatient = patient:Patient\n",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    axes = "{trace.queries: [200], configuration.LogReg.batching: [patient]}"
    (tmp_path / "study.yaml").write_text(f"{{base: {DEMO}, axes: {axes}}}")
    return site


def run(package: Path, name: str) -> list[Any]:
    paths = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, name], cwd=package.parents[1], env=environment, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: list[Any] = json.loads(done.stdout)
    return answer


def test_an_edit_of_a_helper_makes_another_run_and_another_study(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And where the package is gone, as it is in this process, a run says which it was."""
    mean_ms, first, code, cell, explained = run(package, "first")
    assert cell == pytest.approx(mean_ms) and explained == ""
    assert list(code) == ["patient.policy:Patient"]
    assert code["patient.policy:Patient"]["distribution"] == "patient 1.5"
    (package / "patient" / "apart.py").write_text("MS = 2.0\n")  # which the policy never reaches
    assert run(package, "again") == [mean_ms, first, code, cell, ""]
    (package / "patient" / "deep.py").write_text("MS = 50.0\n")
    later_ms, second, changed, cell, explained = run(package, "second")
    assert later_ms > mean_ms and second != first and changed != code
    assert "contains another study" in cell, "the stored cell is of the old code"
    assert "first: was decided by another version of patient.policy:Patient" in explained
    assert main.run(["explain", str(package.parents[1] / "first")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "was made with patient.policy:Patient of patient 1.5, which is not installed here" in said
    assert "no batching policy named 'patient'" in said


def test_built_in_code_is_no_part_of_an_id() -> None:
    """Ids of runs that forerun decides alone are what they were before."""
    result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0"]))
    assert result.code == {} and "code" not in result.provenance
    assert result.id == forerun.simulate(result.scenario, policy=type(result.scenario.policy)).id


class Copied(policy_registry().get("default"), tag="copied", frozen=True, kw_only=True):  # type: ignore[misc]
    """The default under another name; its source is this file."""


class Namesake(policy_registry().get("default"), tag="joint", frozen=True, kw_only=True):  # type: ignore[misc]
    """A name that is taken."""


def energy(*overrides: str) -> Any:
    return forerun.load(forerun.demo("energy").scenario, ["trials=0", *overrides])


def test_classes_and_instances_of_policies_are_compared_and_studied(tmp_path: Path) -> None:
    same = forerun.compare(energy(), ["default", Copied, "joint"], objective="energy_j", seeds=2)
    by_name = {one.variant.name: one.value for one in same.standings}
    assert by_name["copied"] == by_name["default"] != by_name["joint"]
    assert list(same.code.values()) == [identity(Copied)] and identity(Copied)
    assert forerun.compare(energy(), ["default", Copied()], objective="energy_j", seeds=2).code == same.code
    # A scenario that has one, under other overrides: the class is not looked up by its name.
    held = energy().with_(policy=Copied())
    eta = forerun.compare(
        held, variants={"low": {"eta": 0.1}, "high": {"eta": 0.9}}, objective="energy_j", seeds=2
    )
    assert {one.value for one in eta.standings} and eta.code == same.code
    assert forerun.explain(forerun.simulate(held)).answer is not None
    study = tmp_path / "study.yaml"
    study.write_text(f"{{base: {forerun.demo('energy').scenario}, axes: {{trials: [0]}}, seeds: 2}}")
    store = tmp_path / "study.sqlite"
    for _ in range(2):
        done = forerun.run_study(
            study, policies=[Copied, policy_registry().get("joint")()], store=store, objective="energy_j"
        )
        assert {point.means["energy_j"] for point in done.points} == {by_name["copied"], by_name["joint"]}
    with pytest.raises(StoreError, match="contains another study"):
        forerun.run_study(study, policies=[Namesake.__base__], store=store)  # type: ignore[list-item]


def test_a_name_that_is_taken_is_an_error_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    message = rf"{Namesake.__module__}:Namesake: calls itself 'joint', which is the policy .*:Joint"
    for ask in (
        lambda: forerun.simulate(energy(), policy=Namesake()),
        lambda: forerun.simulate(energy().with_(policy=Namesake())),
        lambda: forerun.compare(energy(), ["default", Namesake], objective="energy_j"),
    ):
        with pytest.raises(UsageError, match=message):
            ask()
    # Announced by an installed package.
    registry = batching_policies.__wrapped__()
    values = [("patient", "one:Patient"), ("patient", "two:Patient"), ("greedy", "one:Own")]
    points = [EntryPoint(name, value, registry.group) for name, value in values]
    monkeypatch.setattr("forerun.core.registry.entry_points", lambda group: points)
    taken = r"one:Own: calls itself 'greedy', which is the .*forerun\.serving"
    with pytest.raises(UsageError, match=taken):
        registry.get("greedy")
    with pytest.raises(UsageError, match=r"two:Patient: calls itself 'patient', which is the .* one:Patient"):
        registry.get("patient")
    monkeypatch.setattr(
        domain, "_announced", lambda: {"cluster": EntryPoint("cluster", "one:D", domain.GROUP)}
    )
    with pytest.raises(UsageError, match="one:D: is the name of a domain of forerun's own"):
        domain.get_domain("cluster")


def made(energy_offset: int) -> Any:
    class Local(policy_registry().get("default"), tag="local", frozen=True, kw_only=True):  # type: ignore[misc]
        def offset(self) -> int:
            return energy_offset

    return Local


def test_a_class_without_a_source_has_no_identity_and_nothing_is_stored_for_it(tmp_path: Path) -> None:
    cell: dict[str, Any] = {"__name__": "__main__", "Base": policy_registry().get("default")}
    exec("class Typed(Base, tag='typed', frozen=True, kw_only=True): pass", cell)  # as a notebook does
    for kind in (cell["Typed"], made(1)):
        assert identity(kind) == ""
        result = forerun.simulate(energy(), policy=kind)
        (known,) = result.provenance["code"].values()
        assert known["source"] == "not in a file, so nothing is stored for it"
        assert result.id != forerun.simulate(energy("eta=0.9"), policy=kind).id
        study, store = tmp_path / "study.yaml", tmp_path / f"{kind.__name__}.sqlite"
        study.write_text(f"{{base: {forerun.demo('energy').scenario}, axes: {{trials: [0]}}}}")
        assert forerun.run_study(study, policies=[kind], store=store).done == 1
        with pytest.raises(StoreError, match=rf"exists, and .*{kind.__name__} has no source"):
            forerun.run_study(study, policies=[kind], store=store)


def test_a_reader_of_ones_own_counts_named_or_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_reader.py").write_text(
        "from forerun.cluster.readers.swf import Swf\n"
        "class Own(Swf, tag='own', frozen=True, kw_only=True):\n"
        "    @classmethod\n    def recognises(cls, head): return head.name.endswith('.own')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("own", "own_reader:Own", domain.READERS)
    monkeypatch.setattr(domain, "foreign_points", lambda: (point,))
    kind = importlib.import_module("own_reader").Own
    assert issubclass(kind, Swf)
    known = readers.__wrapped__()
    monkeypatch.setattr(
        "forerun.core.registry.entry_points", lambda group: [point] if group == domain.READERS else []
    )
    assert "own" in known.names()
    monkeypatch.setattr("forerun.core.trace.reader.readers", lambda: known)
    rows = "".join(f"{i} {i} 0 60 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1, 5))
    counted = []
    for name, extra in (("log.swf", ""), ("log.own", ""), ("log.swf", ", format: swf")):
        (tmp_path / name).write_text(rows)
        machines = "machines: {nodes: [{count: 2, gpus: 1}]}"
        text = f"{{domain: cluster, trace: {{file: {name}{extra}}}, {machines}, policy: fifo}}"
        counted.append(domain.code_of(forerun.loads(text, base=tmp_path)))
    assert counted == [{}, {"own_reader:Own": identity(kind)}, {}]


def test_what_is_loaded_counts_until_it_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit of a file changes nothing in a process that has read it; `importlib.reload` of any module on the way does."""
    (tmp_path / "own_helper.py").write_text("FACTOR = 1\n")
    (tmp_path / "own_policy.py").write_text("import own_helper\nclass P: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    kind = importlib.import_module("own_policy").P
    first = identity(kind)
    (tmp_path / "own_helper.py").write_text("FACTOR = 2\n")
    assert identity(kind) == first != ""
    importlib.reload(sys.modules["own_helper"])
    assert identity(kind) != first


def _raises(*given: Any, **named: Any) -> Any:
    return {}[7]  # the line that is to be named


def _answers_nonsense(*given: Any, **named: Any) -> Any:
    return None


def broken(base: type[Any], method: Any) -> Any:
    """A policy whose every method is `method`."""
    own = {
        name
        for kind in base.__mro__
        if issubclass(kind, NamedSpec) and kind is not NamedSpec
        for name in vars(kind)
    }
    methods = {
        name: method
        for name in own
        if inspect.isfunction(getattr(base, name)) and name[0] != "_" and name != "problems"
    }
    members = {**methods, "__module__": __name__}
    return types.new_class(
        "Broken",
        (base,),
        {"tag": "broken", "frozen": True, "kw_only": True},
        lambda body: body.update(members),
    )


@pytest.mark.parametrize("method", [_raises, _answers_nonsense])
@pytest.mark.parametrize(
    ("name", "kind", "policy", "overrides"),
    [
        ("cluster", "policy", "las", ["trace.generate.jobs=5"]),
        ("energy", "policy", "joint", ["trials=0"]),
        ("serving", "batching", "greedy", ["trace.queries=100"]),
        ("spot", "growth", "hazard", ["trials=0"]),
        ("loading", "tuner", "no_merge", []),
    ],
)
def test_what_a_policy_raises_names_its_file_and_line(
    name: str, kind: str, policy: str, overrides: list[str], method: Any
) -> None:
    scenario = forerun.load(forerun.demo(name).scenario, overrides)
    own = broken(domain.get_domain(name).policy_kinds[kind].get(policy), method)
    with pytest.raises(PolicyError) as raised:
        forerun.simulate(scenario, policy=own)
    assert "unreachable" not in str(raised.value)
    if method is _raises:
        line = _raises.__code__.co_firstlineno + 1
        assert f"{__file__}:{line}" in str(raised.value) and "KeyError: 7" in str(raised.value)


def test_faults_of_forerun_alone_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(domain.get_domain("energy"))
    monkeypatch.setattr(kind, "summarize", lambda self, outcome: {}[7])
    with pytest.raises(KeyError):
        forerun.simulate(energy())


def test_names_that_do_not_exist_get_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simluate'; did you mean 'simulate'"):
        forerun.simluate  # noqa: B018
    summary = forerun.simulate(energy()).summary
    assert summary.get("energy_k") is None and "energy_k" not in summary
    with pytest.raises(KeyError, match="no figure named 'energy_k'; did you mean 'energy_j'"):
        summary["energy_k"]
    assert json.loads(json.dumps(summary)) == summary == dict(summary)


def test_a_domain_without_a_part_is_refused_when_it_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unwatched(domain.Domain[Any, Any, Any]):
        name = "unwatched"
        scenario_type = type(energy())
        policy_kinds: dict[str, Any] = {}
        prepare = run = summarize = _raises

    point = type(
        "Point", (), {"name": "unwatched", "group": domain.GROUP, "load": lambda self: Unwatched()}
    )()
    monkeypatch.setattr(domain, "_announced", lambda: {"unwatched": point})
    with pytest.raises(UsageError, match="announces a domain without observer_type"):
        domain.get_domain("unwatched")
