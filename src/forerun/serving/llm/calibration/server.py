"""The server that was measured: its limits, as a scenario's `llm` section gives them, without costs and tokens."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np

from forerun.core.errors import ScenarioError, known_names
from forerun.core.scenario.decode import decode
from forerun.core.scenario.resolve import apply_overrides, resolve
from forerun.core.scenario.spec import Spec, chosen_from
from forerun.core.scenario.text import read_document
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.llm.calibration.experiment import Load
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.inputs.resolve import drawn_prefixes, language_model_of
from forerun.serving.llm.policy.scheduling import Scheduler, scheduler_policies
from forerun.serving.llm.scenario.language_model import (
    Blocks,
    BlockTokens,
    Coefficients,
    DrawnPrefixes,
    FixedTokens,
    LanguageModelSpec,
    ModelMemory,
    Routing,
    Seats,
    SpeculationSpec,
    Tokens,
)
from forerun.serving.policies.vllm import Newest

#: programs of servers whose runs what servers take beyond kernels was fitted to
PROGRAMS: Final = ("sglang", "trtllm", "vllm")
_SOFTWARE: Final = re.compile(r"[A-Za-z]+-[0-9]")


class Server(Spec, frozen=True, kw_only=True):
    """Limits of the server that was measured.

    max_seqs: requests that run at once on a replica.
    token_budget: tokens processed in one iteration.
    kv_blocks: blocks in the cache; give this or `memory`.
    memory: what the blocks follow from; then the search for costs begins at what this hardware can do.
    block_tokens: tokens in a block (default 16).
    prefix_cache: what prompts begin with, where the server kept it (left out: nothing was kept).
    scheduler: which requests an iteration works on, as in a scenario (default: vLLM's, of the newest version compared).
    replicas: how many there were (default 1).
    balance: how requests chose one, as in a scenario: `random` behind a Service of Kubernetes (default: in turn).
    speculation: how decodes were drafted, as in a scenario (left out: they were not).
    software: program and version, such as vllm-0.12.0: which tables of kernels count (left out: it is not known).
    """

    max_seqs: Seats
    token_budget: Tokens
    kv_blocks: Blocks | None = None
    memory: ModelMemory | None = None
    block_tokens: BlockTokens = 16
    prefix_cache: DrawnPrefixes | None = None
    scheduler: Annotated[Scheduler, chosen_from(scheduler_policies)] = msgspec.field(default_factory=Newest)
    replicas: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    balance: Routing = "round-robin"
    speculation: SpeculationSpec | None = None
    software: str | None = None

    def problems(self) -> list[tuple[str, str]]:
        """The size of the cache is given in one way, and the software by program and version."""
        found = self.section.problems()
        if self.software is not None and not _SOFTWARE.match(self.software):
            program = self.software.partition("-")[0].lower()
            known = known_names(program, PROGRAMS)
            what = f"{self.software!r} is no program and version, such as vllm-0.12.0; {known}"
            found.append(("software", what))
        return found

    @property
    def section(self) -> LanguageModelSpec:
        """As the section of a scenario, with a cost that stands for any, and no tokens."""
        limits = msgspec.structs.asdict(self)
        del limits["replicas"], limits["software"]
        return LanguageModelSpec(**limits, cost=Coefficients(a_ms=1.0))

    def language_model(self, load: Load, files: ScenarioFiles, seed: int) -> LanguageModel:
        """What a replica holds under a load; its cost is to be replaced.

        Parameters
        ----------
        load : gives the tokens of the requests.
        files : reads the model's configuration.
        seed : of what prompts begin with.

        Raises ScenarioError, also where no request fits into the cache.
        """
        spec = msgspec.structs.replace(
            self.section, tokens=FixedTokens(prompt=1, output=1), prefix_cache=None
        )
        bare, _ = language_model_of(spec, "server", files, None, len(load), seed)
        made = replace(bare, prompt=load.prompt, output=load.output)
        if self.prefix_cache is not None:
            draw = np.random.default_rng(seed)
            shared = drawn_prefixes(self.prefix_cache, load.prompt, self.block_tokens, draw)
            made = replace(made, shared=shared)
        if made.refused.all():
            least = int((load.prompt + load.output).min())
            stored = made.kv_blocks * made.block_tokens
            what = f"no request fits: the smallest needs {least} tokens, the cache stores {stored}"
            raise ScenarioError.at("server", what)
        return made


def read_server(path: Path, overrides: tuple[str, ...] = ()) -> Server:
    """The server that a YAML, TOML or JSON file describes.

    Parameters
    ----------
    path : the file.
    overrides : changes as `key=value` (default: none).

    Raises ScenarioError with every problem.
    """
    document = read_document(path)
    if not isinstance(document.data, dict):
        raise ScenarioError.at(
            str(path), "a server is a section of keys such as max_seqs, token_budget, kv_blocks"
        )
    _, document = apply_overrides(document, overrides, domain="")
    return resolve(decode(document, Server), base=path.resolve().parent, document=document)
