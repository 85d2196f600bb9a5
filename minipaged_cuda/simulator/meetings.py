"""Barriers and warp collectives: lanes park until all are there; knows masks, not shuffles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent

from .errors import BarrierDivergence, SimulationError, WrongMask
from .lanes import Cta, Lane, Wait
from .order import joined
from .places import Place, here

FULL_MASK = 0xFFFFFFFF


def current() -> Lane:
    """The lane that runs.

    Raises:
        SimulationError: Outside a kernel.
    """
    lane = getcurrent()
    if not isinstance(lane, Lane):
        raise SimulationError("there is no thread here: this only works in a simulated kernel")
    return lane


def barrier(kind: str, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
    """Wait for all threads of the CTA; all before it comes before all after it.

    Raises:
        BarrierDivergence: Threads arrive at different lines, or never.
    """
    lane = current()
    cta, waiting = lane.cta, lane.cta.at_barrier
    lane.wait = Wait(kind, None, value, here())
    waiting.append(lane)
    if len(waiting) == len(cta.lanes):
        _check_same_barrier(cta, waiting)
        result = combine([other.wait.value for other in waiting])
        _learn_all(cta)
        cta.launch.trace.barriers += 1
        cta.at_barrier = []
        cta.wake(dict.fromkeys(cta.lanes, result))
    return lane.park()


def collective(
    kind: str,
    mask: int,
    value: Any,
    combine: Callable[[dict[int, Any]], dict[int, Any]],
    *,
    orders_memory: bool = False,
) -> Any:
    """Wait until all lanes in `mask` are here with the same kind and mask.

    `combine` is called once, with each lane's value by its index in the warp, and returns each
    lane's result. Bits of lanes that the CTA does not have are ignored, as on a card.

    Raises:
        WrongMask: The mask lacks the lane itself, or a lane in it never comes.
    """
    lane = current()
    warp, named = lane.warp, int(mask) & FULL_MASK
    if not named >> lane.index & 1:
        raise WrongMask(
            f"{lane} of {lane.cta} is lane {lane.index} of its warp, and executes {kind} with mask "
            f"{named:#x}, which does not name it, at {here()}"
        )
    named &= warp.mask()
    waiting = warp.waiting.setdefault((kind, named), [])
    lane.wait = Wait(kind, named, value, here())
    waiting.append(lane)
    if len(waiting) == named.bit_count():
        del warp.waiting[kind, named]
        waiting.sort(key=lambda other: other.index)
        results = combine({other.index: other.wait.value for other in waiting})
        if orders_memory:
            _learn(waiting)
        lane.cta.launch.trace.collectives[kind] += 1
        lane.cta.wake({other: results[other.index] for other in waiting})
    return lane.park()


def gather() -> list[Lane]:
    """The lanes of the warp that come to this line while no thread of the CTA can do anything else.

    Which lanes run together is not defined on a card; these are the most that could.
    """
    lane = current()
    lane.wait = Wait("activemask", None, None, here())
    lane.cta.gathering.append(lane)
    return lane.park()


def dismiss(cta: Cta) -> bool:
    """Let those go on that gather, as nobody else can come; whether there were any."""
    groups: dict[tuple[int, Place], list[Lane]] = {}
    for lane in cta.gathering:
        groups.setdefault((lane.warp.index, lane.wait.place), []).append(lane)
    cta.gathering = []
    for group in groups.values():
        cta.wake(dict.fromkeys(group, group))
    return bool(groups)


def _check_same_barrier(cta: Cta, waiting: list[Lane]) -> None:
    first, *others = [(lane, lane.wait) for lane in waiting]
    kind, place = first[1].kind, first[1].place
    for lane, wait in others:
        if wait.kind != kind or wait.place != place:
            raise BarrierDivergence(
                f"threads of {cta} wait at different barriers: {first[0]} in {first[1]}, "
                f"{lane} in {wait}"
            )


def _learn_all(cta: Cta) -> None:
    """All lanes know all that was done in the CTA, and what each of them knew of other CTAs."""
    known = joined(lane.known for lane in cta.lanes)
    known = {who: tick for who, tick in known.items() if getattr(who, "cta", who) is not cta}
    known[cta] = cta.launch.tick()
    for lane in cta.lanes:
        lane.known = known


def _learn(lanes: list[Lane]) -> None:
    """The lanes of a warp know what each of them knew and did."""
    now = lanes[0].cta.launch.tick()
    known = joined([*(lane.known for lane in lanes), dict.fromkeys(lanes, now)])
    for lane in lanes:
        lane.known = known
