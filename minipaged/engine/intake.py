"""Turns a prompt into a request that is known to be possible, or says why not; runs nothing."""

from __future__ import annotations

import secrets
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from minipaged.core import BlockPool, BlockTable, InvalidRequest, root_hash

from .beam import BeamSearch
from .params import BeamSearchParams, SamplingParams
from .sampling import Row
from .sequence import Request, Sequence

Params = SamplingParams | BeamSearchParams
Prompt = str | Seq[int]


@dataclass(slots=True)
class Intake:
    """What every prompt is measured against: the model's sizes, the tokenizer and the pool."""

    tokenizer: Any
    vocab_size: int
    max_model_len: int
    pool: BlockPool
    block_size: int
    keys: dict[str, str] | None  # what a prefix hash depends on; None: prefixes are not cached
    num_taken: int = 0
    _roots: dict[str | None, bytes] = field(default_factory=dict)

    def request(
        self, prompt: Prompt, params: Params, request_id: str | None = None, salt: str | None = None
    ) -> Request:
        """One request with its first sequence, not queued yet.

        Raises:
            InvalidRequest: an empty or too long prompt, unknown token ids, or more tokens than an
                empty pool could hold; with the numbers.
        """
        params.validate_for(self.vocab_size)
        token_ids = self._token_ids(prompt)
        max_tokens = self._max_tokens(len(token_ids), params)
        eos = self.tokenizer.eos_token_ids
        request = Request(
            request_id=str(self.num_taken) if request_id is None else request_id,
            order=self.num_taken,
            prompt=prompt if isinstance(prompt, str) else None,
            prompt_token_ids=token_ids,
            params=params,
            max_tokens=max_tokens,
            stop_ids=params.stop_ids(eos),
            root=self._root(salt),
        )
        self.num_taken += 1
        table = BlockTable(self.pool, self.block_size, request.root)
        first = Sequence(request, 0, list(token_ids), table)
        request.sequences.append(first)
        if isinstance(params, BeamSearchParams):
            request.search = BeamSearch.start(params, eos, max_tokens)
        else:
            request.seed = secrets.randbits(63) if params.seed is None else params.seed
            if params.prompt_logprobs is not None:
                request.prompt_logprobs = [None]  # nothing comes before the first token
            self.equip(first)
        return request

    def equip(self, sequence: Sequence) -> None:
        """Give a sample its own place in the random stream."""
        request = sequence.request
        assert isinstance(request.params, SamplingParams)
        sequence.row = Row(
            request.params,
            request.seed,
            sequence.index,
            sequence.token_ids,
            len(request.prompt_token_ids),
            self.tokenizer.eos_token_ids,
        )

    def _token_ids(self, prompt: Prompt) -> list[int]:
        given = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not given:
            raise InvalidRequest("the prompt is empty: it must hold at least one token")
        for token in given:
            if not isinstance(token, Integral) or not 0 <= int(token) < self.vocab_size:
                raise InvalidRequest(
                    f"token {token!r} of the prompt: must be a whole number below the "
                    f"vocabulary's size, {self.vocab_size}"
                )
        if len(given) >= self.max_model_len:
            raise InvalidRequest(
                f"the prompt has {len(given)} tokens, prompt and output together may have "
                f"{self.max_model_len}: at least one must be left to generate"
            )
        return list(map(int, given))

    def _max_tokens(self, num_prompt: int, params: Params) -> int:
        """How many tokens it may generate, such that an empty pool could hold it.

        The last token has no slot, because it is never fed back. Beams are only certain to share
        the prompt's full blocks, and that only if prefixes are cached.
        """
        size, width = self.block_size, getattr(params, "beam_width", 1)
        shared = num_prompt // size if width > 1 and self.keys is not None else 0
        room = ((self.pool.num_blocks - shared) // width + shared) * size + 1 - num_prompt
        wanted = self.max_model_len - num_prompt
        if params.max_tokens is not None:
            wanted = min(wanted, params.max_tokens)
        if room < (1 if params.max_tokens is None else wanted):
            needed = shared + width * (-(-(num_prompt + wanted - 1) // size) - shared)
            beams = f" with beam_width={width}" if width > 1 else ""
            raise InvalidRequest(
                f"{num_prompt} prompt tokens and max_tokens={wanted}{beams} need {needed} blocks "
                f"of {size}, the whole pool has {self.pool.num_blocks}: ask for less, or give the "
                "pool more memory"
            )
        return min(wanted, room)

    def _root(self, salt: str | None) -> bytes | None:
        """Hash chains of different salts, models or dtypes never meet."""
        if self.keys is None:
            return None
        if salt not in self._roots:
            self._roots[salt] = root_hash(self.keys if salt is None else self.keys | {"salt": salt})
        return self._roots[salt]
