"""The pruning exploration: two walks over the batch sizes that drop those that fail.

In each round the walk starts at the incumbent, goes down from it, then up from it, and leaves a direction at the
first batch size that does not reach the target within its bound. The cheapest that reached becomes the incumbent of
the next round, which walks over the survivors only [You et al., NSDI 2023, section 4.4].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forerun.core.errors import Problem
from forerun.energy.policy.failures import AllPruned, NothingSurvivedRound1, ObservedOutOfOrder

ROUNDS: Final = 2


class Explorer:
    """One exploration: `ask` hands out a batch size (None when all rounds are over), `answer` takes its result.

    `sizes` are those of the current round, the survivors at the end; `expecting` is the size handed out last and not
    answered yet, 0 if none.
    """

    def __init__(self, sizes: Sequence[int], default: int, rounds: int = ROUNDS) -> None:
        self.sizes = sorted(sizes)
        self.default = default
        self.expecting = 0
        self.rounds_left = rounds
        self._first_round = True
        self._best_j = float("inf")
        self._survivors: list[int] = []
        self._ahead: list[int] = []
        self._begin_round()

    def ask(self) -> int | None:
        """The next batch size to try, or None when the exploration is over.

        Raises ObservedOutOfOrder while a result is awaited, NothingSurvivedRound1 or AllPruned if none is left.
        """
        if self.expecting:
            raise ObservedOutOfOrder(
                Problem("exploration", f"batch size {self.expecting} has not been answered yet")
            )
        while not self._ahead:
            if self._turned:
                self._end_round()
                if not self.rounds_left:
                    return None
            else:
                self._turn()
        self.expecting = self._ahead[0]
        return self.expecting

    def answer(self, batch_size: int, cost_j: float, reached: bool) -> None:
        """The result of the batch size that was handed out.

        cost_j: what it cost [J]. reached: whether it reached the target. Raises ObservedOutOfOrder for another size.
        """
        if not self.expecting or batch_size != self.expecting:
            waiting = f"waits for batch size {self.expecting}" if self.expecting else "waits for nothing"
            raise ObservedOutOfOrder(
                Problem("exploration", f"got a result of batch size {batch_size} but {waiting}")
            )
        self.expecting = 0
        if not reached:
            self._ahead = []
            return
        self._ahead = self._ahead[1:]
        self._survivors.append(batch_size)
        if cost_j < self._best_j:
            self._best_j, self.default = cost_j, batch_size

    @property
    def in_play(self) -> tuple[int, ...]:
        """Sizes not dropped so far: those that reached in this round and those still to be tried."""
        ahead = [] if self._turned else self._above
        return tuple(sorted({*self._survivors, *self._ahead, *ahead}))

    def _begin_round(self) -> None:
        """Start a round: down from the default first."""
        self._survivors = []
        self._best_j = float("inf")
        self._turned = False
        self._ahead = [size for size in reversed(self.sizes) if size <= self.default]
        self._above = [size for size in self.sizes if size > self.default]

    def _turn(self) -> None:
        """Continue up from the default."""
        self._turned = True
        self._ahead = self._above

    def _end_round(self) -> None:
        """Continue with the survivors of this round. Raises NothingSurvivedRound1 or AllPruned if there are none."""
        if not self._survivors:
            tried = ", ".join(map(str, self.sizes))
            if self._first_round:
                raise NothingSurvivedRound1(Problem("exploration", f"none of {tried} reached the target"))
            raise AllPruned(Problem("exploration", f"none of the survivors {tried} reached the target again"))
        self.sizes = sorted(self._survivors)
        self.rounds_left -= 1
        self._first_round = False
        if self.rounds_left:
            self._begin_round()
