"""``llama-cpp-python``: a loop over ``llama_decode``, for its own classes batch no requests."""
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_BATCH = 512  # tokens per call


class Engine:
    """See ``contract.Engine``. Weights of float32; its K/V are float16 by default.

    A running request has a sequence number of its own. Each call of ``llama_decode`` takes one
    token of each that decodes and fills the rest with pieces of prompts, oldest first.
    """

    precision = "float32, K/V of float16"
    weight_bytes: float = 4
    kv_bytes: float = 2
    compile_seconds = None

    def __init__(self, options: dict[str, Any]):
        import llama_cpp
        import numpy

        if options.get("kv_tokens"):
            raise NotImplementedError("it cannot preempt: a full cache ends the call")
        self.api, self.numpy, self.options = llama_cpp, numpy, options
        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        llama_cpp.llama_backend_init()
        wish = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(options["model"].encode(), wish)
        self.num_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.context = llama_cpp.llama_init_from_model(self.model, self._context_params())
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(MAX_BATCH, 0, 1)
        self._has_prefix = False

    def generate(self, prompts: list[list[int]], counts: list[int]) -> list[list[int]]:
        """See ``contract.Engine``."""
        self._forget()
        outputs: list[list[int]] = [[] for _ in prompts]
        waiting = list(range(len(prompts)))[::-1]
        written: dict[int, int] = {}  # request: how many of its tokens have K/V
        while waiting or written:
            while waiting and len(written) < self.options["max_num_seqs"]:
                written[waiting.pop()] = 0
            self._step(prompts, outputs, written)
            for i in [i for i in written if len(outputs[i]) == counts[i]]:
                self.api.llama_memory_seq_rm(self.memory, self._place(i), -1, -1)
                del written[i]
        return outputs

    def first_token(self, prompt: list[int], num_prefix: int, warm: bool) -> int:
        """See ``contract.Engine``. Warm shares the cells of a sequence that holds the prefix."""
        if not warm:
            self._forget()
            return self._compute(prompt, 0, sequence=1)
        if not self._has_prefix:
            self._forget()
            self._compute(prompt[:num_prefix], 0, sequence=0)
            self._has_prefix = True
        self.api.llama_memory_seq_rm(self.memory, 1, -1, -1)
        self.api.llama_memory_seq_cp(self.memory, 0, 1, -1, -1)
        return self._compute(prompt[num_prefix:], num_prefix, sequence=1)

    def samples(self, prompt: list[int], n: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``. The prompt's cells are shared; nobody says how many are."""
        self._forget()
        draw = self.numpy.random.default_rng(1)
        self._compute(prompt, 0, sequence=0)
        for sequence in range(1, n):
            self.api.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        first = self._logits(-1)
        rows: list[list[int]] = [[self._draw(draw, first)] for _ in range(n)]
        for position in range(len(prompt), len(prompt) + count - 1):
            self._decode((row[-1], position, i, True) for i, row in enumerate(rows))
            for i, row in enumerate(rows):
                row.append(self._draw(draw, self._logits(i)))
        return {"tokens": rows, "kv_bytes": None}

    def beams(self, prompt: list[int], width: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        raise NotImplementedError("it has no beam search")

    def counters(self) -> dict[str, int]:
        """See ``contract.Engine``."""
        return {}

    def _context_params(self) -> Any:
        params = self.api.llama_context_default_params()
        num_seqs = self.options["max_num_seqs"]
        params.n_ctx = num_seqs * 512
        params.n_batch = params.n_ubatch = MAX_BATCH
        params.n_seq_max = num_seqs
        params.n_threads = params.n_threads_batch = self.options["threads"]
        params.kv_unified = True
        return params

    def _place(self, request: int) -> int:
        return request % self.options["max_num_seqs"]

    def _step(
        self, prompts: list[list[int]], outputs: list[list[int]], written: dict[int, int]
    ) -> None:
        """One call: decodes first, then prompts until it is full; whoever is at his end samples."""
        rows, ends = [], {}
        for i in sorted(written, key=lambda i: len(outputs[i]) == 0):
            known, done = prompts[i] + outputs[i], written[i]
            piece = known[done : done + MAX_BATCH - len(rows)]
            for offset, token in enumerate(piece):
                is_last = done + offset + 1 == len(known)
                rows.append((token, done + offset, self._place(i), is_last))
            written[i] += len(piece)
            if piece and written[i] == len(known):
                ends[i] = len(rows) - 1
        self._decode(rows)
        for i, row in ends.items():
            outputs[i].append(int(self._logits(row).argmax()))

    def _compute(self, tokens: list[int], start: int, sequence: int) -> int:
        for at in range(0, len(tokens), MAX_BATCH):
            piece = tokens[at : at + MAX_BATCH]
            last = at + len(piece) == len(tokens)
            self._decode(
                (token, start + at + k, sequence, last and k + 1 == len(piece))
                for k, token in enumerate(piece)
            )
        return int(self._logits(-1).argmax())

    def _decode(self, rows: Iterable[tuple[int, int, int, bool]]) -> None:
        batch, count = self.batch, 0
        for token, position, sequence, wants_logits in rows:
            batch.token[count], batch.pos[count] = token, position
            batch.n_seq_id[count], batch.seq_id[count][0] = 1, sequence
            batch.logits[count] = wants_logits
            count += 1
        batch.n_tokens = count
        if self.api.llama_decode(self.context, batch) != 0:
            raise RuntimeError(f"llama_decode failed on {count} tokens")

    def _logits(self, row: int) -> Any:  # [num_vocab]
        pointer = self.api.llama_get_logits_ith(self.context, row)
        return self.numpy.ctypeslib.as_array(pointer, shape=(self.num_vocab,))

    def _draw(self, draw: Any, logits: Any) -> int:
        weights = self.numpy.exp(logits - logits.max()).cumsum()
        return int(self.numpy.searchsorted(weights, draw.random() * weights[-1]))

    def _forget(self) -> None:
        self.api.llama_memory_clear(self.memory, True)
        self._has_prefix = False


class QuantisedEngine(Engine):
    """The same with the weights that the file has."""

    def __init__(self, options: dict[str, Any]):
        super().__init__(options)
        self.weight_bytes = self.api.llama_model_size(self.model) / options["num_weights"]
        self.precision = f"weights of {8 * self.weight_bytes:.1f} bits, K/V of float16"
