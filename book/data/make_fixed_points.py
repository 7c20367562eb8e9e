"""Trained layers for the chapter on fixed points: both starts at several alpha and d, omega = 0.3.

Writes fixed_points.json beside this file: one entry per (start, alpha, d) with one value per seed.
"""

import json
import platform
import time
from pathlib import Path

import numpy as np
import torch

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation import erm

OMEGA, SEEDS = 0.3, range(24)
SIZES = {0.5: [1000], 0.75: [1000], 1.0: [1000], 1.25: [1000], 1.5: [500, 1000, 2000], 2.0: [1000]}
MEASURED = ("q", "m", "theta", "train_loss", "test_error")


def main():
    began = time.perf_counter()
    runs = []
    for alpha, sizes in SIZES.items():
        problem = PositionalSemantic(alpha=alpha, omega=OMEGA)
        for d in sizes:
            for start in ("semantic", "positional"):
                e = erm.train_positional_semantic(problem, d=d, seeds=SEEDS, start=start, device="cpu")
                runs.append({
                    "start": start,
                    "alpha": alpha,
                    "d": d,
                    **{name: [float(f"{value:.7g}") for value in getattr(e, name)] for name in MEASURED},
                    "converged": int(e.converged.sum()),
                    "trapped": int(e.n_trapped.sum()),
                    "of": e.start_losses.size,
                })  # fmt: skip
    record = {
        "omega": OMEGA,
        "seeds": list(SEEDS),
        "made": time.strftime("%Y-%m-%d"),
        "minutes": round((time.perf_counter() - began) / 60, 1),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
        "runs": runs,
    }
    Path(__file__).with_name("fixed_points.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
