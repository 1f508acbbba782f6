"""Times of single kernels from tables in the layout of AIConfigurator: products of matrices, attention, all-reduce.

A file has one kind of kernel, recognised by its columns; times are in ms, of one accelerator. Between measured sizes times
are taken to be linear in logarithms; beyond the largest they grow in proportion, below the smallest they stay. Attention
over as many heads of keys and values as of queries is taken as that of groups of heads of as many more requests, because
it is the cache that is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, gathered, read_rows
from forerun.core.trace.source import Source
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.inputs.architecture import Architecture

Columns = Mapping[str, NDArray[Any]]
#: 16-bit kernels, as the tables name them
DTYPES: Final = ("bfloat16", "float16")
#: what an all-reduce within a recorded graph is called
RECORDED: Final = "vllm_graph"


def _counts(*names: str, minimum: int = 0) -> tuple[Field, ...]:
    return tuple(Field(name=name, kind="int", minimum=minimum) for name in names)


def _texts(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name=name, kind="text") for name in names)


_LATENCY: Final = Field(name="latency", unit="ms", minimum=1e-9)
_DEVICE: Final = _texts("device")
_WINDOW: Final = Field(name="window_size", kind="int", required=False)
_ATTENTION: Final = (
    *_counts("batch_size", "isl", "num_heads", minimum=1),
    *_counts("num_key_value_heads", "head_dim", "step"),
    *_texts("op_name", "attn_dtype", "kv_cache_dtype", "device"),
    _WINDOW,
    _LATENCY,
)
#: the layouts, by the columns that make them known
_LAYOUTS: Final[Mapping[str, tuple[Field, ...]]] = {
    "products of matrices": (*_counts("m", "n", "k", minimum=1), *_texts("gemm_dtype"), *_DEVICE, _LATENCY),
    "attention": _ATTENTION,
    "experts": (
        *_counts(
            "num_tokens",
            "hidden_size",
            "inter_size",
            "topk",
            "num_experts",
            "moe_tp_size",
            "moe_ep_size",
            minimum=1,
        ),
        *_texts("moe_dtype", "distribution"),
        *_DEVICE,
        _LATENCY,
    ),
    "all-reduce": (
        *_counts("num_gpus", "message_size", minimum=1),
        *_texts("allreduce_dtype", "backend"),
        *_DEVICE,
        _LATENCY,
    ),
}
KNOWN: Final = (
    "known: products of matrices (gemm_dtype, m, n, k, latency), attention (op_name, batch_size, isl, step, num_heads, "
    "num_key_value_heads, head_dim, latency), experts (num_tokens, hidden_size, inter_size, topk, num_experts, moe_tp_size, "
    "distribution, latency) and all-reduce (num_gpus, message_size, backend, latency), with device"
)


@dataclass(frozen=True)
class Curve:
    """Times by size, linear in logarithms.

    Parameters
    ----------
    size : float64[n], ascending.
    took_ms : float64[n].
    """

    size: Floats
    took_ms: Floats = field(repr=False)

    def at(self, size: Floats) -> Floats:
        """Times at sizes: of the smallest below it, in proportion beyond the largest."""
        inside = np.interp(np.log(size), np.log(self.size), np.log(self.took_ms))
        return np.asarray(np.exp(inside) * np.maximum(size / self.size[-1], 1.0))


@dataclass(frozen=True)
class Kernels:
    """Tables of one accelerator.

    Parameters
    ----------
    device : its name.
    products : float64[rows], by name: m, n, k, latency.
    attention : the same of attention; `decode` is 1 for that of decodes, 0 for that of prompts.
    experts : the same of all experts of a layer: num_tokens and their shape.
    exchanges : the same of all-reduces: num_gpus, message_size, latency.
    """

    device: str
    products: Columns = field(repr=False)
    attention: Columns = field(repr=False)
    experts: Columns = field(repr=False)
    exchanges: Columns = field(repr=False)

    @property
    def most(self) -> tuple[int, int]:
        """The most tokens of a product of matrices, and the most cached tokens of one attention of decodes."""
        rows = self.attention["decode"] > 0
        cached = self.attention["batch_size"][rows] * self.attention["step"][rows]
        return int(self.products["m"].max()), int(cached.max(initial=0))

    def product_ms(self, m: Floats, n: int, k: int) -> Floats:
        """Times of products of m x k and k x n values, float64[len(m)].

        Parameters
        ----------
        m : tokens.
        n, k : columns that come out and go in. Beyond the largest that were measured times grow in proportion.
        """
        # One corner after the other of the measured (n, k) around these.
        total = np.zeros(len(m))
        for near_n, share_n in _around(np.unique(self.products["n"]), n):
            for near_k, share_k in _around(np.unique(self.products["k"]), k):
                rows = (self.products["n"] == near_n) & (self.products["k"] == near_k)
                if not rows.any():
                    what = f"no product with {near_n:g} columns out and {near_k:g} in was measured"
                    raise TraceError.at(self.device, what)
                curve = _curve(self.products["m"][rows], self.products["latency"][rows])
                total += share_n * share_k * np.log(curve.at(m))
        largest = max(n / self.products["n"].max(), 1.0) * max(k / self.products["k"].max(), 1.0)
        return np.asarray(np.exp(total) * largest)

    def decode_ms(
        self, requests: Floats, context: Floats, heads: int, kv_heads: int, head_dim: int
    ) -> Floats:
        """Times of one layer's attention of decodes, float64[len(requests)].

        Parameters
        ----------
        requests, context : float64[n], how many decode, and tokens that each has cached.
        heads, kv_heads : of one accelerator.
        head_dim : values of a head.
        """
        own = self.attention
        rows = (own["decode"] > 0) & (own["head_dim"] == head_dim)
        most = own["num_key_value_heads"][rows].max(initial=0)
        if not most:
            sizes = ", ".join(f"{one:g}" for one in np.unique(own["head_dim"][own["decode"] > 0]))
            raise TraceError.at(
                self.device, f"no attention of decodes with heads of {head_dim} values; known: {sizes}"
            )
        if kv_heads > most:
            # The cache of more heads is read as that of as many more requests.
            times = kv_heads / most
            requests, heads, kv_heads = requests * times, max(int(most), round(heads / times)), int(most)
        total = np.zeros(len(requests))
        for near_kv, share_kv in _around(np.unique(own["num_key_value_heads"][rows]), kv_heads):
            of_kv = rows & (own["num_key_value_heads"] == near_kv)
            for near_heads, share_heads in _around(np.unique(own["num_heads"][of_kv]), heads):
                of_heads = of_kv & (own["num_heads"] == near_heads)
                total += share_kv * share_heads * np.log(self._decodes(of_heads, requests, context))
        return np.asarray(np.exp(total))

    def _decodes(self, rows: NDArray[np.bool_], requests: Floats, context: Floats) -> Floats:
        """Times by requests and context, from the rows of one number of heads."""
        own, made = self.attention, np.empty(len(requests))
        batches = np.unique(own["batch_size"][rows])
        curves = {
            batch: _curve(
                own["step"][rows & (own["batch_size"] == batch)] + 1.0,
                own["latency"][rows & (own["batch_size"] == batch)],
            )
            for batch in batches.tolist()
        }
        for i, (count, tokens) in enumerate(zip(requests.tolist(), context.tolist())):
            logs = sum(
                share * float(np.log(curves[batch].at(np.array([tokens]))[0]))
                for batch, share in _around(batches, count)
            )
            made[i] = np.exp(logs) * max(count / batches[-1], 1.0)
        return made

    def pair_ms(self, heads: int, kv_heads: int, head_dim: int) -> float:
        """Time of one layer for a pair of tokens that attend to each other in a long prompt: the median over its lengths.

        Parameters as those of `decode_ms`.
        """
        own = self.attention
        rows = (
            (own["decode"] == 0)
            & (own["head_dim"] == head_dim)
            & (own["batch_size"] == 1)
            & (own["step"] == 0)
        )
        rows &= own["isl"] >= LONG
        if not rows.any():
            raise TraceError.at(
                self.device, f"no attention of prompts of {LONG} tokens with heads of {head_dim} values"
            )
        # What is computed follows from the heads of queries alone.
        nearest = own["num_heads"][rows]
        chosen = rows & (own["num_heads"] == nearest[np.argmin(np.abs(np.log(nearest / heads)))])
        kv = own["num_key_value_heads"][chosen]
        chosen &= own["num_key_value_heads"] == kv[np.argmin(np.abs(np.log(np.maximum(kv, 1) / kv_heads)))]
        each = own["latency"][chosen] / (own["isl"][chosen] ** 2 / 2)
        return float(np.median(each) * heads / own["num_heads"][chosen][0])

    def experts_ms(self, tokens: Floats, model: Architecture, split: int) -> Floats:
        """Times of a layer's routed experts, each split over as many accelerators, float64[len(tokens)].

        Parameters
        ----------
        tokens : float64[n].
        model : its shape.
        split : accelerators that share each expert.
        """
        shape = {
            "hidden_size": model.hidden,
            "inter_size": model.expert_inner,
            "topk": model.chosen,
            "num_experts": model.experts,
            "moe_tp_size": split,
            "moe_ep_size": 1,
        }
        rows = np.ones(len(self.experts["latency"]), dtype=np.bool_)
        for key, value in shape.items():
            rows &= self.experts[key] == value
        if not rows.any():
            what = (
                f"no experts with {', '.join(f'{key} {value}' for key, value in shape.items())} were measured"
            )
            raise TraceError.at(self.device, what)
        return _curve(self.experts["num_tokens"][rows], self.experts["latency"][rows]).at(tokens)

    def exchange_ms(self, values: Floats, accelerators: int) -> Floats:
        """Times of one all-reduce of so many values among accelerators, float64[len(values)]."""
        rows = self.exchanges["num_gpus"] == accelerators
        if not rows.any():
            known = ", ".join(f"{one:g}" for one in np.unique(self.exchanges["num_gpus"])) or "none"
            raise TraceError.at(
                self.device, f"no all-reduce among {accelerators} accelerators; known: {known}"
            )
        return _curve(self.exchanges["message_size"][rows], self.exchanges["latency"][rows]).at(values)


#: tokens from which on a prompt is long, so that attention takes longer than to start it
LONG: Final = 2048


@dataclass(frozen=True)
class ModelKernels:
    """The kernels of one model on accelerators that share it.

    Parameters
    ----------
    kernels : tables.
    model : its shape.
    accelerators : how many share it.
    """

    kernels: Kernels = field(repr=False)
    model: Architecture
    accelerators: int

    def __post_init__(self) -> None:
        """Raises TraceError for a model with experts in some layers only, latent attention or quantised weights."""
        routed = self.model.routed_layers
        beside = self.model.dense_weights > routed * self.model.hidden * self.model.experts
        unlike = {
            "experts beside dense layers": routed > 0 and (routed < self.model.layers or beside),
            "latent attention": self.model.latent > 0,
            "quantised weights": self.model.quantised_bits != 16,
        }
        for what, found in unlike.items():
            if found:
                raise TraceError.at(
                    self.kernels.device, f"a model with {what} is not built from tables of kernels"
                )

    def linear_ms(self, tokens: Floats) -> Floats:
        """All layers' products of matrices and exchanges for so many tokens, float64[len(tokens)]."""
        model, split = self.model, self.accelerators
        kv_heads = max(1, model.kv_heads // split)
        inner, queries = model.widest // split, model.heads // split * model.head_dim
        shapes = [(queries + 2 * kv_heads * model.head_dim, model.hidden), (model.hidden, queries)]
        if not model.experts:
            shapes += [(2 * inner, model.hidden), (model.hidden, inner)]
        layer_ms = np.sum([self.kernels.product_ms(tokens, n, k) for n, k in shapes], axis=0)
        if model.experts:
            layer_ms = layer_ms + self.kernels.experts_ms(tokens, model, split)
        if split > 1:
            layer_ms = layer_ms + 2 * self.kernels.exchange_ms(tokens * model.hidden, split)
        return np.asarray(model.layers * layer_ms)

    def last_ms(self, requests: Floats) -> Floats:
        """The last layer, which makes a token of each request, float64[len(requests)]."""
        return self.kernels.product_ms(
            requests, self.model.vocabulary // self.accelerators, self.model.hidden
        )

    def decode_ms(self, requests: Floats, context: Floats) -> Floats:
        """An iteration in which requests decode that have so many tokens cached each, float64[len(requests)]."""
        heads, kv_heads = (
            max(1, one // self.accelerators) for one in (self.model.heads, self.model.kv_heads)
        )
        attention_ms = self.kernels.decode_ms(requests, context, heads, kv_heads, self.model.head_dim)
        return self.linear_ms(requests) + self.last_ms(requests) + self.model.layers * attention_ms

    def pair_ms(self) -> float:
        """All layers for a pair of tokens that attend to each other in a prompt."""
        heads, kv_heads = (
            max(1, one // self.accelerators) for one in (self.model.heads, self.model.kv_heads)
        )
        return self.model.layers * self.kernels.pair_ms(heads, kv_heads, self.model.head_dim)


def read_kernels(files: Sequence[Path]) -> Kernels:
    """The tables in some files, of 16-bit kernels; of several rows for one size the last one counts.

    Parameters
    ----------
    files : each with one kind of kernel, as CSV, also compressed.

    Raises TraceError for what is not known, for several devices, and for kinds that are missing.
    """
    parts: dict[str, list[Columns]] = {}
    devices: dict[str, str] = {}
    for file in files:
        kind, columns = _read(file)
        devices |= dict.fromkeys(columns["device"].tolist(), str(file))
        parts.setdefault(kind, []).append(columns)
    if len(devices) > 1:
        shown = "; ".join(f"{file}: {device}" for device, file in devices.items())
        raise TraceError.at(", ".join(map(str, files)), f"are tables of several devices: {shown}")
    missing = [kind for kind in ("products of matrices", "attention") if kind not in parts]
    if missing:
        raise TraceError.at(", ".join(map(str, files)), f"have no {' and no '.join(missing)}; {KNOWN}")
    products, attention, experts, exchanges = (
        _joined(parts.get(kind, []), fields) for kind, fields in _LAYOUTS.items()
    )
    return Kernels(next(iter(devices)), products, attention, experts, exchanges)


def _read(file: Path) -> tuple[str, Columns]:
    """The kind of a file's kernels, and its columns of 16-bit kernels."""
    head = Source(file, repairs=RepairLog()).head(1)
    names = {name.strip().strip('"') for name in (head[0] if head else "").split(",")}
    for kind, fields in _LAYOUTS.items():
        if {one.header for one in fields if one.required} <= names:
            own = [one for one in fields if one.required or one.header in names]
            columns = gathered(read_rows(Source(file, repairs=RepairLog()), own)).columns
            return kind, _chosen(str(file), kind, columns)
    shown = ", ".join(sorted(names)[:8])
    raise TraceError.at(str(file), f"is no table of kernels that is known: its columns are {shown}; {KNOWN}")


def _chosen(name: str, kind: str, columns: Columns) -> Columns:
    """The rows of 16-bit kernels over whole contexts, as numbers."""
    dtypes = {
        "products of matrices": ("gemm_dtype",),
        "attention": ("attn_dtype", "kv_cache_dtype"),
        "experts": ("moe_dtype",),
    }
    rows = np.ones(len(columns["latency"]), dtype=np.bool_)
    for dtype in dtypes.get(kind, ("allreduce_dtype",)):
        rows &= _named(columns[dtype], DTYPES)
    if kind == "experts":
        # Tokens choose experts unevenly, where that was measured.
        even = _named(columns["distribution"], ("balanced",))
        rows &= ~even if (rows & ~even).any() else even
    if kind == "all-reduce":
        rows &= _named(columns["backend"], (RECORDED,))
    if "window_size" in columns:
        rows &= columns["window_size"] == 0
    if not rows.any():
        raise TraceError.at(name, f"has no {kind} of 16 bits that count; {KNOWN}")
    made: dict[str, NDArray[Any]] = {
        key: values[rows].astype(np.float64)
        for key, values in columns.items()
        if values.dtype.kind in "if" and key != "window_size"
    }
    if kind == "attention":
        made["decode"] = _named(columns["op_name"][rows], ("generation_attention",)).astype(np.float64)
    return made | {"device": columns["device"][rows]}


def _named(texts: NDArray[Any], names: Sequence[str]) -> NDArray[np.bool_]:
    """bool[len(texts)]: which are one of some names."""
    return np.array([text in names for text in texts.tolist()], dtype=np.bool_)


def _joined(parts: Sequence[Columns], fields: Sequence[Field]) -> Columns:
    """The rows of several files; none of any field where there is no file."""
    if not parts:
        return {one.name: np.empty(0) for one in fields if one.kind != "text"}
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0] if key != "device"}


def _curve(size: Floats, took_ms: Floats) -> Curve:
    """Times by size, one for each."""
    known = dict(zip(size.tolist(), took_ms.tolist()))
    ordered = sorted(known)
    return Curve(np.array(ordered), np.array([known[one] for one in ordered]))


def _around(known: NDArray[Any], value: float) -> list[tuple[float, float]]:
    """The measured values around one, each with its share, by logarithms; the first or the last beyond them."""
    at = int(np.searchsorted(known, value))
    if at == 0:
        return [(float(known[0]), 1.0)]
    if at == len(known):
        return [(float(known[-1]), 1.0)]
    low, high = float(known[at - 1]), float(known[at])
    share = float(np.log(value / low) / np.log(high / low))
    return [(low, 1 - share), (high, share)] if 0 < share < 1 else [(high, 1.0)]
