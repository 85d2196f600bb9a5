"""A page as a Jupyter notebook: the same cells, without output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .pages import Cell, Page

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(page: Page) -> dict[str, Any]:
    """The page in the notebook format, version 4.5."""
    cells = [_cell(cell, page) for cell in page.cells]
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def write(page: Page, folder: Path) -> Path:
    """Write it into a folder; an existing file, which may hold somebody's work, stays.

    Raises:
        FileExistsError: there is such a file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{page.path.stem}.ipynb"
    with path.open("x", encoding="utf-8") as file:
        file.write(json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n")
    return path


def _cell(cell: Cell, page: Page) -> dict[str, Any]:
    text = cell.markdown if cell.kind == "markdown" else cell.text
    common = {
        "id": f"{page.name}-{cell.number}"[:64],
        "cell_type": cell.kind,
        "metadata": {"tags": list(cell.tags)} if cell.tags else {},
        "source": text.splitlines(keepends=True),
    }
    if cell.kind == "code":
        common |= {"execution_count": None, "outputs": []}
    return common
