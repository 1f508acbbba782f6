"""Observers in every domain: what they observe is called, and one that would observe nothing is refused by name."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import forerun
from forerun.core.errors import UsageError

#: overrides of each domain's example that make it one short run
SHORT = {
    "cluster": ["trace.generate.jobs=20"],
    "energy": ["trials=0", "recurrences=5"],
    "loading": ["run.epochs=1", "dataset.samples=200"],
    "serving": ["trace.queries=50", "intervals.replications=0"],
    "spot": ["trials=0"],
}
#: what can be observed, and how many arguments it is called with
OBSERVED = {
    "cluster": {"instant": 2}, "energy": {"attempt": 1}, "loading": {"epoch": 2}, "serving": {"instant": 2},
    "spot": {"spell": 1, "node_spell": 1},
}  # fmt: skip
by_domain = pytest.mark.parametrize("domain", forerun.domain_names())


def observer(*names: str, arguments: int = 0) -> Any:
    """An observer that keeps what it is called with, with methods of these names."""

    class Seen:
        def __init__(self) -> None:
            self.calls: list[tuple[Any, ...]] = []

    def keep(self: Any, *given: Any) -> None:
        self.calls.append(given)

    def exact(self: Any, only: Any) -> None:
        self.calls.append((only,))

    for name in names:
        setattr(Seen, name, exact if arguments == 1 else keep)
    return Seen()


def scenario(domain: str) -> Any:
    return forerun.load(forerun.demo(domain).scenario, SHORT[domain])


@by_domain
def test_what_can_be_observed_is_called_and_changes_nothing(domain: str) -> None:
    protocol = importlib.import_module(f"forerun.{domain}.observer").Observer
    assert {name for name in vars(protocol) if name in OBSERVED[domain]} == set(OBSERVED[domain])
    seen = observer(*OBSERVED[domain])
    watched = forerun.simulate(scenario(domain), observers=[seen])
    assert seen.calls and {len(call) for call in seen.calls} == set(OBSERVED[domain].values())
    alone = forerun.simulate(scenario(domain))
    for name, value in alone.summary.items():
        if isinstance(value, (int, float)):
            assert watched.summary[name] == pytest.approx(value, rel=1e-9, nan_ok=True), name


@by_domain
@pytest.mark.parametrize("names", [(), ("happened",)])
def test_an_observer_of_nothing_is_refused_with_what_there_is(domain: str, names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"Seen: observes nothing") as caught:
        forerun.simulate(scenario(domain), observers=[observer(*names)])
    for name in OBSERVED[domain]:
        assert f"{name}(" in str(caught.value)


@by_domain
def test_a_misspelt_method_is_refused_even_beside_a_right_one(domain: str) -> None:
    first = next(iter(OBSERVED[domain]))
    with pytest.raises(UsageError, match=f"never called; did you mean '{first}'"):
        forerun.simulate(scenario(domain), observers=[observer(first + "s")])
    if domain == "spot":
        with pytest.raises(UsageError, match="'node_spel', which is never called; did you mean 'node_spell'"):
            forerun.simulate(scenario(domain), observers=[observer("spell", "node_spel")])


@by_domain
def test_classes_other_arguments_and_no_list_are_refused(domain: str) -> None:
    first, arguments = next(iter(OBSERVED[domain].items()))
    with pytest.raises(UsageError, match="is a class"):
        forerun.simulate(scenario(domain), observers=[type(observer(first))])
    with pytest.raises(UsageError, match="takes a list of observers"):
        forerun.simulate(scenario(domain), observers=observer(first))
    if arguments == 2:
        with pytest.raises(UsageError, match=f"{first!r} that does not take 2 arguments"):
            forerun.simulate(scenario(domain), observers=[observer(first, arguments=1)])


def test_runs_that_show_nothing_refuse_observers() -> None:
    several = forerun.load(forerun.demo("spot").scenario, ["trials=2"])
    with pytest.raises(UsageError, match="several random histories"):
        forerun.simulate(several, observers=[observer("spell")])
    compat = forerun.load(forerun.demo("serving").scenario, [*SHORT["serving"], "mode=compat"])
    with pytest.raises(UsageError, match="notebook's scheduler"):
        forerun.simulate(compat, observers=[observer("instant")])


class Asynchronous:
    async def instant(self, *given: Any) -> None:
        raise AssertionError(given)


class Generator:
    def instant(self, *given: Any) -> Any:
        yield given


@pytest.mark.parametrize("kind", [Asynchronous, Generator])
def test_a_method_that_a_call_does_not_run_is_refused(kind: type) -> None:
    with pytest.raises(UsageError, match="'instant' whose body a call does not run"):
        forerun.simulate(scenario("cluster"), observers=[kind()])
