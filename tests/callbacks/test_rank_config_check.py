"""The error for ranks with different configurations; tests/cli/test_ranks.py shows that every rank raises it."""

from __future__ import annotations

from lightning_rl.callbacks.rank_config_check import differences, order_of
from lightning_rl.run_directory.config_file import leaves


def test_only_the_keys_that_differ_are_named_with_the_ranks_of_each_value() -> None:
    configs = [{"seed": 1, "policy": {"lr": lr, "gamma": 0.9}} for lr in (0.1, 0.2, 0.1)]
    texts = [{key: repr(value) for key, value in leaves(config)} for config in configs]
    assert differences(texts) == "policy.lr is 0.1 (rank 0 2), 0.2 (rank 1)"


def test_a_key_that_a_rank_does_not_have_is_missing_there() -> None:
    assert differences([{"a": "1"}, {"a": "1", "b": "2"}]) == "b is missing (rank 0), 2 (rank 1)"


def test_many_differences_are_counted() -> None:
    first, second = ({f"key{number}": text for number in range(8)} for text in ("x", "y"))
    assert differences([first, second]).endswith("; and 3 more")


def test_an_empty_section_is_a_value() -> None:
    assert dict(leaves({"workers": {"ray": {}}})) == {"workers.ray": {}}


def test_the_order_of_patterns_is_compared() -> None:
    """The first pattern that fits an agent counts."""
    mappings = [{"hunter_0": "y", "hunter_*": "x"}, {"hunter_*": "x", "hunter_0": "y"}]
    found = differences([{"order of policy_mapping": order_of(mapping)} for mapping in mappings])
    assert found == "order of policy_mapping is hunter_0, hunter_* (rank 0), hunter_*, hunter_0 (rank 1)"
    assert order_of(None) == order_of("my_pkg:mapping") == ""
