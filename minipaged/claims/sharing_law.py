"""What is said of sharing between samples and beams, and the law that samples obey.

Paper: section 6.3, figure 15.
"""

from __future__ import annotations

from collections.abc import Sequence

from .claim import Row, Tolerance, digits
from .generators import PAPER_MAX_LEN
from .managers import Manager
from .outcome import Setting
from .savings import Savings
from .simulator import Simulator
from .workload import Arrival, Workload

WIDTHS = (2, 4, 6)  # samples, or beams, as in the paper
BLOCK_SIZE = 16
PAPER = {  # figure 15, Alpaca: per cent
    "parallel sampling": {"2": 6.09, "4": 8.53, "6": 9.79},
    "beam search": {"2": 37.6, "4": 53.1, "6": 55.2},
}
PAPER_SHAREGPT = {  # section 6.3, from two to six sequences
    "parallel sampling": (16.2, 30.5),
    "beam search": (44.3, 66.3),
}
SAMPLING_POINTS = 2.0  # the spread of the lengths is not published
BEAM_POINTS = 6.0  # nor how alike the scores of beams are, in which models differ


def sampling_law(
    arrivals: Sequence[Arrival], num_samples: int, block_size: int = BLOCK_SIZE
) -> float:
    """Per cent that samples share if they share the full blocks of their prompt, and nothing else.

    At a step in which a sequence holds ``length`` tokens, n samples of it share
    (n - 1) * (prompt_len // B) of n * ceil(length / B) blocks.

    Examples:
        >>> sampling_law([Arrival(0.0, prompt_len=16, output_len=3)], num_samples=2)
        25.0
    """
    saved = total = 0
    for arrival in arrivals:
        lengths = range(arrival.prompt_len + 1, arrival.num_tokens)
        total += num_samples * sum(-(-length // block_size) for length in lengths)
        saved += (num_samples - 1) * (arrival.prompt_len // block_size) * len(lengths)
    return 100 * saved / total


def sampling_savings(workload: Workload, num_samples: int) -> Savings:
    """Of real forks of real tables, in the simulator."""
    savings = Savings(num_samples)
    manager = Manager("paged", num_blocks=256 * PAPER_MAX_LEN // BLOCK_SIZE)  # nobody is preempted
    setting = Setting(num_samples=num_samples, at_once=True, max_num_seqs=60)
    Simulator(workload, manager, setting=setting, see=savings.see).run()
    return savings


def saving_row(what: str, measured: float, said: float, points: float, few: bool) -> Row:
    """A saving beside what is said of it."""
    tolerance = Tolerance.points(said, points)
    more_or_less = "more" if measured > said else "less"
    note = "" if few or tolerance.admits(measured) else f"{more_or_less} is saved than is said"
    return Row(f"{what}: saved", f"{said} %", measured, "%", tolerance, note=note, few=few)


def law_row(what: str, law: float, measured: float) -> Row:
    """A saving beside the law, to all digits."""
    tolerance = Tolerance.around(law, 1e-9)
    said = f"{digits(law)} % by the law"
    return Row(f"{what}: saved", said, measured, "%", tolerance, basis="foretold")
