"""Prompts of as many tokens as a trace says, without the server's tokeniser: of short words, or of numbers of tokens.

How many tokens a word is, and how many a prompt has besides, is learned from what the server counts of two trial requests.
What it counts of each request is what a measurement reports. No two prompts begin alike, so that no prefix cache shortens
them, except where the load says that they do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forerun.domains.serving.inputs.llm.model import Prefixes
from forerun.domains.serving.inputs.pipeline import Ints
from forerun.rng import stream

#: short words, most of them one token in common vocabularies
WORDS: Final = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "government", "number", "night", "point", "home", "water", "sea", "mother",
    "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business",
    "issue", "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end",
    "member", "law", "car", "city", "community", "name", "president", "team", "minute", "idea", "body",
    "information", "back", "parent", "face", "others", "level", "office", "door", "health", "person", "art", "war",
    "history", "party", "result", "change", "morning", "reason", "research", "girl", "guy", "moment", "air",
    "teacher", "force", "education",
)  # fmt: skip


@dataclass(frozen=True)
class Prompts:
    """How prompts are made.

    Parameters
    ----------
    seed : of their words.
    base : tokens that every prompt has besides, as the template of a chat (default 0).
    per_unit : tokens of a word, or of a number of a token (default 1).
    ids : the lowest and the highest number of a token to use, instead of words (default None: words).
    prefixes : what prompts begin with (default None: no two begin alike).
    segments : int64[queries], segments of each prompt that others may share (default: none).
    segment_tokens : tokens of a segment (default 0).
    """

    seed: int
    base: float = 0.0
    per_unit: float = 1.0
    ids: tuple[int, int] | None = None
    prefixes: Prefixes | None = field(default=None, repr=False)
    segments: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    segment_tokens: int = 0

    def of(self, number: int, tokens: int) -> str | list[int]:
        """A prompt of about so many tokens.

        Parameters
        ----------
        number : of the request; the same number gives the same prompt.
        tokens : wanted.
        """
        units = max(1, round((tokens - self.base) / self.per_unit))
        chosen: list[int] = []
        if self.prefixes is not None:
            first = int(self.prefixes.start[number])
            each = max(1, round(self.segment_tokens / self.per_unit))
            for chain in self.prefixes.chains[first : first + int(self.segments[number])].tolist():
                chosen += self._drawn(each, "segment", chain)
        chosen = chosen[: units - 1]
        chosen += self._drawn(units - len(chosen), "prompt", number)
        return chosen if self.ids is not None else " ".join(WORDS[place] for place in chosen)

    def trial(self, units: int) -> str | list[int]:
        """A prompt of so many words, or numbers of tokens, for a trial."""
        drawn = self._drawn(units, "trial", units)
        return drawn if self.ids is not None else " ".join(WORDS[place] for place in drawn)

    def _drawn(self, units: int, purpose: str, number: int) -> list[int]:
        low, high = (0, len(WORDS) - 1) if self.ids is None else self.ids
        return stream(self.seed, purpose, number).integers(low, high + 1, size=units).tolist()  # type: ignore[no-any-return]
