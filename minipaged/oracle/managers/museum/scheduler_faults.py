"""Faults of schedulers; knows no judge."""

from __future__ import annotations

from typing import Any

from ..specimen_scheduler import Job, Scheduler
from .planting import OURS, scheduler_fault

# --- the scheduler -------------------------------------------------------------------------------


def _admit_smallest(self: Scheduler) -> None:
    self.waiting.sort(key=lambda job: len(job.tokens))
    Scheduler.admit(self)
    self.waiting.sort(key=lambda job: job.order)


def _admit_one_by_one(self: Scheduler) -> None:
    first = 1 if len(self.running) > 3 else len(self.waiting)
    rest = self.waiting[first:]
    del self.waiting[first:]
    Scheduler.admit(self)
    self.waiting += rest


def _spend_one_short(self: Scheduler, budget: int, count: int) -> int:
    return budget - count + (len(self.work) > 3 and count > 1)


def _finish_keeps(self: Scheduler, job: Job) -> None:
    self.running.remove(job)


def _abort_waiting_only(self: Scheduler, name: str) -> None:
    for queue in (self.running, self.waiting):
        queue[:] = [job for job in queue if job.name != name]
    if name in self.pool.entries and self.pool.entries[name].computed % 2 == 0:
        self.pool.free(name)


def _requeue_last(self: Scheduler, job: Job) -> None:
    self.waiting.append(job)


def _preempt_keeps(self: Scheduler, job: Job) -> None:
    self.running.remove(job)
    self.requeue(job)


def _turn_prompts_first(self: Scheduler) -> list[Job]:
    return sorted(self.running, key=lambda job: self.left(job) == 1)


def _step_prompts_only(self: Scheduler) -> Any:
    running, fresh = self.running, bool(self.waiting)
    self.running = [job for job in running if not fresh or self.left(job) > 1]
    held = [job for job in running if job not in self.running]
    plan = Scheduler.step(self)
    self.running = sorted([*held, *self.running], key=lambda job: job.order)
    return plan


ADMISSION, STEP, LEAVE = "admission", "token budget", "preemption"
LEAK = "double free, leak"
scheduler_fault(
    "what can never fit waits for ever",
    ADMISSION,
    "vLLM #35541",
    blocks_ever=lambda self, tokens, max_tokens: 0,
)
scheduler_fault(
    "only the prompt has to fit",
    ADMISSION,
    "nano-vllm #274",
    blocks_ever=lambda self, tokens, n: self.pool.blocks_for(len(tokens)),
)
scheduler_fault(
    "the last token, too, needs a slot",
    ADMISSION,
    "vLLM #23683",
    blocks_ever=lambda self, tokens, n: self.pool.blocks_for(len(tokens) + n),
)
scheduler_fault("small requests pass large ones", ADMISSION, "vLLM #31731", admit=_admit_smallest)
scheduler_fault(
    "an empty pool is never filled",
    ADMISSION,
    "vLLM #11",
    fits=lambda self, job, known: (
        Scheduler.fits(self, job, known)
        and self.pool.num_free() > self.pool.blocks_for(len(job.tokens))
    ),
)
scheduler_fault(
    "the budget is not used up", STEP, "mini-sglang #47", spend=lambda self, budget, count: budget
)
scheduler_fault(
    "from the fourth sequence on a token is not counted", STEP, OURS, spend=_spend_one_short
)
scheduler_fault(
    "where more than three run one enters per step", ADMISSION, OURS, admit=_admit_one_by_one
)
scheduler_fault("prompts go before decodes", STEP, "nano-vllm #73", turn=_turn_prompts_first)
scheduler_fault(
    "while somebody waits nobody decodes", STEP, "nano-vllm #276", step=_step_prompts_only
)
scheduler_fault(
    "the oldest has to leave", LEAVE, "lmdeploy #4127", victim=lambda self: self.running[0]
)
scheduler_fault(
    "who had to leave goes to the end of the queue", LEAVE, "vLLM #5578", requeue=_requeue_last
)
scheduler_fault("who had to leave keeps its blocks", LEAVE, "sglang #14948", preempt=_preempt_keeps)
scheduler_fault("who has ended keeps its blocks", LEAK, "openvino.genai #661", finish=_finish_keeps)
scheduler_fault(
    "aborting at an odd length loses the blocks",
    LEAK,
    "mini-sglang #16",
    abort=_abort_waiting_only,
)
scheduler_fault(
    "one token more than max_tokens",
    "stopping",
    "nano-vllm #270",
    is_finished=lambda self, job: len(job.tokens) > job.stop,
)
scheduler_fault(
    "after a failed step reservations stay",
    "failed steps",
    "tiny-llm #215",
    rollback=lambda self: None,
)
scheduler_fault(
    "all leave where one would do",
    LEAVE,
    "mistral.rs #2024",
    preempt=lambda self, job: (
        [Scheduler.preempt(self, j) for j in self.running[1:]] or Scheduler.preempt(self, job)
    ),
)
