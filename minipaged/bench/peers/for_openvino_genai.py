"""``openvino-genai``: its continuous batching pipeline, out of a GGUF file."""
# pyright: reportMissingImports=false

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar


class Engine:
    """See ``contract.Engine``. It computes in float32 with weights and K/V of float16.

    Its prefix cache cannot be emptied, so whatever must be computed goes to a second pipeline that
    has none; each is made when it is first needed.
    """

    precision = "float32 from weights of float16, K/V of float16"
    weight_bytes: float = 2
    kv_bytes: float = 2
    compile_seconds = None
    PROPERTIES: ClassVar[dict[str, Any]] = {"INFERENCE_PRECISION_HINT": "f32"}
    BLOCK_SIZE = 32  # tokens, of the plugin for CPUs

    def __init__(self, options: dict[str, Any]):
        import numpy
        import openvino
        import openvino_genai

        self.numpy, self.openvino, self.genai = numpy, openvino, openvino_genai
        self.options = options
        self.version = f"openvino-genai {openvino_genai.__version__.split('-')[0]}"
        self._pipelines: dict[bool, Any] = {}
        self._directory = self._convert(Path(options["model"]))
        self._pipeline(prefix_caching=False)

    def generate(self, prompts: list[list[int]], counts: list[int]) -> list[list[int]]:
        """See ``contract.Engine``."""
        results = self._run(False, prompts, [self._config(count) for count in counts])
        return [result[0] for result in results]

    def first_token(self, prompt: list[int], num_prefix: int, warm: bool) -> int:
        """See ``contract.Engine``."""
        return self._run(warm, [prompt], [self._config(1)])[0][0][0]

    def samples(self, prompt: list[int], n: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        config = self._config(count)
        config.do_sample, config.temperature, config.rng_seed = True, 1.0, 1
        config.num_return_sequences = n
        return self._measured(prompt, config)

    def beams(self, prompt: list[int], width: int, count: int) -> dict[str, Any]:
        """See ``contract.Engine``."""
        config = self._config(count)
        config.num_beams = config.num_return_sequences = width
        return self._measured(prompt, config)

    def counters(self) -> dict[str, int]:
        """See ``contract.Engine``."""
        return {}

    def _measured(self, prompt: list[int], config: Any) -> dict[str, Any]:
        """Run one request step by step, and watch how much of its cache is in use."""
        pipeline, most = self._pipeline(prefix_caching=False), 0.0
        handle = pipeline.add_request(0, self._tensor(prompt), config)
        while pipeline.has_non_finished_requests():
            pipeline.step()
            metrics = pipeline.get_metrics()
            size = getattr(metrics, "kv_cache_size_in_bytes", metrics.cache_size_in_bytes)
            most = max(most, metrics.cache_usage / 100 * size)
        outputs = sorted(handle.read_all(), key=lambda output: -output.score)
        return {"tokens": [list(o.generated_ids) for o in outputs], "kv_bytes": int(most)}

    def _run(
        self, prefix_caching: bool, prompts: list[list[int]], configs: list[Any]
    ) -> list[list[list[int]]]:
        pipeline = self._pipeline(prefix_caching)
        results = pipeline.generate([self._tensor(prompt) for prompt in prompts], configs)
        return [[list(ids) for ids in result.m_generation_ids] for result in results]

    def _tensor(self, prompt: list[int]) -> Any:
        return self.openvino.Tensor(self.numpy.array([prompt], dtype=self.numpy.int64))

    def _config(self, count: int) -> Any:
        config = self.genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = count, True, False
        return config

    def _pipeline(self, prefix_caching: bool) -> Any:
        if prefix_caching not in self._pipelines:
            scheduler = self.genai.SchedulerConfig()
            scheduler.enable_prefix_caching = prefix_caching
            scheduler.max_num_seqs = self.options["max_num_seqs"]
            scheduler.max_num_batched_tokens = 512
            if self.options.get("kv_tokens"):
                scheduler.num_kv_blocks = -(-self.options["kv_tokens"] // self.BLOCK_SIZE)
            else:
                scheduler.cache_size = 1  # GB
            properties = {
                "INFERENCE_NUM_THREADS": self.options["threads"],
                "ENABLE_CPU_PINNING": True,
                **self.PROPERTIES,
            }
            self._pipelines[prefix_caching] = self.genai.ContinuousBatchingPipeline(
                str(self._directory), scheduler, "CPU", properties
            )
        return self._pipelines[prefix_caching]

    def _convert(self, gguf: Path) -> Path:
        """Its own form of the model is written beside the file, once."""
        if not (gguf.parent / "openvino_model.xml").exists():
            self.genai.LLMPipeline(str(gguf), "CPU", enable_save_ov_model=True)
        return gguf.parent


class QuantisedEngine(Engine):
    """The same with the weights that the file has, and K/V and arithmetic as it chooses itself."""

    precision = "weights as the file's, K/V of 8 bits"
    kv_bytes = 1
    PROPERTIES: ClassVar[dict[str, Any]] = {}

    def __init__(self, options: dict[str, Any]):
        super().__init__(options)
        stored = (self._directory / "openvino_model.bin").stat().st_size
        self.weight_bytes = stored / options["num_weights"]
        self.precision = f"weights of {8 * self.weight_bytes:.1f} bits, K/V of 8"
