"""The engine: continuous batching, sampling, beams, streaming. ``LLM`` is in ``minipaged``."""
