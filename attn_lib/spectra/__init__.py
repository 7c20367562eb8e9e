"""Spectra of large random matrices: laws, their free convolution with a semicircle, what soft thresholding leaves.

In reading order: :mod:`~attn_lib.spectra.laws`, :mod:`~attn_lib.spectra.support`,
:mod:`~attn_lib.spectra.free_convolution`, :mod:`~attn_lib.spectra.learned`; :mod:`~attn_lib.spectra.symmetrised` for
matrices without symmetry.
"""

from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.spectra.learned import learned_spectrum

__all__ = ["FreeConvolution", "learned_spectrum"]
