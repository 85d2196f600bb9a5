"""Text to token ids and back, and a chat to a prompt, by the rules in a model's own files.

Knows special tokens and the chat template; knows no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from minipaged.core import InvalidRequest, ModelError

from .weights import read_json


class Tokenizer:
    """A model's tokenizer.

    Args:
        core: the algorithm and its vocabulary.
        specials: the text of ``bos_token``, ``eos_token`` and their like, as templates name them.
        eos_token_ids: the ids that end a generation.
        add_bos: whether ``encode`` starts with the bos token; None leaves it to ``core``.
        chat_template: Jinja source, or None.
    """

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        *,
        specials: Mapping[str, str],
        eos_token_ids: Sequence[int] = (),
        add_bos: bool | None = None,
        chat_template: str | None = None,
    ):
        self.core, self.specials, self.chat_template = core, dict(specials), chat_template
        core.no_truncation()
        core.no_padding()
        self.bos_token_id = core.token_to_id(self.specials.get("bos_token", ""))
        self.add_bos = add_bos
        every = [*eos_token_ids, core.token_to_id(self.specials.get("eos_token", ""))]
        self.eos_token_ids = tuple(dict.fromkeys(i for i in every if i is not None))

    @classmethod
    def from_directory(cls, directory: Path) -> Tokenizer:
        """The tokenizer of a Hugging Face directory.

        Generation ends at what ``generation_config.json`` says, or else ``config.json``, and in
        any case at the tokenizer's own eos token.

        Raises:
            ModelError: no ``tokenizer.json``, or a file that cannot be read.
        """
        path = directory / "tokenizer.json"
        if not path.exists():
            raise ModelError(f"{directory} has no tokenizer.json, the only kind that can be read")
        try:
            core = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"cannot read {path}: {error}") from error
        names = "tokenizer_config.json", "generation_config.json", "config.json"
        options, generation, config = (
            read_json(directory / name) if (directory / name).exists() else {} for name in names
        )
        named = {key: _text(value) for key, value in options.items() if key.endswith("_token")}
        return cls(
            core,
            specials={key: text for key, text in named.items() if isinstance(text, str)},
            eos_token_ids=_ids(generation.get("eos_token_id", config.get("eos_token_id"))),
            add_bos=options.get("add_bos_token"),
            chat_template=_template_source(directory, options.get("chat_template")),
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens with a text; a model's logits may have a few more columns."""
        return self.core.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text, with a bos token where the model expects one."""
        ids = self.core.encode(text, add_special_tokens=self.add_bos is None).ids
        bos = [] if self.bos_token_id is None or not self.add_bos else [self.bos_token_id]
        return bos + ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids; bytes that are no complete character come out as U+FFFD."""
        return self.core.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation, ready for the assistant's next turn."""
        return self.core.encode(self.chat_text(messages), add_special_tokens=False).ids

    def chat_text(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """The conversation as the model's template writes it.

        Args:
            messages: turns such as ``{"role": "user", "content": "Hello"}``.
            add_generation_prompt: open the assistant's turn at the end.

        Raises:
            ModelError: the model has no chat template, or one that is no valid Jinja.
            InvalidRequest: a turn without role or content, or one the template objects to.
        """
        for i, message in enumerate(messages):
            if not {"role", "content"} <= message.keys():
                raise InvalidRequest(f"message {i} needs a role and a content, it has {message}")
        template = self._template
        try:
            return template.render(
                **self.specials,
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                tools=None,  # templates written for Hugging Face compare these with none
                documents=None,
            )
        except Exception as error:  # a template is a program of somebody else's
            raise InvalidRequest(f"the chat template objects: {error}") from error

    @cached_property
    def _template(self):
        if self.chat_template is None:
            raise ModelError("this model has no chat template; complete a plain prompt instead")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
        try:
            return environment.from_string(self.chat_template)
        except TemplateError as error:
            raise ModelError(f"the model's chat template is no valid Jinja: {error}") from error


def _ids(value: int | list[int] | None) -> list[int]:
    """Files name one token id, several or none."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(i, int) for i in ids):
        raise ModelError(f"eos_token_id should be a token id or a list of them, it is {value!r}")
    return ids


def _text(token: Any) -> Any:
    """A special token's text, which files hold bare or inside a description of the token."""
    return token.get("content") if isinstance(token, dict) else token


def _template_source(directory: Path, option: Any) -> str | None:
    """A template of its own file goes first; of several named ones we want the default."""
    path = directory / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    if isinstance(option, list):
        return {item["name"]: item["template"] for item in option}.get("default")
    return option


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)  # Jinja's own escapes HTML


def _raise(message: str) -> None:
    raise TemplateError(message)
