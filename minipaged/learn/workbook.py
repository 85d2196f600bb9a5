"""The learner's folder: copies of the starters, and a small file that says how far he is."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from .catalog import Task

FOLDER = "minipaged-exercises"
PROGRESS = "progress.json"
DONE, BEGUN, NEW = "done", "begun", "not begun"


def find_folder(start: Path | None = None) -> Path:
    """``minipaged-exercises`` in this folder, or this folder if it is the one."""
    here = start or Path.cwd()
    return here if here.name == FOLDER or (here / PROGRESS).is_file() else here / FOLDER


class Workbook:
    """What a learner has written and seen; nothing is created before it is needed."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._notes = self._read()

    def path(self, task: Task) -> Path:
        """Where the learner's copy is."""
        return self.folder / task.file_name

    def begin(self, task: Task) -> bool:
        """Copy the starter, unless there is a file already; True if it was copied."""
        path = self.path(task)
        if path.exists():
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(task.starter, encoding="utf-8")
        return True

    def reset(self, task: Task) -> Path | None:
        """The starter again; returns where the old file is kept now, if there was one."""
        path, kept = self.path(task), None
        if path.exists() and not self.is_untouched(task):
            used = sorted(self.folder.glob(f"{path.stem}.old*.py"))
            kept = path.with_name(f"{path.stem}.old{len(used) + 1}.py")
            path.rename(kept)
        path.unlink(missing_ok=True)
        self._note(task, state=BEGUN, hints=0, digest="")
        self.begin(task)
        return kept

    def is_untouched(self, task: Task) -> bool:
        """The copy says what the starter says."""
        return self.path(task).read_text(encoding="utf-8", errors="replace") == task.starter

    def state(self, task: Task) -> str:
        """Done, begun, or not begun; done means as it stands now, or that the file is gone."""
        note, path = self._notes.get(task.name, {}), self.path(task)
        if note.get("state") == DONE and (
            not path.exists() or note.get("digest") == self._digest(task)
        ):
            return DONE
        return BEGUN if path.exists() else NEW

    def hints_seen(self, task: Task) -> int:
        """How many hints were asked for."""
        seen = self._notes.get(task.name, {}).get("hints")
        return seen if isinstance(seen, int) else 0

    def see_hint(self, task: Task) -> int:
        """One hint more, if there is one; returns how many are seen now."""
        seen = min(self.hints_seen(task) + 1, len(task.hints))
        self._note(task, hints=seen)
        return seen

    def record(self, task: Task, accepted: bool) -> None:
        """How the file was judged, as it stands."""
        digest = self._digest(task) if accepted else ""
        self._note(task, state=DONE if accepted else BEGUN, digest=digest)

    def _digest(self, task: Task) -> str:
        return hashlib.sha256(self.path(task).read_bytes()).hexdigest()[:16]

    def _note(self, task: Task, **facts: Any) -> None:
        self._notes[task.name] = self._notes.get(task.name, {}) | facts
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{PROGRESS}.part"
        part.write_text(json.dumps(self._notes, indent=1) + "\n", encoding="utf-8")
        part.replace(self.folder / PROGRESS)

    def _read(self) -> dict[str, dict[str, Any]]:
        """A damaged file means that nothing is known; the learner's own files are what counts."""
        with suppress(OSError, ValueError):
            notes = json.loads((self.folder / PROGRESS).read_text(encoding="utf-8"))
            if isinstance(notes, dict) and all(isinstance(n, dict) for n in notes.values()):
                return notes
        return {}
