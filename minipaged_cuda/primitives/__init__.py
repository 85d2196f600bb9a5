"""The words that kernel text uses beyond plain Numba, each with three twins of one meaning.

A kernel imports them from here, and gets the plain-Python twin, which says in NumPy what a word
means and runs in the simulator. Compiling puts the twin of the compiler in its place: LLVM and
inline PTX for numba-cuda (``primitives.numba_cuda``), inline PTX for numba-cuda-mlir
(``primitives.mlir``). A test holds the three together, word by word.
"""

from .python import *  # noqa: F403
