"""Faults planted into sampling, text and beam search: a test of ours must see each of them."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MODULES = ("params", "rng", "sampling", "text", "beam")  # each imports only earlier ones


@dataclass(frozen=True)
class Mutant:
    """One replacement in the source of a module, and the test that must fail."""

    what: str
    module: str
    old: str
    new: str
    test: str  # file::function


UNIT, LAWS = "unit/test_sampling.py", "property/test_sampling_laws.py"
TEXT, BEAM, PARAMS = "unit/test_text.py", "unit/test_beam.py", "unit/test_params.py"

MUTANTS = [
    Mutant(
        "u may be 1",
        "rng",
        "* 2.0**-53",
        "/ (2.0**53 - 1)",
        f"{UNIT}::test_the_largest_draw_is_below_one_and_the_smallest_is_zero",
    ),
    Mutant("nine rounds", "rng", "_ROUNDS = 10", "_ROUNDS = 9", f"{UNIT}::test_known_answers"),
    Mutant(
        "all samples of a request draw the same",
        "rng",
        "[output, sample, stream, 0]",
        "[output, 0, stream, 0]",
        f"{UNIT}::test_every_draw_is_its_own",
    ),
    Mutant(
        "the place in the batch decides",
        "sampling",
        "(row.seed, row.sample_index, row.output_index) for row in rows",
        "(row.seed + i, row.sample_index, row.output_index) for i, row in enumerate(rows)",
        f"{UNIT}::test_a_row_depends_on_itself_only_bit_by_bit",
    ),
    Mutant(
        "the prompt's length moves the draws",
        "sampling",
        "return len(self.token_ids) - self.num_prompt",
        "return len(self.token_ids)",
        f"{UNIT}::test_the_same_who_draws_the_same_and_others_do_not",
    ),
    Mutant(
        "a draw at the border takes the token before",
        "sampling",
        "right=True",
        "right=False",
        f"{UNIT}::test_what_has_no_probability_is_never_drawn",
    ),
    Mutant(
        "a draw may run past the end",
        "sampling",
        ".minimum(total - 1)",
        "",
        f"{UNIT}::test_what_has_no_probability_is_never_drawn",
    ),
    Mutant(
        "small temperatures overflow",
        "sampling",
        "(x.double() - peak.double()).div_(temperature)",
        "x.double().div(temperature).sub_(peak.double().div(temperature))",
        f"{UNIT}::test_any_temperature_is_computed",
    ),
    Mutant(
        "presence and frequency hit the prompt",
        "sampling",
        "row.token_ids[row.num_prompt :] if p.freq",
        "row.token_ids if p.freq",
        f"{UNIT}::test_presence_and_frequency_concern_the_output_only",
    ),
    Mutant(
        "repetition spares the prompt",
        "sampling",
        "repeated = [row.token_ids if",
        "repeated = [row.token_ids[row.num_prompt :] if",
        f"{UNIT}::test_repetition_divides_positive_and_multiplies_negative_logits",
    ),
    Mutant(
        "negative logits are divided too",
        "sampling",
        "torch.where(value > 0, value / penalty, value * penalty)",
        "value / penalty",
        f"{LAWS}::test_greedy_is_the_reference_s_first_maximum",
    ),
    Mutant(
        "presence counts occurrences",
        "sampling",
        '+ of_row("presence_penalty", at[0])',
        '+ of_row("presence_penalty", at[0]) * counts',
        f"{UNIT}::test_presence_and_frequency_concern_the_output_only",
    ),
    Mutant(
        "bias values meet the wrong ids",
        "sampling",
        "for t in sorted(bias)",
        "for t in bias",
        f"{UNIT}::test_bias_is_added_to_the_ids_it_names",
    ),
    Mutant(
        "one token too many before a stop",
        "sampling",
        "row.output_index < p.min_tokens",
        "row.output_index <= p.min_tokens",
        f"{UNIT}::test_nothing_stops_before_min_tokens",
    ),
    Mutant(
        "a mate's top_k counts",
        "sampling",
        "best.gather(-1, k - 1)[:, 0]",
        "best[:, -1]",
        f"{UNIT}::test_a_row_depends_on_itself_only_bit_by_bit",
    ),
    Mutant(
        "a top_k of one is idle",
        "sampling",
        "0 < p.top_k",
        "1 < p.top_k",
        f"{UNIT}::test_the_strictest_cuts_keep_the_likeliest",
    ),
    Mutant(
        "a mass that reaches top_p is not enough",
        "sampling",
        "likelier < goal",
        "likelier <= goal",
        f"{UNIT}::test_a_mass_that_reaches_top_p_exactly_is_enough",
    ),
    Mutant(
        "top_p looks at too few tokens",
        "sampling",
        "(2 * weights.shape[1])",
        "weights.shape[1] * 100",
        f"{LAWS}::test_the_nucleus_of_a_large_vocabulary",
    ),
    Mutant(
        "top_p is content with the first it ranks",
        "sampling",
        "keepdim=True) < goal).any()",
        "keepdim=True) < 0).any()",
        f"{LAWS}::test_the_nucleus_of_a_large_vocabulary",
    ),
    Mutant(
        "ties at a cut go",
        "sampling",
        "weights *= weights >= smallest[:, None]\n    some =",
        "weights *= weights > smallest[:, None]\n    some =",
        f"{UNIT}::test_ties_at_a_cut_stay",
    ),
    Mutant(
        "infinity is taken for a number",
        "sampling",
        "good = peak.isfinite()",
        "good = ~peak.isnan()",
        f"{UNIT}::test_bad_rows_are_reported_and_harm_nobody",
    ),
    Mutant(
        "the caller's logits change",
        "sampling",
        "logits.to(torch.float64, copy=True)",
        "logits.double()",
        f"{UNIT}::test_logits_stay_as_they_were",
    ),
    Mutant(
        "log-probabilities of what the penalties made",
        "sampling",
        "_logprobs(logits[i]",
        "_logprobs(adjusted[i]",
        f"{UNIT}::test_logprobs_are_those_of_the_raw_distribution",
    ),
    Mutant(
        "characters come in halves",
        "text",
        "len(text) - len(text.rstrip(_BROKEN))",
        "0",
        f"{TEXT}::test_a_character_comes_out_with_its_last_byte",
    ),
    Mutant(
        "the window only grows",
        "text",
        "                self._shorten(text)",
        "                pass",
        f"{TEXT}::test_only_a_short_window_is_decoded",
    ),
    Mutant(
        "the head is forgotten in the middle of a character",
        "text",
        "if tail_text.endswith(held):",
        "if True:",
        f"{TEXT}::test_joined_pieces_are_the_whole",
    ),
    Mutant(
        "stop strings are sought in the new text only",
        "text",
        "max(0, num_old - len(stop) + 1)",
        "num_old",
        f"{TEXT}::test_the_text_is_cut_exactly",
    ),
    Mutant(
        "the first of the list wins",
        "text",
        "min(matches)",
        "matches[0]",
        f"{TEXT}::test_the_text_is_cut_exactly",
    ),
    Mutant(
        "a stop string ends the min_tokens-th token",
        "text",
        "self._num_tokens > self._min_tokens",
        "self._num_tokens >= self._min_tokens",
        f"{TEXT}::test_a_stop_string_counts_if_it_ends_after_min_tokens",
    ),
    Mutant(
        "what might become a stop string is streamed",
        "text",
        "cut = len(text) - self._num_open(text)",
        "cut = len(text)",
        f"{TEXT}::test_the_text_is_cut_exactly",
    ),
    Mutant(
        "more is held back than must be",
        "text",
        "return size\n    ",
        "return min(longest, len(text))\n    ",
        f"{TEXT}::test_the_text_is_cut_exactly",
    ),
    Mutant(
        "every stop id among the candidates finishes",
        "beam",
        "for beam in grown[:width] if",
        "for beam in grown if",
        f"{BEAM}::test_a_stop_id_finishes_a_hypothesis_only_among_the_first_width",
    ),
    Mutant(
        "the stop id does not count",
        "beam",
        "score = beam.logprob / len(beam.token_ids) **",
        "score = beam.logprob / max(1, len(beam.token_ids) - 1) **",
        f"{BEAM}::test_the_score_counts_generated_tokens_and_the_stop_id",
    ),
    Mutant(
        '"never" hopes for length where length costs',
        "beam",
        'early == "never" and penalty > 0',
        'early == "never"',
        f"{BEAM}::test_when_the_search_ends",
    ),
    Mutant(
        "masked log-probabilities are made to sum to one",
        "beam",
        "[(t, p) for t, p in best_tokens(logprobs, self",
        "[(t, p) for t, p in best_tokens(logprobs.log_softmax(-1), self",
        f"{BEAM}::test_candidates_are_log_probabilities_without_early_stops",
    ),
    Mutant(
        "True is a number",
        "params",
        'if rule == "True or False" or isinstance(value, bool):',
        'if rule == "True or False":',
        f"{PARAMS}::test_each_value_is_accepted_or_refused_by_name",
    ),
    Mutant(
        "open ends are closed",
        "params",
        'if interval[-1] == "]" else number < high',
        'if interval[-1] == "]" else number <= high',
        f"{PARAMS}::test_each_value_is_accepted_or_refused_by_name",
    ),
]


def build(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put fresh modules, one of them mutated, where every import finds them."""
    package = importlib.import_module("minipaged.engine")
    for name in MODULES:
        full_name = f"minipaged.engine.{name}"
        path = Path(package.__path__[0]) / f"{name}.py"
        source = path.read_text(encoding="utf-8")
        if mutant is not None and mutant.module == name:
            assert source.count(mutant.old) == 1, f"{mutant.old!r} is not once in {path.name}"
            source = source.replace(mutant.old, mutant.new)
        module = types.ModuleType(full_name)
        module.__file__, module.__package__ = str(path), "minipaged.engine"
        monkeypatch.setitem(sys.modules, full_name, module)
        monkeypatch.setattr(package, name, module, raising=False)
        exec(compile(source, str(path), "exec"), module.__dict__)


def run_test(where: str) -> BaseException | None:
    """Run a test function with all its parameters against the modules that are in place."""
    file_name, function_name = where.split("::")
    spec = importlib.util.spec_from_file_location(
        "mutants_" + Path(file_name).stem, TESTS / file_name
    )
    assert spec is not None
    assert spec.loader is not None
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    function = getattr(tests, function_name)
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    for choice in itertools.product(*(mark.args[1] for mark in marks)):
        kwargs = {}
        for mark, values in zip(marks, choice):
            names = mark.args[0]
            kwargs |= {names: values} if isinstance(names, str) else dict(zip(names, values))
        if "monkeypatch" in function.__code__.co_varnames[: function.__code__.co_argcount]:
            kwargs["monkeypatch"] = patch = pytest.MonkeyPatch()
        try:
            function(**kwargs)
        except (Exception, pytest.fail.Exception) as failure:
            return failure
        finally:
            if "monkeypatch" in kwargs:
                patch.undo()
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_fault_is_seen(mutant, monkeypatch):
    build(mutant, monkeypatch)
    assert run_test(mutant.test) is not None, f"{mutant.test} lets through: {mutant.what}"


@pytest.mark.parametrize("test", sorted({mutant.test for mutant in MUTANTS}))
def test_without_a_fault_the_same_tests_pass(test, monkeypatch):
    build(None, monkeypatch)
    assert run_test(test) is None
