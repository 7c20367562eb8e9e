"""Time and accuracy of the free convolution with a semicircle.

python benchmarks/spectra.py
"""

import time

import numpy as np

from attn_lib.spectra import FreeConvolution
from attn_lib.spectra.laws import MarchenkoPastur, PowerLaw, Semicircle


def milliseconds(function, *args, repeat=20):
    """Best of some runs."""
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        function(*args)
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


laws = {
    "semicircle": Semicircle(variance=1.0),
    "Marchenko-Pastur, kappa0 = 0.5": MarchenkoPastur(kappa0=0.5),
    "power law, 500 eigenvalues": PowerLaw(gamma=1.0, d=500),
    "power law, 2000 eigenvalues": PowerLaw(gamma=1.0, d=2000),
}
print("one call of tail(eps), milliseconds (median, slowest), and error of the moments from far below")
for name, law in laws.items():
    for delta in (1e-4, 1e-2, 0.3, 1.0, 10.0):
        noisy = FreeConvolution(law, delta)
        times = [milliseconds(noisy.tail, eps) for eps in (-1.0, 0.0, 0.05, 0.5, 1.0, 2.0, law.upper)]
        eps = law.lower - 2 * delta - 1
        exact = 1, law.mean - eps, law.second_moment + delta**2 - 2 * eps * law.mean + eps**2, 2 * delta
        error = np.max(np.abs(np.array(noisy.tail(eps)) / exact - 1))
        print(f"  {name:31s} delta {delta:<6g}: {np.median(times):6.1f} {np.max(times):6.1f}   {error:.0e}")

print("milliseconds for all components (anew), 200 densities, 200 quantiles")
for name, law in laws.items():
    for delta in (1e-2, 0.3):
        anew = milliseconds(lambda law=law, delta=delta: FreeConvolution(law, delta).components, repeat=2)
        noisy = FreeConvolution(law, delta)
        x = np.linspace(noisy.edges[0], noisy.edges[-1], 200)
        density = milliseconds(noisy.density, x, repeat=2)
        quantile = milliseconds(noisy.quantile, np.linspace(0, 1, 200), repeat=2)
        print(f"  {name:31s} delta {delta:<6g}: {anew:7.0f} {density:7.0f} {quantile:7.0f}")
