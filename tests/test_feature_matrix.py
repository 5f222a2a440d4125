"""The feature matrix in the docs equals what works."""

from __future__ import annotations

import pytest

from tests.feature_matrix import FEATURES, PAGE, POLICIES, SLOW, works


def cells() -> dict[tuple[str, str], str]:
    """The page's cells by (policy, feature)."""
    lines = [line.strip("| ").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line] for line in lines]
    names = table[0]
    return {(name, row[0]): cell for row in table[2:] for name, cell in zip(names, row[1:], strict=True)}


@pytest.mark.parametrize(
    "feature", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FEATURES]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_page_of_the_feature_matrix_is_up_to_date(policy: str, feature: str) -> None:
    assert cells()[policy, feature] == ("yes" if works(policy, feature) else "–")


def test_the_page_has_no_other_rows() -> None:
    assert {feature for _, feature in cells()} == set(FEATURES)
