"""Limits of the branches of Part I, and simulations around the transition: writes phase_diagram.json."""

import numpy as np
from command import command
from store import by_name

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.theory import branches
from attn_lib.theory.positional_semantic import solve

RECORD = {
    "what": "Limits of the branches over omega, and simulations from both starts around the transition.",
    "seeds": "0 to 1503, listed with each part",
    "tolerance": 0.001,
}

LIMITS_OMEGAS = (0.0, 0.1, 0.2, 0.3, 0.4)
# Alphas around the crossing of the train losses, few and close: there the difference is nearly a straight line.
CROSSINGS = {
    0.0: (0.52, 0.56, 0.60, 0.64, 0.68),
    0.1: (0.62, 0.67, 0.72, 0.77, 0.82),
    0.3: (1.15, 1.20, 1.25, 1.30, 1.35),
}
RUNS = {1000: 12, 2000: 8}  # d: seeds at each alpha
CURVES_OMEGAS = (0.1, 0.3)
CURVES_ALPHAS = (0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.58, 0.65, 0.73, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5, 1.7, 1.9, 2.1)
MORE_SCALES = tuple(np.geomspace(0.02, 1.5, 14).round(4).tolist())
MAP_OMEGAS = (0.0, 0.1, 0.2, 0.3, 0.4)
MAP_ALPHAS = (0.3, 0.6, 0.9, 1.2, 1.6, 2.0)


def curves(omega):
    """Both branches where they exist, followed downwards in alpha, each solution starting the next one."""
    columns = {}
    for start in ("semantic", "positional"):
        branch = {name: [] for name in ("alpha", "train_loss", "test_error", "q", "m", "theta", "V")}
        guess = None
        for alpha in CURVES_ALPHAS[::-1]:
            s = solve(PositionalSemantic(alpha=alpha, omega=omega), start, guess=guess)
            if not s.collapsed:
                guess = s.overlaps
                row = {"alpha": alpha, "train_loss": s.train_loss, "test_error": s.test_error, **guess._asdict()}
                for name, column in branch.items():
                    column.insert(0, float(row[name]))
        columns[start] = branch
    return columns


def branch_limits(omega):
    """The limits that exist; null stands for an event that does not happen in the range searched."""
    limits = branches.branch_limits(omega)._asdict()
    return {name: None if np.isnan(alpha) else alpha for name, alpha in limits.items()}


def paired_runs(omega, alpha, d, seeds, scales=None, *, device):
    """Both starts on the same data, one entry per seed: train loss, test error, overlaps, trapped runs."""
    problem = PositionalSemantic(alpha=alpha, omega=omega)
    part = {"omega": omega, "alpha": alpha, "d": d, "seeds": list(seeds)}
    for start in ("semantic", "positional"):
        e = train_positional_semantic(problem, d=d, seeds=seeds, start=start, scales=scales, device=device)
        if not e.converged.all():
            raise RuntimeError(f"omega = {omega}, alpha = {alpha}, d = {d}, {start} start: not converged")
        columns = {name: getattr(e, name).tolist() for name in ("train_loss", "test_error", "q", "m", "theta")}
        runs = len(e.settings.scales) * len(seeds)
        part[start] = {**columns, "trapped": int(e.n_trapped.sum()), "runs": runs}
    return part


def parts():
    """Every part: its name and the call that computes it. Runs at different alphas share no seed."""
    for omega in LIMITS_OMEGAS:
        yield f"branch_limits/{omega}", branch_limits, (omega,)
    for omega in CURVES_OMEGAS:
        yield f"curves/{omega}", curves, (omega,)
    for d, n_seeds in RUNS.items():
        for omega, alphas in CROSSINGS.items():
            for i, alpha in enumerate(alphas):
                seeds = range(100 * i, 100 * i + n_seeds)
                yield f"crossing/{omega}/{d}/{alpha}", paired_runs, (omega, alpha, d, seeds)
    # Would more starts find lower minima? Runs of the middle alpha once more, where most are trapped.
    seeds = range(200, 200 + RUNS[2000])
    yield "more_starts/0.0/2000/0.6", paired_runs, (0.0, 0.6, 2000, seeds, MORE_SCALES)
    for omega in MAP_OMEGAS:
        for i, alpha in enumerate(MAP_ALPHAS):
            seeds = range(1000 + 100 * i, 1000 + 100 * i + 4)
            yield f"map/{omega}/{alpha}", paired_runs, (omega, alpha, 1000, seeds)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
