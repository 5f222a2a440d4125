"""The policies that the package ships, found by their files."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from lightning_rl.errors import import_object
from lightning_rl.policies import Policy

__all__ = ["FOR_GROUPS", "POLICIES", "online", "policy_class", "table", "takes"]

ROOT = Path(__file__).parents[1]
POLICIES = [file.stem for file in sorted((ROOT / "conf" / "policy").glob("*.yaml"))]


@cache
def policy_class(name: str) -> type[Policy]:
    """The class that the policy's file names."""
    found: type[Policy] = import_object(
        yaml.safe_load((ROOT / "conf" / "policy" / f"{name}.yaml").read_text())["_target_"]
    )
    return found


def online(name: str) -> list[str]:
    """The overrides with which a policy learns from its own rollouts, if recorded data are its default."""
    return ["data=on_policy"] if policy_class(name).imitates else []


@cache
def table() -> dict[tuple[str, str], str]:
    """The cells of the page of the feature matrix by (policy, feature)."""
    page = (ROOT / "docs" / "feature_matrix.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in page.splitlines() if line[:1] == "|"]
    return {(name, row[0]): cell for row in rows[2:] for name, cell in zip(rows[0], row[1:], strict=True)}


def takes(name: str, feature: str) -> bool:
    """Whether a policy goes with a feature, as the page says; `test_feature_matrix.py` tries what the page says."""
    return table().get((name, feature)) != "–"


FOR_GROUPS = tuple(name for name in POLICIES if policy_class(name).acts_for_group)
