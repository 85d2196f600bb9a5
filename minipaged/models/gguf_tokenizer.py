"""A tokenizer out of GGUF metadata: byte-level BPE; knows how each family splits text into words.

The name of the splitting rule is all the metadata says of it, and a wrong rule goes unnoticed on
most texts, so unknown names are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from minipaged.core import ModelError

from .tokenizer import Tokenizer

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Rules are applied one after the other, each inside the pieces that the one before left.
RULES = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # token types
# Files name one eos token, chat models often end a turn with another.
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>")


def gguf_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a file's metadata describes.

    Raises:
        ModelError: no tokenizer, another algorithm than byte-level BPE, an unknown splitting rule,
            or fields that do not fit together.
    """
    given = {key.removeprefix("tokenizer.ggml."): v for key, v in metadata.items()}
    rule = given.get("pre", "default")
    if given.get("model") != "gpt2" or rule not in RULES:
        raise ModelError(
            f"tokenizer {given.get('model')!r} with splitting rule {rule!r} is not supported; "
            f"supported is 'gpt2' with {', '.join(RULES)}"
        )
    try:
        return _build(given, rule, metadata.get("tokenizer.chat_template"))
    except Exception as error:  # a field of the wrong type; the library raises nothing narrower
        raise ModelError(f"the tokenizer's metadata contradict themselves: {error}") from error


def _build(given: Mapping[str, Any], rule: str, chat_template: str | None) -> Tokenizer:
    tokens, merges = given["tokens"], [tuple(merge.split(" ")) for merge in given["merges"]]
    vocab = {token: i for i, token in enumerate(tokens)}
    bpe = models.BPE(vocab, merges, ignore_merges=rule == "llama-bpe")
    core = tokenizers.Tokenizer(bpe)
    core.pre_tokenizer = splitter(RULES[rule])
    core.decoder = decoders.ByteLevel()
    kinds = dict(zip(tokens, given["token_type"], strict=True))
    core.add_special_tokens([_added(t) for t in tokens if kinds[t] in (UNKNOWN, CONTROL)])
    core.add_tokens([_added(t) for t in tokens if kinds[t] == USER_DEFINED])
    names = {"bos": "bos", "eos": "eos", "padding": "pad", "unknown": "unk"}
    ids = {f"{ours}_token": given.get(f"{theirs}_token_id") for theirs, ours in names.items()}
    ends = [given.get("eot_token_id"), *(vocab[t] for t in ENDS if kinds.get(t) == CONTROL)]
    return Tokenizer(
        core,
        specials={name: tokens[i] for name, i in ids.items() if i is not None},
        eos_token_ids=[i for i in ends if i is not None],
        add_bos=bool(given.get("add_bos_token", rule == "llama-bpe")),
        chat_template=chat_template,
    )


def splitter(rules: list[str]) -> PreTokenizer:
    """Split by each rule in turn, then spell every byte as a character of GPT-2's alphabet."""
    splits = [pre_tokenizers.Split(Regex(rule), "isolated") for rule in rules]
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, spell])


def _added(token: str) -> AddedToken:
    return AddedToken(token, normalized=False)
