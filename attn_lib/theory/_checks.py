"""Checks of arguments, shared by the files of this directory."""

from numbers import Integral, Real

import numpy as np


def check_integer(name, value, low, high):
    """Raise ValueError unless value is an integer in [low, high]; True and False are not.

    Parameters
    ----------
    name : str
    value : object
    low, high : int
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} = {value!r}: must be an integer in [{low}, {high}]")


def check_number(name, value, allowed, is_allowed):
    """Raise ValueError unless value is a finite number of which ``is_allowed`` is true.

    Parameters
    ----------
    name : str
    value : object
    allowed : str
        Completes "must be ...".
    is_allowed
        Function of a number.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool) and np.isfinite(float(value))
    if not is_number or not is_allowed(value):
        raise ValueError(f"{name} = {value!r}: must be {allowed}")


def check_overlaps(overlaps, rho):
    """Raise ValueError unless the overlaps are those of some Q, with a response V in (0, 1e3].

    Parameters
    ----------
    overlaps : Overlaps
        (q, m, theta, V).
    rho : float
    """
    q, m, theta, V = overlaps
    for name, value in (("q", q), ("m", m), ("theta", theta)):
        check_number(name, value, "a finite number", lambda v: True)
    check_number("V", V, "a number in (0, 1e3]", lambda v: 0 < v <= 1e3)
    least = theta**2 / rho + rho * m**2
    check_number("q", q, f"a number in ({least:.4g}, 1e3], above theta^2/rho + rho m^2", lambda v: least < v <= 1e3)
