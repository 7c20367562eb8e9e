"""Checks of order parameters."""

from attn_lib._checks import check_number


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
