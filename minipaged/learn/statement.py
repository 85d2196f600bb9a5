"""The words of an exercise, as Markdown for a page and as text for a terminal."""

from __future__ import annotations

import re

from .catalog import Task

EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)", re.MULTILINE)


def size(task: Task) -> str:
    """How long a solution is, roughly."""
    lines = task.facts.get("lines", 0)
    return "One line is enough." if lines == 1 else f"About {lines} lines."


def fenced(statement: str) -> str:
    """The statement as Markdown: examples of a Python session become code."""

    def fence(match: re.Match[str]) -> str:
        lines = match[0].rstrip("\n").splitlines()
        margin = min(len(line) - len(line.lstrip()) for line in lines)
        body = "\n".join(line[margin:] for line in lines)
        return f"``` {{ .pycon }}\n{body}\n```\n"

    return EXAMPLE.sub(fence, statement)


def as_markdown(task: Task, command: str) -> str:
    """What a page shows under "Your turn"."""
    parts = [
        f"**{task.title}.** {size(task)}",
        fenced(task.statement),
        f"``` {{ .console }}\n$ {command}\n```",
    ]
    for number, hint in enumerate(task.hints, start=1):
        summary = f"Hint {number} of {len(task.hints)}"
        parts.append(f'<details markdown="1"><summary>{summary}</summary>\n\n{hint}\n\n</details>')
    return "\n\n".join(part.strip() for part in parts)


def as_text(task: Task, command: str) -> str:
    """What a terminal shows in the same place."""
    hints = f"{len(task.hints)} hints: {command} --hint" if task.hints else ""
    head = f"Your turn: {task.title}. {size(task)}"
    return "\n\n".join(part for part in (head, task.statement, f"$ {command}", hints) if part)
