"""What the answer to an exercise is, and how an attempt is judged."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

__all__ = ["Answer"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to an exercise: one number or several.

    Parameters
    ----------
    asked : str
        What is asked for, with its unit or normalisation, as "the exponent of theta".
    value : callable
        Without arguments; returns the right number, or a tuple of them. In a few seconds.
    rtol, atol : float
        An attempt x is right when ``|x - value| <= atol + rtol |value|`` for each number: by the accuracy that the
        exercise asks for, or what the randomness of a simulation allows.
    mistakes : tuple
        Pairs (what, message) of likely wrong answers: what is a function of the right value, or values.
    """

    asked: str
    value: Callable
    rtol: float = 0.0
    atol: float = 0.0
    mistakes: tuple = ()

    def right(self):
        """The right numbers, computed once.

        Returns
        -------
        array, shape (numbers,)
        """
        return _computed(self.value)

    def verdict(self, answer=None):
        """Judge an attempt.

        Parameters
        ----------
        answer : float or sequence of float, optional

        Returns
        -------
        str
            Begins with "Right", "Not yet", or "No answer yet".

        Raises
        ------
        ValueError
            Not finite numbers, or not as many as are asked for.
        """
        if answer is None:
            return f"No answer yet. Asked for: {self.asked}."
        right = self.right()
        attempt = self._numbers(answer, len(right))
        if self._close(attempt, right):
            return f"Right, within {self._tolerance()}."
        for what, message in self.mistakes:
            if self._close(attempt, _row(what(*right))):
                return f"Not yet: {message}."
        if len(right) > 1:
            wrong = [str(i + 1) for i in range(len(right)) if not self._close(attempt[i], right[i])]
            return f"Not yet: of the {len(right)} numbers, number {', '.join(wrong)} is not right."
        return "Not yet."

    def _numbers(self, answer, n):
        try:
            attempt = _row(answer)
        except (TypeError, ValueError):
            attempt = np.array([np.nan])
        if attempt.shape != (n,) or not np.isfinite(attempt).all():
            allowed = "a finite number" if n == 1 else f"a sequence of {n} finite numbers"
            raise ValueError(f"answer = {answer!r}: must be {allowed}: {self.asked}")
        return attempt

    def _close(self, attempt, right):
        return bool(np.all(np.abs(attempt - right) <= self.atol + self.rtol * np.abs(right)))

    def _tolerance(self):
        parts = [f"{100 * self.rtol:.3g} %"] * bool(self.rtol) + [f"{self.atol:.3g}"] * bool(self.atol)
        return " plus ".join(parts)


@cache
def _computed(value):
    return _row(value())


def _row(numbers):
    return np.atleast_1d(np.asarray(numbers, dtype=float))
