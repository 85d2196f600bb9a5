"""Adapter for vLLM's KVCacheManager (v1), from an installed vLLM; nothing of it is copied here.

vLLM has no forks and no copies in this manager; its scheduler is not judged, only its blocks.
"""

# ruff: noqa: D102 - what each method means is said in ``protocol``

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from .contract import ManagerContract, Size

VLLM = ManagerContract(
    keys=("", "x"),
    cache_off=True,
    reserved_blocks=1,  # the null block
    deduplicates=False,
    shares_in_step=True,  # a block is findable when its slots are promised
    whole_steps=False,  # slots are asked for one request at a time
    drafts=False,
)
"""What KVCacheManager 0.32.0 keeps."""


@functools.cache
def load() -> SimpleNamespace:
    """The parts of vLLM that are needed.

    Raises:
        ImportError: vLLM is not installed here.
    """
    import torch
    from vllm.sampling_params import SamplingParams  # type: ignore[import-not-found]
    from vllm.utils.hashing import sha256  # type: ignore[import-not-found]
    from vllm.v1.core import kv_cache_manager, kv_cache_utils  # type: ignore[import-not-found]
    from vllm.v1.kv_cache_interface import (  # type: ignore[import-not-found]
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
    )
    from vllm.v1.request import Request  # type: ignore[import-not-found]

    kv_cache_utils.init_none_hash(sha256)

    def make_manager(size: Size) -> Any:
        spec = FullAttentionSpec(
            block_size=size.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        config = KVCacheConfig(size.num_blocks, [], [KVCacheGroupSpec(["layer"], spec)])
        return kv_cache_manager.KVCacheManager(
            config,
            max_model_len=8192,
            scheduler_block_size=size.block_size,
            hash_block_size=size.block_size,
            enable_caching=size.cache,
        )

    def make_request(name: str, tokens: list[int], key: str | None, block_size: int) -> Any:
        hasher = kv_cache_utils.get_request_block_hasher(block_size, sha256)
        params = SamplingParams(max_tokens=8192)
        return Request(name, tokens, params, None, cache_salt=key or None, block_hasher=hasher)

    return SimpleNamespace(make_manager=make_manager, make_request=make_request)


class VllmAdapter:
    """``KVCacheManager`` with one group of full attention."""

    def __init__(self, size: Size):
        self.vllm, self.size = load(), size
        self.manager = self.vllm.make_manager(size)
        self.requests: dict[str, Any] = {}

    def _request(self, name: str, tokens: list[int], key: str | None) -> Any:
        return self.vllm.make_request(name, list(tokens), key, self.size.block_size)

    def add(self, name: str, tokens: list[int], key: str | None, num_new: int) -> int | None:
        request = self._request(name, tokens, key)
        blocks, hit, _ = self.manager.get_computed_blocks(request)
        num_new = min(num_new, len(tokens) - hit)
        if self.manager.allocate_slots(request, num_new, hit, blocks) is None:
            return None
        request.num_computed_tokens = hit
        self.requests[name] = request
        return hit

    def reserve(self, work: list[tuple[str, list[int], int]]) -> list | None:
        ((name, _, num_new),) = work
        return None if self.manager.allocate_slots(self.requests[name], num_new) is None else []

    def commit(self, name: str, tokens: list[int], num_computed: int) -> None:
        request = self.requests[name]
        request.append_output_token_ids(tokens[request.num_tokens : num_computed])
        request.num_computed_tokens = num_computed
        self.manager.cache_blocks(request, num_computed)

    def find(self, tokens: list[int], key: str | None) -> int:
        return self.manager.get_computed_blocks(self._request("a look", tokens, key))[1]

    def free(self, name: str) -> None:
        self.manager.free(self.requests[name])

    def reset(self) -> bool:
        return self.manager.reset_prefix_cache()

    def tables(self) -> dict[str, list[int]]:
        return {name: self.manager.get_block_ids(name)[0] for name in self.requests}

    def num_free(self) -> int:
        return self.manager.block_pool.get_num_free_blocks()
