"""Tokenizers follow the model's own files: words, bytes, special tokens, chat templates."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers, processors

from minipaged.core import InvalidRequest, ModelError
from minipaged.models import Tokenizer as OurTokenizer
from minipaged.models.gguf_tokenizer import RULES, gguf_tokenizer, splitter
from support.tiny_models import save_tokenizer

CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}"
CHAT += "{% if add_generation_prompt %}<|assistant|>{% endif %}"
HELLO = [{"role": "user", "content": "the cat"}]


@pytest.fixture
def directory(tmp_path):
    save_tokenizer(tmp_path)
    return tmp_path


def reload(directory, file="tokenizer_config.json", **options) -> OurTokenizer:
    path = directory / file
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | options))
    return OurTokenizer.from_directory(directory)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(directory)
    return OurTokenizer.from_directory(directory)


@given(st.text())
def test_no_text_is_lost(byte_level, text):
    assert byte_level.decode(byte_level.encode(text)) == text


def test_special_tokens_are_skipped_on_demand(byte_level):
    ids = [byte_level.bos_token_id, *byte_level.encode("the cat")]
    assert byte_level.decode(ids) == "the cat"
    assert byte_level.decode(ids, skip_special_tokens=False) == "<s>the cat"


# bos and eos


def test_bos_as_the_files_say(directory):
    plain = reload(directory).encode("the cat")
    assert reload(directory, add_bos_token=True).encode("the cat") == [0, *plain]
    assert reload(directory, add_bos_token=False).encode("the cat") == plain
    core = Tokenizer.from_file(str(directory / "tokenizer.json"))
    core.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    core.save(str(directory / "tokenizer.json"))
    assert reload(directory, add_bos_token=None).encode("the cat") == [0, *plain]
    assert reload(directory, add_bos_token=True).encode("the cat") == [0, *plain]  # not twice
    assert reload(directory, add_bos_token=False).encode("the cat") == plain
    assert reload(directory, bos_token=None, add_bos_token=True).encode("the cat") == plain


def test_saved_truncation_and_padding_do_not_touch_prompts(directory):
    core = Tokenizer.from_file(str(directory / "tokenizer.json"))
    core.enable_truncation(2)
    core.enable_padding(length=5)
    core.save(str(directory / "tokenizer.json"))
    tokenizer = reload(directory)
    assert tokenizer.decode(tokenizer.encode("the cat sat on")) == "the cat sat on"


def test_every_file_may_name_an_end(directory):
    assert reload(directory).eos_token_ids == (1,)
    assert reload(directory, "config.json", eos_token_id=7).eos_token_ids == (7, 1)
    generation = {"file": "generation_config.json"}
    assert reload(directory, **generation, eos_token_id=[2, 1]).eos_token_ids == (2, 1)
    assert reload(directory, **generation, eos_token_id=None).eos_token_ids == (1,)
    assert reload(directory, eos_token={"content": "<|im_end|>"}).eos_token_ids == (2,)
    with pytest.raises(ModelError, match=r"eos_token_id should be a token id or a list .* '</s>'"):
        reload(directory, **generation, eos_token_id="</s>")


# chat


def test_a_chat_is_written_by_the_template(directory):
    tokenizer = reload(directory, chat_template=CHAT)
    assert tokenizer.chat_text(HELLO) == "<|user|>the cat</s><|assistant|>"
    assert tokenizer.chat_text(HELLO, add_generation_prompt=False) == "<|user|>the cat</s>"
    assert tokenizer.decode(tokenizer.chat(HELLO), skip_special_tokens=False) == (
        "<|user|>the cat</s><|assistant|>"
    )
    assert tokenizer.chat(HELLO).count(1) == 1  # `</s>` became one token


def test_a_chat_gets_no_second_bos(directory):
    tokenizer = reload(directory, chat_template="{{ bos_token }}hi", add_bos_token=True)
    assert tokenizer.chat(HELLO).count(tokenizer.bos_token_id) == 1


def test_where_a_template_may_stand(directory):
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    assert reload(directory, chat_template=named).chat_text(HELLO) == "yes"
    (directory / "chat_template.jinja").write_text("own file")
    assert reload(directory).chat_text(HELLO) == "own file"


def test_what_templates_may_call(directory):
    template = "{{ messages[0] | tojson }} {{ strftime_now('%Y') | length }}"
    template += "{% if tools is not none %}tools{% endif %}"
    template += "{% for m in messages %}{% break %}{% endfor %}"
    messages = [{"role": "user", "content": "é<&>"}]
    text = reload(directory, chat_template=template).chat_text(messages)
    assert text == '{"role": "user", "content": "é<&>"} 4'


def test_a_model_without_a_template_says_so(directory):
    with pytest.raises(ModelError, match="no chat template; complete a plain prompt instead"):
        reload(directory).chat(HELLO)


def test_a_template_that_objects_is_a_bad_request(directory):
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(InvalidRequest, match="template objects: roles must alternate"):
        reload(directory, chat_template=template).chat(HELLO)


def test_a_template_that_is_no_jinja_is_a_bad_model(directory):
    with pytest.raises(ModelError, match="no valid Jinja"):
        reload(directory, chat_template="{% if %}").chat(HELLO)


@pytest.mark.parametrize("escape", ["''.__class__.__mro__", "messages.append(1)"])
def test_a_template_stays_in_its_sandbox(directory, escape):
    with pytest.raises(InvalidRequest, match="template objects"):
        reload(directory, chat_template="{{ " + escape + " }}").chat(HELLO)


@pytest.mark.parametrize("message", [{"role": "user"}, {"content": "hi"}, {}])
def test_a_turn_needs_role_and_content(directory, message):
    with pytest.raises(InvalidRequest, match="message 1 needs a role and a content"):
        reload(directory, chat_template=CHAT).chat([*HELLO, message])


def test_unreadable_directories_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        OurTokenizer.from_directory(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ModelError, match=r"cannot read .*tokenizer\.json"):
        OurTokenizer.from_directory(tmp_path)


# GGUF

TEXTS = [
    "Hello, world! It's 2024; we'LL see\r\n\r\n  indented\tand   spaced  ",
    "１２ ½ Ⅳ ٣٤ 12345678",
    "don't DON'T naïve Ω≈ç√ 漢字かな交じり 한국어 🙂👩‍👩‍👧",
    "x=a+b*c; // $5^2 <tag> ~home | `code`\n\n\n    return",
    "",
    " ",
]


def pieces(pre_tokenizer, text):
    return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]


def reference(name):
    """The same rule as the model's own publishers write it down."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "gpt-2":
        return byte_level
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, byte_level])
    if name == "qwen2":
        from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as PATTERN
    else:
        import inspect

        from transformers.convert_slow_tokenizer import TikTokenConverter

        PATTERN = inspect.signature(TikTokenConverter).parameters["pattern"].default  # noqa: N806
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, spell])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
@pytest.mark.parametrize("text", TEXTS)
def test_words_are_split_as_the_publishers_do(name, text):
    assert pieces(splitter(RULES[name]), text) == pieces(reference(name), text)


def test_rules_differ_where_it_is_easily_overlooked():
    found = {name: len(pieces(splitter(RULES[name]), "１２ ½ Ⅳ ٣٤")) for name in RULES}
    assert found["smollm"] > found["gpt-2"]  # without its digit rule smollm would look right
    text = "Don'T!?12345 "
    assert len({tuple(pieces(splitter(rules), text)) for rules in RULES.values()}) == 5


def metadata(rule="gpt-2", **options):
    """A vocabulary of all bytes, two merges and some special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>", *alphabet, "ca", "cat"]
    given = {
        "model": "gpt2",
        "pre": rule,
        "tokens": tokens,
        "token_type": [3, 3, 3, 4, *[1] * (len(tokens) - 4)],
        "merges": ["c a", "ca t"],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return {f"tokenizer.ggml.{k}": v for k, v in (given | options).items() if v is not None}


def test_a_tokenizer_out_of_metadata():
    tokenizer = gguf_tokenizer(metadata() | {"tokenizer.chat_template": CHAT})
    cat = tokenizer.core.token_to_id("cat")
    assert tokenizer.encode("cat") == [cat]
    assert tokenizer.encode("<|im_start|>cat<|im_end|><tool>") == [1, cat, 2, 3]
    assert tokenizer.decode([1, cat, 2, 3]) == "cat<tool>"  # a tool's mark is text, not control
    assert tokenizer.eos_token_ids == (2, 0)  # of a turn, and of a document
    assert tokenizer.vocab_size == 4 + 256 + 2
    assert tokenizer.chat_text(HELLO) == "<|user|>the cat<|im_end|><|assistant|>"


@given(st.text())
def test_a_tokenizer_out_of_metadata_loses_no_text(text):
    assert GGUF_TOKENIZER.decode(GGUF_TOKENIZER.encode(text), skip_special_tokens=False) == text


GGUF_TOKENIZER = gguf_tokenizer(metadata("smollm"))


def test_bos_as_the_metadata_says():
    def prefix(**options):
        return gguf_tokenizer(metadata(**options)).encode("cat")[:-1]

    assert prefix() == []
    assert prefix(add_bos_token=True) == [1]
    assert prefix(rule="llama-bpe") == [1]
    assert prefix(rule="llama-bpe", add_bos_token=False) == []
    assert prefix(add_bos_token=True, bos_token_id=None) == []


def test_llama3_prefers_a_whole_word_to_its_merges():
    no_merges = {"merges": ["c a"]}
    assert len(gguf_tokenizer(metadata(**no_merges)).encode("cat")) == 2
    assert (
        len(gguf_tokenizer(metadata("llama-bpe", add_bos_token=False, **no_merges)).encode("cat"))
        == 1
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "llama"}, "tokenizer 'llama' with splitting rule 'gpt-2' is not supported"),
        ({"model": None}, "tokenizer None"),
        ({"pre": "tekken"}, "rule 'tekken' is not supported; supported is 'gpt2' with gpt-2, sm"),
        ({"merges": ["c a", "x yz"]}, "metadata contradict themselves"),
        ({"merges": ["cat"]}, "metadata contradict themselves"),
        ({"tokens": None}, "metadata contradict themselves"),
        ({"tokens": 7}, "metadata contradict themselves"),
        ({"merges": [1, 2]}, "metadata contradict themselves"),
        ({"eos_token_id": "x"}, "metadata contradict themselves"),
        ({"bos_token_id": 10**6}, "metadata contradict themselves"),
        ({"token_type": [1, 2]}, "metadata contradict themselves"),
    ],
)
def test_tokenizers_we_cannot_run_are_refused(options, message):
    with pytest.raises(ModelError, match=message):
        gguf_tokenizer(metadata(**options))
