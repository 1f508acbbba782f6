"""Times of single kernels on an accelerator, and of all kernels of a model: products of matrices, attention, all-reduce.

Between measured sizes times are taken to be linear in logarithms; beyond the largest they grow in proportion, below the
smallest they stay. Attention over as many heads of keys and values as of queries is taken as that of groups of heads of as
many more requests, because it is the cache that is read. Times of tables are limited to what servers can do: a kernel for
fewer tokens takes no longer than one for more, because it can be padded; a product of 8-bit values no longer than that of
16-bit ones; and nothing is read faster than memory gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.kernel_tables import (
    ATTENTION,
    EXCHANGES,
    EXPERTS,
    KNOWN,
    LAYOUTS,
    PRODUCTS,
    SCALES,
    Columns,
    KernelTables,
)
from forerun.serving.llm.inputs.accelerators import Accelerator
from forerun.serving.llm.inputs.architecture import Architecture

#: 16-bit kernels, and 8-bit caches and attention, as the tables name them
DTYPES: Final = ("bfloat16", "float16")
EIGHT: Final = ("fp8",)
#: what all-reduces that are launched one by one end with; those within a recorded graph are taken
EAGER: Final = "_eager"
#: share of an accelerator's peak bandwidth that the best kernels reach
REACHED: Final = 0.9
#: values that a layer reads and writes beside its kernels for each token: both norms with their residuals, as multiples of
#: the width between layers; the rotation of queries and keys and their way to the cache, as multiples of these; and the
#: gate of the feed-forward layer, as multiples of its width
NORMS, ROTATION, GATE = 8, 2, 3


@dataclass(frozen=True)
class Precision:
    """Which kernels a model uses.

    Parameters
    ----------
    weights : of the layers: `16 bits` (default), `fp8` with a scale a tensor, `fp8_block` with one a block.
    static : scales of activations are stored with the model, so they need not be found (default: they are found).
    cache_bits : of a value in the cache, 16 (default) or 8.
    """

    weights: str = "16 bits"
    static: bool = False
    cache_bits: int = 16

    @classmethod
    def of(cls, model: Architecture, cache_bits: int | None = None) -> Precision:
        """That of a model.

        Parameters
        ----------
        model : its shape.
        cache_bits : of a value in the cache (default: as of the weights that are not quantised).
        """
        eight = "fp8_block" if model.block_scales else "fp8"
        return cls(
            eight if model.quantised_bits == 8 else "16 bits", model.static_scales, cache_bits or model.bits
        )


@dataclass(frozen=True)
class Kernels:
    """Tables of one accelerator, for one precision.

    Parameters
    ----------
    device : its name.
    products : float64[rows], by name: m, n, k, latency.
    attention : the same of attention; `decode` is 1 for that of decodes, 0 for that of prompts.
    experts : the same of all experts of a layer: num_tokens and their shape.
    exchanges : the same of all-reduces: num_gpus, message_size, latency.
    wide : the same of products of 16-bit values (default: as `products`).
    scales : the same of what `products` contain beside products: `finds` is 1 for that which finds scales, 0 for that which
        applies them (default: nothing).
    precision : what was chosen (default: 16 bits).
    program : what the kernels are of, as the tables name it (default: unknown).
    """

    device: str
    products: Columns = field(repr=False)
    attention: Columns = field(repr=False)
    experts: Columns = field(repr=False)
    exchanges: Columns = field(repr=False)
    wide: Columns | None = field(default=None, repr=False)
    scales: Columns | None = field(default=None, repr=False)
    precision: Precision = Precision()
    program: str = ""

    @classmethod
    def of(cls, tables: KernelTables, precision: Precision) -> Kernels:
        """Those of a precision. Raises TraceError where there are none."""
        chosen = {kind: _chosen(kind, columns, precision, tables) for kind, columns in tables.kinds.items()}
        none = {one.name: np.empty(0) for fields in LAYOUTS.values() for one in fields if one.kind != "text"}
        sixteen, stored = precision.weights == "16 bits", precision.static and precision.weights == "fp8"
        return cls(
            tables.device,
            chosen[PRODUCTS],
            chosen.get(ATTENTION, none),
            chosen.get(EXPERTS, none),
            chosen.get(EXCHANGES, none),
            None if sixteen else _chosen(PRODUCTS, tables.kinds[PRODUCTS], Precision(), tables),
            chosen.get(SCALES) if stored else None,
            precision,
            tables.program,
        )

    @property
    def most(self) -> tuple[int, int]:
        """The most tokens of a product of matrices, and the most cached tokens of one attention of decodes."""
        rows = self.attention["decode"] > 0
        cached = self.attention["batch_size"][rows] * self.attention["step"][rows]
        return int(self.products["m"].max()), int(cached.max(initial=0))

    def product_ms(self, m: Floats, n: int, k: int, *, scaled: bool = False) -> Floats:
        """Times of products of m x k and k x n values, float64[len(m)].

        Parameters
        ----------
        m : tokens.
        n, k : columns that come out and go in. Beyond the largest that were measured times grow in proportion.
        scaled : values come in with their scale applied, by what makes them (default: not).
        """
        own = self._product_ms(self.products, m, n, k)
        if self.wide is None:
            return own
        scales = self.scales or {"finds": np.empty(0)}
        for finds in np.unique(scales["finds"]):
            if not (finds or scaled):
                continue
            each = np.zeros(len(m))
            of = {key: values[scales["finds"] == finds] for key, values in scales.items()}
            for near, share in _around(np.unique(of["k"]), k):
                rows = of["k"] == near
                each += share * np.log(_times_ms(of["m"][rows], of["latency"][rows], m))
            own = np.maximum(own - np.exp(each), 0.0)
        return np.minimum(own, self.wide_ms(m, n, k))

    def wide_ms(self, m: Floats, n: int, k: int) -> Floats:
        """The same of 16-bit values."""
        return self._product_ms(self.products if self.wide is None else self.wide, m, n, k)

    def _product_ms(self, own: Columns, m: Floats, n: int, k: int) -> Floats:
        # One corner after the other of the measured (n, k) around these.
        total = np.zeros(len(m))
        for near_n, share_n in _around(np.unique(own["n"]), n):
            for near_k, share_k in _around(np.unique(own["k"]), k):
                rows = (own["n"] == near_n) & (own["k"] == near_k)
                if not rows.any():
                    what = f"no product with {near_n:g} columns out and {near_k:g} in was measured"
                    raise TraceError.at(self.device, what)
                took_ms = _times_ms(own["m"][rows], own["latency"][rows], m, padded=True)
                total += share_n * share_k * np.log(took_ms)
        largest = max(n / own["n"].max(), 1.0) * max(k / own["k"].max(), 1.0)
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
        own = self.attention
        batches = np.unique(own["batch_size"][rows])
        of_batch = [rows & (own["batch_size"] == batch) for batch in batches.tolist()]
        logs = np.log([_times_ms(own["step"][of] + 1.0, own["latency"][of], context) for of in of_batch])
        inside = [np.interp(np.log(one), np.log(batches), of) for one, of in zip(requests, logs.T)]
        return np.asarray(np.exp(inside) * np.maximum(requests / batches[-1], 1.0))

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
        return _times_ms(self.experts["num_tokens"][rows], self.experts["latency"][rows], tokens)

    def exchange_ms(self, values: Floats, accelerators: int) -> Floats:
        """Times of one all-reduce of so many values among accelerators, float64[len(values)]."""
        rows = self.exchanges["num_gpus"] == accelerators
        if not rows.any():
            known = ", ".join(f"{one:g}" for one in np.unique(self.exchanges["num_gpus"])) or "none"
            raise TraceError.at(
                self.device, f"no all-reduce among {accelerators} accelerators; known: {known}"
            )
        own = self.exchanges
        return _times_ms(own["message_size"][rows], own["latency"][rows], values, padded=True)


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
    card : the accelerator, whose memory nothing is faster than.
    """

    kernels: Kernels = field(repr=False)
    model: Architecture
    accelerators: int
    card: Accelerator

    def __post_init__(self) -> None:
        """Raises TraceError for a model with experts in some layers only, latent attention or weights of other bits."""
        routed, bits = self.model.routed_layers, self.model.quantised_bits
        beside = self.model.dense_weights > routed * self.model.hidden * self.model.experts
        unlike = {
            "experts beside dense layers": routed > 0 and (routed < self.model.layers or beside),
            "latent attention": self.model.latent > 0,
            f"{bits}-bit weights": bits not in (8, 16),
            "8-bit experts": routed > 0 and bits != 16,
        }
        for what, found in unlike.items():
            if found:
                raise TraceError.at(
                    self.kernels.device, f"a model with {what} is not built from tables of kernels"
                )

    @property
    def heads(self) -> int:
        """Heads of queries of one accelerator."""
        return max(1, self.model.heads // self.accelerators)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values of one accelerator."""
        return max(1, self.model.kv_heads // self.accelerators)

    @property
    def inner(self) -> int:
        """Values between the two halves of the feed-forward layer, of one accelerator."""
        return self.model.widest // self.accelerators

    def linear_ms(self, tokens: Floats) -> Floats:
        """All layers' products of matrices and exchanges for so many tokens, and what reads and writes values beside them,
        float64[len(tokens)]."""
        model, queries = self.model, self.heads * self.model.head_dim
        qkv = queries + 2 * self.kv_heads * model.head_dim
        # Attention and the gate apply the scale of what they make; norms leave it to the product behind them.
        shapes = [(qkv, model.hidden, False), (model.hidden, queries, True)]
        if not model.experts:
            shapes += [(2 * self.inner, model.hidden, False), (model.hidden, self.inner, True)]
        layer_ms = np.sum([self._product_ms(tokens, *one) for one in shapes], axis=0)
        if model.experts:
            layer_ms = layer_ms + self.kernels.experts_ms(tokens, model, self.accelerators)
        if self.accelerators > 1:
            layer_ms = layer_ms + 2 * self.kernels.exchange_ms(tokens * model.hidden, self.accelerators)
        beside = NORMS * model.hidden + ROTATION * qkv + GATE * self.inner * (not model.experts)
        return np.asarray(model.layers * (layer_ms + self._memory_ms(tokens * beside * model.bits / 8)))

    def _product_ms(self, tokens: Floats, n: int, k: int, scaled: bool) -> Floats:
        """A product of a layer, which takes at least as long as its weights are read."""
        weights_bytes = np.full(len(tokens), n * k * self.model.quantised_bits / 8)
        return np.maximum(
            self.kernels.product_ms(tokens, n, k, scaled=scaled), self._memory_ms(weights_bytes)
        )

    def _memory_ms(self, size_bytes: Floats) -> Floats:
        """What the best kernels take to read so much."""
        return size_bytes / (REACHED * self.card.bandwidth_bytes_per_s / 1e3)

    def last_ms(self, requests: Floats) -> Floats:
        """The last layer, which makes a token of each request, float64[len(requests)]. It is not quantised."""
        return self.kernels.wide_ms(requests, self.model.vocabulary // self.accelerators, self.model.hidden)

    def decode_ms(self, requests: Floats, context: Floats) -> Floats:
        """An iteration in which requests decode that have so many tokens cached each, float64[len(requests)]."""
        model, cache_bits = self.model, self.kernels.precision.cache_bits
        attention_ms = self.kernels.decode_ms(requests, context, self.heads, self.kv_heads, model.head_dim)
        read_bytes = requests * context * 2 * self.kv_heads * model.head_dim * cache_bits / 8
        attention_ms = np.maximum(attention_ms, self._memory_ms(read_bytes))
        return self.linear_ms(requests) + self.last_ms(requests) + model.layers * attention_ms

    def pair_ms(self) -> float:
        """All layers for a pair of tokens that attend to each other in a prompt."""
        return self.model.layers * self.kernels.pair_ms(self.heads, self.kv_heads, self.model.head_dim)


def _chosen(kind: str, columns: Columns, precision: Precision, tables: KernelTables) -> Columns:
    """The rows of a precision over whole contexts, as numbers."""
    rows = np.ones(len(columns["latency"]), dtype=np.bool_)
    missing = ""
    match kind:
        case "products of matrices":
            weights = DTYPES if precision.weights == "16 bits" else (precision.weights,)
            rows &= _named(columns["gemm_dtype"], weights)
            missing = precision.weights
        case "attention":
            cached = EIGHT if precision.cache_bits == 8 else DTYPES
            rows &= _named(columns["kv_cache_dtype"], cached)
            # Over an 8-bit cache prompts attend in 8 bits, where that was measured.
            prompts = ~_named(columns["op_name"], ("generation_attention",))
            attends = _named(columns["attn_dtype"], cached) & prompts & rows
            rows &= (attends | ~prompts) if attends.any() else _named(columns["attn_dtype"], DTYPES)
            missing = f"a cache of {precision.cache_bits} bits"
        case "experts":
            rows &= _named(columns["moe_dtype"], DTYPES)
            # Tokens choose experts unevenly, where that was measured.
            even = _named(columns["distribution"], ("balanced",))
            rows &= ~even if (rows & ~even).any() else even
        case "all-reduce":
            rows &= _named(columns["allreduce_dtype"], DTYPES)
            rows &= np.array([not text.endswith(EAGER) for text in columns["backend"].tolist()])
        case _:
            rows &= _named(columns["quant_dtype"], EIGHT)
    if "window_size" in columns:
        rows &= columns["window_size"] == 0
    if not rows.any() and missing:
        raise TraceError.at(
            f"{tables.title} on {tables.device}", f"has no {kind} of {missing} that count; {KNOWN}"
        )
    made: dict[str, NDArray[Any]] = {
        key: values[rows].astype(np.float64)
        for key, values in columns.items()
        if values.dtype.kind in "iuf" and key != "window_size"
    }
    if kind == ATTENTION:
        made["decode"] = _named(columns["op_name"][rows], ("generation_attention",)).astype(np.float64)
    if kind == SCALES:
        made["finds"] = _named(columns["op_name"][rows], ("compute_scale",)).astype(np.float64)
    return made


def _named(texts: NDArray[Any], names: Sequence[str]) -> NDArray[np.bool_]:
    """bool[len(texts)]: which are one of some names."""
    return np.array([text in names for text in texts.tolist()], dtype=np.bool_)


def _times_ms(size: Floats, took_ms: Floats, wanted: Floats, *, padded: bool = False) -> Floats:
    """Times at sizes, linear in logarithms: of the smallest below it, in proportion beyond the largest.

    Parameters
    ----------
    size, took_ms : as measured.
    wanted : sizes.
    padded : none takes longer than a larger one, which it can be padded to (default: as measured).
    """
    known = dict(sorted(dict(zip(size.tolist(), took_ms.tolist())).items()))
    sizes, times = np.array([*known]), np.array([*known.values()])
    if padded:
        times = np.minimum.accumulate(times[::-1])[::-1]
    inside = np.interp(np.log(wanted), np.log(sizes), np.log(times))
    return np.asarray(np.exp(inside) * np.maximum(wanted / sizes[-1], 1.0))


def _around(known: NDArray[Any], value: float) -> list[tuple[float, float]]:
    """The measured values around one, each with its share, by logarithms; the first or the last beyond them."""
    at = int(np.searchsorted(known, value))
    if at in (0, len(known)):
        return [(float(known[min(at, len(known) - 1)]), 1.0)]
    low, high = float(known[at - 1]), float(known[at])
    share = float(np.log(value / low) / np.log(high / low))
    return [(low, 1 - share), (high, share)] if 0 < share < 1 else [(high, 1.0)]
