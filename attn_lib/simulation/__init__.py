"""The problems of :mod:`attn_lib.problems` at finite d, trained on drawn data. Nothing here imports the theory.

In reading order: :mod:`~attn_lib.simulation.sampling` draws the data, :mod:`~attn_lib.simulation.attention` is the
layer itself (numpy, both as plain functions that a chapter can call), :mod:`~attn_lib.simulation.lbfgs` minimises many
problems at once, and :mod:`~attn_lib.simulation.erm` puts them together (torch, CPU or GPU).
"""
