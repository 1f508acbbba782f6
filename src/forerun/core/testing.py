"""Everything that forerun promises of a policy, reader, figure or domain, for your own as for the built-in ones.

    >>> policy = forerun.get_domain("energy").policy_kinds["policy"].get("grid")
    >>> forerun.testing.check_policy(policy())

`check_policy`, `check_reader`, `check_figure` and `check_domain` raise AssertionError with what broke. Domains have laws of
their own for their policies (`forerun.cluster.testing`, `forerun.spot.testing`): classes whose methods are tests, which
pytest collects from what derives from them.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
import numpy as np

from forerun.core.catalog import demo
from forerun.core.domain import Domain, domain_names, get_domain, simulate
from forerun.core.errors import InputError, ScenarioError, UsageError
from forerun.core.registry import Registry, member_name
from forerun.core.result.figures import Figure
from forerun.core.result.run import Result, load_result
from forerun.core.rng import stream
from forerun.core.scenario.schema import scenario_schema
from forerun.core.scenario.spec import AnyScenario, NamedSpec, to_data
from forerun.core.scenarios import load
from forerun.core.trace.reader import TraceReader, head_of, readers
from forerun.core.trace.repair import RepairLog

#: what a file from elsewhere may have where something else is expected
_JUNK: Final = (
    b"", b"-1", b"0", b"1e999", b"-1e999", b"1e400", b"1e-320", b"nan", b"NaN", b"inf", b"Infinity", b"9" * 40, b"9" * 400,
    b"9" * 5000, b"9007199254740993", b"-9223372036854775808", b"18446744073709551616", b"1,5", b"1.5", b"0x10", b"1_000",
    "²".encode(), b"\\U00110000", b"\\ud800",
    b"\0", b"\xff", b"\xef\xbb\xbf", b'"', b"'", b"[", b"]", b"{", b"}", b",", b":", b"|", b"\t", b"\n", b"\r\n", b"\r",
    b"null", b"true", b"None", b"x" * 5000, b"=1+1", b"<script>", b"../../etc/passwd", b"/dev/zero", b"&a [*a, *a]",
    b"!!python/object/apply:os.system [ls]", b"1969-12-31 23:59:59", b"9999-12-31 00:00:00", b"2021-11-07 01:30:00",
)  # fmt: skip
_CLOCKS: Final = (
    "time",
    "monotonic",
    "perf_counter",
    "process_time",
    "time_ns",
    "monotonic_ns",
    "perf_counter_ns",
)


def written_and_read(spec: NamedSpec) -> None:
    """Assert that a policy spec is data: a name and parameters, written and read without loss."""
    data = to_data(spec)
    kind = type(spec)
    assert data.get("name"), f"the class has no tag: class {kind.__name__}(..., tag='mine', frozen=True)"
    again = msgspec.convert(data, kind)
    assert again == spec, f"written and read, {spec} became {again}"
    hash(spec)


def laws_of(contract: type, **given: object) -> Iterator[Callable[[], None]]:
    """The laws of a contract class for what is given, such as a policy: its methods whose names begin with `test_`."""
    made = type(contract.__name__, (contract,), given)() if given else contract()
    return (getattr(made, name) for name in dir(made) if name.startswith("test_"))


def check_policy(policy: NamedSpec, scenario: AnyScenario | None = None) -> None:
    """Assert what every policy promises: it is data with its own name, gives the same run twice, obeys its domain's laws.

    Parameters
    ----------
    policy : of a kind that some domain knows.
    scenario : to run it in (default: the demonstration of that domain, if that has such a policy).

    Raises
    ------
    AssertionError : a promise is broken.
    UsageError : no domain knows this kind of policy, or it needs a scenario.
    """
    written_and_read(policy)
    domain, registry = _home(policy)
    registry.refuse_namesake(type(policy))
    laws = domain.laws(policy)
    try:
        under = domain.with_policy(
            scenario if scenario is not None else load(demo(domain.name).scenario), policy
        )
    except UsageError:
        if scenario is not None or not laws:
            raise
    else:
        first, again = (_digest(simulate(under).check()) for _ in range(2))
        assert first == again, f"{policy} gives another run when it is simulated again"
    for law in laws:
        law()


def _home(policy: object) -> tuple[Domain[Any, Any, Any], Registry[Any]]:
    """The domain that knows a kind of policy, and the registry of that kind."""
    for name in domain_names():
        domain = get_domain(name)
        for registry in domain.policy_kinds.values():
            if isinstance(policy, registry.base):
                return domain, registry
    raise UsageError.at(type(policy).__name__, "is of no kind of policy that a domain knows")


def check_reader(reader: TraceReader, file: str | Path, *, damages: int = 200) -> None:
    """Assert what every reader promises: it alone recognises its format, reads the same twice, and ends on no damaged file.

    Parameters
    ----------
    reader : to check.
    file : a small valid one; it is not changed.
    damages : ways to damage a copy, each by a number (default 200).

    Raises
    ------
    AssertionError : a promise is broken, with the number of the damage.
    """
    path = Path(file)
    written_and_read(reader)
    readers().refuse_namesake(type(reader))
    head, own = head_of(path), member_name(type(reader))
    assert reader.recognises(head), f"{own} does not recognise {path.name}"
    others = [name for name in readers().names() if name != own and readers().get(name).recognises(head)]
    assert not others, f"{', '.join(others)} recognises {path.name} as well"
    first, again = (reader.read(path, RepairLog()) for _ in range(2))
    assert len(first) and first.digest == again.digest, (
        f"{path.name} is empty, or reads differently when it is read again"
    )
    content = path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for number in range(damages):
            copy.write_bytes(damaged(content, number))
            try:
                reader.read(copy, RepairLog())
            except InputError as error:
                assert copy.name in str(error), f"damage {number}: no file is named: {error}"
            except Exception as error:
                raise AssertionError(f"damage {number} ends in {type(error).__name__}: {error}") from error


def check_figure(make: Callable[[Any], Figure | None], domain: str) -> None:
    """Assert what every figure promises: a run and its stored copy give the same one, with words, its own id, and data.

    Parameters
    ----------
    make : a function of a run of the domain's demonstration.
    domain : its name.

    Raises
    ------
    AssertionError : a promise is broken.
    """
    result = simulate(load(demo(domain).scenario)).check()
    with tempfile.TemporaryDirectory() as folder:
        stored = load_result(result.save(Path(folder) / "run"))
        before = _digest(result)
        made = [make(run) for run in (result, result, stored)]
        own = {figure.id for figure in get_domain(domain).figures(stored)}
    assert _digest(result) == before, "the run is another one after the figure was made"
    shown = []
    for figure in made:
        assert figure is not None, f"the demonstration of {domain} has no such figure"
        assert figure.title and figure.caption and figure.x.label and figure.y.label, figure.id
        assert figure.id not in own, f"{domain} has a figure {figure.id!r}; give yours another id"
        data = {name: np.asarray(values).tolist() for name, values in figure.data.items()}
        assert data[figure.x.column], f"{figure.id} has no data for the demonstration of {domain}"
        shown.append(repr(replace(figure, data=data)) + repr(data))
    assert shown[0] == shown[1], f"{made[0]!r} is another figure when it is made again"
    assert shown[0] == shown[2], f"{made[0]!r} is another figure of the stored run"


def damaged(content: bytes, number: int) -> bytes:
    """A file with one to three damages: cut off, a line twice or gone, junk for a word or anywhere, or a bit turned.

    Parameters
    ----------
    content : of a valid file.
    number : which of the ways to damage it; the same number damages alike.
    """
    draw = stream(number, "damaged file")
    for _ in range(int(draw.integers(1, 4))):
        at = int(draw.integers(len(content) + 1))
        begin, end = content.rfind(b"\n", 0, at) + 1, (content.find(b"\n", at) + 1) or len(content)
        junk = (
            _JUNK[int(draw.integers(len(_JUNK)))]
            if draw.random() < 0.7
            else draw.bytes(int(draw.integers(1, 7)))
        )
        words = list(re.finditer(rb"[A-Za-z0-9_.+\-]+", content))
        match int(draw.integers(7)):
            case 0:
                content = content[:at]
            case 1:
                content = content[:begin] + content[end:]
            case 2:
                content = content[:end] + content[begin:]
            case 3:
                content = content[:at] + junk + content[at:]
            case 4:
                content = content[:at] + junk + content[at + len(junk) :]
            case 5 if at < len(content):
                content = (
                    content[:at] + bytes([content[at] ^ (1 << int(draw.integers(8)))]) + content[at + 1 :]
                )
            case _ if words:
                word = words[int(draw.integers(len(words)))]
                content = content[: word.start()] + junk + content[word.end() :]
    return content


def _digest(result: Result) -> str:
    """Of everything that a run directory contains, but for what may differ between machines."""
    with tempfile.TemporaryDirectory() as folder:
        return digest_of_run(result.save(Path(folder) / "run"))


def digest_of_run(folder: Path) -> str:
    """Of a run directory, but for its provenance, which names the machine."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != "provenance.json":
            found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def check_domain(name: str) -> None:
    """Assert what every domain promises of its demonstration (`DomainContract`).

    Parameters
    ----------
    name : of a domain of forerun's, or of one that a package announces.

    Raises
    ------
    AssertionError : a promise is broken.
    """
    for law in laws_of(DomainContract, name=name):
        law()


class DomainContract:
    """What every domain promises of its demonstration, each a test. Derive a class named `Test...` and set `name`."""

    name: str

    @classmethod
    def scenario(cls, *overrides: str, **given: Any) -> AnyScenario:
        """The demonstration."""
        return load(demo(cls.name).scenario, overrides, **given)

    @classmethod
    @functools.cache
    def run(cls) -> Result:
        """The demonstration, simulated once for all laws."""
        return simulate(cls.scenario()).check()

    def test_the_demonstration_asks_a_question(self) -> None:
        """Its first comment ends in a question mark."""
        assert demo(self.name).question.endswith("?")

    def test_a_run_simulated_from_its_own_scenario_is_the_same_run(self) -> None:
        """A run directory contains all that made it."""
        with tempfile.TemporaryDirectory() as folder:
            first = self.run().save(Path(folder) / "first")
            again = simulate(load(first / "scenario.json")).check().save(Path(folder) / "again")
            assert digest_of_run(first) == digest_of_run(again)
            assert load_result(first).id == load_result(again).id

    def test_the_same_bytes_under_any_hash_seed(self) -> None:
        """In processes of their own."""
        own = _digest(self.run())
        with tempfile.TemporaryDirectory() as folder:
            for seed in ("0", "31"):
                out = Path(folder) / seed
                command = [
                    sys.executable,
                    "-m",
                    "forerun",
                    "simulate",
                    str(demo(self.name).scenario),
                    "-o",
                    str(out),
                    "-q",
                ]
                environment = {**os.environ, "PYTHONHASHSEED": seed}
                subprocess.run(command, env=environment, check=True, capture_output=True)
                assert digest_of_run(out) == own, f"another run under PYTHONHASHSEED={seed}"

    def test_simulated_time_does_not_see_the_clock(self) -> None:
        """No clock of the host is read while it runs."""
        scenario = self.scenario()
        self.run()  # compiling kernels may look at the clock
        refuse = mock.Mock(side_effect=AssertionError("the host's clock was read during a simulation"))
        clock = type("Clock", (datetime.datetime,), {"now": refuse, "utcnow": refuse})
        clocks = dict.fromkeys(_CLOCKS, refuse)
        with mock.patch.multiple(time, **clocks), mock.patch.object(datetime, "datetime", clock):
            result = simulate(scenario)
        assert result.summary

    def test_what_a_result_has(self) -> None:
        """A reason, a headline, intervals around figures, ledgers, and tables whose columns say what they mean."""
        run = self.run()
        assert run.why and run.headline and set(run.headline) <= set(run.summary)
        assert set(run.intervals) <= set(run.summary)
        assert all(one.low <= one.high and one.method for one in run.intervals.values())
        assert run.ledgers and run.tables
        for table in run.tables.values():
            assert all(column.meaning for column in table.schema.columns), f"{table.schema.name}: no meaning"

    def test_its_figures_are_drawn_from_a_stored_run(self) -> None:
        """Each has an id, a title, a caption and axes."""
        with tempfile.TemporaryDirectory() as folder:
            figures = get_domain(self.name).figures(load_result(self.run().save(Path(folder) / "run")))
        assert len({figure.id for figure in figures}) == len(figures) >= 1
        for figure in figures:
            assert figure.title and figure.caption and figure.x.label and figure.y.label, figure.id

    def test_the_schema_is_one(self) -> None:
        """Of JSON, with the properties of the scenario."""
        properties = scenario_schema(get_domain(self.name).scenario_type)["properties"]
        assert set(to_data(self.scenario())) <= set(properties)

    def test_unknown_keys_and_bad_seeds_are_errors_of_the_scenario(self) -> None:
        """An unknown key is answered with what is known."""
        for override, says in (("sedd=1", "did you mean 'seed'"), ("seed=-1", "at $.seed")):
            try:
                self.scenario(override)
            except ScenarioError as error:
                assert says in str(error), error
            else:
                raise AssertionError(f"{override} is accepted")

    def test_entry_points_are_named_by_domain_and_kind(self) -> None:
        """What `forerun policies` prints is where a package announces its own."""
        for kind, registry in get_domain(self.name).policy_kinds.items():
            assert registry.group == f"forerun.{self.name}.{kind}"

    def test_another_seed_is_another_run(self) -> None:
        """By its id."""
        assert simulate(self.scenario(seed=99)).id != self.run().id
