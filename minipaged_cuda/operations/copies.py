"""Copies of whole blocks, within a cache and between two; knows strides and pairs, no keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from minipaged.core import InvalidBatch
from minipaged_cuda.operations.arguments import (
    Launcher,
    element_bytes,
    launcher_and_card,
    run,
    strides,
)
from minipaged_cuda.operations.checks import check_caches, check_copies, is_aligned
from minipaged_cuda.plan import CopySizes, plan_copy

MAX_PAIRS = 65535  # of one launch, CUDA's limit of grid.y
AXES = ("layer", "block", "token", "head")


def copy_blocks(
    key_cache: Tensor,  # [num_layers, num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # the same of the values; both may lack the layers
    pairs: Tensor | Iterable[tuple[int, int]],  # [num_pairs, 2], source and destination
    *,
    launcher: Launcher | None = None,
) -> None:
    """Copy whole blocks of K and V, all layers at once: every source is read before any write.

    Pairs on the host are looked at, and where one block is both a source and a destination, the
    blocks go by way of a second place. Pairs on the card cannot be looked at without waiting, and
    are trusted: there no block may be both. A pair of -1 is skipped.

    Raises:
        InvalidBatch: A block that the caches do not have, or two sources for one destination; or
            caches that differ in more than their head_dim.
        DeviceError: The caches are on no GPU, and no launcher was given.
    """
    check_caches(key_cache, value_cache)
    caches = key_cache, value_cache
    check_copies(caches, caches)
    launcher, _ = launcher_and_card(launcher, key_cache)
    blocks = key_cache.shape[-4]
    ids, is_chained = read_pairs(pairs, blocks, blocks, key_cache.device)
    if not len(ids) or not key_cache.numel():
        return
    if is_chained:
        place = torch.arange(len(ids), dtype=torch.int32, device=ids.device)
        through = tuple(torch.empty_like(x.narrow(-4, 0, len(ids))) for x in caches)
        _copy(launcher, caches, through, torch.stack([ids[:, 0], place], 1))
        _copy(launcher, through, caches, torch.stack([place, ids[:, 1]], 1))
    else:
        _copy(launcher, caches, caches, ids)


def swap_blocks(
    source_cache: Tensor,  # [num_layers, num_blocks, block_size, num_kv_heads, head_dim]
    destination_cache: Tensor,  # the same, but for the number of blocks; both may lack the layers
    pairs: Tensor | Iterable[tuple[int, int]],  # [num_pairs, 2], source and destination
    *,
    launcher: Launcher | None = None,
) -> None:
    """Copy whole blocks from one cache into another, all layers at once.

    One of them may lie in page-locked memory of the host that the card can address.

    Raises:
        InvalidBatch: A block that a cache does not have, two sources for one destination, or
            caches that differ in more than their number of blocks.
        DeviceError: The caches are on no GPU, and no launcher was given.
    """
    check_copies((source_cache,), (destination_cache,))
    on_card = destination_cache if source_cache.device.type == "cpu" else source_cache
    launcher, _ = launcher_and_card(launcher, on_card)
    blocks = source_cache.shape[-4], destination_cache.shape[-4]
    ids, _ = read_pairs(pairs, *blocks, on_card.device)
    if len(ids) and source_cache.numel():
        _copy(launcher, (source_cache,), (destination_cache,), ids)


# --- pairs -------------------------------------------------------------------------------------


def read_pairs(
    pairs: Tensor | Iterable[tuple[int, int]],
    num_sources: int,
    num_destinations: int,
    device: torch.device,
) -> tuple[Tensor, bool]:
    """``[num_pairs, 2]`` int32 on the device, and whether some block is both read and written.

    Raises:
        InvalidBatch: No pairs, or on the host: ids that do not exist, one destination twice.
    """
    given = pairs if isinstance(pairs, Tensor) else torch.tensor(list(pairs), dtype=torch.int64)
    given = given.reshape(0, 2) if given.numel() == 0 else given
    if given.shape[1:] != (2,) or given.dtype not in (torch.int32, torch.int64):
        raise InvalidBatch(
            f"pairs are {given.dtype} {tuple(given.shape)}, not torch.int64 (num_pairs, 2)"
        )
    if given.device.type != "cpu":
        return given.to(torch.int32).contiguous(), False
    ids = given.numpy()
    ids = ids[(ids[:, 0] != -1) & (ids[:, 0] != ids[:, 1])]
    sources, destinations = ids.T
    for what, some, count in (
        ("source", sources, num_sources),
        ("destination", destinations, num_destinations),
    ):
        if wrong := [int(i) for i in some if not 0 <= i < count]:
            raise InvalidBatch(f"{what} {wrong[0]} is not one of {count} blocks, 0 to {count - 1}")
    unique, times = np.unique(destinations, return_counts=True)
    if (times > 1).any():
        twice = int(unique[times > 1][0])
        raise InvalidBatch(f"block {twice} is the destination of {times.max()} pairs, not of one")
    is_chained = bool(np.isin(destinations, sources).any())
    return torch.from_numpy(ids.astype(np.int32)).to(device), is_chained


# --- launches ----------------------------------------------------------------------------------


def _copy(
    launcher: Launcher, sources: Sequence[Tensor], destinations: Sequence[Tensor], pairs: Tensor
) -> None:
    """K and V in one launch if they lie in memory alike, else one after the other."""
    moves = [_as_rows(*both) for both in zip(sources, destinations)]
    alike = all(_form(x) == _form(y) for x, y in zip(moves[0], moves[-1]))
    for group in [moves] if alike else [[move] for move in moves]:
        for part in pairs.split(MAX_PAIRS):
            _launch(launcher, group, part)


def _as_rows(*caches: Tensor) -> list[Tensor]:
    """Views `[num_layers, num_blocks, tokens, heads, row]`: one row where blocks have no gaps."""
    full = [x if x.ndim == 5 else x[None] for x in caches]
    for inner in ((2, 3), (3, 2)):  # NHD, HND
        turned = [x.permute(0, 1, *inner, 4) for x in full]
        if all(x[0, 0].is_contiguous() for x in turned):
            return [x.reshape(*x.shape[:2], 1, 1, -1) for x in turned]
    return full


def _form(rows: Tensor) -> tuple[object, ...]:
    return rows.shape[2:], rows.stride()


def _launch(launcher: Launcher, moves: Sequence[Sequence[Tensor]], pairs: Tensor) -> None:
    """One launch for one or two `(source, destination)` of equal form."""
    (key_source, key_destination), (value_source, value_destination) = moves[0], moves[-1]
    layers, _, tokens, heads, row = key_source.shape
    sizes = CopySizes(
        num_pairs=len(pairs),
        num_layers=layers,
        tokens=tokens,
        heads=heads,
        row=row,
        element_bytes=key_source.element_size(),
        is_aligned=is_aligned(*(x for move in moves for x in move)),
        has_values=len(moves) == 2,
    )
    launch = plan_copy(sizes)
    unit = element_bytes(launch)["key_source"]
    arguments = {
        "key_source": key_source,
        "value_source": value_source,
        "key_destination": key_destination,
        "value_destination": value_destination,
        "pairs": pairs,
        **strides("source", key_source, AXES, unit),
        **strides("destination", key_destination, AXES, unit),
    }
    run(launcher, launch, arguments)
