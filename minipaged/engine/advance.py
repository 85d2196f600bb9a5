"""What a computed step means for its sequences: next tokens, siblings, beams, stops, text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from minipaged.core import BlockTable

from .beam import BeamSearch
from .executor import Executor
from .intake import Intake
from .outputs import Delta
from .params import SamplingParams
from .sampling import Logprob, prompt_logprobs, sample
from .scheduler import Scheduler, Step
from .sequence import Request, Sequence
from .text import TextStream
from .transfer import to_device


@dataclass(slots=True)
class Advancer:
    """Gives the next token to those whose tokens are all computed, and ends those that are done."""

    executor: Executor
    intake: Intake
    scheduler: Scheduler

    def advance(
        self,
        step: Step,
        hidden: Tensor,  # [num_tokens, hidden_size] of the step's tokens
        ends: list[int],  # where each sequence's rows end
    ) -> Iterator[Delta]:
        """What the step added, sequence by sequence. Logits are computed only where needed.

        Whoever was not reached when something fails is as before, and can be advanced again.
        """
        ready = [(s, end - 1) for (s, _), end in zip(step.work, ends) if not s.num_remaining]
        if not ready:
            return
        logits = self.executor.logits(hidden, [row for _, row in ready])
        samples: list[Sequence] = []
        rows: list[int] = []
        for row, (sequence, _) in enumerate(ready):
            search = sequence.request.search
            if search is not None:
                sequence.candidates = search.candidates(logits[row])
                continue
            siblings = self._with_siblings(sequence)
            samples += siblings
            rows += [row] * len(siblings)
        for request in dict.fromkeys(s.request for s, _ in ready if s.request.is_beam):
            yield from self._advance_beams(request)
        if samples:
            every_row = rows == list(range(len(logits)))
            chosen = sample(
                logits if every_row else logits[to_device(rows, logits.device)],
                [s.row for s in samples],  # type: ignore[misc]
            )
            for sequence, token, logprobs in zip(samples, chosen.token_ids, chosen.logprobs):
                yield self._append(sequence, token, logprobs)

    def record_prompts(self, step: Step, hidden: Tensor, ends: list[int]) -> None:
        """Keep log-probabilities of the prompts, where asked for, before the step is committed."""
        for (sequence, count), end in zip(step.work, ends):
            if sequence.request.prompt_logprobs is not None and sequence.index == 0:
                self._record_prompt(sequence, hidden, range(end - count, end))

    def finish(self, sequence: Sequence, reason: str) -> Delta:
        """End a sequence in whatever state: its blocks are free, its held-back text comes out."""
        is_beam, text = sequence.row is None, ""
        try:
            stream = self._stream(sequence)
            text = (stream.text if is_beam else "") + stream.flush()
        except Exception:
            if reason in ("stop", "length"):
                raise  # else: no tokenizer may keep a request from giving its blocks back
        sequence.finish_reason = reason
        self.scheduler.remove(sequence)
        unseen = tuple(sequence.output_token_ids) if is_beam else ()  # it might have lost till now
        return Delta(sequence.request.request_id, sequence.index, text, unseen, reason)

    def _fail(self, sequence: Sequence) -> Delta:
        """End a sequence whose logits are no numbers."""
        sequence.request.error = (
            f"the logits after token {len(sequence.token_ids)} of request "
            f"{sequence.request.request_id!r} have no finite maximum: the weights, the cache or "
            "the attention function produced NaN or infinity"
        )
        self.scheduler.pool.forget_prefixes()  # nobody may find K and V that are no better
        return self.finish(sequence, "error")

    def _stream(self, sequence: Sequence) -> TextStream:
        """The text of a sequence, made of all its tokens if there is none."""
        if sequence.stream is None:
            params = sequence.request.params
            if not isinstance(params, SamplingParams):
                params = SamplingParams(skip_special_tokens=params.skip_special_tokens)
            stream = TextStream(self.intake.tokenizer, params)
            for token_id in sequence.output_token_ids:
                stream.append(token_id)
            sequence.stream = stream
        return sequence.stream

    # --- samples -------------------------------------------------------------------------------

    def _with_siblings(self, sequence: Sequence) -> list[Sequence]:
        """All samples of the prompt, born as forks once it is computed; later just the one."""
        request = sequence.request
        assert isinstance(request.params, SamplingParams)
        born = len(request.sequences)
        if born == request.params.n:
            return [sequence]
        for index in range(born, request.params.n):
            sibling = sequence.fork(index)
            self.intake.equip(sibling)
            request.sequences.append(sibling)
            self.scheduler.join(sibling)
        return list(request.sequences)

    def _append(
        self, sequence: Sequence, token_id: int, logprobs: dict[int, Logprob] | None
    ) -> Delta:
        """One more token for a sample, and whether it was the last."""
        if token_id < 0:
            return self._fail(sequence)
        stream = self._stream(sequence)
        sequence.token_ids.append(token_id)
        try:
            text = stream.append(token_id)
            reason = self._reason_to_stop(sequence, token_id)
            if reason is not None:
                text += self.finish(sequence, reason).text
        except BaseException:
            sequence.token_ids.pop()
            sequence.stream = None  # it may know this token already
            raise
        if logprobs is not None:
            sequence.logprobs.append(logprobs)
            sequence.cumulative_logprob += logprobs[token_id].logprob
        request_id = sequence.request.request_id
        return Delta(request_id, sequence.index, text, (token_id,), reason)

    @staticmethod
    def _reason_to_stop(sequence: Sequence, token_id: int) -> str | None:
        request, stream = sequence.request, sequence.stream
        num_output = len(sequence.token_ids) - sequence.num_prompt
        if stream is not None and stream.stop is not None:
            sequence.stop_reason = stream.stop
            return "stop"
        if token_id in request.stop_ids and num_output > request.params.min_tokens:
            if token_id in (request.params.stop_token_ids or ()):
                sequence.stop_reason = token_id
            return "stop"
        return "length" if num_output >= request.max_tokens else None

    def _record_prompt(self, sequence: Sequence, hidden: Tensor, rows: range) -> None:
        """Log-probabilities of the prompt's tokens, as far as this step computed them."""
        request, end = sequence.request, sequence.table.num_reserved
        params, known = request.params, request.prompt_logprobs
        assert isinstance(params, SamplingParams)
        assert known is not None
        start = end - len(rows)
        first = max(start, len(known) - 1)  # after a preemption some are computed again
        following = request.prompt_token_ids[first + 1 : end + 1]
        if following:
            logits = self.executor.logits(hidden, rows[first - start :][: len(following)])
            known += prompt_logprobs(logits, following, params.prompt_logprobs or 0)

    # --- beams ---------------------------------------------------------------------------------

    def _advance_beams(self, request: Request) -> list[Delta]:
        """When the last beam has its candidates, choose who goes on."""
        beams, search = request.sequences, request.search
        assert search is not None
        if any(beam.candidates is None or beam.num_remaining for beam in beams):
            return []
        for beam in beams:
            if not beam.candidates:
                return [self._fail(mate) for mate in beams]
        search = search.advance([beam.candidates or () for beam in beams])
        going = [] if search.done else _offspring(search, beams)
        results = self._results(request, search) if search.done else []
        deltas = [self.finish(s, h.finish_reason) for s, h in zip(results, search.results)]
        for beam in beams:
            self.scheduler.remove(beam)  # those without offspring end with their blocks
        for beam in going:
            self.scheduler.join(beam)
        request.search, request.sequences = search, going or results
        return deltas

    def _results(self, request: Request, search: BeamSearch) -> list[Sequence]:
        """The finished hypotheses as sequences, best first; they hold no blocks."""
        results = []
        for i, hypothesis in enumerate(search.results):
            tokens = [*request.prompt_token_ids, *hypothesis.token_ids]
            results.append(Sequence(request, i, tokens, BlockTable(self.intake.pool, 1)))
            results[-1].cumulative_logprob = hypothesis.logprob
        return results


def _offspring(search: BeamSearch, beams: list[Sequence]) -> list[Sequence]:
    """Every surviving beam as a fork of its parent."""
    children = [beams[beam.parent].fork(i) for i, beam in enumerate(search.beams)]
    for child, beam in zip(children, search.beams):
        child.token_ids.append(beam.token_ids[-1])
        child.cumulative_logprob = beam.logprob
    return children
