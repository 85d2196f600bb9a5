"""Writes the table of docs/pages/mutants.md anew: python tests/meta/manager/update_page.py"""

import sys
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]

from support.manager.table import refresh  # noqa: E402

if __name__ == "__main__":
    warnings.simplefilter("error")
    refresh()
