"""The course: what its pages show, its exercises, and the judge of what a learner writes.

Pages import four names from here; they work in a terminal, in a notebook, and on the site.
"""

from . import exercise as _submodule  # first, or importing it later would hide the function
from .showing import exercise, fails, show, source

__all__ = ["exercise", "fails", "show", "source"]
