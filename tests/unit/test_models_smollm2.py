"""SmolLM2-135M-Instruct, if it has been pulled, says what ``transformers`` makes it say.

Ids, logits and text below come from ``transformers`` on the dequantised weights.
"""

from __future__ import annotations

import pytest
import torch

from minipaged.attention import paged_attention
from minipaged.cache import KVCache, PagedBatch
from minipaged.core import BlockPool, BlockTable
from minipaged.models import load_model, pulled_path
from support.tiny_models import run_paged

pytestmark = pytest.mark.skipif(
    pulled_path("smollm2-135m") is None,
    reason="smollm2-135m is not in the cache; `minipaged pull smollm2-135m` puts it there",
)
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model():
    return load_model("smollm2-135m")


def test_token_ids(model):
    tokenizer = model.tokenizer
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert len(tokenizer.encode("１２ ½ Ⅳ ٣٤")) == 15
    assert tokenizer.vocab_size == model.config.vocab_size == 49152
    assert tokenizer.eos_token_ids == (2, 0)
    assert tokenizer.bos_token_id == 1


def test_chat_prompt(model):
    text = model.tokenizer.chat_text([{"role": "user", "content": "Hi"}])
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
        "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = model.tokenizer.chat([{"role": "user", "content": "Hi"}])
    assert [ids.count(i) for i in (0, 1, 2)] == [0, 3, 2]


def test_logits(model):
    (logits,) = run_paged(model.decoder, [model.tokenizer.encode("The capital of France is")])
    values, ids = logits[-1].topk(5)
    assert ids.tolist() == [7042, 260, 4528, 2250, 1315]
    expected = torch.tensor([17.3713, 14.8886, 13.2450, 13.0095, 12.9515])
    torch.testing.assert_close(values, expected, rtol=0, atol=0.02)


def test_greedy_text(model):
    prompt = "Once upon a time, there was a little dragon who"
    assert generate(model, model.tokenizer.encode(prompt), 28) == (
        " lived in a small village surrounded by a beautiful garden. The little dragon had a "
        "special flower that only grew on the side of a tree."
    )


def test_an_answer(model):
    question = [{"role": "user", "content": "What is the capital of France?"}]
    answer = generate(model, model.tokenizer.chat(question), 20)
    assert answer == "The capital of France is Paris."


def generate(model, ids, num_tokens):
    """Greedy text over one paged sequence."""
    config, pool = model.config, BlockPool(8)
    table, cache = (
        BlockTable(pool, 16),
        KVCache(config.num_layers, 8, 16, config.num_kv_heads, config.head_dim, sanitize=True),
    )
    ids, start = list(ids), len(ids)
    while len(ids) < start + num_tokens and ids[-1] not in model.tokenizer.eos_token_ids:
        new = ids[table.num_tokens :]
        table.reserve(len(new))
        batch = PagedBatch.build([table])
        hidden = model.decoder.forward(torch.tensor(new), batch, cache, paged_attention)
        table.commit(ids)
        ids.append(int(model.decoder.logits(hidden[-1:]).argmax()))
    return model.tokenizer.decode(ids[start:])
