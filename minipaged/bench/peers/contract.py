"""What an adapter of an engine must be able to do; nobody imports this, it is there to be read."""

from __future__ import annotations

from typing import Any, Protocol


class Engine(Protocol):
    """An engine that can be measured. Prompts and outputs are token ids, to be compared.

    A method may raise NotImplementedError, with the reason: that work is then left out for it.

    Attributes:
        version: what was measured, "name 1.2.3".
        precision: how weights and K/V are stored, in words.
        weight_bytes, kv_bytes: of one stored number; the limits follow from them.
        compile_seconds: of the loading, what was compiling; None if it does not know.
    """

    version: str
    precision: str
    weight_bytes: float
    kv_bytes: float
    compile_seconds: float | None

    def __init__(self, options: dict[str, Any]):
        """Load the model.

        Args:
            options: model (a path), dtype, num_weights (in a step), threads, block_size,
                max_num_seqs, max_len; and kv_tokens (size of the pool in tokens, or None) with
                preemption ("recompute" or "swap").
        """
        ...

    def generate(self, prompts: list[list[int]], counts: list[int]) -> list[list[int]]:
        """Greedy tokens of requests submitted at once, end of sequence ignored.

        Every prompt is computed: nothing may be left from an earlier call.
        """
        ...

    def first_token(self, prompt: list[int], num_prefix: int, warm: bool) -> int:
        """The greedy token after a prompt; ``warm`` may reuse the first ``num_prefix`` tokens."""
        ...

    def samples(self, prompt: list[int], n: int, count: int) -> dict[str, Any]:
        """Random samples of one prompt: ``tokens`` [n][count], and ``kv_bytes`` at the peak."""
        ...

    def beams(self, prompt: list[int], width: int, count: int) -> dict[str, Any]:
        """Beam search: ``tokens``, the best hypothesis first, and ``kv_bytes`` at the peak."""
        ...

    def counters(self) -> dict[str, int]:
        """What happened since the last call: ``preemptions``, ``recomputed``, ``swapped``."""
        ...
