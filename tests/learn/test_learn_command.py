"""``minipaged learn``: what a learner types, sees and finds in his folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from minipaged.cli import app, learn
from minipaged.learn import catalog, pages, told
from minipaged.learn.verdict import Verdict
from minipaged.learn.workbook import Workbook

FILE = "minipaged-exercises/06_fork.py"
(FORK,) = catalog.find("fork")


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch, tmp_path):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*words: str):
    return CliRunner().invoke(app, ["learn", *words], prog_name="minipaged")


# --- the list -----------------------------------------------------------------------------------


def test_the_list_names_every_exercise_and_the_next_step(empty_folder):
    result = ask()
    assert result.exit_code == 0
    first = catalog.tasks()[0]
    for task in catalog.tasks():
        assert task.title in result.stdout
    assert f"Next: minipaged learn {first.key}" in result.stdout
    assert list(empty_folder.iterdir()) == [], "looking creates nothing"
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_list_counts_what_is_done_and_begun():
    Workbook(told.Path("minipaged-exercises")).begin(FORK)
    assert "0 done, 1 begun" in ask().stdout


# --- an exercise, from the beginning to the end ---------------------------------------------------


def test_the_first_call_copies_the_starter_and_says_what_to_do(empty_folder):
    result = ask("6")
    assert result.exit_code == 0
    assert (empty_folder / FILE).read_text() == FORK.starter
    for part in (FILE, "append", "--watch", "--hint", "--read"):
        assert part in result.stdout
    assert ask("fork").stdout == result.stdout, "an untouched starter is no failure"
    assert "Mend decode there" in ask("10c").stdout
    assert "a race" in ask("10c").stdout, "code that is to be mended is judged as it is"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("6", "Write append there"),
        ("3", "Write slots and position there"),
        ("7b", "Write Pool, publish, allocate, share and release there"),
    ],
)
def test_it_names_what_is_to_be_written_as_a_sentence_does(step, told):
    assert told in " ".join(ask(step).stdout.split())


def test_a_wrong_file_gets_the_story_the_hint_command_and_code_1(empty_folder):
    ask("6")
    wrong = FORK.exercise.wrong[0]
    (empty_folder / FILE).write_text(wrong.apply(FORK.solution))
    result = ask("6")
    assert result.exit_code == 1
    assert wrong.says in " ".join(result.stdout.split())
    assert "minipaged learn 6 --hint" in result.stdout
    assert "Traceback" not in result.output


def test_a_right_file_gets_what_was_learnt_and_the_next_command(empty_folder):
    ask("6")
    (empty_folder / FILE).write_text(FORK.solution)
    result = ask("6")
    assert result.exit_code == 0
    assert FORK.exercise.learnt in " ".join(result.stdout.split())
    assert "Next: minipaged learn" in result.stdout
    assert "1 done" in ask().stdout


def test_nothing_a_learner_wrote_is_overwritten(empty_folder):
    ask("6")
    (empty_folder / FILE).write_text("mine = 1\n")
    for words in (["6"], ["6", "--hint"], ["6", "--solution"], ["--all"], []):
        ask(*words)
        assert (empty_folder / FILE).read_text() == "mine = 1\n"
    assert "is now minipaged-exercises/06_fork.old1.py" in ask("6", "--reset").stdout
    assert (empty_folder / "minipaged-exercises/06_fork.old1.py").read_text() == "mine = 1\n"


def test_hints_come_one_more_each_time():
    outputs = [ask("6", "--hint").stdout for _ in range(len(FORK.hints) + 1)]
    counts = [out.count("Hint ") for out in outputs]
    assert counts == [*range(1, len(FORK.hints) + 1), len(FORK.hints)]
    assert "--solution" not in outputs[0]
    assert "--solution" in outputs[-1]


def test_the_solution_is_the_one_that_the_tests_accept():
    assert ask("6", "--solution").stdout == FORK.solution


def test_all_judges_what_is_begun(empty_folder):
    assert "No exercise is begun" in ask("--all").stdout
    ask("6")
    assert ask("--all").exit_code == 0, "an untouched starter is not judged"
    (empty_folder / FILE).write_text("mine = 1\n")
    result = ask("--all")
    assert result.exit_code == 1
    assert "not yet" in result.stdout
    (empty_folder / FILE).write_text(FORK.solution)
    result = ask("--all")
    assert result.exit_code == 0
    assert "accepted" in result.stdout


def test_at_the_end_it_says_what_was_learnt_and_where_to_go(empty_folder):
    book = Workbook(empty_folder / "minipaged-exercises")
    for task in catalog.tasks():
        book.begin(task)
        book.record(task, accepted=True)
    out = ask().stdout
    for task in catalog.tasks():
        assert task.facts["learnt"].split()[0] in out
    assert "minipaged check" in out
    assert "Next: minipaged learn" not in out


def test_the_last_exercise_ends_the_course_once(empty_folder, monkeypatch):
    monkeypatch.setattr(catalog, "tasks", lambda: [FORK])
    ask("6")
    (empty_folder / FILE).write_text(FORK.solution)
    assert "What you have learnt" in ask("6").stdout
    assert "What you have learnt" not in ask("6").stdout
    assert "What you have learnt" in ask().stdout


# --- asked wrongly ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["99"], "there are:"),
        (["frok"], "6 fork"),
        (["6", "7"], "one step at a time"),
        (["--hint"], "which step?"),
        (["nothing", "--read"], "there is no page"),
        (["notebook", "nothing"], "there is no page"),
    ],
)
def test_a_wrong_question_gets_one_sentence_and_code_2(words, said):
    result = ask(*words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_step_with_several_exercises_goes_on_to_the_next(double, monkeypatch, tmp_path):
    book = Workbook(tmp_path / "minipaged-exercises")
    monkeypatch.setattr(catalog, "tasks", lambda: [FORK, double])
    book.begin(FORK)
    book.record(FORK, accepted=True)
    lines = [str(line) for line in told.after([FORK, double], book)]
    assert "Next: minipaged learn 99   Double a number" in lines


# --- pages and notebooks --------------------------------------------------------------------------


def test_a_page_can_be_read_and_runs_on_the_way(monkeypatch, tmp_path):
    script = tmp_path / "06_tiny.py"
    script.write_text(
        '# %% [markdown]\n# # 6. Tiny\n#\n# <details markdown="1"><summary>Guess.</summary>\n#\n'
        "# The answer.\n# </details>\n\n# %%\nprint(6 * 7)\n"
    )
    monkeypatch.setattr(pages, "folder", lambda: tmp_path)
    result = ask("6", "--read")
    assert result.exit_code == 0
    for part in ("Tiny", "Guess.", "The answer.", "print(6 * 7)", "42"):
        assert part in result.stdout
    assert "<details" not in result.stdout


def test_a_notebook_is_written_once(empty_folder):
    page = pages.pages()[0]
    result = ask("notebook", str(page.number), "--out", "books")
    path = empty_folder / "books" / f"{page.path.stem}.ipynb"
    assert result.exit_code == 0
    assert json.loads(path.read_text())["nbformat"] == 4
    path.write_text("mine")
    result = ask("notebook", str(page.number), "--out", "books")
    assert result.exit_code == 1
    assert "may hold your work" in result.stderr
    assert path.read_text() == "mine"


# --- watching -----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal as a terminal would")
def test_control_c_ends_watching_without_a_traceback(empty_folder):
    Workbook(empty_folder / "minipaged-exercises").begin(FORK)
    code = "from minipaged.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "learn", "6", "--watch"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("watching "):
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


# --- words --------------------------------------------------------------------------------------


def test_a_picture_in_a_story_keeps_its_form_and_a_sentence_is_wrapped(tmp_path, capsys):
    wide, sentence = "│ " + "x " * 60 + "│", "word " * 40
    verdict = Verdict("rejected", "wrong", ("", wide, sentence))
    learn._print(told.refusal(FORK, verdict, Workbook(tmp_path)))
    lines = capsys.readouterr().out.splitlines()
    assert f"  {wide}" in lines
    assert max(len(line) for line in lines if "word" in line) <= 80


def test_words_fit_a_terminal(tmp_path):
    book = Workbook(tmp_path)
    for task in catalog.tasks():
        for line in [*told.hints(task, len(task.hints)), *told.begun(task, book)]:
            assert len(str(line)) <= 80 or str(tmp_path) in str(line), line
    assert all(len(str(line)) <= 80 for line in told.farewell(catalog.tasks()))
