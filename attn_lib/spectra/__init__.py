"""Spectra of large random matrices: laws, their free convolution with a semicircle, what soft thresholding leaves.

In reading order: :mod:`~attn_lib.spectra.laws`, :mod:`~attn_lib.spectra.free_convolution`.
"""
