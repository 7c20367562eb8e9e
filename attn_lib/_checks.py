"""Checks of arguments, shared by problems, spectra and theory."""

from numbers import Integral, Real

import numpy as np


def check_integer(name, value, low, high=None):
    """Raise ValueError unless value is an integer from low to high; True and False are not.

    Parameters
    ----------
    name : str
    value : object
    low : int
    high : int, optional
        No upper limit by default.
    """
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or not low <= value or (high is not None and value > high):
        allowed = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name} = {value!r}: must be an integer {allowed}")


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


def check_type(name, value, kind):
    """Raise ValueError unless value is an instance of a class.

    Parameters
    ----------
    name : str
    value : object
    kind : type
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name} of type {type(value).__name__}: must be a {kind.__name__}")


def as_python_numbers(instance, *floats, **types):
    """Replace checked fields of a frozen dataclass by Python numbers, which neither overflow nor lose precision.

    Parameters
    ----------
    instance : object
    floats : str
        Fields that become floats.
    types : type
        Fields that become something else.
    """
    for name, kind in {**dict.fromkeys(floats, float), **types}.items():
        object.__setattr__(instance, name, kind(getattr(instance, name)))


def nested_floats(name, value, allowed, is_allowed):
    """The value as nested tuples of floats; ValueError unless it is an array of finite numbers that is allowed.

    Parameters
    ----------
    name : str
    value : object
    allowed : str
        Completes "must be ...".
    is_allowed
        Function of an array.

    Returns
    -------
    tuple
    """
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError):
        array = np.full((), np.nan)
    if not (np.isfinite(array).all() and is_allowed(array)):
        raise ValueError(f"{name} = {value!r}: must be {allowed}")
    return _nested_tuples(array.tolist())


def _nested_tuples(value):
    return tuple(map(_nested_tuples, value)) if isinstance(value, list) else value
