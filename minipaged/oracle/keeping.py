"""Keeps a failing case: an .npz that numpy alone can read, and a script that shows the failure.

It knows cases, calls and files; `counterexample` reads what it writes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import repro
from .cases import Case
from .conventions import Call, Kernel
from .conventions.packing import array
from .counterexample import NOT_RUN
from .guard import KernelFault, guarded
from .recipes import Recipe
from .relations import RELATIONS
from .report import Failure, Report
from .subject import Subject
from .targets import target_of
from .trial import Trial

TOO_LARGE = 64 << 20  # bytes; beyond that the recipe must do


def save_all(report: Report, subject: Subject, kernel: Kernel, folder: str | Path) -> None:
    """Save every failure that has a case; the report then says where."""
    for i, failure in enumerate(report.failures):
        if isinstance(failure.case, Recipe) and failure.path is None:
            path = save(failure, subject, kernel, folder, report.subject)
            report.failures[i] = replace(failure, path=path)


def save(
    failure: Failure,
    subject: Subject,
    kernel: Kernel,
    folder: str | Path,
    name: str = "",
    placement: Mapping[str, Any] | None = None,
) -> Path:
    """Write a failure's .npz and its script; returns the path of the first.

    Args:
        failure: With its recipe.
        subject: The kernel as it was judged.
        kernel: The kernel as it was given.
        folder: Where to; made if it is not there.
        name: What the report calls the kernel.
        placement: Of the changed case in which the process ended, if it did.
    """
    about = _about(failure, subject, kernel, name)
    content = json.dumps([about[k] for k in ("kernel", "convention", "check", "recipe")])
    mark = hashlib.sha256(content.encode()).hexdigest()[:8]
    path = Path(folder) / f"{failure.check.replace(' ', '-')}_{mark}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays, is_enough = _shown(failure, subject, kernel, about, placement or {})
    np.savez_compressed(path, **arrays)
    path.with_suffix(".py").write_text(_script(about, is_enough), encoding="utf-8")
    return path


def _about(failure: Failure, subject: Subject, kernel: Kernel, name: str) -> dict[str, Any]:
    recipe: Recipe = failure.case
    return {
        "check": failure.check,
        "level": failure.level,
        "message": failure.message,
        "picture": failure.picture,
        "diagnosis": failure.diagnosis,
        "kernel": target_of(kernel),
        "name": name,
        "convention": subject.convention.name,
        "recipe": recipe.to_dict(),
        "contract": asdict(subject.contract),
        "features": asdict(subject.features),
        "device": subject.device,
        "call_limit_s": subject.call_limit_s,
        "num_seqs": len(recipe.lengths),
        "dtype": recipe.dtype,
        "minipaged": importlib.metadata.version("minipaged"),
    }


def _shown(
    failure: Failure,
    subject: Subject,
    kernel: Kernel,
    about: dict[str, Any],
    placement: Mapping[str, Any],
) -> tuple[dict[str, Any], bool]:
    """The arrays of the case that shows the failure by itself, and whether there is one."""
    first, case = None, failure.case.build()
    for candidate in _candidates(failure, case, subject):
        if placement and not placement.items() <= asdict(candidate.placement).items():
            continue
        call = subject.convention.pack(candidate, subject.device)
        arrays = _arrays(candidate, subject) | _recorded(call, kernel)
        arrays["about"] = np.array(json.dumps(about | {"num_seqs": candidate.problem.num_seqs}))
        if first is None:
            first = arrays
        if "call" not in arrays:
            break
        if failure.check in NOT_RUN:
            return arrays, True
        if _shows(arrays, candidate, call, kernel, subject):
            return arrays, True
    return first or _arrays(case, subject) | {"about": np.array(json.dumps(about))}, False


def _candidates(failure: Failure, case: Case, subject: Subject) -> Iterator[Case]:
    """The case, and the changed ones that it was compared with."""
    yield case
    for relation in RELATIONS:
        if relation.name == failure.check or failure.check in NOT_RUN:
            yield from (other for _, other, _ in relation.steps(case, subject.contract))


def _shows(
    arrays: dict[str, Any], case: Case, call: Call, kernel: Kernel, subject: Subject
) -> bool:
    """Whether the script, with nothing but these arrays, would see that the kernel is wrong."""
    args, kwargs, outputs = repro.arguments(arrays, subject.device)
    limit, num_rows = subject.call_limit_s, len(case.flat_query)
    try:
        with repro.new_memory_full_of_nan():
            returned = guarded(lambda: kernel(*args, **kwargs), limit)
            again = guarded(lambda: subject.kernel(*call.args, **call.kwargs), limit)
    except KernelFault as fault:
        return fault.kind in ("raised", "hung")
    try:  # anything may have been returned
        # The script guesses how to read it; the convention knows.
        ours, theirs = repro.unpack(returned, outputs, num_rows), call.unpack(again)
        read_alike = all(_same(*pair) for pair in zip(ours, theirs, strict=True))
        return read_alike and bool(repro.judge(arrays, kernel, subject.device))
    except Exception:
        return False


def _same(x: Any, y: Any) -> bool:
    """The same numbers; of what is no tensor, the same kind of thing."""
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return type(x) is type(y)
    return np.array_equal(array(x), array(y), equal_nan=True)


def _arrays(case: Case, subject: Subject) -> dict[str, Any]:
    """The problem, where it lies, and what is right; all that a reader could want, by name."""
    problem, trial = case.problem, Trial(subject, case)
    spec, truth = problem.spec, trial.truth
    arrays: dict[str, Any] = {
        "block_tables": case.table,
        "seq_lens": case.seq_lens,
        "query_start_loc": case.query_start_loc,
        "placement": np.array(json.dumps(asdict(case.placement))),
    }
    for s in range(problem.num_seqs):
        arrays |= {
            f"query_{s}": problem.query[s],
            f"key_{s}": problem.key[s],
            f"value_{s}": problem.value[s],
            f"visible_{s}": problem.visible(s),
            f"blind_{s}": trial.blind[s],
        }
        arrays |= {f"{f.name}_{s}": getattr(truth, f.name)[s] for f in fields(truth)}
    plain = {}
    for f in fields(spec):
        found = getattr(spec, f.name)
        if isinstance(found, np.ndarray):
            arrays[f.name] = found
        elif f.name != "masks":  # they are in `visible`
            plain[f.name] = found
    return arrays | {"spec": np.array(json.dumps(plain))}


def _recorded(call: Call, kernel: Kernel) -> dict[str, Any]:
    """The arguments with their memory, byte for byte; {} if they are not such as can be kept."""
    memories: dict[int, tuple[str, Any]] = {}

    def plain(x: Any) -> Any:
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, (tuple, list)):
            return {"tuple": [plain(y) for y in x]}
        if isinstance(x, torch.dtype):
            return {"dtype": str(x).removeprefix("torch.")}
        if isinstance(x, torch.device):
            return {"device": str(x)}
        if not isinstance(x, torch.Tensor):
            raise TypeError(type(x).__name__)
        storage = x.untyped_storage()
        if storage.data_ptr() not in memories:
            raw = torch.tensor([], dtype=torch.uint8, device=x.device).set_(storage)  # pyright: ignore
            memories[storage.data_ptr()] = f"memory_{len(memories)}", raw.cpu().numpy().copy()
        return {
            "memory": memories[storage.data_ptr()][0],
            "dtype": str(x.dtype).removeprefix("torch."),
            "shape": list(x.shape),
            "stride": list(x.stride()),
            "offset": x.storage_offset(),
        }

    kwargs = _taken(kernel, call.kwargs)
    named = dict(enumerate(call.args)) | kwargs
    try:
        tensors = [x for x in named.values() if isinstance(x, torch.Tensor)]
        if sum(x.untyped_storage().nbytes() for x in tensors) > TOO_LARGE:
            return {}
        text = {
            "args": [plain(x) for x in call.args],
            "kwargs": {name: plain(x) for name, x in kwargs.items()},
            "outputs": [k for o in call.outputs for k, x in named.items() if x is o],
            "scratch": [k for o in call.scratch for k, x in named.items() if x is o],
        }
    except TypeError:
        return {}
    return dict(memories.values()) | {"call": np.array(json.dumps(text))}


def _taken(kernel: Kernel, kwargs: Any) -> dict[str, Any]:
    """The keyword arguments that this kernel has: the convention may have done without others."""
    try:
        parameters = inspect.signature(kernel).parameters
    except (TypeError, ValueError):
        return dict(kwargs)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(kwargs)
    return {name: x for name, x in kwargs.items() if name in parameters}


def _script(about: dict[str, Any], is_enough: bool) -> str:
    """A script that exits with 1 while the kernel is wrong."""
    told = f"{about['check']}: {about['message']}".replace("\\", "/").replace('"""', "'''")
    head = f'"""{told}\n\n{about["name"]}, convention {about["convention"]}.\n'
    head += "Run it, with another kernel if you like: python THIS [module:function]\n"
    if is_enough:
        source = inspect.getsource(repro)
        return head + '"""\n' + source.partition('"""\n')[2]
    head += "It shows only in comparison with other calls, so this needs minipaged[testing].\n"
    return (
        f'{head}"""\n\nimport sys\nfrom pathlib import Path\n\n'
        "from minipaged.oracle.counterexample import load\n"
        "from minipaged.oracle.targets import resolve_function\n\n"
        'found = load(Path(__file__).with_suffix(".npz"))\n'
        "kernel = resolve_function(sys.argv[1] if sys.argv[1:] else found.kernel)\n"
        "wrong = found.replay(kernel)\n"
        "print(f\"{found.check}: {found.message}\\nnow: {wrong or 'right'}\")\n"
        "sys.exit(1 if wrong else 0)\n"
    )
