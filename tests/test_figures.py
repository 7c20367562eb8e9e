"""The colours of the figures: seen on white, and told apart with any common colour vision."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from attn_lib import figures

# How linear RGB is seen without one kind of cone: Machado, Oliveira and Fernandes (2009), severity 1.
VISION = {
    "all cones": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no medium": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
SEEN = 3.0  # contrast of a graphic to its background (WCAG 2.1, 1.4.11)
APART = (
    15.0  # distance in CIELAB; about 2 can just be told apart side by side, lines of a figure are far from each other
)


def palette():
    with mpl.rc_context():
        figures.use_style()
        return mpl.rcParams["axes.prop_cycle"].by_key()["color"], mpl.rcParams["figure.facecolor"]


def linear(colour):
    value = np.array(to_rgb(colour))
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    x = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(x > (6 / 29) ** 3, np.cbrt(x), x * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_identity_colours_are_seen_on_the_background():
    colours, background = palette()
    light = XYZ[1] @ linear(background) + 0.05
    contrast = {colour: light / (XYZ[1] @ linear(colour) + 0.05) for colour in colours}
    assert {colour: ratio for colour, ratio in contrast.items() if ratio < SEEN} == {}


@pytest.mark.parametrize("vision", VISION)
def test_identity_colours_are_told_apart(vision):
    seen = {colour: lab(np.array(VISION[vision]) @ linear(colour)) for colour in palette()[0]}
    distance = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(seen, 2)}
    assert {pair: apart for pair, apart in distance.items() if apart < APART} == {}
