"""vLLM's ``KVCacheManager`` alone, on a recorded trace; no model, no engine."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any


class Manager:
    """See ``minipaged_blocks.Manager``. Its requests compute the hashes, so they are part of it."""

    def __init__(self, options: dict[str, Any]):
        import torch
        import vllm
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.request import Request

        self.version, size = f"vllm {vllm.__version__}, sha256", options["block_size"]
        init_none_hash(sha256)
        hasher, params = get_request_block_hasher(size, sha256), SamplingParams(max_tokens=1)

        def make_manager() -> Any:
            spec = FullAttentionSpec(
                block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32
            )
            groups = [KVCacheGroupSpec(["layer"], spec)]
            num_blocks = options["num_blocks"] + 1  # one is its null block
            config = KVCacheConfig(
                num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups
            )
            return KVCacheManager(
                config, max_model_len=2**20, scheduler_block_size=size, hash_block_size=size
            )

        def make_request(number: int, token_ids: list[int]) -> Any:
            return Request(
                request_id=str(number),
                prompt_token_ids=token_ids,
                sampling_params=params,
                pooling_params=None,
                block_hasher=hasher,
            )

        self.make_manager, self.make_request = make_manager, make_request

    def replay(self, trace: list[list[Any]]) -> dict[str, int]:
        """See ``minipaged_blocks.Manager``."""
        manager, running, hits = self.make_manager(), {}, 0
        for what, number, *rest in trace:
            if what == "append":
                request = running[number]
                request.append_output_token_ids(rest[0])
                assert manager.allocate_slots(request, 1) is not None
                request.num_computed_tokens += 1
            elif what == "add":
                request = running[number] = self.make_request(number, rest[0])
                blocks, found, *_ = manager.get_computed_blocks(request)
                count = request.num_tokens
                assert manager.allocate_slots(request, count - found, found, blocks) is not None
                request.num_computed_tokens, hits = count, hits + found
            else:
                manager.free(running.pop(number))
        return {"hits": hits}
