"""What a card will really execute: PTX assembled to machine code, taken apart and counted.

Nothing here needs a card, and any PTX will do, whoever made it:

    python -m minipaged_cuda.machine_code kernel.ptx --arch 90
"""

from minipaged_cuda.machine_code.report import Report, report, reports
from minipaged_cuda.machine_code.tools import Assembly, assemble, disassemble

__all__ = ["Assembly", "Report", "assemble", "disassemble", "report", "reports"]
