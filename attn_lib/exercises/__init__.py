"""Checks of computed answers: a notebook says whether a number is right, without showing the right one.

Each chapter has at least one exercise whose answer is a number, or a few. ``check(label, answer)`` compares it with
what the theory gives, computed when it is asked for. The modules have these by chapter: a dict from the label of an
exercise to its :class:`~attn_lib.exercises.answer.Answer`.
"""

from textwrap import fill

from attn_lib.exercises import (
    part1_further,
    part1_layer,
    part1_transition,
    part2_curves,
    part2_further,
    part2_rates,
    part2_thresholds,
)
from attn_lib.exercises.answer import Answer

MODULES = (part1_layer, part1_transition, part1_further, part2_curves, part2_thresholds, part2_rates, part2_further)

__all__ = ["Answer", "answers", "check"]


def answers():
    """All exercises that can be checked.

    Returns
    -------
    dict
        From labels to Answers.
    """
    return {label: answer for module in MODULES for label, answer in module.ANSWERS.items()}


def check(label, answer=None):
    """Print whether the answer to an exercise is right, in lines that fit a page.

    Parameters
    ----------
    label : str
        Of the exercise.
    answer : float or sequence of float, optional
        Without it the line says what is asked for.

    Raises
    ------
    ValueError
        Unknown label; an answer that is not of finite numbers, or not of as many as are asked for.
    """
    known = answers()
    if label not in known:
        raise ValueError(f"label = {label!r}: must be one of {', '.join(sorted(known))}")
    print(fill(known[label].verdict(answer), 72))
