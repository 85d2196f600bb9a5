"""Writes the tables of docs/pages/museum.md anew: python tests/meta/museum/update_page.py"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]

from support.museum import refresh  # noqa: E402

if __name__ == "__main__":
    refresh()
