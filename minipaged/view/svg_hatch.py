"""Hatches as paths of single lines inside a rectangle; knows no colours."""

from __future__ import annotations

from collections.abc import Iterator

from .svg_text import fixed as _n


def hatch(kind: str, x: float, y: float, width: float, height: float) -> str:
    """The path of a hatch inside a rectangle; empty for a plain one."""
    if kind == "x":
        slants = (_slanted(x, y, width, height, down) for down in (False, True))
        return "".join(slants)
    if kind in ("/", "\\"):
        return _slanted(x, y, width, height, down=kind == "\\")
    if kind == "-":
        return "".join(f"M{_n(x)} {_n(y + d)}h{_n(width)}" for d in _steps(height))
    if kind == "|":
        return "".join(f"M{_n(x + d)} {_n(y)}v{_n(height)}" for d in _steps(width))
    if kind == ".":
        return "".join(f"M{_n(x + a)} {_n(y + b)}h0" for b in _steps(height) for a in _steps(width))
    return ""


def _steps(length: float, step: float = 5) -> Iterator[float]:
    """Distances that divide a length evenly, about ``step`` apart; the middle of a short one."""
    count = max(round(length / step), 2)
    yield from (i * length / count for i in range(1, count))


def _slanted(x: float, y: float, width: float, height: float, down: bool) -> str:
    """Parallel lines at 45 degrees, cut off at the border."""
    path, step = "", 6
    for d in range(step // 2, int(width + height), step):  # where the line meets the upper border
        left, right = max(d - height, 0), min(d, width)
        if right - left < 0.5:
            continue
        top, bottom = y + d - right, y + d - left
        if down:
            left, right = width - right, width - left
            top, bottom = bottom, top
        path += f"M{_n(x + left)} {_n(bottom)}L{_n(x + right)} {_n(top)}"
    return path
