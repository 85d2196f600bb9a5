"""``transformers``: static batches by ``generate``, and its continuous batching."""

from __future__ import annotations

import copy
from typing import Any


class Engine:
    """See ``contract.Engine``. ``generate`` with padded batches, sdpa attention.

    Its batch is static: sorted by output length and cut into groups, each runs to its longest.
    """

    BATCH_SIZE = 16
    compile_seconds = None

    def __init__(self, options: dict[str, Any]):
        import torch
        import transformers

        torch.set_num_threads(options["threads"])
        self.torch, self.transformers, self.options = torch, transformers, options
        dtype = getattr(torch, options["dtype"])
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.model: Any = load(options["model"], dtype=dtype, attn_implementation="sdpa").eval()
        self.model.generation_config = transformers.GenerationConfig(
            eos_token_id=None, pad_token_id=0
        )
        self.version = f"transformers {transformers.__version__}"
        self.precision = options["dtype"]
        self.weight_bytes = self.kv_bytes = dtype.itemsize
        self._prefix: Any = None

    def generate(self, prompts: list[list[int]], counts: list[int]) -> list[list[int]]:
        """See ``contract.Engine``."""
        if self.options.get("kv_tokens"):
            raise NotImplementedError("generate has no pool of K/V blocks")
        order = sorted(range(len(prompts)), key=counts.__getitem__)
        outputs: list[list[int]] = [[]] * len(prompts)
        for start in range(0, len(order), self.BATCH_SIZE):
            group = order[start : start + self.BATCH_SIZE]
            longest = max(counts[i] for i in group)
            out = self._generate([prompts[i] for i in group], longest)
            for i, row in zip(group, out.sequences.tolist()):
                outputs[i] = row[-longest:][: counts[i]]
        return outputs

    def first_token(self, prompt: list[int], num_prefix: int, warm: bool) -> int:
        """See ``contract.Engine``. Warm continues from a copy of the prefix's cache."""
        if not warm:
            return self._next(prompt, None)
        if self._prefix is None:
            self._prefix = self.transformers.DynamicCache(config=self.model.config)
            self._next(prompt[:num_prefix], self._prefix)
        return self._next(prompt[num_prefix:], copy.deepcopy(self._prefix))

    def samples(self, prompt: list[int], n: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        self.torch.manual_seed(1)
        return self._kept(
            self._generate([prompt], count, do_sample=True, top_k=0, num_return_sequences=n), count
        )

    def beams(self, prompt: list[int], width: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        return self._kept(
            self._generate([prompt], count, num_beams=width, num_return_sequences=width), count
        )

    def counters(self) -> dict[str, int]:
        """See ``contract.Engine``."""
        return {}

    def _kept(self, out: Any, count: int) -> dict[str, Any]:
        layers = getattr(out.past_key_values, "layers", [])
        kv_bytes = sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)
        return {"tokens": [row[-count:] for row in out.sequences.tolist()], "kv_bytes": kv_bytes}

    def _next(self, token_ids: list[int], cache: Any) -> int:
        with self.torch.inference_mode():
            ids = self.torch.tensor([token_ids])
            out = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return int(out.logits[0, -1].argmax())

    def _generate(self, prompts: list[list[int]], count: int, **options: Any) -> Any:
        width = max(map(len, prompts))
        ids = self.torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = self.torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        options = {"do_sample": False, "max_new_tokens": count, **options}
        with self.torch.inference_mode():
            return self.model.generate(
                ids, attention_mask=mask, return_dict_in_generate=True, **options
            )


class ContinuousEngine(Engine):
    """See ``contract.Engine``. ``generate_batch``: its paged cache and continuous batching."""

    PAGE_SIZE = 32

    def __init__(self, options: dict[str, Any]):
        super().__init__(options)
        self.version += ", continuous batching"
        tokens = options.get("kv_tokens") or 2 * options["max_num_seqs"] * 512
        self.config = self.transformers.generation.ContinuousBatchingConfig(
            page_size=self.PAGE_SIZE,
            num_blocks=-(-tokens // self.PAGE_SIZE),
            max_batch_tokens=512,
            max_requests_per_batch=options["max_num_seqs"],
        )

    def generate(self, prompts: list[list[int]], counts: list[int]) -> list[list[int]]:
        """See ``contract.Engine``. A manager of its own per call: no prefix is left from before."""
        config = self.transformers.GenerationConfig(
            do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=max(counts)
        )
        with self.model.continuous_batching_context_manager(
            generation_config=config, continuous_batching_config=self.config
        ) as manager:
            for i, (prompt, count) in enumerate(zip(prompts, counts)):
                manager.add_request(prompt, request_id=str(i), max_new_tokens=count)
            outputs: dict[str, list[int]] = {}
            while len(outputs) < len(prompts):
                result = manager.get_result(timeout=1)
                if result is None and not manager.is_running():
                    raise RuntimeError("the continuous batching manager stopped")
                if result is not None and result.is_finished():
                    outputs[result.request_id] = list(result.generated_tokens)
        return [outputs[str(i)] for i in range(len(prompts))]

    def first_token(self, prompt: list[int], num_prefix: int, warm: bool) -> int:
        """See ``contract.Engine``."""
        raise NotImplementedError("its prefix cache lives no longer than one batch here")

    def samples(self, prompt: list[int], n: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        raise NotImplementedError("several samples of a prompt are not asked of it here")

    def beams(self, prompt: list[int], width: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        raise NotImplementedError("continuous batching has no beam search")
