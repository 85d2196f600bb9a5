"""The decoder computes what ``transformers`` computes, for every family, through a paged cache."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from minipaged.core import ModelError
from minipaged.models import Decoder, ModelConfig
from minipaged.models.gguf_model import unpermute
from minipaged.models.weights import read_safetensors
from support.tiny_models import MODELS, in_float64, load_decoder, make_reference, run_paged

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
torch.set_num_threads(1)

PROMPTS = [[5, 17, 80, 3, 3, 44, 91, 2, 60, 31, 7, 12, 77, 50, 1, 29, 66, 8, 90, 13], [9, 70, 4]]


@pytest.fixture(scope="module", params=MODELS)
def saved(request, tmp_path_factory):
    """A reference model and the directory it was saved in."""
    directory = tmp_path_factory.mktemp(request.param)
    return make_reference(request.param, directory), directory


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A tied llama: its directory, and its logits on the first prompt."""
    directory = tmp_path_factory.mktemp("llama-tied")
    return directory, reference_logits(make_reference("llama-tied", directory), PROMPTS[0])


def reference_logits(model, prompt):
    with torch.no_grad():
        return model(torch.tensor([prompt])).logits[0]


@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize(
    "step_lens", [(), (7, 2, 4), (1,) * 20], ids=["prefill", "chunks", "one by one"]
)
def test_float32_logits_equal_the_reference(saved, block_size, step_lens):
    model, directory = saved
    decoder = load_decoder(directory)
    found = run_paged(decoder, PROMPTS, block_size=block_size, step_lens=step_lens)
    for prompt, logits in zip(PROMPTS, found, strict=True):
        expected = reference_logits(model, prompt)
        assert expected.std() > 0.5  # flat logits would agree whatever we did
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_float64_logits_equal_the_reference(saved):
    model, directory = saved
    decoder = load_decoder(directory, dtype=torch.float64)
    (logits,) = run_paged(decoder, PROMPTS[:1], block_size=3, step_lens=(6, 1))
    try:
        expected = reference_logits(in_float64(model), PROMPTS[0])
    finally:
        model.float()
    assert logits.dtype == torch.float64
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_half_precision_logits_are_within_its_rounding(saved, dtype, rounding):
    model, directory = saved
    decoder = load_decoder(directory, dtype=dtype)
    (logits,) = run_paged(decoder, PROMPTS[:1])
    expected = reference_logits(model, PROMPTS[0])
    assert logits.dtype == torch.float32
    # Some ten roundings in sequence, each relative to the largest terms of a sum.
    assert (logits - expected).abs().max() < 10 * rounding * expected.abs().max()


def test_logits_of_a_row_do_not_depend_on_the_other_rows(llama):
    directory, _ = llama
    decoder = load_decoder(directory)
    hidden = torch.randn(4, decoder.config.hidden_size)
    torch.testing.assert_close(decoder.logits(hidden)[2:3], decoder.logits(hidden[2:3]))


def test_a_tied_head_is_kept_once(llama):
    decoder = load_decoder(llama[0])
    assert decoder.embedding is decoder.head


# What must show in the logits, if not in a glance at the text.


def distance(llama, change_config=None, change_weights=None):
    directory, expected = llama
    config = load_decoder(directory).config
    weights = dict(read_safetensors(directory))
    if change_weights:
        weights = change_weights(weights)
    decoder = Decoder(dataclasses.replace(config, **change_config or {}), weights)
    (logits,) = run_paged(decoder, PROMPTS[:1])
    return (logits - expected).abs().max()


def test_the_unchanged_model_is_at_no_distance(llama):
    assert distance(llama) < 1e-4


def test_a_wrong_rope_theta_shows(llama):
    assert distance(llama, {"rope_theta": 100000.0}) > 0.01


def test_a_missing_rope_scaling_shows(tmp_path):
    model = make_reference("llama-llama3-rope", tmp_path)
    expected = reference_logits(model, PROMPTS[0])
    assert distance((tmp_path, expected), {"rope_scaling": None}) > 0.01


def test_a_missing_window_shows(tmp_path):
    expected = reference_logits(make_reference("mistral-window", tmp_path), PROMPTS[0])
    assert distance((tmp_path, expected), {"sliding_window": None}) > 0.01
    assert distance((tmp_path, expected), {"sliding_window": 6}) > 0.01


def test_interleaved_query_and_key_rows_show(llama):
    def interleave(weights):
        heads = {"q_proj": 4, "k_proj": 2}
        kinds = {name: heads.get(name.split(".")[-2]) for name in weights}
        return {n: unpermute(w, kinds[n]) if kinds[n] else w for n, w in weights.items()}

    assert distance(llama, change_weights=interleave) > 0.1


def test_an_untied_head_shows(llama):
    def untie(weights):
        embedding = weights["model.embed_tokens.weight"]
        return weights | {"lm_head.weight": embedding.roll(1, 0)}

    assert distance(llama, change_weights=untie) < 1e-4  # tied: an idle head changes nothing
    assert distance(llama, {"tie_word_embeddings": False}, untie) > 0.1


def test_an_unknown_dtype_is_refused(llama):
    with pytest.raises(ModelError, match=r"dtype torch.int16 is not supported"):
        load_decoder(llama[0], dtype=torch.int16)


@pytest.mark.gpu
def test_on_a_gpu_it_computes_the_same(saved):
    directory = saved[1]
    decoder = load_decoder(directory, device="cuda", dtype=torch.float64)
    (logits,) = run_paged(decoder, PROMPTS[:1], step_lens=(6, 1))
    expected = load_decoder(directory, dtype=torch.float64)
    torch.testing.assert_close(logits.cpu(), run_paged(expected, PROMPTS[:1])[0], rtol=0, atol=1e-5)


def test_a_checkpoint_without_tensors_is_refused():
    config = ModelConfig("llama", 96, 32, 56, 2, 4, 2, 8, 256)
    with pytest.raises(ModelError, match="says 2 layers, the checkpoint has 0 tensors in all"):
        Decoder(config, {})
