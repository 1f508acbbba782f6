"""Closed forms: what bounds a loader, what would hide it, what caches and merging are worth.

The laws are upper bounds on the event model: they know no start-up, no granularity of blocks and no lock-step (with
equal sizes and a fixed latency all threads read together and then decode together). None of them is measured here;
each is a sum or a ratio of the quantities it names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from forerun.loading.engine.sharing import Shares


@dataclass(frozen=True)
class NodeTerms:
    """Nodes that share their caches, as the laws count them.

    Parameters
    ----------
    count : nodes.
    shares : of the bytes, where they come from.
    cache_s, cache_bytes_per_s : of a hit in the own cache.
    peer_s, peer_bytes_per_s : of reading from another node, and its node's link.
    asks_peers : whether another node is asked before the store.
    """

    count: int
    shares: Shares
    cache_s: float
    cache_bytes_per_s: float
    peer_s: float
    peer_bytes_per_s: float
    asks_peers: bool


@dataclass(frozen=True)
class Setting:
    """The quantities that the laws are about; infinite rates and 0 slots, the defaults, are no limit.

    Parameters
    ----------
    threads : that read and decode.
    block_samples : samples a block.
    sample_bytes : mean size of a sample.
    latency_s : of a request.
    decode_s : wall time of decoding a sample in a thread.
    decode_cpu_s : the part of it that needs one of `cores` (default: 0).
    step_s : a step on a batch of `batch` samples.
    conn_bytes_per_s, shared_bytes_per_s : bandwidth of a connection, and of the link.
    slots : requests in service at a time.
    requests_per_s : rate of requests.
    gpu_batch_s : decoding a batch on the GPU, beside the step (default: it is decoded on the CPU).
    nodes : that share the store and their caches, each with a loader of these threads (default: a single machine).
        `shared_bytes_per_s` is then one node's share of the link.
    """

    threads: int
    block_samples: int
    sample_bytes: float
    latency_s: float
    decode_s: float
    step_s: float
    batch: int
    conn_bytes_per_s: float = math.inf
    shared_bytes_per_s: float = math.inf
    decode_cpu_s: float = 0.0
    cores: float = math.inf
    slots: int = 0
    requests_per_s: float = math.inf
    gpu_batch_s: float | None = None
    nodes: NodeTerms | None = None

    @property
    def read_s(self) -> float:
        """A request for a block, from being served to its last byte."""
        return self.latency_s + self.block_samples * self.sample_bytes / self.conn_bytes_per_s

    @property
    def any_latency_s(self) -> float:
        """Mean latency of a block, wherever it comes from."""
        if self.nodes is None:
            return self.latency_s
        nodes, shares = self.nodes, self.nodes.shares
        asked = (1 - 1 / nodes.count) * nodes.peer_s if nodes.asks_peers else 0.0
        cached = (shares.local + shares.peers) * nodes.cache_s + shares.peers * nodes.peer_s
        return shares.store * (self.latency_s + asked) + cached

    @property
    def any_transfer_s(self) -> float:
        """Mean time in which a sample's bytes come, wherever from."""
        if self.nodes is None:
            return self.sample_bytes / self.conn_bytes_per_s
        nodes, shares = self.nodes, self.nodes.shares
        ways = (
            (shares.store, self.conn_bytes_per_s),
            (shares.local, nodes.cache_bytes_per_s),
            (shares.peers, nodes.peer_bytes_per_s),
        )
        return self.sample_bytes * sum(share / rate for share, rate in ways)

    @property
    def block_s(self) -> float:
        """A thread's mean time until it has a block, wherever that comes from."""
        if self.nodes is None:
            return self.read_s
        return self.any_latency_s + self.block_samples * self.any_transfer_s


def _ratio(amount: float, seconds: float) -> float:
    """The ratio; infinite where the time is 0."""
    return amount / seconds if seconds > 0 else math.inf


def terms(setting: Setting) -> dict[str, float]:
    """Samples a second that each law admits, infinite where it does not bind, in the order in which ties are named.

    The laws: `thread`, each thread reads a block and decodes it; `slots`, requests that the store serves at a time;
    `link`, bandwidth that all share; `iops`, rate of requests; `cpu`, cores that decode; `compute`, the step. Only where
    there are nodes: `peers`, a node's link to the others; its share of the store's laws grows as its caches have more.
    Only where the GPU decodes: `gpu decode`, its decoder.
    """
    n, nodes = setting.block_samples, setting.nodes
    bounds = {
        "thread": _ratio(setting.threads * n, setting.block_s + n * setting.decode_s),
        "slots": _ratio(setting.slots * n, setting.read_s) if setting.slots else math.inf,
        "link": _ratio(setting.shared_bytes_per_s, setting.sample_bytes),
        "iops": setting.requests_per_s * n,
    }
    if nodes is not None:
        for name, at_once in (("slots", nodes.count), ("link", 1), ("iops", nodes.count)):
            bounds[name] = _ratio(bounds[name], at_once * nodes.shares.store)
        bounds["peers"] = _ratio(nodes.peer_bytes_per_s, nodes.shares.peers * setting.sample_bytes)
    bounds["cpu"] = _ratio(setting.cores, setting.decode_cpu_s)
    if setting.gpu_batch_s is not None:
        bounds["gpu decode"] = _ratio(setting.batch, setting.gpu_batch_s)
    bounds["compute"] = _ratio(setting.batch, setting.step_s)
    return bounds


@dataclass(frozen=True)
class Hiding:
    """What would hide loading behind the step.

    Parameters
    ----------
    slack_s : time a sample's turn leaves for latency (negative: more threads are needed).
    exact_samples, blocks_of : the least size of a block in samples, and as a whole number; None if no size hides it,
        0 if any does.
    least_threads : fewest threads that can hide it at some size.
    """

    slack_s: float
    exact_samples: float | None
    blocks_of: int | None
    least_threads: int


def hiding(setting: Setting) -> Hiding:
    """The least block size for these threads, and the least number of threads for any block size.

    While the step takes a sample, each of T threads has T times as long for one of its own: for its transfer, its decoding
    and its share of the latency of a block. What is left of that time for the latency is the slack.
    """
    per_sample_s = setting.any_transfer_s + setting.decode_s
    slack_s = setting.threads * setting.step_s / setting.batch - per_sample_s
    needed = _ratio(per_sample_s * setting.batch, setting.step_s)
    least = math.floor(needed) + 1 if math.isfinite(needed) else 0
    if slack_s <= 0:
        return Hiding(slack_s, None, None, least)
    exact = setting.any_latency_s / slack_s
    return Hiding(slack_s, exact, math.ceil(exact), least)


@dataclass(frozen=True)
class Explanation:
    """Every law's bound, which one binds, how far the next is, and what would help.

    Parameters
    ----------
    terms : samples a second that each law admits, by its name.
    bottleneck : the law with the least bound.
    samples_per_s : that bound.
    headroom : second least bound over the least.
    in_flight : mean requests in service at that rate (Little).
    hiding : the least block size, and the least number of threads, that hide loading.
    sentence : the same in words.
    cautions : assumptions of the laws that do not hold here.
    """

    terms: dict[str, float]
    bottleneck: str
    samples_per_s: float
    headroom: float
    in_flight: float
    hiding: Hiding
    sentence: str
    cautions: tuple[str, ...]


def verdict(law: Explanation, hidden: bool) -> str:
    """What binds, in words that agree with whether a run, or its prediction, was hidden: laws are bounds from above.

    Parameters
    ----------
    law : of the same setting.
    hidden : whether loading was.
    """
    rate, compute = law.samples_per_s, law.terms["compute"]
    if hidden and law.bottleneck != "compute":
        return f"loading is hidden, barely: the {law.bottleneck} law at {rate:.4g} samples/s, the step at {compute:.4g}"
    if law.bottleneck == "compute" and not hidden:
        return f"by the laws the step binds at {rate:.4g} samples/s; start-up, or few blocks, keep loading from being hidden"
    return law.sentence


def explain(setting: Setting, *, samples: int = 0, memory_budget_bytes: float = math.inf) -> Explanation:
    """What binds and what would help.

    Parameters
    ----------
    setting : the quantities.
    samples : of an epoch, to judge start-up and granularity (default: 0: unknown).
    memory_budget_bytes : that blocks in memory may take (default: any).
    """
    bounds = terms(setting)
    ranked = sorted(bounds, key=lambda name: bounds[name])
    bottleneck, rate = ranked[0], bounds[ranked[0]]
    hide = hiding(setting)
    in_flight = rate / setting.block_samples * setting.read_s if math.isfinite(rate) else math.inf
    if setting.nodes is not None:
        in_flight *= setting.nodes.count * setting.nodes.shares.store
    return Explanation(
        terms=bounds,
        bottleneck=bottleneck,
        samples_per_s=rate,
        headroom=bounds[ranked[1]] / rate if rate else math.inf,
        in_flight=in_flight,
        hiding=hide,
        sentence=_sentence(setting, bounds, bottleneck, hide),
        cautions=tuple(_cautions(setting, samples, memory_budget_bytes)),
    )


def _sentence(setting: Setting, bounds: dict[str, float], bottleneck: str, hide: Hiding) -> str:
    """What binds, how far from hiding it is, and the change that would raise the bound."""
    if bottleneck == "compute":
        return f"loading is hidden: the step binds at {bounds['compute']:.4g} samples/s"
    short = (
        f"{bounds['compute'] / bounds[bottleneck]:.3g}× short of hiding"
        if math.isfinite(bounds["compute"])
        else ""
    )
    text = f"the {bottleneck} law binds at {bounds[bottleneck]:.4g} samples/s" + (
        f", {short}" if short else ""
    )
    if bottleneck != "thread":
        changes = {
            "slots": "more slots, or larger blocks",
            "link": "a faster link, smaller samples or a cache",
            "iops": "larger blocks, or a higher request rate",
            "cpu": "more cores, or cheaper decoding",
            "peers": "a faster link between nodes, or larger caches",
            "gpu decode": "a faster decoder, or decoding on the CPU",
        }
        return f"{text}; {changes[bottleneck]} would raise that bound"
    if hide.blocks_of is not None:
        block = max(1, hide.blocks_of)
        then = terms(replace(setting, block_samples=block))
        least = min((name for name in then if name != "compute"), key=lambda name: then[name])
        # The least block size that hides it makes both bounds equal, up to rounding.
        if then[least] >= then["compute"] * (1 - 1e-9):
            return f"{text}; blocks of {block} would hide it"
        return f"{text}; with blocks of {block} the {least} law binds at {then[least]:.4g} samples/s"
    return f"{text}; no block size hides it with so few threads, at least {hide.least_threads} are needed"


def _cautions(setting: Setting, samples: int, memory_budget_bytes: float) -> list[str]:
    """Where the assumptions of the laws do not hold: few blocks, a long start-up, little memory, threads that wait for
    slots.
    """
    cautions = []
    blocks = samples / setting.block_samples
    if samples and blocks < 4 * setting.threads:
        cautions.append(
            f"{blocks:.0f} blocks for {setting.threads} threads: below 4 a thread the last ones idle"
        )
    startup_s = setting.latency_s + (
        setting.block_samples * setting.sample_bytes * setting.threads / setting.shared_bytes_per_s
    )
    if samples and startup_s > 0.05 * samples * setting.step_s / setting.batch > 0:
        cautions.append(f"start-up takes {startup_s:.3g} s, more than a twentieth of the steps")
    memory = setting.threads * setting.block_samples * setting.sample_bytes
    if memory > memory_budget_bytes:
        cautions.append(f"blocks in memory take {memory:.3g} bytes, the budget is {memory_budget_bytes:.3g}")
    if setting.slots and setting.threads > setting.slots:
        cautions.append(f"{setting.threads - setting.slots} threads wait for a slot")
    return cautions


def payback_epochs(merge_s: float, epoch_unmerged_s: float, epoch_merged_s: float) -> float:
    """Epochs until merging has paid for itself; infinite if it saves nothing.

    Parameters
    ----------
    merge_s : seconds of merging, once.
    epoch_unmerged_s, epoch_merged_s : seconds of an epoch without and with merged blocks.
    """
    return _ratio(merge_s, max(0.0, epoch_unmerged_s - epoch_merged_s))


def get_usd_per_epoch(samples: int, block_samples: int, per_1k_get_usd: float) -> float:
    """What an epoch's requests cost.

    Parameters
    ----------
    samples : of an epoch.
    block_samples : samples a block, each a request.
    per_1k_get_usd : price of a thousand requests.
    """
    return -(-samples // block_samples) / 1000 * per_1k_get_usd
