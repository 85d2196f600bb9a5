"""One-line faults that real schedulers and engines have had, to be planted in ours; all must die.

``like`` names the public report a fault is modelled on, as it stood when read (most are fixed). The
model is the mistake, not the code: ours is other code, so ours is another line.
"""

from __future__ import annotations

from .planted import Fault

BUDGET = "token budget"
ENTER = "admission"
LEAVE = "preemption"
AGAIN = "resuming"
CHUNK = "chunks"
PREFIX = "prefixes in flight"
FAIL = "failed steps"
SAMPLES = "samples and beams"
END = "stopping"
KEYS = "who may share"
WINDOW = "sliding window"
LOGPROBS = "log-probabilities"

SCHEDULER, ADVANCE = "engine.scheduler", "engine.advance"
INTAKE, SEQUENCE = "engine.intake", "engine.sequence"

_RELEASE = """\
            if sequence.table.pool is self.pool:
                sequence.table.release()
"""

FAULTS: tuple[Fault, ...] = (
    # --- the token budget ----------------------------------------------------------------------
    Fault(
        "what a new request computes is not taken from the budget",
        BUDGET,
        "mini-sglang #47",
        SCHEDULER,
        "                    budget -= count\n            in_flight",
        "            in_flight",
    ),
    Fault(
        "prompts go before decodes",
        BUDGET,
        "nano-vllm #73, #276",
        SCHEDULER,
        "ready[:1] + singles + others",
        "ready[:1] + others + singles",
    ),
    Fault(
        "the oldest takes all, and leaves nothing to the decodes",
        BUDGET,
        "nano-vllm #276",
        SCHEDULER,
        "most = max(1, budget - len(singles)) if sequence is ready[0] else budget",
        "most = budget",
    ),
    Fault(
        "many decodes leave nothing to the oldest",
        BUDGET,
        "vLLM #31731",
        SCHEDULER,
        "most = max(1, budget - len(singles)) if",
        "most = budget - len(singles) if",
    ),
    Fault(
        "more sequences than allowed are computed",
        BUDGET,
        "mini-sglang #47",
        SCHEDULER,
        "ready[:1] + singles + others)[: self.max_num_seqs]",
        "ready[:1] + singles + others)[:]",
    ),
    # --- who enters ----------------------------------------------------------------------------
    Fault(
        "small requests pass a large one for ever",
        ENTER,
        "vLLM #31731, #33499",
        SCHEDULER,
        "> self.pool.num_free:\n                return",
        "> self.pool.num_free:\n                continue",
    ),
    Fault(
        "known blocks do not count as room",
        ENTER,
        "vLLM #3402",
        SCHEDULER,
        "return blocks - len(found) + revived + headroom",
        "return blocks + revived + headroom",
    ),
    Fault(
        "known blocks that are free count as known and as free",
        ENTER,
        "vLLM #11562, #11565",
        SCHEDULER,
        "return blocks - len(found) + revived + headroom",
        "return blocks - len(found) + headroom",
    ),
    Fault(
        "new requests leave no headroom",
        ENTER,
        "vLLM #44594",
        SCHEDULER,
        "headroom = self.headroom if is_new and self.running else 0",
        "headroom = 0",
    ),
    Fault(
        "headroom is kept in an idle pool",
        ENTER,
        "vLLM #11, #255",
        SCHEDULER,
        "headroom = self.headroom if is_new and self.running else 0",
        "headroom = self.headroom if is_new else 0",
    ),
    Fault(
        "what can never fit waits for ever",
        ENTER,
        "vLLM #35541, nano-vllm #274",
        INTAKE,
        "if room < (1 if params.max_tokens is None else wanted):",
        "if False:",
        also=(("return min(wanted, room)", "return wanted"),),
    ),
    Fault(
        "the last token, too, needs a slot",
        ENTER,
        "vLLM #23683",
        INTAKE,
        "* size + 1 - num_prompt",
        "* size - num_prompt",
    ),
    Fault(
        "a prompt may leave no token to generate",
        ENTER,
        "vLLM #23683",
        INTAKE,
        "if len(given) >= self.max_model_len:",
        "if len(given) > self.max_model_len:",
    ),
    Fault(
        "an empty prompt enters",
        ENTER,
        "vLLM #1130, #7632",
        INTAKE,
        "if not given:",
        "if given is None:",
    ),
    # --- who leaves ----------------------------------------------------------------------------
    Fault(
        "the oldest has to leave",
        LEAVE,
        "lmdeploy #4127",
        SCHEDULER,
        "newest = self.running[-1]",
        "newest = self.running[0]",
    ),
    Fault(
        "a host without room fails the step",
        LEAVE,
        "vLLM #787, #546",
        SCHEDULER,
        "with suppress(OutOfBlocks):",
        "with suppress(KeyError):",
    ),
    Fault(
        "who leaves keeps his blocks",
        LEAVE,
        "sglang #14948",
        SCHEDULER,
        _RELEASE,
        "",
    ),
    Fault(
        "somebody enters while another must leave",
        LEAVE,
        "mistral.rs #2024",
        SCHEDULER,
        "            if not step.preempted:\n                self._admit",
        "            if True:\n                self._admit",
    ),
    Fault(
        "beams leave one by one",
        LEAVE,
        "vLLM #2606",
        SCHEDULER,
        "return [s for s in among if s.request is sequence.request]",
        "return [sequence]",
    ),
    Fault(
        "beams that hold what each other's mates need wait for ever",
        LEAVE,
        "lightllm #901",
        SCHEDULER,
        "if step.is_empty and not step.preempted and self.waiting and self.running:",
        "if False:",
    ),
    Fault(
        "who has just come back has to leave in the same step",
        LEAVE,
        "mistral.rs #2024",
        SCHEDULER,
        "if step.is_empty and not step.preempted and self.waiting and self.running:",
        "if not step.work and not step.preempted and self.waiting and self.running:",
        also=(
            (
                "ready[: self.max_num_seqs - len(step.work)]",
                "unit[: self.max_num_seqs - len(step.work)]",
            ),
        ),
    ),
    Fault(
        "torn beams are swapped",
        LEAVE,
        "vLLM #546",
        SCHEDULER,
        "if self.host_pool is not None and whole and returns:",
        "if self.host_pool is not None and returns:",
    ),
    Fault(
        "who could never come back is swapped",
        LEAVE,
        "vLLM #787, #5578",
        SCHEDULER,
        "if self.host_pool is not None and whole and returns:",
        "if self.host_pool is not None and whole:",
    ),
    # --- coming back ---------------------------------------------------------------------------
    Fault(
        "who had to leave goes to the end of the queue",
        AGAIN,
        "vLLM #5578",
        SCHEDULER,
        "            self.add(sequence)\n            step.preempted",
        "            self.waiting.append(sequence)\n            step.preempted",
    ),
    Fault(
        "who had to leave believes to be computed still",
        AGAIN,
        "lmdeploy #3589",
        SCHEDULER,
        _RELEASE,
        "            if sequence.table.pool is self.pool:\n"
        "                held, sequence.table.block_ids = sequence.table.block_ids, []\n"
        "                [self.pool.release(b) for b in held]\n",
    ),
    Fault(
        "who has generated something is taken for decoding",
        AGAIN,
        "nano-vllm #144, #145",
        SEQUENCE,
        "return len(self.token_ids) - self.table.num_tokens",
        "return min(len(self.token_ids) - self.table.num_tokens,"
        " 1 if len(self.token_ids) > self.num_prompt else 1 << 30)",
    ),
    Fault(
        "a request draws the same number for every token",
        AGAIN,
        "vLLM #19940",
        INTAKE,
        "            sequence.token_ids,\n",
        "            list(sequence.token_ids),\n",
    ),
    Fault(
        "of beams that come back only the first are looked at",
        AGAIN,
        "vLLM #5578",
        SCHEDULER,
        "ready[: self.max_num_seqs - len(step.work)]",
        "unit[: self.max_num_seqs - len(step.work)]",
    ),
    Fault(
        "who comes back without work is not found by others",
        AGAIN,
        "nano-vllm #219",
        SCHEDULER,
        "for sequence in dict.fromkeys([*(s for s, _ in step.work), *step.resumed]):",
        "for sequence, _ in step.work:",
    ),
    Fault(
        "the border between prompt and output moves",
        AGAIN,
        "vLLM #3032, #5349",
        SEQUENCE,
        "return len(self.request.prompt_token_ids)",
        "return min(len(self.token_ids), self.furthest or len(self.request.prompt_token_ids))",
    ),
    # --- chunks and plans ----------------------------------------------------------------------
    Fault(
        "more is planned than is left after a hit",
        CHUNK,
        "nano-vllm #207, #211",
        SCHEDULER,
        "count = min(member.num_remaining, budget)",
        "count = min(len(member.token_ids), budget)",
    ),
    Fault(
        "a token is sampled in the middle of a prompt",
        CHUNK,
        "mini-sglang #58",
        ADVANCE,
        "zip(step.work, ends) if not s.num_remaining]",
        "zip(step.work, ends)]",
    ),
    Fault(
        "aborting in the middle of a prompt loses its blocks",
        CHUNK,
        "mini-sglang #16",
        SCHEDULER,
        "                queue.remove(sequence)\n        sequence.table.release()",
        "                queue.remove(sequence)\n"
        "        sequence.num_remaining > 1 or sequence.table.release()",
    ),
    # --- prefixes in flight --------------------------------------------------------------------
    Fault(
        "a prefix is computed twice in one step",
        PREFIX,
        "nano-vllm #219",
        SCHEDULER,
        "return num_found < len(hashes) and hashes[num_found] in in_flight",
        "return False",
    ),
    Fault(
        "a prefix that entered in this step is not in flight",
        PREFIX,
        "vLLM #7822",
        SCHEDULER,
        "            in_flight = in_flight.union(*map(self._hashes_to_come, unit))\n",
        "",
    ),
    Fault(
        "who could share nothing waits for it all the same",
        PREFIX,
        "vLLM #35541",
        SCHEDULER,
        "return num_found < len(hashes) and hashes[num_found] in in_flight",
        "return bool(in_flight)",
    ),
    # --- failed steps --------------------------------------------------------------------------
    Fault(
        "after an exception reservations stay open",
        FAIL,
        "tiny-llm #215",
        SCHEDULER,
        "        for sequence in self.running:\n            sequence.table.cancel()\n",
        "",
    ),
    Fault(
        "bytes that may not have arrived are trusted",
        FAIL,
        "TGI #2489",
        SCHEDULER,
        "for sequence in step.resumed + (step.preempted if step.swaps_out else []):",
        "for sequence in ():",
    ),
    Fault(
        "a plan that breaks is left half done",
        FAIL,
        "lightllm #901",
        SCHEDULER,
        "            self.rollback(step)\n            raise\n        return step",
        "            raise\n        return step",
    ),
    Fault(
        "after a failed sampling nobody asks again",
        FAIL,
        "tiny-llm #215",
        SCHEDULER,
        "                sequence.table.truncate(sequence.table.num_tokens - 1)",
        "                pass",
    ),
    Fault(
        "siblings that got a token do not step back",
        FAIL,
        "vLLM #417",
        SCHEDULER,
        "if (sequence.request, *sequence.table.block_ids[-1:]) in stuck:",
        "if not sequence.num_remaining:",
    ),
    Fault(
        "a token without a text is kept",
        FAIL,
        "tiny-llm #215",
        ADVANCE,
        "            sequence.token_ids.pop()\n",
        "",
    ),
    # --- samples and beams ---------------------------------------------------------------------
    Fault(
        "all samples of a request draw alike",
        SAMPLES,
        "vLLM #11898",
        INTAKE,
        "            sequence.index,\n",
        "            0,\n",
    ),
    Fault(
        "the first sample to end ends all",
        SAMPLES,
        "vLLM #11898",
        SEQUENCE,
        "return [s for s in self.sequences if s.finish_reason is None]",
        "return [] if any(s.finish_reason for s in self.sequences) else list(self.sequences)",
    ),
    Fault(
        "aborting a request ends its first sample only",
        SAMPLES,
        "vLLM #14326",
        SEQUENCE,
        "return [s for s in self.sequences if s.finish_reason is None]",
        "return [s for s in self.sequences[:1] if s.finish_reason is None]",
    ),
    Fault(
        "samples are forked again",
        SAMPLES,
        "vLLM #417",
        ADVANCE,
        "        if born == request.params.n:\n            return [sequence]\n",
        "",
    ),
    Fault(
        "a sample is drawn from the logits of another row",
        SAMPLES,
        "TGI #1765",
        ADVANCE,
        "every_row = rows == list(range(len(logits)))",
        "every_row = len(rows) == len(logits)",
    ),
    Fault(
        "a child writes into its parent's tokens",
        SAMPLES,
        "vLLM #417",
        SEQUENCE,
        "            token_ids=list(self.token_ids),",
        "            token_ids=self.token_ids,",
    ),
    Fault(
        "beams without offspring keep their blocks",
        SAMPLES,
        "vLLM #14326",
        ADVANCE,
        "            self.scheduler.remove(beam)  # those without offspring end with their blocks",
        "            self.scheduler.running.remove(beam)",
    ),
    # --- stopping ------------------------------------------------------------------------------
    Fault(
        "one token more than max_tokens",
        END,
        "nano-vllm #270",
        ADVANCE,
        'return "length" if num_output >= request.max_tokens else None',
        'return "length" if num_output > request.max_tokens else None',
    ),
    Fault(
        "the end is the end even where it is to be ignored",
        END,
        "vLLM #4589",
        INTAKE,
        "stop_ids=params.stop_ids(eos),",
        "stop_ids=params.stop_ids(eos) | frozenset(eos),",
    ),
    Fault(
        "an end of sequence whose id is 0 is no end",
        END,
        "openvino.genai #3593",
        ADVANCE,
        "if token_id in request.stop_ids and",
        "if token_id and token_id in request.stop_ids and",
    ),
    Fault(
        "a stop string does not end it",
        END,
        "vLLM #3672",
        ADVANCE,
        '            sequence.stop_reason = stream.stop\n            return "stop"\n',
        "            sequence.stop_reason = stream.stop\n",
    ),
    Fault(
        "who has ended keeps his blocks",
        END,
        "openvino.genai #661",
        ADVANCE,
        "        self.scheduler.remove(sequence)\n        unseen",
        "        sequence in self.scheduler.running and self.scheduler.running.remove(sequence)\n"
        "        unseen",
    ),
    # --- keys, windows, log-probabilities ------------------------------------------------------
    Fault(
        "a salt changes nothing",
        KEYS,
        "vLLM #16016",
        INTAKE,
        'root_hash(self.keys if salt is None else self.keys | {"salt": salt})',
        "root_hash(self.keys)",
    ),
    Fault(
        "a window gives one block too many back",
        WINDOW,
        "lmdeploy #1277",
        SCHEDULER,
        "sequence.table.drop_before(sequence.table.num_tokens - self.window)",
        "sequence.table.drop_before(sequence.table.num_tokens - self.window + 2)",
    ),
    Fault(
        "a retried query has lost its window's first position",
        WINDOW,
        "lmdeploy #1277",
        SCHEDULER,
        "sequence.table.drop_before(sequence.table.num_tokens - self.window)",
        "sequence.table.drop_before(sequence.table.num_tokens - self.window + 1)",
    ),
    Fault(
        "prompt log-probabilities are wanted, but what is known is skipped",
        LOGPROBS,
        "vLLM #3251, #13409",
        SCHEDULER,
        'return getattr(sequence.request.params, "prompt_logprobs", None) is None',
        "return True",
    ),
    Fault(
        "asking for no alternatives counts as not asking for prompt log-probabilities",
        LOGPROBS,
        "vLLM #17251",
        SCHEDULER,
        'return getattr(sequence.request.params, "prompt_logprobs", None) is None',
        'return not getattr(sequence.request.params, "prompt_logprobs", None)',
    ),
    Fault(
        "prompt tokens that are computed again are recorded again",
        LOGPROBS,
        "vLLM #8268, #28194",
        ADVANCE,
        "first = max(start, len(known) - 1)",
        "first = start",
    ),
)
