"""A scenario ready to be simulated: its files read, its names resolved, its arrivals made (see `prepare`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from forerun.core.scenario.spec import Input
from forerun.core.trace.reader import read_trace
from forerun.core.trace.table import Trace
from forerun.serving.inputs.clients import Clients
from forerun.serving.inputs.pipeline import Floats, Pipeline
from forerun.serving.inputs.profile import Profile, embedded_profile, read_profile
from forerun.serving.llm.inputs.architecture import Architecture, read_architecture
from forerun.serving.llm.inputs.medians import Medians, read_medians
from forerun.serving.llm.scenario.language_model import DrawnTokens
from forerun.serving.scenario import Scenario
from forerun.serving.scenario.traces import Replayed


class ScenarioFiles:
    """The files that a scenario names, each read once, however often the scenario is prepared with other seeds."""

    def __init__(self, profiles: Sequence[Input] = ()) -> None:
        """Begin with no file read.

        Parameters
        ----------
        profiles : files of measured service times, added to the built-in ones; of two surfaces with one name the
            later counts (default: none).
        """
        self._profiles = profiles
        self._traces: dict[str, Trace] = {}
        self._medians: dict[str, Medians] = {}
        self._architectures: dict[str, Architecture] = {}

    def trace(self, given: Replayed | DrawnTokens) -> Trace:
        """A recorded trace: of arrivals, or of the tokens of requests. Raises TraceError."""
        key = repr(given)
        if key not in self._traces:
            file = given.file if isinstance(given, Replayed) else given.drawn_from
            self._traces[key] = read_trace(file.path, given.format, options=given.options)
        return self._traces[key]

    def medians(self, file: Input) -> Medians:
        """Measured iterations of language models. Raises ProfileError."""
        if file.path not in self._medians:
            self._medians[file.path] = read_medians(Path(file.path), file.path)
        return self._medians[file.path]

    def architecture(self, file: Input) -> Architecture:
        """The shape of a model by its configuration. Raises ProfileError."""
        if file.path not in self._architectures:
            self._architectures[file.path] = read_architecture(Path(file.path), file.path)
        return self._architectures[file.path]

    @cached_property
    def profile(self) -> Profile:
        """The built-in surfaces with those of the scenario's files added. Raises ProfileError."""
        profile = embedded_profile()
        for given in self._profiles:
            profile = profile.joined(read_profile(Path(given.path), given.path))
        return profile


@dataclass(frozen=True)
class Inputs:
    """A scenario ready to be simulated. By stage is in the pipeline's order.

    Parameters
    ----------
    scenario : as it was given.
    pipeline : stages and edges, with names resolved and service times known.
    arrivals_ms : float64[queries], ascending.
    prices_usd_per_h : of a replica, by stage.
    hardware : what replicas run on, by stage.
    carried_rps : queries a second that one replica carries in full batches, by stage (NaN for a language model).
    decode_usd_per_h : of all replicas that decode where others prefill, by stage (0: there are none).
    sample_ms : the arrivals that a tuner compares with, from 0 on (empty: none).
    files : what was read.
    notes : what was repaired or assumed.
    clients : what is sent where that depends on the answers; then `arrivals_ms` says only when it is planned (None: queries
        arrive when they do).
    """

    scenario: Scenario
    pipeline: Pipeline
    arrivals_ms: Floats
    prices_usd_per_h: tuple[float, ...]
    hardware: tuple[str, ...]
    carried_rps: tuple[float, ...]
    decode_usd_per_h: tuple[float, ...]
    sample_ms: Floats
    files: ScenarioFiles = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()
    clients: Clients | None = None
