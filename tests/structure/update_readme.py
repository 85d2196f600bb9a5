"""Writes the computed parts of README and docs anew: python tests/structure/update_readme.py"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from support.generated import refresh  # noqa: E402
from support.sizes import report  # noqa: E402

if __name__ == "__main__":
    print("rewritten:", ", ".join(refresh()) or "nothing, all was fresh")
    print(report())
