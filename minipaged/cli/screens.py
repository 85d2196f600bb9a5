"""Where a run's text appears: streamed, as JSON, or under a live map; decides no token."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .console import to_stderr, to_stdout, write

if TYPE_CHECKING:
    from rich.console import Group

    from minipaged.core import Ledger, Snapshot
    from minipaged.engine.llm import LLM
    from minipaged.engine.outputs import CompletionOutput, Delta, RequestOutput

    from .figures import Meter

REDRAW_SECONDS = 0.1
MOST_TIME = 0.1  # share of the run that pictures may take


class TextScreen:
    """Streams the first text as it comes, then prints the others, labelled.

    Args:
        prompts: what is continued.
        num_texts: of each prompt.
        stream: print while it is generated.
        echo: begin each text with its prompt, so that it reads on.
    """

    def __init__(
        self, prompts: Sequence[str], num_texts: int, stream: bool = True, echo: bool = False
    ):
        self.prompts, self.num_texts, self.stream, self.echo = prompts, num_texts, stream, echo
        self.is_many = len(prompts) * num_texts > 1
        self._printed: str | None = None  # of the first text; None before its label

    def show(self, deltas: Sequence[Delta]) -> None:
        """After a step."""
        for delta in deltas:
            if self.stream and delta.request_id == "0" and delta.index == 0:
                self._begin(0, 0)
                write(delta.text)
                self._printed = (self._printed or "") + delta.text

    def finish(self, results: Sequence[RequestOutput]) -> None:
        """Whatever has not been printed yet."""
        for number, result in enumerate(results):
            for place, output in enumerate(result.outputs):
                done = self._printed or "" if number == place == 0 else ""
                self._begin(number, place)
                write(output.text[len(done) :] + "\n")
                if result.error:
                    to_stderr().print(f"minipaged: {result.error}", markup=False)

    def stop(self) -> None:
        """Nothing has to be put back."""

    def _begin(self, number: int, place: int) -> None:
        """The label and what the text continues, once."""
        if number == place == 0:
            if self._printed is not None:
                return
            self._printed = ""
        if self.is_many:
            write(f"--- {self._label(number, place)}\n")
        if self.echo:
            console = to_stdout()
            console.print(self.prompts[number], style="bold", end="", markup=False, soft_wrap=True)

    def _label(self, number: int, place: int) -> str:
        parts = []
        if len(self.prompts) > 1:
            parts.append(f"prompt {number + 1}")
        if self.num_texts > 1:
            parts.append(f"text {place + 1}")
        return ", ".join(parts)


class JSONScreen:
    """One JSON object per request and line, when all are done."""

    def show(self, deltas: Sequence[Delta]) -> None:
        """Nothing: half an object helps nobody."""

    def finish(self, results: Sequence[RequestOutput]) -> None:
        """Print the objects in the order of the prompts."""
        for result in results:
            write(json.dumps(as_json(result), ensure_ascii=False) + "\n")

    def stop(self) -> None:
        """Nothing has to be put back."""


class MapScreen:
    """A live map of the pool on stderr with the first text under it; then what ``inner`` prints."""

    def __init__(self, llm: LLM, meter: Meter, inner: TextScreen | JSONScreen):
        from rich.live import Live

        from minipaged.view import Letters

        self.llm, self.meter, self.inner = llm, meter, inner
        self.console, self.letters = to_stderr(), Letters()
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self._text, self._redraw_at = "", 0.0
        if self.console.is_terminal:
            self.live.start()

    def show(self, deltas: Sequence[Delta]) -> None:
        """Redraw, at most ten times a second, and less often if that would cost too much."""
        self._text += "".join(d.text for d in deltas if d.request_id == "0" and d.index == 0)
        started = time.monotonic()
        if self.console.is_terminal and started >= self._redraw_at:
            self.live.update(self._picture(self.llm.snapshot(), self.llm.ledger()), refresh=True)
            ended = time.monotonic()
            self._redraw_at = ended + max(REDRAW_SECONDS, (ended - started) / MOST_TIME)

    def finish(self, results: Sequence[RequestOutput]) -> None:
        """Leave the fullest moment on the screen, then the texts."""
        if self.meter.snapshot is not None and self.meter.ledger is not None:
            self._text = ""
            self.console.print("The pool at its fullest:")
            self.console.print(self._picture(self.meter.snapshot, self.meter.ledger))
        self.inner.finish(results)

    def stop(self) -> None:
        """Give the terminal back, whatever happened."""
        self.live.stop()

    def _picture(self, snapshot: Snapshot, ledger: Ledger) -> Group:
        from rich.console import Group
        from rich.text import Text

        from minipaged.view import LedgerBar, PoolMap

        # A request's first sequence is "0" while it is alone, "0.0" once it has siblings.
        names = {t.name: t.name if "." in t.name else f"{t.name}.0" for t in snapshot.tables}
        kept = self.letters.of(names.values())
        letters = {name: kept[full] for name, full in names.items()}
        rows = max(5, self.console.size.height - 14)
        pool = PoolMap(snapshot, letters=letters, max_rows=rows, max_tables=4)
        tail = Text("\n".join(self._text.splitlines()[-3:]), style="bold")
        return Group(pool, LedgerBar(ledger), *([tail] if self._text else []))


def as_json(result: RequestOutput) -> dict:
    """One request as plain data."""
    return {
        "request_id": result.request_id,
        "prompt": result.prompt,
        "num_prompt_tokens": len(result.prompt_token_ids),
        "num_cached_tokens": result.num_cached_tokens,
        "num_preemptions": result.num_preemptions,
        "error": result.error,
        "outputs": [_output(output) for output in result.outputs],
    }


def _output(output: CompletionOutput) -> dict:
    found = {
        "index": output.index,
        "text": output.text,
        "token_ids": list(output.token_ids),
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
    }
    if output.logprobs is not None:
        found["cumulative_logprob"] = output.cumulative_logprob
        found["logprobs"] = [
            {str(token): entry.logprob for token, entry in step.items()} for step in output.logprobs
        ]
    return found
