"""Print the smallest difference between two of n default colours, and of other palettes.

Differences are CIEDE2000, in normal vision and in protanopic and deuteranopic vision as simulated
by Machado et al. (2009), https://doi.org/10.1109/TVCG.2009.113.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from scanpy.plotting import palettes
from skimage.color import deltaE_ciede2000, rgb2lab

from centroid_encoder.pl._colors import default_palette

VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}


def main() -> None:
    """Print a row for each palette."""
    for n in (8, 16, 20, 28, 60, 100):
        report(f"{n} default colours", default_palette(n))
    report("matplotlib's tab10", colormaps["tab10"].colors)
    for name in ("default_20", "default_28", "default_102"):
        report(f"scanpy's {name}", getattr(palettes, name))


def report(name: str, colors: Sequence[object]) -> None:
    """Print the smallest difference between two colours, in each vision."""
    rgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    one, other = np.triu_indices(len(rgb), 1)
    numbers = []
    for matrix in VISION.values():
        seen = np.clip(linear @ matrix.T, 0, 1)
        srgb = np.where(seen <= 0.0031308, 12.92 * seen, 1.055 * seen ** (1 / 2.4) - 0.055)
        lab = rgb2lab(srgb)
        numbers.append(deltaE_ciede2000(lab[one], lab[other]).min())
    print(f"{name:<24}", "  ".join(f"{number:5.1f}" for number in numbers))


if __name__ == "__main__":
    main()
