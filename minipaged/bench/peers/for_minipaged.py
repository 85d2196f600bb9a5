"""This engine, through its public interface, for ``contract.Engine``."""

from __future__ import annotations

import dataclasses
from typing import Any


class Engine:
    """See ``contract.Engine``. Prefixes are forgotten first: every round computes its prompts."""

    def __init__(self, options: dict[str, Any]):
        import minipaged
        from minipaged import LLM

        size = options["block_size"]
        pool: dict[str, Any] = {"memory": "2GiB"}
        if options.get("kv_tokens"):
            pool = {"num_blocks": -(-options["kv_tokens"] // size)}
        self.llm = LLM(
            options["model"],
            dtype=options["dtype"],
            block_size=size,
            max_num_seqs=options["max_num_seqs"],
            preemption=options.get("preemption") or "recompute",
            **pool,
        )
        cache = self.llm.cache
        config = self.llm.config
        numbers = config.num_layers * 2 * size * config.num_kv_heads * config.head_dim
        self.version = f"minipaged {minipaged.__version__}"
        self.kv_bytes = cache.bytes_per_block / numbers
        self.weight_bytes = {"float64": 8, "float32": 4, "int8": 1}.get(options["dtype"], 2)
        self.precision = f"{options['dtype']}, K/V of {self.kv_bytes:g} bytes"
        self.compile_seconds = self.llm.stats.compile_seconds
        self._seen = dataclasses.replace(self.llm.stats)

    def generate(self, prompts: list[list[int]], counts: list[int]) -> list[list[int]]:
        """See ``contract.Engine``."""
        self.llm.pool.forget_prefixes()
        results = self.llm.generate(prompts, [self._greedy(count) for count in counts])
        return [result.outputs[0].token_ids for result in results]

    def first_token(self, prompt: list[int], num_prefix: int, warm: bool) -> int:
        """See ``contract.Engine``."""
        if not warm:
            self.llm.pool.forget_prefixes()
        return self.llm.generate(prompt, self._greedy(1))[0].outputs[0].token_ids[0]

    def samples(self, prompt: list[int], n: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        from minipaged import SamplingParams

        return self._peak(prompt, SamplingParams(n=n, seed=1, max_tokens=count, ignore_eos=True))

    def beams(self, prompt: list[int], width: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        from minipaged import BeamSearchParams

        wish = BeamSearchParams(beam_width=width, max_tokens=count, ignore_eos=True)
        return self._peak(prompt, wish)

    def counters(self) -> dict[str, int]:
        """See ``contract.Engine``."""
        new = self.llm.stats.since(self._seen)
        self._seen = dataclasses.replace(self.llm.stats)
        return {
            "preemptions": new.num_preemptions,
            "recomputed": new.tokens_recomputed,
            "swapped": new.blocks_swapped,
        }

    def _peak(self, prompt: list[int], wish: Any) -> dict[str, Any]:
        """Run one request, and say how much of the cache was in use at the most."""
        self.llm.pool.forget_prefixes()
        self.llm.stats.peak_blocks = 0
        (result,) = self.llm.generate(prompt, wish)
        return {
            "tokens": [output.token_ids for output in result.outputs],
            "kv_bytes": self.llm.stats.peak_blocks * self.llm.cache.bytes_per_block,
        }

    @staticmethod
    def _greedy(count: int) -> Any:
        from minipaged import SamplingParams

        return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
