"""Axes of images."""

from collections.abc import Sequence


def kept_axes(shape: Sequence[int], first: int = 0, without: int | None = None) -> list[int]:
    """Return the axes except one and those of length 1 at both ends: (1, y, x) is a plane.

    Two axes of space always remain, and the `first` axes, which are not of space.
    """
    axes = [axis for axis in range(len(shape)) if axis != without]
    for end in (first, -1):
        while len(axes) > first + 2 and shape[axes[end]] == 1:
            del axes[end]
    return axes


def channel_axes(image: Sequence[int], labels: Sequence[int], first: int = 0) -> list[int | None]:
    """Return the axes without which an image has the shape of labels; None if it has this shape."""
    shape = [labels[axis] for axis in kept_axes(labels, first)]
    axes = (None, *range(len(image)))
    return [i for i in axes if [image[axis] for axis in kept_axes(image, first, i)] == shape]
