"""Count what the slots of a reserving cache do.

All requests, pairs `(prompt_len, output_len)`, wait from the beginning. When a
request is admitted, `reserve(prompt_len, output_len)` slots are its own until
it leaves. One step:

1. Admit from the front of the queue, as long as the next reservation still
   fits beside the others. Nobody overtakes: if the first one does not fit,
   nobody is admitted.
2. Count. In its first step a request holds `prompt_len` tokens, in each later
   step one more.
3. After `output_len` steps a request leaves. Its last token takes no slot,
   because it is never fed back: at most `prompt_len + output_len - 1` of its
   slots ever hold a token.

Return four numbers, each summed over all steps: slots that hold a token; that
are reserved and will hold one later; that are reserved and never will; and
that are free.

A request with a prompt of 2 and an output of 3 gets 6 of 8 slots. It holds 2,
then 3, then 4 tokens; 2 + 1 + 0 slots wait for later tokens, 3 * 2 are never
used, 3 * 2 are free:

    >>> count([(2, 3)], 8, lambda prompt_len, output_len: 6)
    (9, 3, 6, 6)

Two requests of 3 slots do not fit into 5 together, so the second waits for the
first:

    >>> count([(1, 2), (2, 1)], 5, lambda prompt_len, output_len: 3)
    (5, 1, 3, 6)
"""

from collections.abc import Callable


def count(
    requests: list[tuple[int, int]],  # (prompt_len, output_len); each fits into an empty pool
    num_slots: int,
    reserve: Callable[[int, int], int],
) -> tuple[int, int, int, int]:  # tokens, later, never, free: slots, summed over the steps
    """What the slots do, from the first step to the last."""
    raise NotImplementedError("count what every slot does in every step")
