"""What each rung of the kernels' ladder moves, counted by the simulator on one small batch."""

from __future__ import annotations

import torch

from minipaged_cuda import paged_attention
from minipaged_cuda.launch.simulated import SimulatedLauncher
from minipaged_cuda.plan import KERNELS
from minipaged_cuda.simulator import Trace

from .cuda_operations import batch

LENGTHS = (1, 10), (1, 7), (1, 4)  # (query_len, seq_len)
SIZES = {"num_heads": 2, "num_kv_heads": 2, "head_dim": 32}
COLUMNS = (
    "rung",
    "threads",
    "most loads of a thread",
    "K/V sectors",
    "useful",
    "barriers",
)


def trace(kernel: str) -> Trace:
    """One rung over the batch, without splits."""
    dtype = torch.bfloat16 if kernel == "attention" else torch.float32
    launcher = SimulatedLauncher()
    paged_attention(
        *batch(*LENGTHS, dtype=dtype, **SIZES),
        scale=32**-0.5,
        max_query_len=1,
        num_splits=1,
        kernel=kernel,
        launcher=launcher,
    )
    return launcher.last


def row(kernel: str) -> tuple[str, ...]:
    """One line of the table."""
    seen = trace(kernel)
    key, value = (seen.buffers[name].reads for name in ("key_cache", "value_cache"))
    sectors = key.sectors + value.sectors
    useful = (key.useful_bytes + value.useful_bytes) / (32 * sectors)
    counts = seen.num_ctas * seen.num_threads, key.max_per_thread + value.max_per_thread, sectors
    return f"`{kernel}`", *(f"{n:,}" for n in counts), f"{useful:.0%}", f"{seen.barriers}"


def ladder_table() -> str:
    """The ladder, rung by rung, in Markdown."""
    lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1)), *map(row, reversed(KERNELS))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
