"""Writes the page of planted kernel faults anew: python tests/meta/cuda/update_page.py."""

import sys
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]

from support.cuda_fault_table import refresh  # noqa: E402

if __name__ == "__main__":
    warnings.simplefilter("error")
    refresh()
