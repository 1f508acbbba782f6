"""Nodes of one training job with caches that they share: each a process, reading from the others over loopback.

Each node takes its part of an epoch's order, and answers for the blocks in its cache over a socket of its own. The link
between nodes is loopback's, made slower where a latency or a bandwidth is given.
"""

from __future__ import annotations

import multiprocessing
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection, Listener
from multiprocessing.synchronize import Barrier
from typing import Any, Final

import numpy as np

from forerun.blocks.reader.clients import Wrapping
from forerun.core.errors import ForerunError
from forerun.core.rng import stream as random_stream
from forerun.core.study.executors.interrupts import blocked
from forerun.loading.engine.calibration import StoreProfile
from forerun.loading.engine.model import CacheModel, NodesModel, Reader, StoreModel
from forerun.loading.engine.threads import open_caches, stream
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import Corpus
from forerun.loading.measure.runner import Piece
from forerun.loading.policy import I64, Cell, Load
from forerun.loading.scenario import Nodes, unlimited
from validation.loading.caching import Kept
from validation.loading.jobs import STUCK_S, next_result

#: what one node says to another: what it wants, the block's number, its bytes
HEAD: Final = struct.Struct("<Bqq")
ASK, OFFER, GIVE = range(3)
#: answers: not here, not here and wanted, here (and then the bytes)
ABSENT, WANTED, HERE = (bytes([number]) for number in range(3))


@dataclass(frozen=True)
class NodesEpoch:
    """One pass of all nodes over the data.

    Parameters
    ----------
    epoch : from 0.
    total_s : from their common start until the last node has taken its last step.
    store_bytes, local_bytes, peer_bytes : read from the store, from the nodes' own caches, and from each other's.
    """

    epoch: int
    total_s: float
    store_bytes: int
    local_bytes: int
    peer_bytes: int


def parts_of(pieces: int, count: int, epoch: int, seed: int) -> list[I64]:
    """The numbers of the pieces that each node reads in an epoch, in order.

    Parameters
    ----------
    pieces : of the data.
    count : nodes.
    epoch : from 0.
    seed : of the orders.
    """
    order = random_stream(seed, "shuffle", epoch).permutation(pieces).astype(np.int64)
    return np.array_split(order, count)


def owners_of(pieces: int, count: int, seed: int) -> I64:
    """The node that reads each piece in the first epoch, and keeps it where caches are partitioned.

    Parameters
    ----------
    pieces, count, seed : as for `parts_of`.
    """
    owner = np.empty(pieces, np.int64)
    for number, part in enumerate(parts_of(pieces, count, 0, seed)):
        owner[part] = number
    return owner


@dataclass
class NodeFiles(Wrapping):
    """A node's way to the data: its own cache, other nodes' caches, the store; counts the bytes of each.

    Parameters
    ----------
    client : of the store.
    me : number of the node.
    nodes : how many, with what caches.
    kept : its own cache.
    numbers : of the pieces, by name and first byte.
    owner : of each piece.
    addresses : of all nodes, by number.
    """

    me: int
    nodes: Nodes
    kept: Kept[int]
    numbers: dict[tuple[str, int], int]
    owner: I64
    addresses: Sequence[Any]
    read_bytes: dict[str, int] = field(default_factory=lambda: {"store": 0, "local": 0, "peers": 0})
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _link: threading.Lock = field(default_factory=threading.Lock)
    _link_free_s: float = 0.0
    _open: threading.local = field(default_factory=threading.local)

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`."""
        number = self.numbers[name, first]
        home = int(self.owner[number]) if self.nodes.sharing == "partitioned" else self.me
        wanted = False
        if home == self.me:
            kept = self.kept.look(number)
            if kept is not None:
                return self._counted("local", kept)
        else:
            answer, data = self._ask(home, ASK, number, length)
            if data is not None:
                return self._counted("peers", data)
            wanted = answer == WANTED
        data = self.client.read(name, first, length, what)
        if home == self.me:
            self.kept.keep(number, data)
        elif wanted:
            self._give(home, number, data)
        if self.nodes.sharing == "replicated":
            for other in range(self.nodes.count):
                if other != self.me and self._ask(other, OFFER, number, length)[0] == WANTED:
                    self._give(other, number, data)
        return self._counted("store", data)

    def _counted(self, source: str, data: bytes) -> bytes:
        with self._lock:
            self.read_bytes[source] += len(data)
        return data

    def _to(self, node: int) -> Connection[Any, Any]:
        """This thread's connection to a node."""
        known: dict[int, Connection[Any, Any]] = self._open.__dict__.setdefault("nodes", {})
        if node not in known:
            known[node] = connect(self.addresses[node])
        return known[node]

    def _ask(self, node: int, what: int, number: int, length: int) -> tuple[bytes, bytes | None]:
        """What another node answers, and the piece if it has it.

        Parameters
        ----------
        what : ASK or OFFER, of which only the first waits for the link.
        number, length : of the piece.
        """
        if what == ASK and self.nodes.link_latency_s:
            time.sleep(self.nodes.link_latency_s)
        connection = self._to(node)
        connection.send_bytes(HEAD.pack(what, number, length))
        answer = connection.recv_bytes()
        if answer != HERE:
            return answer, None
        data = connection.recv_bytes()
        if self.nodes.link_bytes_per_s:
            with self._link:
                now_s = time.monotonic()
                self._link_free_s = max(now_s, self._link_free_s) + len(data) / self.nodes.link_bytes_per_s
                until_s = self._link_free_s
            time.sleep(max(0.0, until_s - now_s))
        return answer, data

    def _give(self, node: int, number: int, data: bytes) -> None:
        """Hand a copy to another node's cache."""
        connection = self._to(node)
        connection.send_bytes(HEAD.pack(GIVE, number, len(data)))
        connection.send_bytes(data)


def _serve(listener: Listener, kept: Kept[int]) -> None:
    """Answer other nodes until the process ends.

    Parameters
    ----------
    listener : that they connect to.
    kept : the node's cache.
    """
    with suppress(OSError):
        while True:
            threading.Thread(target=_answer, args=(listener.accept(), kept), daemon=True).start()


def _answer(connection: Connection[Any, Any], kept: Kept[int]) -> None:
    """Answer one thread of another node until it hangs up."""
    with suppress(EOFError, OSError), connection:
        while True:
            what, number, length = HEAD.unpack(connection.recv_bytes())
            if what == GIVE:
                kept.keep(number, connection.recv_bytes())
                continue
            data = kept.look(number) if what == ASK else None
            if data is not None:
                connection.send_bytes(HERE)
                connection.send_bytes(data)
            else:
                connection.send_bytes(WANTED if kept.wants(number, length) else ABSENT)


def run_nodes(
    corpus: Corpus, job: Job, cell: Cell, samples: int, nodes: Nodes, *, epochs: int = 2, seed: int = 0
) -> tuple[NodesEpoch, ...]:
    """Run the nodes of one job together. Raises what a node raised, or StoreError for one that died.

    Parameters
    ----------
    corpus, job : what is read, and by what training job; each node takes its batches.
    cell : block size and threads of each node.
    samples : of an epoch, of all nodes together.
    nodes : how many, with what caches and what link.
    epochs : from empty caches (default: 2).
    seed : of the orders (default: 0).
    """
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    barrier: Barrier = context.Barrier(nodes.count)
    pipes = [context.Pipe() for _ in range(nodes.count)]
    processes = [
        context.Process(
            target=_work, args=(number, corpus, job, cell, samples, nodes, epochs, seed, pipes[number][1], barrier, results),
            daemon=True,
        )
        for number in range(nodes.count)
    ]  # fmt: skip
    with blocked():  # this process ends them
        for process in processes:
            process.start()
    try:
        addresses: dict[int, Any] = {}
        found: list[tuple[int, float, dict[str, int]]] = []
        while len(found) < nodes.count * epochs:
            entry = next_result(results, processes)
            if isinstance(entry, ForerunError):
                raise entry
            if len(addresses) < nodes.count:
                addresses[entry[0]] = entry[1]
                if len(addresses) == nodes.count:
                    for ours, _ in pipes:
                        ours.send([addresses[number] for number in range(nodes.count)])
            else:
                found.append(entry)
    finally:
        for process in processes:
            process.join(1)
            if process.is_alive():
                process.terminate()
    return tuple(
        NodesEpoch(
            epoch,
            max(total_s for number, total_s, _ in found if number == epoch),
            *(
                sum(read[source] for number, _, read in found if number == epoch)
                for source in ("store", "local", "peers")
            ),
        )
        for epoch in range(epochs)
    )


def _work(
    me: int, corpus: Corpus, job: Job, cell: Cell, samples: int, nodes: Nodes, epochs: int, seed: int, pipe: Any,
    barrier: Barrier, results: Any,
) -> None:  # fmt: skip
    """A node's process.

    Parameters
    ----------
    me : number of the node.
    pipe : gives the addresses of all nodes.
    barrier : all nodes begin and end each epoch together.
    results : gets the node's address, and then of each epoch its number, seconds and bytes; or the error that ended it.
    """
    try:
        pieces = corpus.pieces(cell.block, samples)
        kept: Kept[int] = Kept(nodes.cache_bytes, nodes.policy)
        listener = Listener(("127.0.0.1", 0))
        threading.Thread(target=_serve, args=(listener, kept), daemon=True).start()
        results.put((me, listener.address))
        numbers = {(piece.name, piece.first): number for number, piece in enumerate(pieces)}
        files = NodeFiles(
            corpus.client_for(cell.block), me, nodes, kept, numbers, owners_of(len(pieces), nodes.count, seed), pipe.recv()
        )  # fmt: skip
        for epoch in range(epochs):
            mine: list[Piece] = [pieces[at] for at in parts_of(len(pieces), nodes.count, epoch, seed)[me]]
            before = dict(files.read_bytes)
            barrier.wait(STUCK_S)
            run = job.load(files, mine, cell.threads)
            # Nobody ends, or begins another epoch, while others still ask.
            barrier.wait(STUCK_S)
            read = {source: count - before[source] for source, count in files.read_bytes.items()}
            results.put((epoch, run.total_s, read))
    except ForerunError as error:
        results.put(error)
        barrier.abort()


def predict_nodes(
    corpus: Corpus,
    profile: StoreProfile,
    load: Load,
    cell: Cell,
    nodes: Nodes,
    *,
    epochs: int = 2,
    seed: int = 0,
    store: StoreModel | None = None,
) -> tuple[NodesEpoch, ...]:
    """The same, simulated: the same pieces in the same orders, on a store with the profile's numbers.

    Parameters
    ----------
    corpus, cell, nodes, epochs, seed : as they were run.
    profile : the store as it was measured.
    load : the work of all nodes together.
    store : the store as it is known, in place of the one that one job's probes measured.
    """
    pieces = corpus.pieces(cell.block, load.samples)
    caches = open_caches([CacheModel(nodes.cache_bytes, nodes.policy)] * nodes.count, len(pieces))
    owner = owners_of(len(pieces), nodes.count, seed)
    model = NodesModel(nodes.sharing, owner, nodes.link_latency_s, unlimited(nodes.link_bytes_per_s))
    known = store or StoreModel(profile.conn_bytes_per_s, profile.shared_bytes_per_s, cores=profile.cores)
    predicted = []
    for epoch in range(epochs):
        readers = [
            Reader(
                [np.array(pieces[at].lengths, float) for at in part], cell.threads, load.batch, load.step_s,
                profile.decode_s - profile.decode_cpu_s, profile.decode_cpu_s, load.buffer_samples, keys=part,
                caches=(number,),
            )
            for number, part in enumerate(parts_of(len(pieces), nodes.count, epoch, seed))
        ]  # fmt: skip
        run = stream(readers, known, latency_s=profile.latency_s, caches=caches, nodes=model)
        store_bytes = local_bytes = peer_bytes = 0.0
        for number, done in enumerate(run.jobs):
            size, source = done.requests.size_bytes, done.requests.source
            store_bytes += float(size[source < 0].sum())
            local_bytes += float(size[source == number].sum())
            peer_bytes += float(size[(source >= 0) & (source != number)].sum())
        predicted.append(
            NodesEpoch(epoch, run.end_s, round(store_bytes), round(local_bytes), round(peer_bytes))
        )
    return tuple(predicted)
