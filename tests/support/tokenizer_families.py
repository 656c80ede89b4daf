"""Tokenizers of the families there are, as small as they can be: how each stands for bytes."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from executor.text import HfTokenizer


def _wrapped(tokenizer: Tokenizer, eos: str) -> HfTokenizer:
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos)
    size = tokenizer.get_vocab_size()
    return HfTokenizer(fast, frozenset({fast.convert_tokens_to_ids(eos)}), size)


def byte_level() -> HfTokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "no", "</s>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("n", "o")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _wrapped(tokenizer, "</s>")


def byte_fallback() -> HfTokenizer:
    tokens = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "n", "o", "no"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=[("n", "o")],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return _wrapped(tokenizer, "</s>")


def unigram() -> HfTokenizer:
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((chr(c), -4.0) for c in range(32, 127) if c != 32)]
    tokenizer = Tokenizer(models.Unigram([*pieces, ("▁", -3.0), ("no", -2.0)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _wrapped(tokenizer, "</s>")
