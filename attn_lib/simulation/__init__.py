"""The problems of :mod:`attn_lib.problems` at finite d, trained on drawn data. Nothing here imports theory.

In reading order: :mod:`~attn_lib.simulation.sampling` draws the data and
:mod:`~attn_lib.simulation.attention` is the layer itself (numpy, plain functions that a chapter can call);
:mod:`~attn_lib.simulation.lbfgs` minimises many risks at once, :mod:`~attn_lib.simulation.risk` is the risk
of the attention layer in the form it asks for, and :mod:`~attn_lib.simulation.erm` puts them together (torch,
CPU or GPU). The same data sets serve :mod:`~attn_lib.simulation.baseline` (the linear layer),
:mod:`~attn_lib.simulation.dynamics` (gradient descent and Adam), :mod:`~attn_lib.simulation.amp` (message
passing) and :mod:`~attn_lib.simulation.search` (lower minima). :mod:`~attn_lib.simulation.general` trains layers
with more tokens and columns.

Part II has the same order. :mod:`~attn_lib.simulation.single_head_sampling` draws the data;
:mod:`~attn_lib.simulation.sensing` says how they see the matrix S,
:mod:`~attn_lib.simulation.single_head_risk` makes a risk of it, and :mod:`~attn_lib.simulation.single_head` trains;
:mod:`~attn_lib.simulation.checkpoint` keeps what is finished. :mod:`~attn_lib.simulation.gaussian_sensing` trains on
Gaussian measurements instead of tokens, :mod:`~attn_lib.simulation.matrix_amp` by message passing, and
:mod:`~attn_lib.simulation.robustness` layers that the theory does not describe, on the data of
:mod:`~attn_lib.simulation.variant_sampling`.

**Devices.** Every training takes ``device``: "cpu", "cuda", "cuda:1"..., by default "cuda" where there is one. Random
numbers are drawn on the CPU, so that a seed has the same data on all devices, and results differ by rounding only,
which descent amplifies to at most the stopping tolerance. A GPU trains as many seeds at once as half of its free memory
holds; a CPU a few, where they are small. Products with the data go in blocks, for the cache of a CPU or a quarter of
the free memory of a GPU. Of an iteration of L-BFGS the program waits for the device to learn whether all runs have
stopped, and of every trial of a line search whether all have passed; gradient descent and Adam with a fixed number of
steps never wait. Only :mod:`~attn_lib.simulation.baseline` and :mod:`~attn_lib.simulation.lasso` stay on the CPU; in
:mod:`~attn_lib.simulation.amp` the proximal operator does.
"""
