"""How many blocks fit into how many bytes, with the arithmetic shown when none do."""

from __future__ import annotations

import re

import torch

from minipaged.core import InvalidRequest
from minipaged.models import ModelConfig

DEFAULT = "1GiB"
_UNITS = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_bytes(memory: str | int) -> int:
    """Bytes from a number or a text such as ``"512MiB"``.

    Examples:
        >>> parse_bytes("1.5 GiB"), parse_bytes("2MB"), parse_bytes(4096)
        (1610612736, 2000000, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(memory).lower())
    if match is None or match[2] not in _UNITS:
        raise InvalidRequest(f"memory={memory!r}: must be bytes, such as '512MiB' or '1GiB'")
    return int(float(match[1]) * _UNITS[match[2]])


def default_bytes(device: torch.device, config: ModelConfig, num_tokens: int, num_rows: int) -> int:
    """1 GiB of main memory; on a GPU nine tenths of what is free, less what a step needs beside it.

    Args:
        device: where the cache will be.
        config: of the model, whose weights are there already.
        num_tokens: computed in one step.
        num_rows: of logits in one step.

    Raises:
        InvalidRequest: nothing is left on the GPU.
    """
    if device.type != "cuda":
        return parse_bytes(DEFAULT)
    free, total = torch.cuda.mem_get_info(device.index)
    most, needed = free * 9 // 10, step_bytes(config, num_tokens, num_rows)
    if most <= needed:
        raise InvalidRequest(
            f"{device} has {free:,} of {total:,} bytes free, of which {most:,} may be used, and a "
            f"step of {num_tokens} tokens and {num_rows} rows of logits takes {needed:,}: nothing "
            "is left for K and V; fewer tokens or sequences per step, or a smaller model, would fit"
        )
    return most - needed


def step_bytes(config: ModelConfig, num_tokens: int, num_rows: int) -> int:
    """An upper estimate of what one step allocates beside weights and cache.

    Of each token the widest moment of a layer counts, in float32; of each row of logits three
    float32 copies, and six float64 ones of the sixteen rows that are drawn from at once.
    """
    heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    widest = 4 * config.hidden_size + max(3 * heads, 3 * config.intermediate_size)
    return 4 * num_tokens * widest + config.vocab_size * (12 * num_rows + 6 * 8 * 16)


def num_blocks_for(
    memory: str | int, config: ModelConfig, block_size: int, dtype: torch.dtype
) -> int:
    """Blocks that fit into ``memory``.

    Args:
        memory: bytes, or a text that ``parse_bytes`` reads.
        config: of the model.
        block_size: tokens per block.
        dtype: of K and V.

    Raises:
        InvalidRequest: not even one block fits; the message shows the arithmetic.
    """
    num_layers, num_kv_heads, head_dim = config.num_layers, config.num_kv_heads, config.head_dim
    block_bytes = num_layers * 2 * block_size * num_kv_heads * head_dim * dtype.itemsize
    num_bytes = parse_bytes(memory)
    if num_bytes < block_bytes:
        raise InvalidRequest(
            f"memory={memory!r} is {num_bytes:,} bytes, one block takes {block_bytes:,}: "
            f"{num_layers} layers x 2 (K, V) x {block_size} tokens x {num_kv_heads} heads x "
            f"{head_dim} dims x {dtype.itemsize} bytes"
        )
    return num_bytes // block_bytes
