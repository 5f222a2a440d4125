"""Every key of every policy's config with wrong values: refused in one line, or built; and a sample that trains."""

from __future__ import annotations

import copy
import hashlib
import math
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl.config import check_config, compose_config
from lightning_rl.errors import CheckpointError, ConfigError, EnvError, NonFiniteError, UnsupportedSpaceError
from lightning_rl.runs import run
from tests.shipped_policies import FOR_GROUPS, POLICIES, takes

FAST_SHARE = 16  # one case of 16 is in the default run
TRAINED = 12  # accepted cases that train, of each policy
TRAINED_STEPS, LONGEST_S = 300, 60  # env steps of such a run, and the seconds after which a case counts as hanging
REFUSALS = (ConfigError, UnsupportedSpaceError, EnvError, CheckpointError)

MUTATIONS: dict[str, Any] = {
    "text": "abc",
    "number as text": "0.5",
    "empty text": "",
    "unicode": "ünï ✓ 漢字 \U0001f600 \n",
    "long text": 50_000 * "x",
    "path": "nowhere.at_all:Thing",
    "path of a class of another kind": "fractions:Fraction",
    "true": True,
    "null": None,
    "zero": 0,
    "one": 1,
    "negative": -1,
    "negative float": -0.5,
    "float": 1.5,
    "whole float": 3.0,
    "tiny": 1e-300,
    "large": 10**6,
    "larger": 10**9,
    "huge": 10**12,
    "huge float": 1e30,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "empty list": [],
    "empty mapping": {},
    "list of null": [None],
    "list of text": ["a", "b"],
    "list of numbers": [1, -2.5, math.nan],
    "list of huge": [10**9, 10**9],
    "deep list": [[[[1]]]],
    "mapping": {"a": 1},
    "mapping of mappings": {"type": {"a": [1]}, "b": {"c": None}},
}
OF_POLICIES = ("policy", "model", "exploration", "data", "workers")  # sections that policies read, or choose


def config_of(policy: str) -> dict[str, Any]:
    env = "two_step_game" if policy in FOR_GROUPS else "cartpole" if takes(policy, "Discrete") else "pendulum"
    return compose_config([f"policy={policy}", f"env={env}", "run_dir=out", "trainer.enable_progress_bar=false"])


def keys_of(config: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys; `policy.model` and the like are other sections."""
    for key, value in config.items():
        if f"{prefix}{key}" not in ("policy.model", "policy.exploration", "policy.seed"):
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                yield from keys_of(value, f"{prefix}{key}.")


def cases(policy: str, config: dict[str, Any]) -> list[tuple[str, str]]:
    """(key, mutation) of all keys, for the first policy, and of those whose meaning depends on the policy."""
    own = [key for key in keys_of(config) if policy == POLICIES[0] or key.split(".")[0] in OF_POLICIES]
    return [(key, mutation) for key in own for mutation in MUTATIONS]


def in_fast_sample(policy: str, key: str, mutation: str) -> bool:
    """The same cases every time, spread over keys and mutations."""
    number = int.from_bytes(hashlib.sha256(f"{policy}/{key}/{mutation}".encode()).digest()[:4], "big")
    return number % FAST_SHARE == 0


def with_value(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with the key set as by the command line: in `policy` too if the policy takes over that section."""
    own = copy.deepcopy(config)
    for root in (own, own["policy"]) if key.split(".")[0] in ("model", "exploration", "seed") else (own,):
        *sections, name = key.split(".")
        section = root
        for each in sections:
            section = section[each]
        if name in section:
            section[name] = copy.deepcopy(value)
    return own


def outcome(config: dict[str, Any], key: str) -> str:
    """ "refused", "refused when built" or "built".

    Raises:
        AssertionError: a refusal is not one line, or does not name the key.
        Exception: what is no refusal.
    """
    result = "refused"
    try:
        with time_limit(LONGEST_S):
            check_config(config)
            result = "refused when built"
            run.build(config)
            result = "built"
    except REFUSALS as error:
        said = str(error)
        assert "\n" not in said, f"several lines: {said!r}"
        assert len(said) < 2500, f"{len(said)} characters: {said[:200]!r}"
        last = key.rpartition(".")[2]
        assert key in said or (result != "refused" and last in said), f"{key} is not named: {said!r}"
    finally:
        torch.set_num_threads(1)
    return result


def failures_of(policy: str, chosen: Any) -> tuple[Counter[str], list[str]]:
    config, counts, failures = config_of(policy), Counter[str](), []
    for key, mutation in cases(policy, config):
        if not chosen(policy, key, mutation):
            continue
        try:
            counts[outcome(with_value(config, key, MUTATIONS[mutation]), key)] += 1
        except Exception as error:
            failures.append(f"{policy}: {key}={mutation}: {type(error).__name__}: {str(error)[:300]}")
    return counts, failures


def accepted_cases(policy: str, config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Cases of the sections that decide how a policy learns, in a random order that is always the same."""
    found = [case for case in cases(policy, config) if case[0].split(".")[0] in OF_POLICIES]
    random.Random(policy).shuffle(found)
    for key, mutation in found:
        mutated = with_value(config, key, MUTATIONS[mutation])
        try:
            if outcome(copy.deepcopy(mutated), key) == "built":
                yield f"{key}={mutation}", mutated
        except AssertionError:  # the test of all cases has it
            continue


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in a block that hangs."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def trained(config: dict[str, Any]) -> str:
    """ "trained" or "refused in training", which is one line.

    Raises:
        TimeoutError: it hangs.
        Exception: what is no refusal.
    """
    check_config(config)
    try:
        with time_limit(LONGEST_S):
            assert run.train(config)["state"] == "ok"
        return "trained"
    except (*REFUSALS, NonFiniteError) as error:
        assert "\n" not in str(error), f"several lines: {error}"
        return "refused in training"
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("policy", ["ppo", "dqn"])
def test_a_sample_of_wrong_values_is_refused_in_one_line_or_works(policy: str):
    counts, failures = failures_of(policy, in_fast_sample)
    assert failures == []
    assert counts["refused"] > counts["built"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_every_wrong_value_is_refused_in_one_line_or_works(policy: str):
    counts, failures = failures_of(policy, lambda *case: True)
    print(policy, dict(counts))
    assert failures == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_a_sample_of_accepted_values_trains_or_is_refused_in_one_line(policy: str, tmp_path: Path):
    config, counts, failures = config_of(policy), Counter[str](), []
    config |= {"total_env_steps": TRAINED_STEPS, "logger": {}}
    config["evaluation"] |= {"every_env_steps": 0}
    if "learning_starts" in config["data"]:
        config["data"] |= {"batch_size": 16, "learning_starts": 100}
    for number, (name, mutated) in enumerate(islice(accepted_cases(policy, config), TRAINED)):
        try:
            counts[trained({**mutated, "run_dir": str(tmp_path / str(number))})] += 1
        except Exception as error:
            failures.append(f"{policy}: {name}: {type(error).__name__}: {str(error)[:300]}")
    print(policy, dict(counts))
    assert failures == []
    assert counts["trained"] > 0
