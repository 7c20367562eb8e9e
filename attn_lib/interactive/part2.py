"""Figures of Part II: test error, learned spectrum, parts of the error, regimes of scaling."""

from functools import lru_cache, partial

import numpy as np

from attn_lib.interactive import Figure, Slider, View
from attn_lib.interactive.drawing import Panel
from attn_lib.interactive.marks import Cells, Level, Line, Points
from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.spectra import learned_spectrum
from attn_lib.theory.error_decomposition import decompose
from attn_lib.theory.scaling_regimes import RATES, regime
from attn_lib.theory.single_head import solve
from attn_lib.theory.thresholds import alpha_interpolation, alpha_recovery

__all__ = ["error_parts", "regimes", "spectrum", "test_errors"]

ACCURACY = 1e-2
KAPPA0 = 0.5
ERROR_ALPHAS = (0.05, 0.08, 0.1, 0.12, 0.135, 0.15, 0.165, 0.18, 0.2, 0.23, 0.27, 0.35, 0.5)
ERROR_LAMS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
SPECTRUM_D, SPECTRUM_ALPHAS, SPECTRUM_LAMS = 100, (0.03, 0.06, 0.1, 0.2, 0.5, 1.0, 3.0, 10.0), (0.01, 0.1, 0.5, 2.0)
PARTS_D, PARTS_ALPHAS = 1000, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
PARTS = {"over": 1, "under": 0, "approx": 2, "mismatch": 3}  # colours
GAMMAS = (0.75, 1.0, 1.5)
REGIMES_D = 200
NUMBERS_OF_SAMPLES, DECAYS = tuple(10.0 ** np.linspace(-1, 4, 16)), tuple(10.0 ** np.linspace(-3, 1, 13))


def test_errors(stored):
    """Test error against alpha for a Wishart target, with the thresholds of interpolation and recovery.

    Parameters
    ----------
    stored : dict
        Parts of book/data/thresholds.json, for small lam; what is not there is computed.

    Returns
    -------
    Figure
    """
    known = {
        (Delta, lam): stored[name]["value"]
        for Delta in (0.0, 0.5)
        for lam in ERROR_LAMS
        if (name := f"theory/{Delta}/{lam}") in stored
    }

    @lru_cache(maxsize=256)
    def error(alpha, lam, Delta):
        curve = known.get((Delta, lam))
        if curve and alpha in curve["alpha"]:
            return curve["test_error"][curve["alpha"].index(alpha)]
        target = MarchenkoPastur(kappa0=KAPPA0)
        return solve(
            SingleHead(alpha=alpha, lam=lam, Delta=Delta, kappa=1.0, target=target), accuracy=ACCURACY
        ).test_error

    sliders = {
        "alpha": Slider(label="<i>&alpha;</i>", values=ERROR_ALPHAS, start=7),
        "lam": Slider(label="<i>&lambda;</i>", values=ERROR_LAMS, start=1, log=True),
        "Delta": Slider(label="<i>&Delta;</i>", values=(0.0, 0.5), start=1),
    }
    title = "Test error, from interpolation to recovery"
    return Figure(name="error", title=title, sliders=sliders, view=partial(_test_errors, error))


def spectrum():
    """Bulk, outliers and atom of the learned spectrum of a power-law target.

    Returns
    -------
    Figure
    """
    sliders = {
        "alpha": Slider(label="<i>&alpha;</i>", values=SPECTRUM_ALPHAS, start=4, log=True),
        "lam": Slider(label="<i>&lambda;</i>", values=SPECTRUM_LAMS, start=1, log=True),
        "Delta": Slider(label="<i>&Delta;</i>", values=(0.0, 0.5, 1.0), start=1),
    }
    return Figure(name="spectrum", title="What training makes of a spectrum", sliders=sliders, view=_spectrum)


def error_parts(stored):
    """Parts of the excess error against the number of samples, for power laws along lam = 0.4 sqrt(alpha).

    Parameters
    ----------
    stored : dict
        Parts of book/data/error_decomposition.json; what is not there is computed.

    Returns
    -------
    Figure
    """
    names = (*PARTS, "distance", "excess")

    @lru_cache(maxsize=256)
    def parts(alpha, gamma):
        curve = stored.get(f"curve/gamma={gamma:g}", {}).get("value")
        if curve and alpha in curve["alpha"]:
            return {name: curve["isolated"][name][curve["alpha"].index(alpha)] for name in names}
        target = PowerLaw(gamma=gamma, d=PARTS_D)
        problem = SingleHead(alpha=alpha, lam=0.4 * alpha**0.5, Delta=0.5, kappa=1.0, target=target)
        found = decompose(solve(problem, accuracy=ACCURACY))
        return {name: getattr(found, name) for name in names}

    sliders = {
        "alpha": Slider(label="<i>&alpha;</i>", values=PARTS_ALPHAS, start=4, log=True),
        "gamma": Slider(label="<i>&gamma;</i>", values=GAMMAS, start=1),
    }
    return Figure(name="parts", title="Where the error comes from", sliders=sliders, view=partial(_error_parts, parts))


def regimes():
    """Regimes of scaling in the plane of n/d and lam, and the exponent at a point.

    Returns
    -------
    Figure
    """
    sliders = {
        "n_eff": Slider(label="<i>n</i>/<i>d</i>", values=NUMBERS_OF_SAMPLES, start=7, form="{:.3g}", log=True),
        "lam": Slider(label="<i>&lambda;</i>", values=DECAYS, start=6, form="{:.3g}", log=True),
        "gamma": Slider(label="<i>&gamma;</i>", values=GAMMAS, start=1),
    }
    return Figure(name="regimes", title="Which power of n?", sliders=sliders, view=_regimes)


@lru_cache(maxsize=2)
def _border(Delta):
    return alpha_interpolation(MarchenkoPastur(kappa0=KAPPA0), Delta=Delta)


def _test_errors(error, alpha, lam, Delta):
    here = error(alpha, lam, Delta)
    border, recovery = _border(Delta), alpha_recovery(KAPPA0)
    marks = [Level(border, "end of interpolation", row=1)]
    if not Delta:
        marks.append(Level(recovery, "recovery"))
    marks += [
        Line(ERROR_ALPHAS, [error(a, x, Delta) for a in ERROR_ALPHAS], 5, "other &lambda;", "thin") for x in ERROR_LAMS
    ]
    marks.append(Line(ERROR_ALPHAS, [error(a, lam, Delta) for a in ERROR_ALPHAS], 0, "this &lambda;"))
    marks.append(Points([alpha], [here], 1))
    panel = Panel(title="", x="&alpha; = n/d&sup2;", y="test error", xlim=(0, 0.52), ylim=(0, 0.6), marks=marks)
    recovered = "none with noise" if Delta else f"{recovery:.4f}"
    numbers = {
        "test error": f"{here:.4f}",
        "end of interpolation <i>&alpha;</i><sub>interp</sub>": f"{border:.4f}",
        "recovery <i>&alpha;</i><sub>perf</sub>": recovered,
    }
    return View([panel], numbers)


def _spectrum(alpha, lam, Delta):
    target = PowerLaw(gamma=1.0, d=SPECTRUM_D)
    solution = solve(SingleHead(alpha=alpha, lam=lam, Delta=Delta, kappa=1.0, target=target), accuracy=ACCURACY)
    learned = learned_spectrum(solution) if solution.rank > 0 else None
    outliers = learned.outliers if learned else ()
    isolated = {o.position for o in outliers}
    x, y = [], []
    for part in learned.components if learned else ():
        if any(part.lower <= position <= part.upper for position in isolated):
            continue
        inside = part.lower + (part.upper - part.lower) * (1 - np.cos(np.linspace(0, np.pi, 40))) / 2
        inside = np.maximum(inside, 1e-9)  # the density is 0 at 0
        x += [*inside, np.nan]
        y += [*learned.density(inside), np.nan]
    atom = learned.atom if learned else 1.0
    first = Panel(
        title="zeros and bulk", x="eigenvalue", y="density", xlim=(-0.2, 4), ylim=(0, 1.05),
        marks=[Line(x, y, 0, "bulk"), Line([0, 0], [0, atom], 1, "weight of the zeros"), Points([0], [atom], 1)],
    )  # fmt: skip
    second = Panel(
        title="outliers", x="eigenvalue", y="overlap of eigenvectors", xlim=(-0.5, 10.5), ylim=(0, 1.05),
        marks=[
            Points(target.spectrum, np.ones(SPECTRUM_D), 5, "eigenvalues of the target"),
            Points([o.position for o in outliers], [o.overlap for o in outliers], 2, "learned"),
        ],
    )  # fmt: skip
    largest = outliers[-1] if outliers else None
    numbers = {
        "weight of the zeros": f"{atom:.4f}",
        "outliers": f"{len(outliers)} of {SPECTRUM_D}",
        "largest outlier": f"{max(isolated):.3f}" if largest else "none",
        "noise <i>&delta;</i>": f"{solution.delta:.3f}" if learned else "nothing is learned",
        "threshold <i>&epsilon;</i>": f"{solution.epsilon:.3f}" if learned else "nothing is learned",
        "test error": f"{solution.test_error:.4f}",
    }
    return View([first, second], numbers)


def _error_parts(parts, alpha, gamma):
    along, here = [parts(a, gamma) for a in PARTS_ALPHAS], parts(alpha, gamma)
    marks = [Level(alpha)]
    for name, colour in PARTS.items():
        label = f"<i>E</i><sub>{name}</sub>"
        marks.append(Line(PARTS_ALPHAS, [p[name] for p in along], colour, label, "dash" if name == "mismatch" else ""))
    marks.append(Line(PARTS_ALPHAS, [p["excess"] for p in along], 5, "excess error", "thin"))
    marks.append(Points([alpha] * len(PARTS), [here[name] for name in PARTS], 5))
    limits = {"xlim": (0.008, 125), "ylim": (1e-6, 1), "log": "xy"}
    panel = Panel(title="", x="&alpha; = n/d&sup2;", y="error", marks=marks, **limits)
    numbers = {f"<i>E</i><sub>{name}</sub>": f"{here[name]:.2e}" for name in PARTS}
    total = here["over"] + here["under"] + here["approx"]
    numbers["over + under + approx"] = f"{total:.2e}"
    numbers["distance tr(<i>S</i> - <i>s</i><sub>*</sub><i>S</i><sub>0</sub>)&sup2;"] = f"{here['distance']:.2e}"
    numbers["excess of the test error"] = f"{here['excess']:.2e}"
    return View([panel], numbers)


@lru_cache(maxsize=8)
def _map(gamma):
    """Edges of cells in n/d and lam, and the regimes at their centres."""
    x, y = 10.0 ** np.linspace(-1.2, 4.2, 73), 10.0 ** np.linspace(-3.2, 1.2, 45)
    names = list(RATES)
    centres = [np.sqrt(edges[1:] * edges[:-1]) for edges in (x, y)]
    values = [[names.index(regime(_power(n, lam, gamma)).name) for n in centres[0]] for lam in centres[1]]
    return Cells(x, y, np.array(values), tuple(names))


def _power(n_eff, lam, gamma):
    target = PowerLaw(gamma=gamma, d=REGIMES_D)
    return SingleHead(alpha=n_eff / REGIMES_D, lam=lam, Delta=0.5, kappa=1.0, target=target)


def _regimes(n_eff, lam, gamma):
    found = regime(_power(n_eff, lam, gamma))
    panel = Panel(
        title="", x="n/d", y="&lambda;", xlim=(10**-1.2, 10**4.2), ylim=(10**-3.2, 10**1.2), log="xy",
        marks=[_map(gamma), Points([n_eff], [lam], 5, "here")],
    )  # fmt: skip
    numbers = {
        "regime": found.name,
        "exponent of <i>n</i> in the excess error": f"{found.exponent:.3f}",
        "noise <i>&delta;</i>": f"{found.scales.delta:.3g}",
        "threshold <i>&epsilon;</i>": f"{found.scales.epsilon:.3g}",
        "largest and smallest mode": f"{REGIMES_D**0.5:.3g}, {REGIMES_D ** (0.5 - gamma):.3g}",
    }
    return View([panel], numbers)
