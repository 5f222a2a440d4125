"""The network of Connect Four: landing cells, mirror symmetry, bad spaces."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.models.connect_four import ConnectFourNetwork, MirroredConv2d, landing_cells

BOARD = spaces.Box(0, 1, (6, 7, 2), np.int8)
OBS = spaces.Dict(observation=BOARD, action_mask=spaces.Box(0, 1, (7,), np.int8))


def boards(count: int = 16, seed: int = 0) -> torch.Tensor:
    """Boards `[count, 6, 7, 2]` after 0 to 42 discs of random colors."""
    rng = np.random.default_rng(seed)
    found = np.zeros((count, 6, 7, 2), np.int8)
    for board in found:
        heights = rng.integers(0, 7, 7)
        for column, height in enumerate(heights):
            for row in range(height):
                board[5 - row, column, rng.integers(2)] = 1
    return torch.from_numpy(found)


def network(**keywords: int) -> ConnectFourNetwork:
    torch.manual_seed(0)
    return ConnectFourNetwork(OBS, spaces.Discrete(7), 7, **keywords)


def test_discs_land_on_the_floor_or_on_another_disc_and_nowhere_in_a_full_column():
    """Column 0 is empty, column 1 holds two discs, column 2 is full."""
    discs = torch.zeros(1, 2, 6, 7)
    discs[0, 0, 5, 1] = discs[0, 1, 4, 1] = 1.0
    discs[0, 0, :, 2] = 1.0
    expected = torch.zeros(1, 1, 6, 7)
    expected[0, 0, 5, [0, 3, 4, 5, 6]] = 1.0
    expected[0, 0, 3, 1] = 1.0
    assert_close(landing_cells(discs), expected)


def test_a_mirrored_board_has_mirrored_logits_and_the_same_value():
    model, seen = network(channels=8), boards()
    logits, _ = model({"obs": {"observation": seen}})
    values = model.value_function()
    mirrored, _ = model({"obs": {"observation": seen.flip(2)}})
    assert float(logits.detach().std(dim=0).max()) > 1e-4
    assert_close(mirrored, logits.flip(1))
    assert_close(model.value_function(), values)


def test_the_second_half_of_the_channels_mirrors_the_first():
    torch.manual_seed(1)
    first, second, image = (
        MirroredConv2d(2, 6, 3, mirrored_input=False),
        MirroredConv2d(6, 4, 3),
        torch.rand(2, 2, 5, 6),
    )
    plain, mirrored = second(first(image)), second(first(image.flip(3)))
    assert_close(mirrored, torch.cat([plain[:, 2:], plain[:, :2]], dim=1).flip(3))
    assert not torch.allclose(plain[:, :2], plain[:, 2:])


def test_a_column_is_rated_by_the_cells_within_three_of_its_landing_cell():
    """A disc four columns away changes no logit of an empty column; one three columns away does."""
    model, board = network(channels=8), torch.zeros(3, 6, 7, 2)
    board[1, 5, 4, 0] = board[2, 5, 3, 0] = 1.0
    empty, far, near = model({"obs": {"observation": board}})[0][:, 0]
    assert_close(far, empty)
    assert not torch.isclose(near, empty, rtol=0, atol=1e-7)
