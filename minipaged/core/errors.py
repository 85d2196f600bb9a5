"""The errors a caller can meet; each message names the sizes and what would be right."""


class MinipagedError(Exception):
    """Base of every error this package raises on purpose."""


class OutOfBlocks(MinipagedError):
    """The pool cannot hand out as many blocks as asked; nothing was changed."""


class InvalidBatch(MinipagedError, ValueError):
    """Tensors of one step that contradict each other or the cache."""


class InvalidRequest(MinipagedError, ValueError):
    """A prompt or parameter that no step could ever serve; nothing was queued."""


class ModelError(MinipagedError, ValueError):
    """A model that cannot be found, read, or run by this decoder."""
