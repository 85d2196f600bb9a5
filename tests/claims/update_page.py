"""Writes the measured part of docs/pages/explanation/claims.md anew, and its figures beside it.

python tests/claims/update_page.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.claims_page import refresh

if __name__ == "__main__":
    refresh()
