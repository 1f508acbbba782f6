"""Scenario files: strict, resolved, every problem at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forerun
from forerun.core.errors import ScenarioError
from forerun.core.registry import Registry
from forerun.core.scenario.decode import decode
from forerun.core.scenario.resolve import apply_overrides, map_inputs, resolve
from forerun.core.scenario.schema import scenario_schema
from forerun.core.scenario.spec import (
    Input,
    NamedSpec,
    Spec,
    canonical_json,
    chosen_from,
    content_id,
    to_data,
)
from forerun.core.scenario.text import MAX_DEPTH, Document, parse_document, read_document


class Shape(NamedSpec, frozen=True, kw_only=True):
    """What a domain would call a policy."""


class Round(Shape, tag="round", frozen=True, kw_only=True):
    """A shape with a parameter."""

    wait_ms: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class Square(Shape, tag="square", frozen=True, kw_only=True):
    """A shape without."""


class Shapes(Registry[Shape]):
    """A registry of fixed members."""

    def __init__(self) -> None:
        super().__init__("shape", "none", base=Shape, group="none")
        self.__dict__["_members"] = {"round": Round, "square": Square}
        self.__dict__["_plugins"] = {}


SHAPES = Shapes()


class Stage(Spec, frozen=True, kw_only=True):
    """A part."""

    name: str
    replicas: Annotated[int, msgspec.Meta(ge=1)] = 1
    price_usd_per_h: float = 0.0


class World(Spec, frozen=True, kw_only=True):
    """A scenario with one of everything."""

    domain: Literal["test"] = "test"
    spec_version: int = 1
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    slo_ms: Annotated[float, msgspec.Meta(gt=0)]
    mode: Literal["default", "compat"] = "default"
    stages: tuple[Stage, ...] = ()
    shape: Annotated[Shape, chosen_from(lambda: SHAPES)] = Square()
    trace: Input | None = None
    rates: dict[str, float] = {}
    flag: bool = False

    def problems(self) -> list[tuple[str, str]]:
        names = [stage.name for stage in self.stages]
        return [(f"stages.{i}.name", f"{n!r} is used twice") for i, n in enumerate(names) if n in names[:i]]


class Drawn(Spec, frozen=True, kw_only=True):
    """A section that draws."""

    jobs: int


class Recorded(Spec, frozen=True, kw_only=True):
    """A section that reads a file."""

    file: Input
    strict: bool = False


class Either(Spec, frozen=True, kw_only=True):
    """One of two sections, and one."""

    trace: Drawn | Recorded
    second: Recorded


def read(text: str, kind: str = ".yaml") -> World:
    return decode(parse_document(text, name="w.yaml", kind=kind), World)


def lines_of(text: str, kind: str = ".yaml") -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read(text, kind)
    return str(caught.value).splitlines()


FULL = """
domain: test
slo: 0.35s
stages:
  - {name: a, replicas: 2, price: $2.4/h}
  - name: b
shape: {name: round, wait: 5ms}
rates: {x: 1.5}
"""


def test_units_names_and_defaults() -> None:
    world = read(FULL)
    assert world.slo_ms == 350.0
    assert world.stages == (Stage(name="a", replicas=2, price_usd_per_h=2.4), Stage(name="b"))
    assert world.shape == Round(wait_ms=5.0)


def test_what_is_written_out_reads_back_the_same() -> None:
    world = read(FULL)
    data = to_data(world)
    assert data["shape"] == {"name": "round", "wait_ms": 5.0}
    assert decode(Document("again", data), World) == world


def test_json_and_toml_say_the_same() -> None:
    by_json = read('{"domain": "test", "slo_ms": 350, "shape": "round"}', ".json")
    by_toml = read('domain = "test"\nslo_ms = 350\nshape = "round"\n', ".toml")
    assert by_json == by_toml == read("domain: test\nslo_ms: 350\nshape: round\n")


def test_all_problems_of_a_file_at_once_with_their_lines() -> None:
    found = lines_of(
        "domain: test\nslo_ms: -1\nmoed: compat\nstages:\n  - name: a\n    replicas: 0\n  - replicas: 1\n"
    )
    assert found == [
        "w.yaml:2: at $.slo_ms: -1 is not above 0",
        "w.yaml:3: at $.moed: unknown key 'moed'; did you mean 'mode'? known: "
        "domain, flag, mode, rates, seed, shape, slo_ms, spec_version, stages, trace",
        "w.yaml:6: at $.stages[0].replicas: 0 is below 1",
        "w.yaml:7: at $.stages[1]: the key 'name' is missing",
    ]


MALFORMED = {
    "": "empty",
    "   \n\n": "empty",
    "slo_ms: [1": "not YAML",
    "slo_ms: 1\nslo_ms: 2": "'slo_ms' is given twice",
    "slo_ms: 1\nstages: [{name: a, name: b}]": "'name' is given twice",
    "slo_ms: &a 1\nseed: *a": "anchor &a is not allowed",
    "slo_ms: *a": "alias",
    "slo_ms: !!python/object:os.system 1": "tag",
    "slo_ms: 1\n---\nslo_ms: 2": "second document",
    "slo_ms: " + "[" * 3000 + "]" * 3000: f"deeper than {MAX_DEPTH}",
    "? [a, b]\n: 1": "a key must be plain text",
    "- 1\n- 2": "a section with keys",
    "just text": "a section with keys",
    "slo_ms: yes": "'yes' has the unknown unit|'yes' is not a quantity",
    "slo_ms: 12:30:45": "not a quantity",
    "slo_ms: .nan": "nan was found",
    "slo_ms: .inf": "finite number",
    "slo_ms: 1e400": "finite number",
    "slo_ms: null": "expected float",
    "slo_ms: true": "expected float",
    "slo_ms: 30W": "is a power",
    "slo: 350": "needs a unit",
    "slo_ms: 1\nslo: 1s": "second time",
    "slo_ms: 1\nflag: no": "expected bool",
    "slo_ms: 1\nmode: compta": "did you mean 'compat'",
    "slo_ms: 1\nshape: rund": "did you mean 'round'",
    "slo_ms: 1\nshape: {wait: 5ms}": "known: round, square",
    "slo_ms: 1\nshape: {name: round, wait: 5}": "needs a unit",
    "slo_ms: 1\nshape: {name: round, wait_ms: -5}": "-5 is negative",
    "slo_ms: 1\nseed: 1.5": "expected int",
    "slo_ms: 1\nseed: -1": "-1 is negative",
    "slo_ms: 1\nstages: {name: a}": "a list of sections with name",
    "slo_ms: 1\nstages: [a]": "a section with keys",
    "slo_ms: 1\nstages: [{name: a}, {name: a}]": "'a' is used twice",
    "slo_ms: 1\nrates: {x: fast}": "fast",
    "slo_ms: 1\ntrace: 5": "5",
    "domain: tset\nslo_ms: 1": "'tset' was found",
    "\tslo_ms: 1": "not YAML",
    "slo_ms: 'a": "not YAML",
}


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: repr(text[:30]))
def test_malformed_scenarios_are_answered_in_lines(text: str) -> None:
    import re

    found = lines_of(text)
    assert re.search(MALFORMED[text], "\n".join(found)), found
    assert all(line.startswith("w.yaml") for line in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"slo_ms": 1, "slo_ms": 2}', "given twice"),
        ('{"slo_ms": 1', "is not JSON"),
        ('{"slo_ms": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}", "nested deeper"),
        ('{"slo_ms": NaN}', "nan was found"),
        ("[1, 2]", "a section with keys"),
        ('{"slo_ms": 1} extra', "is not JSON"),
    ],
)
def test_malformed_json(text: str, message: str) -> None:
    assert any(message in line for line in lines_of(text, ".json"))


@pytest.mark.parametrize("text", ["slo_ms = ", "a = 1\na = 2", "x = [" * 5000, "[[["])
def test_malformed_toml(text: str) -> None:
    assert lines_of(text, ".toml")


def test_files_that_are_no_scenarios(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse.yaml"
    with sparse.open("wb") as file:
        file.truncate(2 << 30)
    cases = {
        tmp_path / "absent.yaml": "no such file",
        tmp_path: "is a directory",
        sparse: "at most",
        _file(tmp_path / "utf16.yaml", "slo_ms: 1".encode("utf-16")): "UTF-16",
        _file(tmp_path / "latin.yaml", b"slo_ms: 1\nmode: \xe9"): "latin.yaml:2: byte 16 is not UTF-8",
        _file(tmp_path / "nul.yaml", b"slo_ms\0: 1"): "NUL byte",
        _file(tmp_path / "image.png", b"slo_ms: 1"): "ends in .yaml",
    }
    for path, message in cases.items():
        with pytest.raises(ScenarioError, match=message):
            read_document(path)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = _file(tmp_path / "w.yaml", b"\xef\xbb\xbfdomain: test\r\nslo_ms: 5\r\n")
    assert decode(read_document(path), World).slo_ms == 5.0


def test_a_path_alone_stands_for_a_section_that_reads_a_file() -> None:
    found = decode(Document("d", {"trace": "a.csv", "second": "b.csv"}), Either)
    assert (found.trace, found.second) == (
        Recorded(file=Input(path="a.csv")),
        Recorded(file=Input(path="b.csv")),
    )
    with pytest.raises(ScenarioError, match=r"a section is wanted|keys such as"):
        decode(Document("d", {"trace": 3, "second": "b.csv"}), Either)


def test_overrides() -> None:
    document = parse_document(FULL, name="w.yaml", kind=".yaml")
    texts = [
        "stages[1].replicas=7",
        "stages.a.replicas=3",
        "shape.wait=2s",
        "test.mode=compat",
        "rates.y=2.5",
    ]
    _, changed = apply_overrides(document, texts, domain="test")
    world = decode(changed, World)
    assert [stage.replicas for stage in world.stages] == [3, 7]
    assert (world.shape, world.mode, world.rates) == (Round(wait_ms=2000.0), "compat", {"x": 1.5, "y": 2.5})


def test_a_key_may_name_the_file_that_describes_it(tmp_path: Path) -> None:
    (tmp_path / "fitted.yaml").write_text(
        "# as a fit writes it\nfleet: {name: poisson, removals_per_min: 0.1, adds_per_min: 0.2}\nhorizon_s: 9\n"
    )
    (tmp_path / "events.yaml").write_text("- nothing of ours")
    job = "job: {depth: 2, max_pipelines: 1, step_s: {2: 1}, samples_per_step: 1}"
    text = f"domain: spot\nfleet: fitted.yaml\nhorizon: 1h\n{job}\n"
    whole = forerun.loads(
        text.replace("fitted.yaml", "{name: poisson, removals_per_min: 0.1, adds_per_min: 0.2}")
    )
    assert forerun.loads(text, base=tmp_path) == whole
    assert forerun.loads(text, ["fleet=fitted.yaml"], base=tmp_path) == whole
    (tmp_path / "fitted.yaml").write_text("fleet: {name: poisson, removals_per_min: -1}\n")
    with pytest.raises(ScenarioError, match="fleet"):
        forerun.loads(text, base=tmp_path)
    # A file that describes no fleet is what the field itself takes it for: a recording.
    assert forerun.loads(text.replace("fitted", "events"), base=tmp_path).fleet.file.path.endswith(
        "events.yaml"
    )


@pytest.mark.parametrize("written", ["slo: 350ms", "slo_ms: 350"])
@pytest.mark.parametrize("override", ["slo=0.3s", "slo_ms=300"])
def test_an_override_replaces_either_spelling_of_a_field(written: str, override: str) -> None:
    document = parse_document(f"domain: test\n{written}", name="w.yaml", kind=".yaml")
    _, changed = apply_overrides(document, [override], domain="test")
    assert decode(changed, World).slo_ms == 300.0


def test_an_override_turns_a_name_into_a_section() -> None:
    document = parse_document("slo_ms: 1\nshape: round", name="w.yaml", kind=".yaml")
    _, changed = apply_overrides(document, ["shape.wait_ms=4"], domain="test")
    assert decode(changed, World).shape == Round(wait_ms=4.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slo_ms", "write an override as path=value"),
        ("=3", "write an override as path=value"),
        ("stages[9].replicas=1", r"no element 9 \(it has 2\)"),
        ("stages.zz.replicas=1", "no element 'zz'"),
        ("slo.x.y=1", "needs a unit"),
    ],
)
def test_overrides_that_name_nothing(text: str, message: str) -> None:
    from forerun.core.errors import InputError

    document = parse_document(FULL, name="w.yaml", kind=".yaml")
    with pytest.raises(InputError, match=message):
        _, changed = apply_overrides(document, [text], domain="test")
        decode(changed, World)


def test_inputs_are_pinned_by_content_and_the_run_id_does_not_know_where_they_lie(tmp_path: Path) -> None:
    ids = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "jobs.csv").write_text("a,b\n1,2\n")
        document = parse_document("slo_ms: 1\ntrace: jobs.csv", name="w.yaml", kind=".yaml")
        world = resolve(decode(document, World), base=tmp_path / folder, document=document)
        assert world.trace.path == str(tmp_path / folder / "jobs.csv") and len(world.trace.sha256) == 64
        ids.append(content_id(world, "1"))
    assert ids[0] == ids[1]
    assert content_id(world, "2") != ids[0]
    (tmp_path / "two" / "jobs.csv").write_text("a,b\n1,3\n")
    with pytest.raises(ScenarioError, match="has changed"):
        resolve(world, base=tmp_path, document=document)


def test_missing_inputs_are_all_named(tmp_path: Path) -> None:
    document = parse_document("slo_ms: 1\ntrace: nowhere.csv", name="w.yaml", kind=".yaml")
    with pytest.raises(ScenarioError, match=r"w.yaml:2: at \$.trace: no such file"):
        resolve(decode(document, World), base=tmp_path, document=document)


def test_inputs_are_found_wherever_they_are() -> None:
    class Deep(Spec, frozen=True, kw_only=True):
        a: dict[str, Input]
        b: tuple[Input, ...]

    seen = []
    deep = Deep(a={"x": Input(path="1")}, b=(Input(path="2"), Input(path="3")))
    map_inputs(deep, lambda given, place: (seen.append(place), given)[1])
    assert seen == [("a", "x"), ("b", 0), ("b", 1)]


def test_the_schema_admits_what_the_reader_admits() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = scenario_schema(World)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    good = [to_data(read(FULL)), {"slo_ms": "350ms", "shape": "round"}, {"slo_ms": 1, "trace": "x.csv"}]
    good += [
        {"slo": "350ms"},
        {"slo_ms": 1, "stages": [{"name": "a", "price": "$2/h"}], "rates": "rates.yaml"},
    ]
    bad = [{"slo_ms": 1, "moed": 1}, {"mode": "compat"}, {"slo_ms": 1, "shape": "rund"}, {"slo_ms": 0}]
    bad += [{"slo": 350}, {"slo": "1s", "slo_ms": 1}, {"slo_ms": 1, "rates": "rates"}]
    assert all(validator.is_valid(data) for data in good)
    assert not any(validator.is_valid(data) for data in bad)


PLAIN = st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5)
NESTED = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@given(NESTED)
def test_arbitrary_data_never_escapes_the_error_tree(data: object) -> None:
    try:
        decode(
            Document("d", {"slo_ms": 1, "stages": data, "shape": data, "rates": data, "trace": data}), World
        )
    except ScenarioError as error:
        assert all(problem.where.startswith("d") for problem in error.problems)


@given(st.text(max_size=200))
def test_arbitrary_text_never_escapes_the_error_tree(text: str) -> None:
    for kind in (".yaml", ".json", ".toml"):
        try:
            parse_document(text, name="t", kind=kind)
        except ScenarioError as error:
            assert str(error)


def test_canonical_json_is_one_text() -> None:
    assert canonical_json({"b": 1, "a": [1.5, "é"]}) == canonical_json({"a": [1.5, "é"], "b": 1})
    assert canonical_json({"a": "é"}) == '{"a":"é"}'.encode()


def _file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
