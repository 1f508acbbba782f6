"""A language model's shape from its `config.json` as published on the Hugging Face hub: parameters, weights, cache.

Read are decoders with gated feed-forward layers (Llama, Mistral, Qwen, Mixtral, DeepSeek and their like), dense or with
experts, with multi-head, grouped or latent attention (MLA). Others are rejected by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from forerun.core.errors import ProfileError, TraceError, known_names
from forerun.core.trace.documents import JsonDocument
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.source import Source

#: largest config.json that is read
MOST_BYTES: Final = 16 << 20
#: bits of a value, by the name that `torch_dtype` gives it
BITS: Final[Mapping[str, int]] = {
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
}
#: what a whole number may be at most; no published model comes near
LARGEST: Final = 10**9


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The shape of a decoder.

    Parameters
    ----------
    layers : of the decoder.
    hidden : width between the layers.
    heads, kv_heads : heads of queries, and of keys and values.
    head_dim : values of a head.
    latent : values of a token that latent attention stores in each layer instead of heads (0: it has heads).
    attention_weights, dense_weights, expert_weights : parameters of one attention, of all dense feed-forward layers with
        shared experts and routers, and of all routed experts.
    active_expert_weights : of the routed experts that one token passes through.
    experts, chosen : routed experts of a layer, and those that a token passes through (0: there are none).
    expert_inner : values between the two halves of an expert.
    routed_layers : layers with routed experts.
    widest : values between the two halves of a token's widest feed-forward layer.
    vocabulary : number of tokens that exist.
    embedding_weights : of embeddings and of the last layer.
    bits : of a value of the weights that are not quantised, and of the cache.
    quantised_bits : of a weight of the layers.
    block_scales : weights of 8 bits have a scale a block (default: one a tensor or channel).
    static_scales : scales of activations are stored with the weights (default: they are found as the model runs).
    notes : what is not counted exactly.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: int
    attention_weights: int
    dense_weights: int
    expert_weights: int
    active_expert_weights: int
    experts: int
    chosen: int
    expert_inner: int
    routed_layers: int
    widest: int
    vocabulary: int
    embedding_weights: int
    bits: int
    quantised_bits: int
    block_scales: bool = False
    static_scales: bool = False
    notes: tuple[str, ...] = ()

    @property
    def layer_weights(self) -> int:
        """Parameters of all layers."""
        return self.layers * self.attention_weights + self.dense_weights + self.expert_weights

    @property
    def active_weights(self) -> int:
        """Parameters that a token is multiplied by: not those of experts that it passes by, nor of its embedding."""
        own = self.layers * self.attention_weights + self.dense_weights + self.active_expert_weights
        return own + self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters; norms and biases, less than a thousandth, are left out."""
        return self.layer_weights + self.embedding_weights

    @property
    def weight_bytes(self) -> float:
        """Memory that the weights take, over all accelerators."""
        return (self.layer_weights * self.quantised_bits + self.embedding_weights * self.bits) / 8

    def kv_bytes(self, tensor_parallel: int, kv_bits: int) -> float:
        """Memory that keys and values of one token take on one accelerator.

        Parameters
        ----------
        tensor_parallel : accelerators that the model is split over. Where there are fewer heads of keys and values, each
            has a copy of one; a latent vector is the same on all.
        kv_bits : bits of a value in the cache.
        """
        if self.latent:
            return self.layers * self.latent * kv_bits / 8
        heads = max(1, -(-self.kv_heads // tensor_parallel))
        return 2 * self.layers * heads * self.head_dim * kv_bits / 8


def read_architecture(path: Path, name: str = "") -> Architecture:
    """The model that a configuration describes.

    Parameters
    ----------
    path : the file.
    name : of the file in messages (default: its path).

    Raises ProfileError naming file, line and key for what is missing, impossible or not supported.
    """
    try:
        source = Source(path, repairs=RepairLog(), name=name or str(path))
        return _Configuration(JsonDocument.read(source, MOST_BYTES)).architecture()
    except TraceError as error:
        raise ProfileError(*error.problems) from error


class _FeedForward(NamedTuple):
    """The feed-forward layers of a configuration; fields as those of `Architecture`."""

    dense_weights: int
    experts: int
    chosen: int
    expert_inner: int
    routed_layers: int
    widest: int


class _Configuration:
    """A configuration that is being read.

    Parameters
    ----------
    document : the file.
    """

    def __init__(self, document: JsonDocument) -> None:
        self._document = document
        whole = document.value
        if not isinstance(whole, dict):
            raise document.error("is no object {...}, so no configuration of a model")
        self._nested = isinstance(whole.get("text_config"), dict)
        self._whole: dict[str, Any] = whole
        self._text: dict[str, Any] = whole["text_config"] if self._nested else whole

    def architecture(self) -> Architecture:
        """The shape. Raises TraceError."""
        self._check_supported()
        layers, hidden = self._count("num_hidden_layers"), self._count("hidden_size")
        heads = self._count("num_attention_heads")
        kv_heads = self._count("num_key_value_heads", heads)
        if self._text.get("head_dim") is None and hidden % heads:
            raise self._wrong("num_attention_heads", f"{heads} heads do not divide hidden_size {hidden}")
        head_dim = self._count("head_dim", hidden // heads)
        if heads % kv_heads:
            raise self._wrong("num_key_value_heads", f"{kv_heads} do not divide {heads} heads of queries")
        vocabulary = self._count("vocab_size")
        latent, attention = self._attention(hidden, heads, kv_heads, head_dim)
        layer = self._feed_forward(layers, hidden)
        tied = self._text.get("tie_word_embeddings") is True
        bits = self._bits()
        return Architecture(
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            latent=latent,
            attention_weights=attention,
            expert_weights=layer.routed_layers * layer.experts * 3 * hidden * layer.expert_inner,
            active_expert_weights=layer.routed_layers * layer.chosen * 3 * hidden * layer.expert_inner,
            **layer._asdict(),
            vocabulary=vocabulary,
            embedding_weights=vocabulary * hidden * (1 if tied else 2),
            bits=bits,
            quantised_bits=self._quantised_bits(bits),
            block_scales=self._method.get("weight_block_size") is not None,
            static_scales=self._method.get("activation_scheme") == "static"
            or self._method.get("quant_method") == "modelopt",
            notes=self._notes(),
        )

    def _check_supported(self) -> None:
        """Reject what does not keep keys and values of every token in every layer, or what has no decoder alone."""
        types = {str(kind) for kind in self._list("layer_types")}
        kinds = {kind for kind in types if "attention" not in kind or "linear" in kind}
        unsupported = {
            "index_topk": "sparse attention with an index (DSA) stores more than keys and values",
            "ssm_cfg": "a state space model has no keys and values",
            "is_encoder_decoder": "a model with an encoder has a second cache",
        }
        for key, what in unsupported.items():
            if self._text.get(key):
                raise self._wrong(key, f"{what}; not supported: give kv_blocks as a number")
        if kinds:
            what = (
                f"layers of the kind {', '.join(sorted(kinds))} are not supported: give kv_blocks as a number"
            )
            raise self._wrong("layer_types", what)

    def _attention(self, hidden: int, heads: int, kv_heads: int, head_dim: int) -> tuple[int, int]:
        """Values that latent attention stores of a token (0: it stores heads), and weights of one attention."""
        if self._text.get("kv_lora_rank") is None:
            return 0, hidden * head_dim * (2 * heads + 2 * kv_heads)
        rank, rope = self._count("kv_lora_rank"), self._count("qk_rope_head_dim")
        plain, value = self._count("qk_nope_head_dim"), self._count("v_head_dim")
        if self._text.get("q_lora_rank") is None:
            query = hidden * heads * (plain + rope)
        else:
            query_rank = self._count("q_lora_rank")
            query = query_rank * (hidden + heads * (plain + rope))
        compressed = hidden * (rank + rope) + rank * heads * (plain + value)
        return rank + rope, query + compressed + heads * value * hidden

    def _feed_forward(self, layers: int, hidden: int) -> _FeedForward:
        """The feed-forward layers."""
        names = ("num_local_experts", "n_routed_experts", "num_experts")
        key = next((name for name in names if self._text.get(name)), "")
        inner = self._count("intermediate_size")
        if not key:
            return _FeedForward(layers * 3 * hidden * inner, 0, 0, 0, 0, inner)
        experts, chosen = self._count(key), self._count("num_experts_per_tok")
        if chosen > experts:
            raise self._wrong("num_experts_per_tok", f"{chosen} are more than the {experts} experts")
        expert_inner = self._count("moe_intermediate_size", inner)
        dense_inner = self._count("intermediate_size_mlp", inner)
        first = self._count("first_k_dense_replace", 0, least=0)
        step = max(
            self._count(name, 1)
            for name in ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq")
        )
        only_dense = self._list("mlp_only_layers")
        routed = sum(i >= first and (i + 1) % step == 0 and i not in only_dense for i in range(layers))
        shared = self._count("n_shared_experts", 0, least=0) * expert_inner
        shared += self._count("shared_expert_intermediate_size", 0, least=0)
        if self._text.get("model_type") == "llama4_text":
            shared += inner
        beside = routed * hidden * (3 * shared + experts)
        dense = (layers - routed) * 3 * hidden * dense_inner + beside
        widest = max(chosen * expert_inner + shared, dense_inner)
        return _FeedForward(dense, experts, chosen, expert_inner, routed, widest)

    def _bits(self) -> int:
        """Bits of a value as the model was saved."""
        given = [part.get(key) for part in (self._text, self._whole) for key in ("dtype", "torch_dtype")]
        found = next(filter(None, given), None)
        if found is None:
            raise self._wrong("torch_dtype", f"is missing; known: {', '.join(BITS)}")
        if str(found) not in BITS:
            raise self._wrong("torch_dtype", f"{found!r} is not known; {known_names(str(found), BITS)}")
        return BITS[str(found)]

    @property
    def _method(self) -> dict[str, Any]:
        """How weights are quantised, as the file says it; empty if they are not."""
        found = self._whole.get("quantization_config", self._text.get("quantization_config"))
        return found if isinstance(found, dict) else {}

    def _quantised_bits(self, bits: int) -> int:
        """Bits of a weight of the layers."""
        method = self._method
        if not method:
            return bits
        name = method.get("quant_method")
        match name:
            case "fp8":
                return 8
            case "modelopt":
                found = {"FP8": 8, "NVFP4": 4}.get(str(method.get("quant_algo")))
            case "awq" | "gptq":
                found = method.get("bits", method.get("w_bit"))
            case "compressed-tensors":
                groups = method.get("config_groups")
                first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
                weights = first.get("weights") if isinstance(first, dict) else None
                found = weights.get("num_bits") if isinstance(weights, dict) else None
            case _:
                known = "fp8, modelopt, awq, gptq, compressed-tensors"
                what = f"quantisation {name!r} is not known ({known}); give weights_bytes"
                raise self._wrong("quantization_config", what)
        if not isinstance(found, int) or not 1 <= found <= 16:
            raise self._wrong("quantization_config", f"{name} does not say how many bits; give weights_bytes")
        return found

    def _notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        notes = []
        if self._nested:
            notes.append(f"{self._document.source.name}: only the language model is counted, no other part")
        window = self._text.get("sliding_window") if self._text.get("use_sliding_window", True) else None
        if window or self._text.get("attention_chunk_size"):
            what = "attention over a window is counted as attention over the whole context"
            notes.append(f"{self._document.source.name}: {what}")
        return tuple(notes)

    def _count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number. Raises TraceError if it is missing without a default, or out of range."""
        found = self._text.get(key)
        if found is None and default is not None:
            return default
        if found is None:
            what = f"the key {key!r} is missing, which a decoder's configuration has; it has {len(self._text)} keys"
            raise self._document.error(what, *(["text_config"] if self._nested else []))
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= LARGEST:
            raise self._wrong(key, f"{found!r} is no whole number from {least} to {LARGEST:,}")
        return found

    def _list(self, key: str) -> list[Any]:
        """A list, empty if it is missing."""
        found = self._text.get(key)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self._wrong(key, f"{found!r} is no list")
        return found

    def _wrong(self, key: str, what: str) -> TraceError:
        """The error about a key."""
        place = ("text_config", key) if self._nested and key in self._text else (key,)
        return self._document.error(what, *place)
