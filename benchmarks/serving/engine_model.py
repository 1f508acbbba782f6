"""A small language model with random weights, saved for `transformers serve`: `beside.py` runs this in the engine's Python.

    python engine_model.py FOLDER < words.json

Every word is a token and no token ends an answer. Few heads and wide layers: an iteration is weights times tokens, and the
attention of one request, which this engine computes over the cache of all that run, counts little.
"""

from __future__ import annotations

import json
import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 1024
HIDDEN, WIDE, LAYERS, HEADS, HEAD_DIM = 512, 3072, 6, 2, 64


def main(folder: str) -> None:
    """Save tokeniser and model."""
    words = dict.fromkeys([*json.load(sys.stdin), *(f"w{n}" for n in range(VOCABULARY))])
    numbers = {word: number for number, word in enumerate(list(words)[:VOCABULARY])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=WIDE, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=HEAD_DIM, max_position_embeddings=8192,
            bos_token_id=None, eos_token_id=None, pad_token_id=None,
        )
    )  # fmt: skip
    model.generation_config = GenerationConfig(do_sample=False)
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
