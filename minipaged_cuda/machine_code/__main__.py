"""Prints what a kernel costs.

python -m minipaged_cuda.machine_code kernel.ptx --arch 90
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from minipaged_cuda.errors import DeviceError, KernelError
from minipaged_cuda.machine_code.report import reports


def main(arguments: list[str] | None = None) -> int:
    """Print the reports of all kernels of a file; 1 if there is a reason not to."""
    parser = argparse.ArgumentParser(prog="python -m minipaged_cuda.machine_code")
    parser.add_argument("file", type=Path, help="PTX text, or a cubin")
    parser.add_argument("--arch", type=_arch, default="90", help="80, 90, 90a, sm_120 ...")
    chosen = parser.parse_args(arguments)
    try:
        found = reports(_read(chosen.file), *chosen.arch)
        if not found:
            raise KernelError(f"{chosen.file} has no kernel: no .entry, only functions or nothing")
    except (DeviceError, KernelError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n\n".join(report.table() for report in found.values()))
    return 0


def _arch(text: str) -> tuple[tuple[int, int], str]:
    """``sm_90a`` or ``90a``: a compute capability and its suffix."""
    found = re.fullmatch(r"(?:sm_)?(\d+)(\d)([af]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no architecture such as 80, 90a or sm_120")
    return (int(found[1]), int(found[2])), found[3]


def _read(file: Path) -> str | bytes:
    """PTX as text, a cubin as bytes."""
    try:
        data = file.read_bytes()
        return data if data.startswith(b"\x7fELF") else data.decode()
    except OSError as error:
        raise KernelError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KernelError(f"{file} is neither PTX text nor a cubin") from None


if __name__ == "__main__":
    sys.exit(main())
