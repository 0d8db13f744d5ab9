"""What a finished training says: how far its skill went, and where to."""

from __future__ import annotations

import numpy as np
import pytest

from disk.evaluation.words import in_words


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        ([3.0, 4.0], "5.0 m, north-east"),
        ([-12.4, 0.0], "12.4 m, west"),
        ([-8.8, 8.8], "12.4 m, north-west"),
        ([0.1, -2.0], "2.0 m, south"),
        ([2.0, -0.8], "2.2 m, east"),  # 22 degrees: nearer to east than to south-east
        ([2.0, -0.9], "2.2 m, south-east"),
        ([-0.02, 0.01], "stands still"),
        ([7.25], "7.2 m, forwards"),
        ([-0.3], "0.3 m, backwards"),
    ],
)
def test_a_displacement_in_words(moved: list[float], expected: str) -> None:
    assert in_words(np.array(moved)) == expected
