"""All layers of a step in one compiled call, on a CPU; knows addresses, and the order of things.

What ``Decoder.forward`` says in torch, operation by operation, with the same compiled products and
the same compiled attention: between two of them no Python runs, which for one sequence costs as
much time as all the arithmetic of a small model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from minipaged.attention import cpu, cpu_plan, cpu_write
from minipaged.attention.cpu_primitives import version_of
from minipaged.cache import KVCache, PagedBatch
from minipaged.linear import kernels, microkernels
from minipaged.linear.kernels import ADD, GATE, STORE, multiply, normalise
from minipaged.linear.packed import Packed

from .rope import rotary_angles

F = np.float32
attend, write_rows = cpu_plan.attend, cpu_write.write_rows
_compiled = njit(nogil=True, error_model="numpy")


@_compiled
def _multiply(product, x, x_row, out, out_row, num_rows, num_threads):
    """One of a layer's products, given as ``Packed.addresses`` has it, and how it is finished.

    That is a number among others: for a constant, Numba would compile everything once more.
    """
    in_size, panels, scales, offsets, padded_size, bias, out_size, finish = product
    multiply(
        x, x_row, in_size, panels, scales, offsets, padded_size,
        bias, out, out_row, num_rows, out_size, finish, num_threads,
    )  # fmt: skip


@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def _rotate(heads, cos, sin, num_heads):
    """Turn the first heads of every row in place, as ``rope.rotate`` does."""
    num_rows, _, dim = heads.shape
    half = dim // 2
    for i in range(num_rows):
        for h in range(num_heads):
            for j in range(half):
                a, b = heads[i, h, j], heads[i, h, j + half]
                heads[i, h, j] = a * cos[i, j] + b * sin[i, j]
                heads[i, h, j + half] = b * cos[i, j + half] + a * sin[i, j + half]


def _compile():
    """The step, for this version of the files that it is made of."""
    files = kernels.__file__, microkernels.__file__, cpu_plan.__file__, cpu_write.__file__
    version = version_of(__file__, *files)

    def run(
        products, others, hidden, normed, heads, mixed, gated, cos, sin,
        problem, worker, slots, layout, epsilon, num_threads,
    ):  # fmt: skip
        """Run all layers on ``hidden``, in place; False if the batch contradicts itself.

        ``products`` is [num_layers, 4, 8], ``others`` [num_layers, 4]: addresses of two norms, K
        and V. ``layout`` is that of the cache, in bytes, as ``write_rows`` wants it.
        """
        num_rows, size = hidden.shape
        num_heads, num_kv_heads = problem[0].num_heads, problem[0].num_kv_heads
        row = heads.shape[1] * heads.shape[2]
        x, y, q, m, g = (
            np.int64(hidden.ctypes.data), np.int64(normed.ctypes.data),
            np.int64(heads.ctypes.data), np.int64(mixed.ctypes.data), np.int64(gated.ctypes.data),
        )  # fmt: skip
        block, slot, head, shape = layout
        for layer in range(len(products)):
            attention_norm, mlp_norm, key, value = others[layer]
            normalise(x, size, num_rows, size, attention_norm, epsilon, y)
            _multiply(products[layer, 0], y, size, q, row, num_rows, num_threads)
            _rotate(heads, cos, sin, num_heads + num_kv_heads)
            for first, target in ((num_heads, key), (num_heads + num_kv_heads, value)):
                at, head_bytes = q + 4 * first * heads.shape[2], 4 * heads.shape[2]
                write = at, 4 * row, head_bytes, target, block, slot, head, slots, shape
                if version and write_rows(*write) != -1:
                    return False
            problem[0].key, problem[0].value = key, value
            if not attend(problem, worker, num_threads):
                return False
            _multiply(products[layer, 1], m, mixed.shape[1], x, size, num_rows, num_threads)
            normalise(x, size, num_rows, size, mlp_norm, epsilon, y)
            _multiply(products[layer, 2], y, size, g, gated.shape[1], num_rows, num_threads)
            _multiply(products[layer, 3], g, gated.shape[1], x, size, num_rows, num_threads)
        return True

    return njit(cache=True, nogil=True, error_model="numpy")(run)


run = _compile()


class CompiledStep:
    """The layers of one `Decoder`, which calls this and so cannot be named here, as addresses."""

    def __init__(self, decoder: Any):
        self.decoder = decoder
        layers = decoder.layers
        kept = [(layer.qkv, layer.output, layer.gate_up, layer.down) for layer in layers]
        finish = STORE, ADD, GATE, ADD
        products = [[(*x.addresses, f) for x, f in zip(four, finish)] for four in kept]
        self.products = np.array(products, np.int64)
        self.norms = [(x.attention_norm.data_ptr(), x.mlp_norm.data_ptr()) for x in layers]

    @staticmethod
    def can_run(decoder: Any, cache: KVCache, attention: object) -> bool:
        """Whether all that a step calls is compiled, so that nobody else needs to be asked."""
        return (
            isinstance(decoder.layers[0].qkv, Packed)
            and decoder.layers[0].qk_norm is None
            and attention is cpu.cpu_paged_attention
            and type(cache).write is KVCache.write  # nobody watches
            and cache.write_kv is cpu.cpu_write_kv
            and cache.key.dtype == torch.float32
        )

    def warm_up(self, cache: KVCache) -> None:
        """Compile the step, or load it from disk, by a batch of nobody."""
        nothing, empty = torch.zeros(0, dtype=torch.int32), torch.zeros(0, dtype=torch.int64)
        tables, start = nothing.view(0, 0), torch.zeros(1, dtype=torch.int32)
        batch = PagedBatch(empty, empty, tables, nothing, start)
        self(torch.zeros(0, self.decoder.config.hidden_size), batch, cache)

    def __call__(self, hidden: Tensor, batch: PagedBatch, cache: KVCache) -> bool:
        """Run all layers on ``hidden`` [num_tokens, hidden_size], contiguous, in place.

        Returns:
            False if the batch contradicts itself: whoever runs it in torch is told how.
        """
        config, decoder = self.decoder.config, self.decoder
        num_tokens, key, value = len(hidden), cache.key[0], cache.value[0]
        num_heads, num_kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
        heads = torch.empty(num_tokens, num_heads + 2 * num_kv_heads, dim)
        mixed, lse = torch.empty(num_tokens, num_heads, dim), torch.empty(num_tokens, num_heads)
        gated = torch.empty(num_tokens, config.intermediate_size)
        where = batch.block_tables, batch.seq_lens, batch.query_start_loc
        tensors = [heads[:, :num_heads], key, value, mixed, lse, *where, *[None] * 4]
        problem = cpu.problem_of(tensors, window=config.sliding_window, scale=dim**-0.5)
        layers = zip(self.norms, cache.key, cache.value)
        others = [(*norms, k.data_ptr(), v.data_ptr()) for norms, k, v in layers]
        cos, sin = rotary_angles(batch.positions, decoder.frequencies, torch.float32)
        block, slot, head, _ = (4 * stride for stride in key.stride())
        sizes = num_tokens, num_kv_heads, 4 * dim, cache.block_size
        layout = block, slot, head, (*sizes, cache.num_blocks * cache.block_size)
        return run(
            self.products,
            np.array(others, np.int64),
            *(x.numpy() for x in (hidden, torch.empty_like(hidden), heads, mixed.flatten(1))),
            *(x.numpy() for x in (gated, cos[:, 0], sin[:, 0])),
            problem,
            cpu.worker_address(torch.float32, torch.float32),
            batch.slot_mapping.data_ptr(),
            layout,
            config.rms_norm_eps,
            cpu.num_threads(),
        )
