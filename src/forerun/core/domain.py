"""What a domain is: the contract between the five domains and everything that works on any of them.

A domain turns a scenario into a result in three steps, which are the same in every domain:

    inputs = domain.prepare(scenario)       # read the scenario's files and check them
    outcome = domain.run(inputs)            # simulate; touch no file
    result = domain.summarize(outcome)      # figures, tables, ledgers, intervals, and why

`simulate` is these three in a row, written once, below. What a domain can do beyond that (plan, explain, export a
profile, generate traces) is a typed object that it has, or None. A domain from another package is the same kind of
object, announced under the entry point group `forerun.domains`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from forerun.core import slices
from forerun.core.errors import (
    ForerunError,
    PolicyError,
    Problem,
    ScenarioError,
    StoreError,
    UnknownName,
    UsageError,
    known_names,
)
from forerun.core.observers import checked_observers
from forerun.core.registry import Registry, member_name
from forerun.core.result.objective import Objective
from forerun.core.scenario.arguments import name_of, require_scenario
from forerun.core.scenario.spec import AnyScenario, Input, NamedSpec, Spec, field_types, registry_of
from forerun.core.scenario.text import Place
from forerun.core.sources import distribution, file_of, identity, is_built_in, qualified

if TYPE_CHECKING:
    from forerun.core.result.bound import Bounder
    from forerun.core.result.document import ExplainedJob
    from forerun.core.result.figures import Figure
    from forerun.core.result.plan import Planner
    from forerun.core.result.run import Result, SavedRun
    from forerun.core.trace.domain_traces import DomainTraces

#: entry point group of domains that other packages bring
GROUP: Final = "forerun.domains"

#: entry point group of trace readers
READERS: Final = "forerun.trace_readers"

S = TypeVar("S", bound=Spec)
InputsT = TypeVar("InputsT")
OutcomeT = TypeVar("OutcomeT")


@dataclass(frozen=True, slots=True)
class Program:
    """Another program that decides in the place of a policy.

    argv: the program and its arguments. oracle: whether it is shown what only a simulator knows (default: no). answer_s:
    seconds that an answer may take (default: the domain's).
    """

    argv: tuple[str, ...]
    oracle: bool = False
    answer_s: float | None = None


class Domain(ABC, Generic[S, InputsT, OutcomeT]):
    """A kind of system that can be simulated, such as a GPU cluster. There is one instance of each.

    name: as scenarios give it in `domain:`.
    scenario_type: the record that a scenario file is decoded into.
    observer_type: the protocol of what observers of a run may define (see `forerun.core.observers`).
    policy_kinds: the registry of each kind of policy; the kind is also the scenario's field and the end of the entry point
        group `forerun.NAME.KIND`.
    objectives: the summary figures that rank results, the default first.
    environment: the sections of a scenario that nobody chooses, such as a trace.
    counts: the summary figures that `left_out` reads.
    fitted: the sections that `forerun trace fit` writes, as `trace.generate`.
    """

    name: ClassVar[str]
    scenario_type: type[S]
    observer_type: type
    policy_kinds: Mapping[str, Registry[Any]]
    objectives: tuple[Objective, ...] = ()
    environment: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    fitted: tuple[str, ...] = ()

    @abstractmethod
    def prepare(self, scenario: S) -> InputsT:
        """Read the scenario's files and resolve what it names; everything that `run` needs.

        Raises TraceError, ProfileError or ScenarioError if the inputs cannot be used.
        """

    @abstractmethod
    def run(self, inputs: InputsT, *, observers: Sequence[Any] = ()) -> OutcomeT:
        """Simulate. Touches no file and no clock; every random number comes from the scenario's seed.

        observers: checked against `observer_type`. Raises PolicyError for an impossible decision of a policy.
        """

    @abstractmethod
    def summarize(self, outcome: OutcomeT) -> Result:
        """Make the result: summary figures with intervals, tables, ledgers, timeline, and why."""

    def with_policy(self, scenario: S, policy: object) -> S:
        """The scenario under another policy, in the field of the policy's kind, or in `policy` where there is none.

        Raises UsageError if the policy is of no kind that this domain knows.
        """
        for kind, registry in self.policy_kinds.items():
            field = kind if kind in scenario.__struct_fields__ else "policy"
            if isinstance(policy, registry.base) and field in scenario.__struct_fields__:
                return scenario.with_(**{field: policy})
        bases = " or ".join(registry.base.__name__ for registry in self.policy_kinds.values())
        raise UsageError.at(
            "policy", f"{type(policy).__name__} is no policy of {self.name}; derive it from {bases}"
        )

    def decider(self, scenario: S, program: Program) -> NamedSpec:
        """A policy whose decisions another program makes, in the place of the scenario's. Raises UsageError for a program
        that cannot."""
        raise UsageError.at("--decider", f"no other program can decide in the {self.name} domain")

    def decided_again(self, run: SavedRun, program: Program) -> SavedRun:
        """A run that another program decided, ready to be simulated again. Raises UsageError for another program."""
        raise UsageError.at("--decider", f"no other program can decide in the {self.name} domain")

    def laws(self, policy: object) -> Sequence[Callable[[], None]]:
        """What a policy promises in this domain, in random cases: each raises AssertionError where it is broken."""
        return ()

    def without_intervals(self, scenario: S) -> S:
        """The scenario without the replications behind its intervals, for studies, which repeat runs themselves."""
        return scenario

    def resampled(self, scenario: S) -> S:
        """The scenario with the few recorded runs that every seed draws from drawn anew by its seed, where there are such:
        else seeds would count as replications of a world of which they see one small sample."""
        return scenario

    def not_observable(self, scenario: S) -> str:
        """The kind of run this is, in words, if observers cannot see it; empty if they can."""
        return ""

    def left_out(self, figure: str, summary: Mapping[str, Any]) -> tuple[float, str]:
        """How much of the work a figure of a summary is not about, and in words: jobs refused, where it is a mean over
        those that ran. Results that leave out more rank behind those that leave out less. 0 where it is about all."""
        return 0.0, ""

    def units(self, result: Result) -> Units | None:
        """The jobs or queries that the figures of a run are made of, for intervals over blocks of its trace."""
        return None

    def figures(self, run: Result | SavedRun) -> tuple[Figure, ...]:
        """The figures of a run."""
        return ()

    def plan_figures(self, plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a plan file; `plan` and `scenario` are plain data."""
        return ()

    def measured_figures(self, measured: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a measurement file."""
        return ()

    def check_measurement(self, measured: Mapping[str, Any], name: str) -> str:
        """Compare the predictions of a measurement file with what it measured, and say how far they agree.

        name: of the file, for messages. Raises CheckFailed if they do not agree, StoreError if it predicts nothing.
        """
        raise StoreError.at(name, "is no plan but a measurement; forerun report shows it")

    @property
    def planner(self) -> Planner[S] | None:
        """What finds the best configuration; None if this domain makes no plans."""
        return None

    @property
    def bounder(self) -> Bounder[S] | None:
        """What proves how good any policy can be at most; None if this domain proves nothing."""
        return None

    @property
    def explainer(self) -> Explainer[S] | None:
        """What explains a run; None if this domain has no question of its own."""
        return None

    @property
    def job_explainer(self) -> JobExplainer | None:
        """What explains one job of a run; None if this domain explains no jobs."""
        return None

    @property
    def exporter(self) -> Callable[[S, Sequence[int]], Spec] | None:
        """Makes the profile that other domains read, at points in this domain's own terms; None if there is none."""
        return None

    @property
    def traces(self) -> DomainTraces | None:
        """What generates, fits and describes traces of this domain; None for traces of arrivals."""
        return None

    @property
    def about(self) -> str:
        """What the domain models and what it leaves out: the docstring of its package."""
        return sys.modules[type(self).__module__].__doc__ or ""

    @property
    def folder(self) -> Path:
        """Where the domain's own files lie: `demo.yaml`, and `starter/` for `forerun init`."""
        return Path(str(sys.modules[type(self).__module__].__file__)).parent


def simulate(scenario: AnyScenario, *, policy: object = None, observers: Iterable[Any] = ()) -> Result:
    """Run a scenario and return its result. Reads only the scenario's input files, writes and prints nothing.

    >>> result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0"]))
    >>> print(f"{result.summary['energy_saved_percent']:.1f} % saved; {result.why}")
    44.1 % saved; the cheapest configuration, batch size 128 at 100 W, costs 33.3 % less than the default; ...

    scenario: as `forerun.load` returns it. policy: a policy spec of the domain, or its class, in
    place of the scenario's (default: none).
    observers: objects with methods of the domain's `Observer` (default: none). Raises PolicyError for an impossible
    decision, ScenarioError or TraceError for what only shows when the scenario is run.
    """
    require_scenario(scenario, "simulate")
    domain = get_domain(scenario.domain)
    if policy is not None:
        scenario = domain.with_policy(scenario, instance_of(policy))
    code = code_of(scenario)
    seen = checked_observers(observers, domain.observer_type, unobserved=domain.not_observable(scenario))
    try:
        result = domain.summarize(domain.run(domain.prepare(scenario), observers=seen)).check()
    except MemoryError:
        raise
    except Exception as error:
        blamed = _blamed(error, code)
        if blamed is error:
            raise
        raise blamed from error
    return with_code(result, code)


def _blamed(error: Exception, code: Mapping[str, str]) -> Exception:
    """The error to raise for one of a run: of other packages' code it names the file and line that raised it.

    An error of forerun's own stays what it is; so does one where forerun alone decides.
    """
    cause = error.__cause__ if isinstance(error, PolicyError) else error
    if not code or cause is None or isinstance(cause, ForerunError):
        return error
    roots = {name.partition(":")[0].partition(".")[0] for name in code}
    frames = [
        (frame.f_globals.get("__name__", ""), frame, line)
        for frame, line in traceback.walk_tb(cause.__traceback__)
    ]
    own = [(frame, line) for name, frame, line in frames if name.partition(".")[0] in roots]
    where = f"{own[-1][0].f_code.co_filename}:{own[-1][1]}" if own else ", ".join(code)
    if isinstance(error, PolicyError):
        error.problems = tuple(Problem(one.where, f"{one.what} ({where})") for one in error.problems)
        return error
    what = "raised" if own else "answered what ended the run:"
    return PolicyError(Problem(where, f"{what} {type(cause).__name__}: {cause}"))


def instance_of(policy: object) -> object:
    """A policy; of a policy's class, an instance with its defaults. Raises UsageError for a class that has none."""
    if not (isinstance(policy, type) and issubclass(policy, NamedSpec)):
        return policy
    try:
        return policy()
    except TypeError as error:
        raise UsageError.at("policy", f"{qualified(policy)} is a class; pass an instance: {error}") from None


def code_of(scenario: AnyScenario) -> dict[str, str]:
    """The classes outside forerun that decide what a scenario's run gives, each with a digest of its source.

    Policies, processes, readers, engines and the domain itself; empty for a scenario that needs forerun alone. A class
    without a source has an empty digest: nothing may be stored under it. Raises UsageError for a class with the name of
    another.
    """
    kinds: set[type[Any]] = {type(get_domain(scenario.domain))}
    words: set[str] = set()
    for _, part, registries in _parts(scenario):
        if isinstance(part, str):
            words.add(part)
            continue
        kinds.add(type(part))
        for registry in registries if not is_built_in(type(part)) else ():
            registry.refuse_namesake(type(part))
        file = getattr(part, "file", None)
        if isinstance(file, Input) and getattr(part, "format", None) == "":
            words |= _recognising(Path(file.path))
    groups = (READERS, f"forerun.{scenario.domain}.")
    for point in foreign_points():
        if point.name in words and point.group.startswith(groups):
            with contextlib.suppress(Exception):  # whoever needs it says that it cannot be loaded
                kinds.add(point.load())
    foreign = sorted((kind for kind in kinds if not is_built_in(kind)), key=qualified)
    return {qualified(kind): identity(kind) for kind in foreign}


def with_code(result: Result, code: Mapping[str, str]) -> Result:
    """A result that says which code outside forerun decided, as `code_of` returns it."""
    if not code:
        return result
    known = {}
    for name, source in code.items():
        module = name.partition(":")[0]
        known[name] = {
            "source": source or "not in a file, so nothing is stored for it",
            "distribution": distribution(module, file_of(module) or Path()),
        }
    return replace(result, code=code, provenance={**result.provenance, "code": known})


def own_specs(scenario: AnyScenario) -> tuple[tuple[Place, NamedSpec], ...]:
    """The policies and the like of a scenario that no file can name, with their places; not what they contain."""
    own: dict[Place, NamedSpec] = {}
    for place, part, registries in _parts(scenario):
        if not isinstance(part, NamedSpec) or any(place[:end] in own for end in range(len(place))):
            continue
        chosen = any(member_name(type(part)) in registry for registry in registries)
        if not is_built_in(type(part)) or (registries and not chosen):
            own[place] = part
    return tuple(own.items())


_Registries: TypeAlias = tuple[Registry[Any], ...]


def _parts(
    value: Any, place: Place = (), registries: _Registries = ()
) -> Iterator[tuple[Place, Any, _Registries]]:
    """Every record and text in a value, each with its place and the registries of the field that has it."""
    if isinstance(value, str | msgspec.Struct):
        yield place, value, registries
    if isinstance(value, msgspec.Struct):
        own = isinstance(value, NamedSpec) and not is_built_in(type(value))
        declared = {} if own else field_types(type(value))
        for name in value.__struct_fields__:
            yield from _parts(getattr(value, name), (*place, name), tuple(_registries(declared.get(name))))
    elif isinstance(value, dict | tuple | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _parts(item, (*place, key), registries)


def _registries(declared: Any) -> Iterator[Registry[Any]]:
    """The registries that a declared type names, at any depth."""
    own = registry_of(declared)
    if own is not None:
        yield own
    for inner in get_args(declared):
        yield from _registries(inner)


def _recognising(path: Path) -> set[str]:
    """The names of the readers outside forerun that recognise a file."""
    names = {point.name for point in foreign_points() if point.group == READERS}
    if not names:
        return set()
    from forerun.core.trace.reader import head_of, readers

    head = head_of(path)
    return {name for name in names if readers().get(name).recognises(head)}


@functools.cache
def foreign_points() -> tuple[EntryPoint, ...]:
    """What other installed packages announce to forerun."""
    own = __name__.partition(".")[0]
    return tuple(
        point
        for installed in distributions()
        for point in installed.entry_points
        if point.group.startswith(f"{own}.") and point.module.partition(".")[0] != own
    )


def profile_of(scenario: AnyScenario, at: Sequence[int] = ()) -> Spec:
    """The profile that a scenario's domain exports for the others: a `Supply` of loading, a `Power` of energy.

    at: the points to make it at, in the domain's own terms (readers, batch sizes; default: the domain's own choice).
    Raises UsageError for a domain that exports nothing, and what the domain raises.

    >>> power = forerun.profile_of(forerun.load(forerun.demo("energy").scenario))
    >>> power.gpu_type, len(power.points)
    ('gpu_a', 24)
    """
    require_scenario(scenario, "profile_of")
    export = get_domain(scenario.domain).exporter
    if export is None:
        known = ", ".join(name for name in domain_names() if get_domain(name).exporter is not None)
        raise UsageError.at(scenario.domain, f"exports no profile; domains that do: {known}")
    return export(scenario, at)


# ------------------------------------------------------------------------------------------------ the domains there are


@functools.cache
def domain_names() -> tuple[str, ...]:
    """The names of the domains, sorted: the built-in ones, and those that installed packages announce.

    >>> forerun.domain_names()
    ('cluster', 'energy', 'loading', 'serving', 'spot')
    """
    return tuple(sorted({*slices.domains(), *_announced()}))


def get_domain(name: str) -> Domain[Any, Any, Any]:
    """A domain by name. Raises UnknownName with the known names, UsageError if a package announces something unfit.

    >>> forerun.get_domain("spot").objectives[0].key
    'samples_per_s'
    """
    name = name_of(name)
    if name in _announced():
        point = _announced()[name]
        if name in slices.domains():
            what = "is the name of a domain of forerun's own; give it another"
            raise UsageError.at(f"entry point {name!r} of {point.group}, {point.value}", what)
        return _loaded(point)
    if name not in slices.domains():
        raise UnknownName.among("domain", name, domain_names())
    built_in: Domain[Any, Any, Any] = importlib.import_module(slices.domains()[name]).DOMAIN
    return built_in


def find_domain(name: str) -> Domain[Any, Any, Any] | None:
    """A domain by name, None if it is not installed here: a stored result may come from a plugin of another machine."""
    return get_domain(name) if name in domain_names() else None


@functools.cache
def announced_figures(name: str) -> tuple[Callable[[Any], Figure | None], ...]:
    """Functions of a run of a domain that other distributions announce, each of which gives a figure, or None.

    They stand under `forerun.NAME.figures`, and are drawn after the domain's own. Raises UsageError for one that cannot be
    loaded, or is no function.
    """
    found = []
    for point in sorted(entry_points(group=f"forerun.{name}.figures")):
        make = _member(point)
        if not callable(make):
            raise UsageError.at(_where(point), f"is no function of a run but of type {type(make).__name__}")
        found.append(make)
    return tuple(found)


def objectives_of(name: str) -> tuple[Objective, ...]:
    """The objectives of a domain, the default first; none for a domain that is not installed here."""
    domain = find_domain(name)
    return domain.objectives if domain is not None else ()


def left_out(name: str, figure: str, summary: Mapping[str, Any]) -> tuple[float, str]:
    """`Domain.left_out` of a domain by name; nothing for one that is not installed here."""
    domain = find_domain(name)
    return domain.left_out(figure, summary) if domain is not None else (0.0, "")


def planner_of(name: str) -> Planner[Any]:
    """What makes the plans of a domain by name. Raises UsageError if it makes none."""
    known = find_domain(name)
    if known is None or known.planner is None:
        raise UsageError.at("", not_available(name))
    return known.planner


def not_available(domain: str) -> str:
    """That a domain makes no plans, and which do; empty if it does."""
    known = find_domain(domain)
    if known is not None and known.planner is not None:
        return ""
    able = [name for name in domain_names() if get_domain(name).planner is not None]
    return f"`plan` is not available for the {domain} domain; it is for {', '.join(able[:-1])} and {able[-1]}"


def environment_of(name: str) -> tuple[str, ...]:
    """The sections of a domain's scenarios that nobody chooses; none for a domain that is not installed here."""
    domain = find_domain(name)
    return domain.environment if domain is not None else ()


def scenario_type_of(domain: object, where: str) -> type[Spec]:
    """The scenario type of the domain that a file names at `where`. Raises ScenarioError if there is no such domain."""
    if not isinstance(domain, str) or domain not in domain_names():
        what = "the key 'domain' is missing" if domain is None else f"no domain named {domain!r}"
        raise ScenarioError.at(where, f"{what}; {known_names(str(domain), domain_names())}")
    scenario_type: type[Spec] = get_domain(domain).scenario_type
    return scenario_type


@functools.cache
def _announced() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _where(point: EntryPoint) -> str:
    return f"entry point {point.name!r} of {point.group}"


def _member(point: EntryPoint) -> Any:
    """What a package announces. Raises UsageError if it cannot be loaded."""
    try:
        return point.load()
    except Exception as error:  # a plugin may fail in any way; it must not look like our fault
        what = f"cannot be loaded: {type(error).__name__}: {error}"
        raise UsageError(Problem(_where(point), what)) from error


def _loaded(point: EntryPoint) -> Domain[Any, Any, Any]:
    where, member = _where(point), _member(point)
    if not isinstance(member, Domain):
        what = f"is a {type(member).__name__}, not an instance of forerun.core.domain.Domain"
        if isinstance(member, ModuleType):
            what += (
                "; derive a class from Domain and announce an instance of it, as examples/domain-plugin does"
            )
        raise UsageError(Problem(where, what))
    if member.name != point.name:
        raise UsageError(Problem(where, f"announces a domain that calls itself {member.name!r}"))
    parts = ("scenario_type", "observer_type", "policy_kinds")
    if absent := [part for part in parts if not hasattr(member, part)]:
        raise UsageError(Problem(where, f"announces a domain without {' and '.join(absent)}"))
    return member


# ------------------------------------------------------------------------------- what a domain says to explain and compare


@dataclass(frozen=True, slots=True)
class Units:
    """The units of one run that figures of its summary are made of.

    name: what they are, in the plural. at_s: float64[n], when each came. means: figures that are the mean of a value over
    the units (NaN: it has none); quantiles: those that are a quantile of it, with its share; totals: those that are its
    sum.
    """

    name: str
    at_s: NDArray[np.float64]
    means: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    quantiles: Mapping[str, tuple[NDArray[np.float64], float]] = field(default_factory=dict)
    totals: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def has(self, figure: str) -> bool:
        """Whether a figure of the summary is made of these units."""
        return figure in self.means or figure in self.quantiles or figure in self.totals


@dataclass(frozen=True, slots=True)
class Answer:
    """A run's answer to its domain's question: in words, and whether it is a yes."""

    question: str
    holds: bool


@dataclass(frozen=True)
class WhatIf:
    """A what-if parameter: its path in the scenario, and values in order of growing change (not the present one).

    meaning: in words, such as "one more replica of ResNet".
    """

    path: str
    present: Any
    values: Sequence[Any]
    meaning: str = ""


@dataclass(frozen=True)
class Change:
    """One value of a scenario changed to see its effect. meaning: in words.

    given: other values (path, value) that both runs of the comparison have, where the change would otherwise move
    something else with it; empty: the change is compared with the run itself.
    """

    path: str
    value: object
    meaning: str
    given: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Orders:
    """Other orders of events at one instant. what: what is permuted, in words. simulate(number): the result in order
    `number`; the same number is the same order every time.
    """

    what: str
    simulate: Callable[[int], Result]


@dataclass(frozen=True, slots=True)
class Untied:
    """A scenario without another order of events at one instant, and why."""

    why: str


class JobExplainer(Protocol):
    """What explains one job of a run to pages and terminals."""

    def __call__(
        self, run: SavedRun, job: str, *, workers: int, progress: Callable[..., None]
    ) -> ExplainedJob:
        """Why a job fared as it did.

        Parameters
        ----------
        run : a stored one of this domain.
        job : its name in the trace.
        workers : processes that simulate.
        progress : called with a `Reached` before the first simulation and after each.
        """


class Explainer(ABC, Generic[S]):
    """What a domain contributes to `forerun explain`: its question, and what might change the answer."""

    @abstractmethod
    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """The domain's yes-or-no question, answered from the summary of a run."""

    @abstractmethod
    def what_ifs(self, scenario: S, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """The what-if parameters of a run, to find the smallest change that changes the answer."""

    def changes(self, scenario: S, run: Result | SavedRun) -> tuple[Change, ...]:
        """Single changes whose effect is worth a table, such as each known bug of a published simulator."""
        return ()

    def relaxations(self, scenario: S) -> tuple[Change, ...]:
        """What a bound ignores, taken away one thing after another; each change is made besides those before it."""
        return ()

    def reasons(self, run: Result | SavedRun) -> tuple[str, ...]:
        """Sentences on single things that went wrong, such as why jobs were rejected, the most frequent first."""
        return ()

    def bare(self, scenario: S) -> S:
        """The scenario without everything that neither the question nor the objectives read, to simulate faster."""
        return scenario

    def orders(self, scenario: S) -> Orders | Untied:
        """Other orders of events at one instant, or why there are none."""
        return Untied(f"{type(scenario).__name__} does not say how events at one instant are ordered")
