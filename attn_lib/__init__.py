"""Theory and simulation of dot-product attention in high dimensions, kept apart and then compared.

The rooms, in reading order:

- :mod:`attn_lib.problems` - what is asked: frozen, validated parameters.
- :mod:`attn_lib.gaussian`, :mod:`attn_lib.fixed_point`, :mod:`attn_lib.proximal` - numerics without physics.
- :mod:`attn_lib.spectra` - laws of large random matrices and their free convolution with a semicircle.
- :mod:`attn_lib.theory` - state evolution, learning curves and transitions in the limit d to infinity (numpy, scipy).
- :mod:`attn_lib.simulation` - the same problems at finite d, trained on drawn data (torch, CPU or GPU).
- :mod:`attn_lib.comparison` - joins the two: standard errors, z-scores, crossings, finite-size fits.
- :mod:`attn_lib.claims` - what the papers say, each statement with its evidence and a verdict.
- :mod:`attn_lib.sweep` - grids of problems and seeds on many processors or a cluster, resumed where they stopped.
- :mod:`attn_lib.figures` - draws results, computes nothing.
- :mod:`attn_lib.interactive` - figures with sliders, for a page and for a notebook.
- :mod:`attn_lib.exercises` - tells whether the answer to a computational exercise is right, without showing it.
"""

__version__ = "0.1.0"
