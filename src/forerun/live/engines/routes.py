"""Which nodes the groups of a run are on, and whom it concerns what one of these nodes says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from forerun.live.engines.engine import Command, Heartbeat, Kill, Start
from forerun.live.node_messages import Rendezvous, ToNode
from forerun.live.observation import Left, Observation


class Routes:
    """The last start of each job, as far as this engine sent it."""

    def __init__(self) -> None:
        self._starts: dict[str, Start] = {}

    def of(self, command: Command | Rendezvous | Left, nodes: Iterable[str]) -> Sequence[str]:
        """The nodes of a group; all those that are there (`nodes`), where this engine did not start it."""
        if isinstance(command, Start):
            self._starts[command.job] = command
        start = self._starts.get(command.job)
        return tuple(nodes if start is None or start.epoch != command.epoch else start.slots)

    def onward(
        self, said: Observation | Heartbeat | Rendezvous, sender: str, nodes: Iterable[str]
    ) -> Iterator[tuple[str, ToNode]]:
        """The messages to other nodes that follow from a message of one.

        They hear where the first rank of their group listens. Those that only held slots for the one process of a group
        give them back once that has left.
        """
        if isinstance(said, Rendezvous):
            yield from ((name, said) for name in self.of(said, nodes) if name != sender)
        elif isinstance(said, Left):
            start = self._starts.get(said.job)
            alone = start is not None and (start.one_process or not start.spec.elastic)
            if start is not None and alone and start.epoch == said.epoch:
                yield from ((name, Kill(said.job, said.epoch)) for name in list(start.slots)[1:])
