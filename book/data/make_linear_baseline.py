"""Attention against the linear baseline over alpha and omega, and around alpha_l: writes linear_baseline.json.

Parts: "theory/OMEGA" has both branches along alpha. "map/OMEGA/ALPHA" has the baseline on the data of the part of the
same name in phase_diagram.json. "crossing/OMEGA/D/ALPHA" has the semantic start and the baseline on the same data, near
alpha_l. "large/OMEGA/theory" and "large/OMEGA/D/ALPHA" follow the semantic minimum to large alpha. "window/START" has
both starts between alpha_c and alpha_l. "alpha_l/OMEGA" and "alpha_c/OMEGA" go on where phase_diagram.json ends.
"""

import numpy as np
from command import command
from make_phase_diagram import MAP_ALPHAS, MAP_OMEGAS
from store import by_name

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.baseline import train_linear_baseline
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.theory import transitions
from attn_lib.theory.positional_semantic import solve

RECORD = {
    "what": "Attention against the linear baseline: theory over alpha and omega, simulations on common data.",
    "seeds": "1000 to 4023, listed with each part",
    "tolerance": 0.01,
}

THEORY_OMEGAS = np.linspace(0, 0.5, 11).round(2).tolist()
THEORY_ALPHAS = np.linspace(0.1, 2.4, 24).round(1).tolist()
# Few and close alphas around alpha_l: there the difference of the errors is nearly a straight line.
CROSSINGS = {
    0.0: (0.66, 0.70, 0.74, 0.78, 0.82),
    0.1: (0.80, 0.85, 0.90, 0.95, 1.00),
    0.3: (1.35, 1.42, 1.49, 1.56, 1.63),
}
RUNS = {1000: 12, 2000: 8}  # d: seeds at each alpha
LARGE_OMEGAS = (0.0, 0.3)
LARGE_ALPHAS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
LARGE_RUNS = {300: (3, 6, 12, 24), 900: (3, 6, 12)}  # d: alphas
LATE = {
    "alpha_l": {0.45: 3, 0.475: 4, 0.49: 6, 0.5: 11},
    "alpha_c": {0.45: 2, 0.5: 3, 0.55: 4, 0.6: 7, 0.63: 12, 0.65: 23},
}
WINDOW = 0.3, 1.37, range(4000, 4024)  # between alpha_c and alpha_l: omega, alpha, seeds


def branch(omega, start, alphas, accuracy):
    """One branch along alpha, each solution starting the next one, up to where it ends or is no longer found."""
    columns = {name: [] for name in ("alpha", "train_loss", "test_error", "q", "m", "theta")}
    guess = None
    for alpha in alphas:
        try:
            s = solve(PositionalSemantic(alpha=alpha, omega=omega), start, accuracy=accuracy, guess=guess)
        except ConvergenceError:  # happens near the end of a branch, where it is the higher one of the two by far
            if guess is None:
                raise
            s = None
        if guess is not None and (s is None or s.collapsed):
            columns["lost_at"] = alpha
            break
        if not s.collapsed:
            guess = s.overlaps
            row = {"alpha": alpha, "train_loss": s.train_loss, "test_error": s.test_error, **guess._asdict()}
            for name, column in columns.items():
                column.append(float(row[name]))
    return columns


def theory(omega):
    """The semantic branch followed downwards, where it is born; the positional one upwards, where it may end."""
    return {
        "semantic": branch(omega, "semantic", THEORY_ALPHAS[::-1], 1e-3),
        "positional": branch(omega, "positional", THEORY_ALPHAS, 1e-3),
    }


def transition(which, omega, guess):
    """alpha_c or alpha_l, at larger omega than in the other files."""
    return {"omega": omega, which: getattr(transitions, which)(omega, guess=guess)}


def baseline(problem, d, seeds, n_test=2000):
    """Errors of the linear layer, one entry per seed."""
    return train_linear_baseline(problem, d=d, seeds=seeds, n_test=n_test).test_error.tolist()


def on_the_map(omega, alpha, seeds):
    """The baseline beside the stored runs of phase_diagram.json."""
    problem = PositionalSemantic(alpha=alpha, omega=omega)
    return {"omega": omega, "alpha": alpha, "d": 1000, "seeds": list(seeds), "baseline": baseline(problem, 1000, seeds)}


def trained(omega, alpha, d, seeds, n_test, start="semantic", *, device):
    """The minimum reached from a named start, and the baseline, on the same data."""
    problem = PositionalSemantic(alpha=alpha, omega=omega)
    e = train_positional_semantic(problem, d=d, seeds=seeds, start=start, n_test=n_test, device=device)
    if not e.converged.all():
        raise RuntimeError(f"omega = {omega}, alpha = {alpha}, d = {d}, {start} start: not converged")
    columns = {name: getattr(e, name).tolist() for name in ("train_loss", "test_error", "q", "m", "theta")}
    linear = baseline(problem, d, seeds, n_test)
    return {"omega": omega, "alpha": alpha, "d": d, "seeds": list(seeds), **columns, "baseline": linear}


def parts():
    """Every part: its name and the call that computes it. Runs at different alphas of a fit share no seed."""
    for d, n_seeds in RUNS.items():
        for omega, alphas in CROSSINGS.items():
            for i, alpha in enumerate(alphas):
                seeds = range(2000 + 100 * i, 2000 + 100 * i + n_seeds)
                yield f"crossing/{omega}/{d}/{alpha}", trained, (omega, alpha, d, seeds, 4000)
    for omega in MAP_OMEGAS:
        for i, alpha in enumerate(MAP_ALPHAS):
            yield f"map/{omega}/{alpha}", on_the_map, (omega, alpha, range(1000 + 100 * i, 1000 + 100 * i + 4))
    for omega in LARGE_OMEGAS:
        yield f"large/{omega}/theory", branch, (omega, "semantic", LARGE_ALPHAS, 1e-6)
        for d, alphas in LARGE_RUNS.items():
            for alpha in alphas:
                yield f"large/{omega}/{d}/{alpha}", trained, (omega, alpha, d, range(3000, 3004), 4000)
    omega, alpha, seeds = WINDOW
    for start in ("semantic", "positional"):
        yield f"window/{start}", trained, (omega, alpha, 1000, seeds, 4000, start)
    for which, guesses in LATE.items():
        for omega, guess in guesses.items():
            yield f"{which}/{omega}", transition, (which, omega, guess)
    for omega in THEORY_OMEGAS:
        yield f"theory/{omega}", theory, (omega,)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
