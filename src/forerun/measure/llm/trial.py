"""What a server understands, tried with a few short requests before the load: its model, fields and tokens of a word.

A trial that is rejected is followed by one that asks for less. These requests are never part of what is measured; they
also warm the server up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from forerun.errors import UsageError, known_names
from forerun.measure.llm.exchange import Address, Connection, Failure, Seen, post
from forerun.measure.llm.prompts import Prompts

COMPLETIONS: Final = "/v1/completions"
CHAT: Final = "/v1/chat/completions"
MODELS: Final = "/v1/models"
#: tokens that a trial's answer has
TRIAL_TOKENS: Final = 8
#: words of the two trial prompts that tell how many tokens a word is; the longer one is no longer than the load's
SHORT_UNITS: Final = 16
LONG_UNITS: Final = 256

#: fields that go beyond what every server knows, the most first: an answer of exactly so many tokens (vLLM, SGLang,
#: llama.cpp), and how many tokens there were
EXTRAS: Final[tuple[dict[str, Any], ...]] = (
    {"ignore_eos": True, "stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True}},
    {},
)


@dataclass(frozen=True)
class Server:
    """A server, and how it is asked.

    Parameters
    ----------
    address : where it listens.
    model : as it calls it.
    chat : through the template of a chat.
    token : bearer token; empty for none.
    wait_s : how long the connection, the answer's begin and each further token may take.
    extras : fields of a request that it takes besides (default: none).
    """

    address: Address
    model: str
    chat: bool
    token: str
    wait_s: float
    extras: dict[str, Any]

    def request(self, prompt: str | list[int], tokens: int) -> bytes:
        """The request for an answer of so many tokens."""
        content: dict[str, Any] = {
            "model": self.model,
            "max_tokens": tokens,
            "stream": True,
            "temperature": 0.0,
        }
        if self.chat:
            content["messages"] = [{"role": "user", "content": prompt}]
        else:
            content["prompt"] = prompt
        return post(self.address, CHAT if self.chat else COMPLETIONS, content | self.extras, self.token)

    async def once(self, prompt: str | list[int], tokens: int) -> Seen:
        """One request and its answer. Raises Failure."""
        connection, seen = await Connection.open(self.address, self.wait_s), Seen()
        try:
            await connection.ask(self.request(prompt, tokens), tokens, seen)
        finally:
            connection.close()
        return seen


@dataclass(frozen=True)
class Tried:
    """What the trials showed.

    Parameters
    ----------
    server : how it is asked.
    prompts : how prompts are made for it.
    counts : it says how many tokens a request has.
    """

    server: Server
    prompts: Prompts
    counts: bool


def tried(url: str, server: Server, prompts: Prompts, most_prompt: int) -> Tried:
    """Try a server.

    Parameters
    ----------
    url : as it was given, for messages.
    server : how it should be asked; its model may be empty: then the only one that it serves.
    prompts : how prompts should be made; how many tokens a word is, is learned.
    most_prompt : tokens of the longest prompt of the load.

    Raises UsageError where it does not answer a short request.
    """
    return asyncio.run(_tried(url, server, prompts, most_prompt))


async def _tried(url: str, server: Server, prompts: Prompts, most_prompt: int) -> Tried:
    where = f"URL {url}"
    try:
        models, unlisted = await _models(server), ""
    except Failure as failure:
        if not failure.reached:
            raise UsageError.at(where, f"no server answers: {failure.why}") from None
        models, unlisted = (), failure.why
    server = _named(where, server, models, unlisted)
    known = f"; {known_names(server.model, models)}" if models and server.model not in models else ""
    seen, server = await _taken(where, server, prompts, known)
    if seen.usage is None or seen.usage.prompt_tokens < 1:
        return Tried(server, prompts, False)
    units = max(2 * SHORT_UNITS, min(LONG_UNITS, round(0.8 * most_prompt)))
    try:
        longer = await server.once(prompts.trial(units), TRIAL_TOKENS)
    except Failure as failure:
        raise UsageError.at(where, f"a request of {units} words fails: {failure.why}") from None
    counted = (seen.usage.prompt_tokens, longer.usage.prompt_tokens if longer.usage else 0)
    per_unit = (counted[1] - counted[0]) / (units - SHORT_UNITS)
    if not per_unit > 0:
        what = f"the server counts {counted[0]} tokens of {SHORT_UNITS} words, and {counted[1]} of {units}"
        raise UsageError.at(where, f"{what}: prompts of a given length cannot be made")
    base = counted[0] - per_unit * SHORT_UNITS
    return Tried(server, replace(prompts, base=base, per_unit=per_unit), True)


async def _models(server: Server) -> tuple[str, ...]:
    """Names of the models that a server lists. Raises Failure."""
    connection = await Connection.open(server.address, server.wait_s)
    try:
        body = await connection.get(server.address, MODELS, server.token)
    finally:
        connection.close()
    try:
        listed = json.loads(body)["data"]
        return tuple(str(one["id"]) for one in listed)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Failure("lists no models") from None


def _named(where: str, server: Server, models: Sequence[str], unlisted: str) -> Server:
    """The server with the model that is meant. Raises UsageError where that is not known."""
    if server.model:
        return server
    if len(models) == 1:
        return replace(server, model=models[0])
    if models:
        shown = known_names("", models)
        raise UsageError.at(where, f"serves {len(models)} models: name one with --model; {shown}")
    raise UsageError.at(where, f"{unlisted or 'lists no models'} at {MODELS}: name the model with --model")


async def _taken(where: str, server: Server, prompts: Prompts, known: str) -> tuple[Seen, Server]:
    """A first answer, and the server with the most fields that it takes."""
    why = ""
    for extras in EXTRAS:
        asked = replace(server, extras=extras)
        try:
            return await asked.once(prompts.trial(SHORT_UNITS), TRIAL_TOKENS), asked
        except Failure as failure:
            why = failure.why
            if failure.status not in (400, 422):
                break
    raise UsageError.at(where, f"a request for model {server.model!r} fails: {why}{known}")
