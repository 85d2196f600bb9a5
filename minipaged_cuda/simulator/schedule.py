"""Runs the lanes of a CTA to their end, and says which error it is when they do not get there."""

from __future__ import annotations

from .errors import BarrierDivergence, Deadlock, SimulationError, WrongMask
from .lanes import Cta, Lane
from .meetings import dismiss
from .places import raised_at


def run(cta: Cta) -> None:
    """Run all lanes until they return.

    Raises:
        SimulationError: As each of its kinds says.
    """
    try:
        while cta.ready or dismiss(cta):
            _resume(cta.ready.popleft())
        if any(not lane.dead for lane in cta.lanes):
            raise _explain(cta)
    finally:
        for lane in cta.lanes:
            if not lane.dead:
                lane.throw()  # unwinds it
    for warp in cta.warps:
        cta.launch.trace.collect(warp.requests)


def _resume(lane: Lane) -> None:
    """Run one lane until it parks or returns."""
    try:
        lane.switch()
    except SimulationError:
        raise
    except Exception as error:
        error.add_note(f"in {lane} of {lane.cta} at {raised_at(error.__traceback__)}")
        raise


def _explain(cta: Cta) -> SimulationError:
    """The error of a CTA whose lanes all wait or have returned."""
    waiting = [lane for lane in cta.lanes if not lane.dead]
    for lane in waiting:
        for other in _awaited(lane):
            if other.dead:
                return _has_returned(lane, other)
            if other.wait.mask is not None:
                return _elsewhere(lane, other)
    for lane in waiting:
        for other in _awaited(lane):
            return Deadlock(
                f"{lane} of {cta} waits in {lane.wait} for {other}, which waits in {other.wait}"
            )
    returned = [lane for lane in cta.lanes if lane.dead]
    return BarrierDivergence(
        f"{len(returned)} of {len(cta.lanes)} threads of {cta} have returned, such as "
        f"{returned[0]}; the others wait for them, such as {waiting[0]} in {waiting[0].wait}"
    )


def _awaited(lane: Lane) -> list[Lane]:
    """The lanes that a lane's mask names, and that are not with it."""
    wait = lane.wait
    if wait is None or wait.mask is None:
        return []
    here = lane.warp.waiting[wait.kind, wait.mask]
    return [x for x in lane.warp.lanes if wait.mask >> x.index & 1 and x not in here]


def _has_returned(lane: Lane, other: Lane) -> WrongMask:
    return WrongMask(
        f"{lane} of {lane.cta} waits in {lane.wait}; the mask names {other} (lane {other.index}), "
        "which has returned from the kernel"
    )


def _elsewhere(lane: Lane, other: Lane) -> WrongMask:
    return WrongMask(
        f"lanes of warp {lane.warp.index} of {lane.cta} are in different collectives: {lane} in "
        f"{lane.wait}, whose mask names {other}, and {other} in {other.wait}"
    )
