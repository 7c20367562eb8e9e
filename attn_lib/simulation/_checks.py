"""Checks of arguments, shared by the files of this directory."""

from numbers import Integral


def require(ok, name, value, allowed):
    """Raise ValueError naming the argument, its value and what is allowed, unless ok.

    Parameters
    ----------
    ok : bool
    name : str
    value : object
    allowed : str
        Completes "must be ...".
    """
    if not ok:
        raise ValueError(f"{name} = {value!r}: must be {allowed}")


def is_integer(value):
    """Whether value is an integer; True and False are not.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool
    """
    return isinstance(value, Integral) and not isinstance(value, bool)
