"""How many blocks fit into how many bytes, with the arithmetic shown when none do."""

from __future__ import annotations

import re

import torch

from minipaged.core import InvalidRequest

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


def num_blocks_for(
    memory: str | int | None,
    enough: int,
    num_layers: int,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
) -> int:
    """Blocks that fit into ``memory`` (default 1 GiB, and then no more than ``enough``).

    Args:
        memory: bytes, or a text that ``parse_bytes`` reads.
        enough: blocks that could ever be in use at once.
        num_layers: of the model.
        shape: of one block of one layer, (block_size, num_kv_heads, head_dim).
        dtype: of K and V.

    Raises:
        InvalidRequest: not even one block fits; the message shows the arithmetic.
    """
    block_size, num_kv_heads, head_dim = shape
    block_bytes = num_layers * 2 * block_size * num_kv_heads * head_dim * dtype.itemsize
    num_bytes = parse_bytes(DEFAULT if memory is None else memory)
    if num_bytes < block_bytes:
        raise InvalidRequest(
            f"memory={memory!r} is {num_bytes:,} bytes, one block takes {block_bytes:,}: "
            f"{num_layers} layers x 2 (K, V) x {block_size} tokens x {num_kv_heads} heads x "
            f"{head_dim} dims x {dtype.itemsize} bytes"
        )
    fitting = num_bytes // block_bytes
    return fitting if memory is not None else min(fitting, enough)
