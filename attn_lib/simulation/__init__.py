"""The problems of :mod:`attn_lib.problems` at finite d, trained on drawn data. Nothing here imports theory.

In reading order: :mod:`~attn_lib.simulation.sampling` draws the data and
:mod:`~attn_lib.simulation.attention` is the layer itself (numpy, plain functions that a chapter can call);
:mod:`~attn_lib.simulation.lbfgs` minimises many risks at once, :mod:`~attn_lib.simulation.risk` is the risk
of the attention layer in the form it asks for, and :mod:`~attn_lib.simulation.erm` puts them together (torch,
CPU or GPU). The same data sets serve :mod:`~attn_lib.simulation.baseline` (the linear layer),
:mod:`~attn_lib.simulation.dynamics` (gradient descent and Adam), :mod:`~attn_lib.simulation.amp` (message
passing) and :mod:`~attn_lib.simulation.search` (lower minima). :mod:`~attn_lib.simulation.general` trains layers
with more tokens and columns.
"""
