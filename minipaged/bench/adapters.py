"""Engines behind one interface, each loaded in a process of its own; times nothing."""

from __future__ import annotations

import copy
from typing import Any, Protocol

from .work import Work


class Adapter(Protocol):
    """What an engine must be able to do to be measured. Outputs are token ids, to be compared."""

    work: Work
    version: str

    def single(self, num_tokens: int) -> list[int]:
        """Greedy tokens of one request, end of sequence ignored."""
        ...

    def mixed(self) -> int:
        """All mixed requests, submitted at once; returns the number of tokens generated."""
        ...

    def first_token(self, suffix: list[int], warm: bool) -> int:
        """The greedy token after prefix + suffix; ``warm`` may reuse the prefix, else must not."""
        ...


class Minipaged:
    """This engine, through its public interface."""

    def __init__(self, model: str, dtype: str):
        import minipaged
        from minipaged.engine.llm import LLM

        self.version = f"minipaged {minipaged.__version__}"
        self.llm = LLM(model, dtype=dtype, max_num_seqs=64, memory="2GiB")
        config = self.llm.config
        self.work = Work(config.vocab_size, min(config.max_position_embeddings, 1024))

    def single(self, num_tokens: int) -> list[int]:
        """See Adapter. The prefix cache is emptied first: every round computes its prompt."""
        self.llm.pool.forget_prefixes()
        prompt, _ = self.work.single
        return self.llm.generate(prompt, self._greedy(num_tokens))[0].outputs[0].token_ids

    def mixed(self) -> int:
        """See Adapter."""
        self.llm.pool.forget_prefixes()
        prompts = [prompt for prompt, _ in self.work.mixed]
        results = self.llm.generate(prompts, [self._greedy(n) for _, n in self.work.mixed])
        return sum(len(r.outputs[0].token_ids) for r in results)

    def first_token(self, suffix: list[int], warm: bool) -> int:
        """See Adapter."""
        if not warm:
            self.llm.pool.forget_prefixes()
        result = self.llm.generate(self.work.prefix + suffix, self._greedy(1))[0]
        return result.outputs[0].token_ids[0]

    @staticmethod
    def _greedy(num_tokens: int) -> Any:
        from minipaged.engine.params import SamplingParams

        return SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)


class Transformers:
    """``transformers``: ``generate`` with padded batches of like length, sdpa attention.

    Its batch is static: sorted by output length and cut into groups, each runs to its longest.
    """

    BATCH_SIZE = 16

    def __init__(self, model: str, dtype: str):
        import torch
        import transformers

        self.version = f"transformers {transformers.__version__}"
        self.torch = torch
        self.model = _transformers_model(model, getattr(torch, dtype))
        self.model.generation_config = transformers.GenerationConfig(
            eos_token_id=None, pad_token_id=0
        )
        config = self.model.config
        self.work = Work(config.vocab_size, min(config.max_position_embeddings, 1024))
        self._prefix: Any = None

    def single(self, num_tokens: int) -> list[int]:
        """See Adapter."""
        return self._generate([self.work.single[0]], num_tokens)[0]

    def mixed(self) -> int:
        """See Adapter."""
        ranked = sorted(self.work.mixed, key=lambda item: item[1])
        for i in range(0, len(ranked), self.BATCH_SIZE):
            group = ranked[i : i + self.BATCH_SIZE]
            self._generate([prompt for prompt, _ in group], max(n for _, n in group))
        return self.work.num_mixed_outputs  # what was asked for; the padding is its own affair

    def first_token(self, suffix: list[int], warm: bool) -> int:
        """See Adapter. Warm continues from a copy of the prefix's cache."""
        if not warm:
            return self._next(self.work.prefix + suffix, None)
        if self._prefix is None:
            from transformers import DynamicCache

            self._prefix = DynamicCache(config=self.model.config)
            self._next(self.work.prefix, self._prefix)
        return self._next(suffix, copy.deepcopy(self._prefix))

    def _next(self, token_ids: list[int], cache: Any) -> int:
        with self.torch.inference_mode():
            ids = self.torch.tensor([token_ids])
            out = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return int(out.logits[0, -1].argmax())

    def _generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        width = max(map(len, prompts))
        ids = self.torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = self.torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        with self.torch.inference_mode():
            out = self.model.generate(
                ids, attention_mask=mask, max_new_tokens=num_tokens, do_sample=False
            )
        return out[:, width:].tolist()


ADAPTERS = {"minipaged": Minipaged, "transformers": Transformers}


def _transformers_model(name: str, dtype: Any) -> Any:
    """The same weights in ``transformers``: from their directory, or by way of our GGUF reader."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    from minipaged.models.catalog import find_model
    from minipaged.models.gguf_file import GGUFFile
    from minipaged.models.gguf_model import gguf_config, gguf_weights

    path = find_model(name)
    options = {"dtype": dtype, "attn_implementation": "sdpa"}
    if path.is_dir():
        return AutoModelForCausalLM.from_pretrained(path, **options).eval()
    file = GGUFFile(path)
    ours = gguf_config(file)
    if ours.architecture != "llama" or ours.rope_scaling is not None:
        raise SystemExit(f"{name}: transformers is given only plain llama GGUF files here")
    same = ("vocab_size", "hidden_size", "intermediate_size", "head_dim", "rms_norm_eps")
    theirs = LlamaConfig(
        **{field: getattr(ours, field) for field in same},
        num_hidden_layers=ours.num_layers,
        num_attention_heads=ours.num_heads,
        num_key_value_heads=ours.num_kv_heads,
        max_position_embeddings=ours.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": ours.rope_theta},
        tie_word_embeddings=ours.tie_word_embeddings,
    )
    model = AutoModelForCausalLM.from_config(theirs, **options)
    weights = {key: tensor.to(dtype) for key, tensor in gguf_weights(file, ours).items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"weights do not fit: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model.eval()
