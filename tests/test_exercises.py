"""Checks of computed answers: they tell right from wrong, and do not show what is right."""

import re
from itertools import product

import numpy as np
import pytest

from attn_lib.exercises import MODULES, Answer, answers, check

ANSWERS = answers()
PAIR = Answer(
    asked="two numbers",
    value=lambda: (2.0, -4.0),
    rtol=0.1,
    atol=0.01,
    mistakes=((lambda x, y: (2 * x, 2 * y), "a factor of two"),),
)


@pytest.mark.parametrize(
    ("attempt", "line"),
    [
        (None, "No answer yet. Asked for: two numbers."),
        ((2.2, -4.4), "Right, within 10 % plus 0.01."),
        (np.array([1.8, -3.6]), "Right, within 10 % plus 0.01."),
        ((2.2, -4.5), "Not yet: of the 2 numbers, number 2 is not right."),
        ((4.1, -8.2), "Not yet: a factor of two."),
        ((1.0, 1.0), "Not yet: of the 2 numbers, number 1, 2 is not right."),
    ],
    ids=str,
)
def test_identity_verdict(attempt, line):
    assert PAIR.verdict(attempt) == line


@pytest.mark.parametrize("attempt", [1.0, (1.0, 2.0, 3.0), (1.0, np.nan), "two", ((1.0, 2.0),), (1.0, None)], ids=str)
def test_rejects_what_is_no_answer(attempt):
    with pytest.raises(ValueError, match=r"answer = .*: must be a sequence of 2 finite numbers: two numbers"):
        PAIR.verdict(attempt)


def test_rejects_unknown_exercises():
    with pytest.raises(ValueError, match="label = 'none': must be one of .*pt-pitchfork"):
        check("none", 1.0)


def test_identity_check_prints_the_verdict(capsys):
    label = max(ANSWERS, key=lambda label: len(ANSWERS[label].asked))
    check(label)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines) == ANSWERS[label].verdict()
    assert len(lines) > 1 and max(map(len, lines)) <= 72


def test_identity_every_label_is_in_one_module():
    assert len(ANSWERS) == sum(len(module.ANSWERS) for module in MODULES)


@pytest.mark.parametrize("label", ANSWERS)
def test_identity_right_is_told_from_wrong(label):
    """Also by a little: what is off by more than the tolerance, in any one number and in either direction."""
    answer = ANSWERS[label]
    right = answer.right()
    assert answer.verdict(right).startswith("Right")
    tolerance = answer.atol + answer.rtol * np.abs(right)
    assert (tolerance > 0).all()
    for i, (factor, begins) in product(
        range(len(right)), [(0.95, "Right"), (-0.95, "Right"), (1.05, "Not"), (-1.05, "Not")]
    ):
        attempt = right.copy()
        attempt[i] += factor * tolerance[i]
        assert answer.verdict(attempt).startswith(begins)
    for what, message in answer.mistakes:
        assert answer.verdict(what(*right)) == f"Not yet: {message}."


@pytest.mark.parametrize("label", ANSWERS)
def test_identity_nothing_that_is_printed_shows_the_answer(label):
    answer = ANSWERS[label]
    shown = " ".join([answer.asked, *(message for _, message in answer.mistakes)])
    for number in answer.right():
        written = {f"{number:.{digits}g}" for digits in (2, 3, 4)}
        assert not written & set(re.findall(r"-?\d+\.\d+", shown)), shown
