"""Trained layers for the chapter on fixed points: both starts at several alpha and d: writes fixed_points.json.

Parts ``START/ALPHA/D``: "q", "m", "theta", "train_loss", "test_error", one entry a seed; how many seeds have
"converged"; how many of the runs "of" all seeds and scales were "trapped".
"""

from command import command
from store import by_name

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.erm import train_positional_semantic

OMEGA, SEEDS = 0.3, range(24)
SIZES = {0.5: [1000], 0.75: [1000], 1.0: [1000], 1.25: [1000], 1.5: [500, 1000, 2000], 2.0: [1000]}
MEASURED = ("q", "m", "theta", "train_loss", "test_error")
RECORD = {
    "what": f"Trained layers from both starts at omega = {OMEGA}, d = 500 to 2000.",
    "seeds": f"{SEEDS[0]} to {SEEDS[-1]} in each part",
    "tolerance": 0.001,
}


def trained(start, alpha, d, *, device):
    problem = PositionalSemantic(alpha=alpha, omega=OMEGA)
    e = train_positional_semantic(problem, d=d, seeds=SEEDS, start=start, device=device)
    columns = {name: getattr(e, name).tolist() for name in MEASURED}
    counts = {"converged": int(e.converged.sum()), "trapped": int(e.n_trapped.sum()), "of": e.start_losses.size}
    return {"start": start, "alpha": alpha, "d": d} | columns | counts


def parts():
    for alpha, sizes in SIZES.items():
        for d in sizes:
            for start in ("semantic", "positional"):
                yield f"{start}/{alpha}/{d}", trained, (start, alpha, d)


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
