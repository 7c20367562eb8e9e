"""Gradient descent and Adam, and minima at many sizes, omega = 0.3: writes gradient_descent.json beside this file."""

import numpy as np
from command import command
from store import by_name

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.dynamics import Start, train_by_descent
from attn_lib.simulation.erm import train_positional_semantic

RECORD = {
    "what": "Gradient descent and Adam from informed and random starts; L-BFGS minima from d = 10 to 1000.",
    "seeds": "1000 to 17027, listed with each part",
    "tolerance": 0.001,
}
OMEGA = 0.3
MEASURED = ("train_loss", "test_error", "m", "theta", "q")

# d: seeds, of the minima at alpha = 1.5 and of the published recipe there
SIZES = {10: 300, 20: 300, 50: 160, 100: 160, 200: 100, 350: 64, 500: 48, 1000: 28}
DESCENT_SIZES = {10: 200, 20: 200, 50: 120, 100: 60, 200: 30, 500: 8}
ESCAPE_SIZES = {100: 48, 200: 32, 400: 24, 800: 12, 1600: 6}
FRACTION_SIZES = {100: 64, 300: 24, 1000: 4}
FRACTION_ALPHAS = (1.0, 1.5, 2.0, 3.0, 4.0)
SCALES = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 2.0)
OVERLAPS = (0.0, 0.03, 0.1, 0.2, 0.4)


def recipe(d, device, optimiser="gd"):
    """The published step sizes and numbers of steps; single precision where the tokens are large."""
    rate, n_steps = {"gd": (0.15, 5000), "adam": (0.01, 2500)}[optimiser]
    dtype = "float64" if d < 500 else "float32"
    return {"d": d, "optimiser": optimiser, "learning_rate": rate, "n_steps": n_steps, "dtype": dtype, "device": device}


def measured(run, names=(*MEASURED, "gradient_norm")):
    """One list per quantity, over seeds and starts."""
    if run.diverged.any():
        raise RuntimeError(f"{run.diverged.sum()} runs diverged")
    return {name: getattr(run, name).tolist() for name in names}


def minima(d, seeds, alpha=1.5, scales=(None, None), *, device):
    """Minima from both informed starts, by L-BFGS; the lowest of the default scales, or those of the scales given."""
    part = {"d": d, "alpha": alpha, "seeds": list(seeds)}
    problem = PositionalSemantic(alpha=alpha, omega=OMEGA)
    for start, scale in zip(("semantic", "positional"), scales, strict=True):
        e = train_positional_semantic(problem, d=d, seeds=seeds, start=start, scales=scale, device=device)
        part[start] = {name: getattr(e, name).tolist() for name in MEASURED}
        part[start]["not_converged"] = int((~e.converged).sum())
    return part


def informed(d, seeds, *, device):
    """The published recipe from the two informed starts, and L-BFGS from the same points on the same data."""
    problem = PositionalSemantic(alpha=1.5, omega=OMEGA)
    starts = Start(semantic=1.0), Start(positional=d**-0.5)
    run = train_by_descent(problem, seeds=seeds, starts=starts, **recipe(d, device))
    part = {"d": d, "alpha": problem.alpha, "seeds": list(seeds), "descent": measured(run)}
    return {**part, "lbfgs": minima(d, seeds, scales=((1.0,), (d**-0.5,)), device=device)}


def random_recipe(optimiser, seeds, *, device):
    """d = 100, alpha = 2: the published random start 0.1 N(0, I_d), and N(0, I_d)."""
    starts = Start(random=0.1), Start(random=1.0)
    run = train_by_descent(PositionalSemantic(alpha=2.0, omega=OMEGA), seeds=seeds, starts=starts,
                           **recipe(100, device, optimiser))  # fmt: skip
    return {"seeds": list(seeds), "scales": [s.random for s in starts], **measured(run)}


def long_descent(alpha, d, seeds, starts, *, device):
    """Gradient descent with step 1 (still stable), which ends where smaller steps end, ten thousand of them."""
    problem = PositionalSemantic(alpha=alpha, omega=OMEGA)
    dtype = "float64" if d < 500 else "float32"
    run = train_by_descent(problem, d=d, seeds=seeds, starts=starts, learning_rate=1.0, n_steps=1500, n_test=2,
                           dtype=dtype, device=device)  # fmt: skip
    found = measured(run, ("train_loss", "m", "theta", "q", "gradient_norm"))
    return {"alpha": alpha, "d": d, "seeds": list(seeds), "starts": [list(s) for s in starts], **found}


def escape(d, seeds, *, device):
    """When the positional overlap of a random start passes 0.1 (null: it does not), in units of step times rate."""
    problem, scales = PositionalSemantic(alpha=2.0, omega=OMEGA), [0.1, 0.01] * 6
    starts = [Start(random=c) for c in scales]
    run = train_by_descent(problem, d=d, seeds=seeds, starts=starts, learning_rate=0.25, n_steps=320, record_every=1,
                           n_test=2, dtype="float32", device=device)  # fmt: skip
    above = abs(run.path_m) >= 0.1
    times = np.where(above.any(-1), 0.25 * run.steps[above.argmax(-1)], np.nan)
    times = [[None if np.isnan(t) else t for t in row] for row in times.tolist()]
    return {"alpha": 2.0, "d": d, "seeds": list(seeds), "scales": scales, "times": times}


def parts():
    """Every part: its name and the call that computes it."""
    # Data of one seed at two sizes share random numbers: fits over d use different seeds at every d.
    for i, (d, n_seeds) in enumerate(SIZES.items()):
        yield f"minima/{d}", minima, (d, range(10_000 + 1000 * i, 10_000 + 1000 * i + n_seeds))
    for optimiser in ("adam", "gd"):
        yield f"random/{optimiser}", random_recipe, (optimiser, range(3000, 3200))
    yield "minima_random", minima, (100, range(3000, 3200), 2.0)
    for i in range(5):
        yield f"informed/1000/{i}", informed, (1000, [1000 + 2 * i, 1001 + 2 * i])
    for i, (d, n_seeds) in enumerate(ESCAPE_SIZES.items()):
        yield f"escape/{d}", escape, (d, range(4000 + 100 * i, 4000 + 100 * i + n_seeds))
    for d, n_seeds in DESCENT_SIZES.items():
        yield f"informed/{d}/0", informed, (d, range(1000, 1000 + n_seeds))
    for d, n_seeds in FRACTION_SIZES.items():
        for i, alpha in enumerate(FRACTION_ALPHAS):
            if d < 1000 or alpha in (1.0, 2.0, 4.0):
                starts = [Start(random=c) for c in (0.1, 1.0) for _ in range(1 if d < 1000 else 2)]
                seeds = range(5000 + 100 * i, 5000 + 100 * i + max(n_seeds, 8))
                yield f"fraction/{d}/{alpha}", long_descent, (alpha, d, seeds, starts)
    for d, n_seeds in FRACTION_SIZES.items():
        starts = [Start(random=c) for c in SCALES]
        yield f"scale/{d}", long_descent, (2.0, d, range(6000, 6000 + max(n_seeds, 12)), starts)
    starts = [Start(positional=m, semantic=t, random=0.5) for m in OVERLAPS for t in OVERLAPS]
    yield "overlap/300", long_descent, (2.0, 300, range(7000, 7016), starts)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
