"""C3 in the real engine: what samples and beams of the bundled model share and copy."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.engine.llm import LLM
from minipaged.engine.params import BeamSearchParams
from minipaged.engine.scheduler import Step
from minipaged.engine.sequence import Sequence

from . import real
from .beams import beam_savings
from .claim import Context, Row, Tolerance, digits
from .managers import Manager
from .savings import Savings
from .sharing_law import BEAM_POINTS, BLOCK_SIZE, PAPER, WIDTHS, law_row, sampling_law, saving_row
from .steps import watch
from .workload import Workload

MAX_LEN = 1024  # positions of the bundled model


@dataclass(slots=True)
class Watched:
    """What the engine held and copied for one kind of request."""

    savings: Savings
    num_copies: int = 0  # of blocks
    bytes_per_block: int = 0
    copies_needed: int = 0  # shared, partial last blocks that somebody wrote into
    most_duplicates: int = 0  # of one full block of a prompt
    tokens_moved: int = 0  # by beams that each own a contiguous cache, and take over another's

    @property
    def bytes_copied(self) -> int:
        """Whole blocks, K and V of all layers."""
        return self.num_copies * self.bytes_per_block

    def see(self, step: Step) -> None:
        """Count a step, scheduled and not committed yet."""
        self.savings.see(step)
        self.num_copies += len(step.copies)
        by_request: dict[int, list[Sequence]] = {}
        for sequence, _ in step.work:
            by_request.setdefault(sequence.request.order, []).append(sequence)
        for sequences in by_request.values():
            if len(sequences[0].request.sequences) == self.savings.num_sequences:
                self._look(sequences)

    def _look(self, sequences: list[Sequence]) -> None:
        """At the sequences of one request."""
        first = sequences[0]
        num_full = first.num_prompt // first.table.block_size
        for i in range(num_full):
            self.most_duplicates = max(
                self.most_duplicates, len({s.table.block_ids[i] for s in sequences})
            )
        self.tokens_moved += sum(s.table.num_tokens for s in sequences)


class RealSharing:
    """One engine, asked for the same prompts in several ways.

    Args:
        workload: lengths of prompts and answers.
        block_size: tokens per block.
    """

    def __init__(self, workload: Workload, block_size: int = 16):
        self.workload = workload
        manager = Manager("paged", 2 * MAX_LEN, block_size, MAX_LEN)
        self.llm = real.engine(
            manager, real.bundled(), max_num_seqs=128, max_num_batched_tokens=2048
        )
        self.prompts = own_words(self.llm, workload)
        self._watched = Watched(Savings(0))
        watch(self.llm.scheduler, lambda step: self._watched.see(step))

    def samples(self, num_samples: int) -> Watched:
        """Several samples of every prompt, by forks."""
        params = [
            real.sampled(arrival.output_len, n=num_samples, seed=i)
            for i, arrival in enumerate(self.workload.arrivals)
        ]
        watched = self._run(num_samples, params)
        partial = sum(
            a.prompt_len % self.llm.block_size > 0 and a.output_len > 1
            for a in self.workload.arrivals
        )
        watched.copies_needed = partial * (num_samples - 1)
        return watched

    def beams(self, width: int) -> Watched:
        """A beam search for every prompt."""
        params = [
            BeamSearchParams(beam_width=width, max_tokens=a.output_len, ignore_eos=True)
            for a in self.workload.arrivals
        ]
        return self._run(width, params)

    def _run(self, width: int, params: list) -> Watched:
        self._watched = Watched(Savings(width))
        self.llm.generate(self.prompts, params)
        self._watched.bytes_per_block = self.llm.cache.bytes_per_block
        return self._watched


def own_words(llm: LLM, workload: Workload) -> list[list[int]]:
    """Prompts that the model wrote: beams then have the scores of text, not of noise."""
    start = llm.tokenizer.encode("In the beginning")[:1]
    params = [
        real.sampled(arrival.prompt_len, seed=i) for i, arrival in enumerate(workload.arrivals)
    ]
    outputs = llm.generate([list(start) for _ in params], params)
    return [output.outputs[0].token_ids for output in outputs]


def real_rows(workload: Workload, context: Context) -> list[Row]:
    """Savings of samples and beams, and every byte that is copied."""
    context.tell("prompts in the model's own words")
    sharing, rows = RealSharing(workload, BLOCK_SIZE), []
    for n in WIDTHS[:1] if context.quick else WIDTHS:
        context.tell(f"the real engine, {n} samples")
        rows += _sampling_rows(sharing.samples(n), sampling_law(workload.arrivals, n), n)
    for width, said in list(PAPER["beam search"].items())[: 1 if context.quick else None]:
        context.tell(f"the real engine, {width} beams")
        watched = sharing.beams(int(width))
        what = f"real engine, {width} beams"
        moved = watched.tokens_moved / max(1, watched.num_copies * BLOCK_SIZE)
        rows += [
            saving_row(what, watched.savings.percent, said, BEAM_POINTS, context.quick),
            Row(f"{what}: tokens that contiguous ones copy", "", moved, "x"),
        ]
    return rows


def long_beams_row(sharegpt: Workload, context: Context) -> Row:
    """Whether beams whose scores are drawn are like those of a model, where answers are long."""
    context.tell("the real engine, long beams")
    width = WIDTHS[-1]
    workload = sharegpt.only(lambda arrival: arrival.num_tokens < 512).head(2)
    drawn_beams = beam_savings(workload.arrivals, width, seed=context.seed).percent
    measured = RealSharing(workload, BLOCK_SIZE).beams(width).savings.percent
    return Row(
        f"real engine, {width} beams, {len(workload)} requests of ShareGPT's lengths: saved",
        f"{digits(drawn_beams)} % with scores that are drawn",
        measured,
        "%",
        Tolerance.points(drawn_beams, BEAM_POINTS),
        basis="foretold",
    )


def _sampling_rows(watched: Watched, law: float, n: int) -> list[Row]:
    what, needed = f"real engine, {n} samples", watched.copies_needed
    return [
        law_row(what, law, watched.savings.percent),
        Row(
            f"{what}: a full block exists, at most",
            "once",
            watched.most_duplicates,
            "x",
            Tolerance.exactly(1),
            basis="foretold",
        ),
        Row(
            f"{what}: bytes copied",
            f"{needed} shared last blocks",
            watched.bytes_copied,
            "bytes",
            Tolerance.exactly(needed * watched.bytes_per_block),
            basis="foretold",
        ),
    ]
