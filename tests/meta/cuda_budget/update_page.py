"""Writes the tables of machine-code.md anew: python tests/meta/cuda_budget/update_page.py"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]

from support.cuda_budget import refresh  # noqa: E402

if __name__ == "__main__":
    refresh()
