"""Measures this machine, this engine and, where installed, its peers; ``app`` is the command line.

Every engine runs in a process of its own, on the same token ids, in turns (A B A B), so that a
machine whose speed drifts moves both alike. Medians are printed, and a ratio only if it is larger
than the spread of what it compares.
"""

from .app import app

__all__ = ["app"]
