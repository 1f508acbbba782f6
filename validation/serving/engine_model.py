"""A small language model with random weights, saved for llama.cpp: `truth.py` runs this in the engine's Python.

    python engine_model.py FILE

A request sends numbers of tokens, so the vocabulary is words that only have to be shown. Few heads and wide layers: an
iteration is weights times tokens, and attention counts little.
"""

from __future__ import annotations

import sys
from typing import Any

import gguf
import numpy as np
from gguf.quants import quantize

#: numbers below are those of bytes and of the ends of a text
FIRST_WORD, VOCABULARY = 259, 2048
HIDDEN, WIDE, LAYERS, HEADS, HEAD_DIM, CONTEXT = 768, 4096, 14, 1, 64, 8192

#: with these times are nearest to linear in the tokens of an iteration
WEIGHTS = gguf.GGMLQuantizationType.BF16


def vocabulary(writer: gguf.GGUFWriter) -> None:
    """Ends, bytes, and words of one token each."""
    kinds = gguf.TokenType
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    words = [f"\u2581w{number}" for number in range(VOCABULARY - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*tokens, *words])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([*types, *[kinds.NORMAL] * len(words)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def main(file: str) -> None:
    """Save the model."""
    draw = np.random.default_rng(0)

    def random(rows: int, columns: int) -> np.ndarray[Any, Any]:
        return (0.02 * draw.standard_normal((rows, columns))).astype(np.float32)

    def add(name: str, matrix: np.ndarray[Any, Any]) -> None:
        writer.add_tensor(name, quantize(matrix, WEIGHTS), raw_dtype=WEIGHTS)

    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    vocabulary(writer)
    add("token_embd.weight", random(VOCABULARY, HIDDEN))
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, dtype=np.float32))
    # Nothing but words is ever the likeliest: each token of an answer is a text of its own.
    likely = random(VOCABULARY, HIDDEN)
    likely[:FIRST_WORD] = 0.0
    add("output.weight", likely)
    inner = HEADS * HEAD_DIM
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, dtype=np.float32))
        for name in ("attn_q", "attn_k", "attn_v"):
            add(f"blk.{layer}.{name}.weight", random(inner, HIDDEN))
        add(f"blk.{layer}.attn_output.weight", random(HIDDEN, inner))
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{name}.weight", random(WIDE, HIDDEN))
        add(f"blk.{layer}.ffn_down.weight", random(HIDDEN, WIDE))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
