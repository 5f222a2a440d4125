"""The feature matrix in the docs equals what works."""

from __future__ import annotations

import pytest

from tests.families import each
from tests.feature_matrix import FEATURES, SLOW, works
from tests.shipped_policies import POLICIES, table, takes


def wrong_cells(policy: str, features: set[str]) -> dict[str, bool]:
    """Cells of the page that are not as it says, with what is true."""
    found = {feature: works(policy, feature) for feature in FEATURES if feature in features}
    return {feature: true for feature, true in found.items() if takes(policy, feature) != true}


@pytest.mark.parametrize("policy", each(POLICIES, default=("ppo", "dqn", "sac", "qmix")))
def test_the_page_of_the_feature_matrix_is_up_to_date(policy: str) -> None:
    assert not wrong_cells(policy, {*FEATURES} - {*SLOW})


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_page_is_up_to_date_with_whole_runs(policy: str) -> None:
    assert not wrong_cells(policy, {*SLOW})


def test_the_page_has_no_other_rows() -> None:
    assert set(table()) == {(policy, feature) for policy in POLICIES for feature in FEATURES}
