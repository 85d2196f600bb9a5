"""What can go wrong between a kernel's text and a card."""

from __future__ import annotations

from minipaged.core import InvalidBatch, MinipagedError


class Unsupported(InvalidBatch, NotImplementedError):
    """No kernel here computes this; the message says what they do compute."""


class KernelError(MinipagedError, ValueError):
    """A kernel's text, or the constants given to it, cannot be specialised or compiled."""


class DeviceError(MinipagedError, RuntimeError):
    """This machine cannot run the kernels: no driver, an old card, a missing package."""
