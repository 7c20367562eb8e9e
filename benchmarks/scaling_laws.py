"""What binning saves: time and error of one tail, and time of a solution, on the full and on the short list.

python benchmarks/scaling_laws.py

The largest full list takes some minutes.
"""

import time
from unittest.mock import patch

import numpy as np

from attn_lib.problems import PowerLaw, SingleHead
from attn_lib.spectra import FreeConvolution
from attn_lib.spectra.binned import Binned
from attn_lib.theory import spectral_prior
from attn_lib.theory.single_head import solve


def timed(function, *args):
    start = time.process_time()
    result = function(*args)
    return 1e3 * (time.process_time() - start), result


print("one tail at epsilon = delta/2 and 2 delta: eigenvalues, atoms, CPU milliseconds to bin, full and binned, error")
for gamma in (0.75, 1.0, 1.5):
    for d in (1000, 4000, 100_000):
        law = PowerLaw(gamma=gamma, d=d)
        for delta in (0.3, 1.0, 3.0):
            short = Binned(law=law, delta=delta)
            building, (values, _) = timed(lambda short=short: short.atoms)
            times, errors = np.zeros(2), []
            for eps in (delta / 2, 2 * delta):
                both = [timed(FreeConvolution(each, delta).tail, eps) for each in (law, short)]
                times += [t / 2 for t, _ in both]
                errors.append(np.max(np.abs(np.divide(both[1][1], both[0][1]) - 1)))
            full, binned = times
            sizes = f"  gamma {gamma:<4g} d {d:<6d} delta {delta:<3g}: {len(values):5d}"
            print(f"  {sizes}  {building:6.1f} {full:8.1f} {binned:6.1f}  ratio {full / binned:5.0f} {max(errors):.0e}")

print("one solution at alpha = 0.1, lam = 0.4 sqrt(alpha), accuracy 1e-3: CPU seconds, full and binned")
for gamma, d in ((1.0, 1000), (1.0, 4000), (0.75, 4000), (0.75, 30_000)):
    problem = SingleHead(alpha=0.1, lam=0.4 * 0.1**0.5, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=gamma, d=d))
    binned, _ = timed(lambda problem=problem: solve(problem, accuracy=1e-3))
    with patch.object(spectral_prior, "shortened", lambda law, delta: law):
        full, _ = timed(lambda problem=problem: solve(problem, accuracy=1e-3))
    print(f"  gamma {gamma:<4g} d {d:<6d}: {full / 1e3:7.1f} {binned / 1e3:6.1f}  ratio {full / binned:5.0f}")
