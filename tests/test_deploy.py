"""An exported policy acts without torch, as the policy that it was exported from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl.deploy import DeployedPolicy, DeploymentError, load
from lightning_rl.envs import EnvCreator
from lightning_rl.policies import PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, flatten_fragment, from_nested_batch, map_leaves
from lightning_rl.spaces import leaf_values
from tests.feature_matrix import AnySpaces
from tests.policies.memories import MEMORIES
from tests.refusals import not_refused

pytest.importorskip("onnxruntime")

VECTOR = spaces.Box(-1, 1, (3,))
NESTED = spaces.Dict(
    {
        "place": spaces.Discrete(3, start=-1),
        "pair": spaces.Tuple([VECTOR, spaces.MultiDiscrete([3, 2])]),
        "pixels": spaces.Box(0, 255, (2, 2), np.uint8),
    }
)
OBS: dict[str, Any] = {"pixels": [[0, 255], [3, 4]], "pair": (np.zeros(3), [2, 1]), "place": -1}
ACTIONS = spaces.Dict({"force": spaces.Box(-2, 2, (2,)), "gear": spaces.Discrete(3, start=1)})


def disturbed(policy: Policy) -> Policy:
    """The policy with weights as large as those of a trained one."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
    return policy.eval()


def cart_policy() -> Policy:
    env = gym.make("CartPole-v1")
    return disturbed(PPO(env.observation_space, env.action_space, model={"fcnet_hiddens": [16]}))


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cart")
    cart_policy().export_model(folder)
    return folder


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, SampleBatch, Path]:
    """A policy with three steps of earlier actions and two of rewards, Dict observations and Dict actions."""
    policy = disturbed(PPO(NESTED, ACTIONS, model=MEMORIES["attention"]))
    env = EnvCreator(AnySpaces, {"observation_space": NESTED, "action_space": ACTIONS})
    worker = RolloutWorker(env, policy, num_envs=3, fragment_length=14, explore=False)
    fragment = worker.sample()
    worker.stop()
    folder = tmp_path_factory.mktemp("nested")
    policy.export_model(folder, fragment)
    return policy, fragment, folder


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    policy = disturbed(PPO(VECTOR, spaces.Discrete(4, start=2)))
    rows = SampleBatch(obs=torch.randn(8, 3), action_mask=torch.ones(8, 4, dtype=torch.bool))
    folder = tmp_path_factory.mktemp("masked")
    policy.export_model(folder, rows)
    return folder


# -- without torch -----------------------------------------------------------------------------------------------------
def test_it_acts_where_neither_torch_nor_gymnasium_nor_this_package_can_be_imported_further(cart: Path) -> None:
    """Three lines, in a process in which importing anything heavy is an error."""
    program = f"""
    import sys
    for name in ("torch", "lightning", "ray", "hydra", "gymnasium", "onnx"):
        sys.modules[name] = None
    from lightning_rl.deploy import load
    policy = load({str(cart)!r})
    action = policy.act([0.1, -0.2, 0.03, 0.4])
    print(int(action), sorted(name for name in sys.modules if name.startswith("lightning_rl")))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    action, modules = done.stdout.split(" ", 1)
    assert int(action) == cart_policy().compute_single_action(np.array([0.1, -0.2, 0.03, 0.4], np.float32))
    assert modules.strip() == "['lightning_rl', 'lightning_rl.deploy', 'lightning_rl.version']"


def test_the_file_alone_acts_too(cart: Path, tmp_path: Path) -> None:
    """Copied to a machine without this package."""
    shutil.copy(Path(__file__).parents[1] / "lightning_rl" / "deploy.py", tmp_path / "deploy.py")
    program = f"import deploy; print(deploy.load({str(cart)!r}).act([0.1, -0.2, 0.03, 0.4]))"
    done = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.strip() in ("0", "1")


# -- as the policy -----------------------------------------------------------------------------------------------------
def test_a_deployed_policy_plays_the_episodes_of_the_policy(cart: Path) -> None:
    policy, deployed, env = cart_policy(), load(cart), gym.make("CartPole-v1")
    lengths = []
    for seed in range(3):
        found = []
        for act in (policy.compute_single_action, deployed.act):
            (obs, _), actions, ended = env.reset(seed=seed), [], False
            while not ended:
                action = act(obs)
                actions.append(int(action))
                obs, _, terminated, truncated, _ = env.step(action)
                ended = terminated or truncated
            found.append(actions)
        assert found[0] == found[1]
        lengths.append(len(found[0]))
    assert len(set(lengths)) > 1, "the seeds differ"


def test_a_batch_gives_the_actions_of_its_rows(cart: Path) -> None:
    deployed, rows = load(cart), np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    batch = deployed.act(rows)
    assert batch.dtype == np.int64 and batch.tolist() == [int(deployed.act(row)) for row in rows]
    assert len(set(batch.tolist())) == 2


def test_memory_nesting_and_earlier_steps_follow_the_worker_through_episodes(nested: Any) -> None:
    """The worker keeps windows of 3 actions and 2 rewards; ends of episodes restart them in single environments."""
    policy, fragment, folder = nested
    deployed = load(folder)
    started, compared = fragment.t == 0, 0
    for step in range(14):
        obs = from_nested_batch(NESTED, fragment.obs.map(lambda column, step=step: column[step].numpy()))
        # Rows without experience are resets: the step after them starts the episode.
        if step:
            deployed.reset(started[step].numpy() & fragment.valid[step].numpy())
        rewards = np.where(started[step].numpy() | (step == 0), 0.0, fragment.rewards[step - 1].numpy())
        actions = deployed.act(obs, reward=rewards)
        expected = policy.env_actions(map_leaves(lambda column, step=step: column[step], fragment.actions))
        valid = fragment.valid[step].numpy()
        compared += int(valid.sum())
        for ours, theirs in zip(leaf_values(ACTIONS, actions), leaf_values(ACTIONS, expected), strict=True):
            np.testing.assert_allclose(ours[valid], theirs[valid], rtol=1e-5, atol=1e-5)
    assert compared == flatten_fragment(fragment).count == 36


def test_one_environment_s_nested_observation_gives_an_action_of_the_space(nested: Any) -> None:
    deployed = load(nested[2])
    first, second = deployed.act(OBS), deployed.act(OBS, reward=5.0)
    assert ACTIONS.contains(first) and ACTIONS.contains(second)
    assert not np.array_equal(first["force"], second["force"]), "it remembers the first step"
    deployed.reset()
    np.testing.assert_array_equal(deployed.act(OBS)["force"], first["force"])


def test_copies_remember_by_themselves(nested: Any) -> None:
    deployed = load(nested[2])
    first = deployed.act(OBS)["force"]
    other = deployed.copy()
    np.testing.assert_array_equal(other.act(OBS)["force"], first)
    assert not np.array_equal(deployed.act(OBS)["force"], first)


def test_a_mask_forbids_actions(masked: Path) -> None:
    deployed, obs = load(masked), np.zeros(3, np.float32)
    best = int(deployed.act(obs))
    for allowed in range(4):
        assert int(deployed.act(obs, mask=np.arange(4) == allowed)) == allowed + 2
        assert int(deployed.act(obs, mask=tuple(np.arange(4) == allowed))) == allowed + 2
        parts = np.split(np.arange(4) == allowed, [1])  # an array for each choice
        assert int(deployed.act(obs, mask=tuple(parts))) == allowed + 2
    assert int(deployed.act(obs, mask=[True] * 4)) == best
    assert deployed.act(np.zeros((2, 3)), mask=[[1, 0, 0, 0], [0, 0, 0, 1]]).tolist() == [2, 5]


# -- clear errors ------------------------------------------------------------------------------------------------------
def test_wrong_observations_and_masks_are_named_with_what_was_expected(cart: Path, nested: Any, masked: Path) -> None:
    """A whole observation, a part of one, rows of another number, and a mask."""
    flat, parts, choices = load(cart), load(nested[2]), load(masked)
    two = {"pixels": np.zeros((2, 2, 2), int), "pair": (np.zeros((2, 3)), np.zeros((2, 2), int)), "place": [0, 1]}
    cases: list[tuple[DeployedPolicy, Any, dict[str, Any], str]] = [
        (flat, [1.0, 2.0, 3.0], {}, r"obs .*\[3\].*Box \[4\] of float32.*\[B, 4\]"),
        (flat, np.zeros((2, 3, 4)), {}, r"obs .*\[2, 3, 4\].*Box \[4\]"),
        (flat, ["a", "b", "c", "d"], {}, r"obs .*<U1.*Box \[4\]"),
        (flat, [[1.0], [2.0, 3.0]], {}, "obs "),
        (flat, None, {}, "dtype object"),
        (parts, {**OBS, "place": 2}, {}, r"obs.place"),
        (parts, {**OBS, "place": 0.5}, {}, "obs.place has dtype float64"),
        (parts, {**OBS, "pixels": [[0, 256], [0, 0]]}, {}, r"obs.pixels.*uint8"),
        (parts, {**OBS, "pixels": np.zeros((1, 2, 2), np.uint8)}, {}, r"obs\.pixels.*\[1, 2, 2\]"),
        (parts, {**OBS, "pixels": None}, {}, r"obs\.pixels.*dtype object"),
        (parts, {**OBS, "pair": (np.zeros(3),)}, {}, "obs.pair is 1 parts; expected a tuple of 2 parts"),
        (parts, {**OBS, "pair": (np.zeros(3), [3, 0])}, {}, r"obs.pair.1.*\[3, 0\].*\[2, 1\]"),
        (parts, {"place": 0}, {}, r"obs .*\['place'\]"),
        (parts, {**two, "place": [0]}, {}, r"obs.place has 1 rows, obs.pair.0 2"),
        (parts, OBS, {"mask": [True]}, "without"),
        (choices, np.zeros(3), {"mask": [True] * 3}, r"mask.*\[3\].*\[4\]"),
    ]
    assert not_refused(lambda policy, obs, how: policy.act(obs, **how), cases, DeploymentError) == []
    parts.act(two)
    with pytest.raises(DeploymentError, match=r"1 observations after 2.*reset\(\)"):
        parts.act(OBS)


def redescribe(folder: Path, **changes: Any) -> None:
    file = folder / "policy.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def replace(file: Path, put: Callable[[Path], object]) -> None:
    file.unlink()
    put(file)


def move_outside(folder: Path) -> None:
    (folder.parent / "policy.onnx").write_bytes((folder / "policy.onnx").read_bytes())
    redescribe(folder, file="../policy.onnx")


def no_model(folder: Path) -> None:
    (folder / "policy.onnx").write_bytes(b"no model")
    redescribe(folder, sha256=hashlib.sha256(b"no model").hexdigest())


# What is wrong with a directory → what makes it so, and what the error names.
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (shutil.rmtree, "exported policy"),
    "newer": (lambda folder: redescribe(folder, format_version=2), "format_version 2"),
    "torchscript": (lambda folder: redescribe(folder, format="torchscript"), "'torchscript'"),
    "other model": (lambda folder: redescribe(folder, sha256="0"), r"policy.onnx.*policy.json"),
    "half a text": (lambda folder: (folder / "policy.json").write_text("{"), r"policy\.json is damaged"),
    "deep": (lambda folder: (folder / "policy.json").write_text("[" * 100_000 + "]" * 100_000), ""),
    "device": (lambda folder: replace(folder / "policy.json", lambda file: file.symlink_to("/dev/zero")), ""),
    "fifo": (lambda folder: replace(folder / "policy.onnx", os.mkfifo), ""),
    "outside": (move_outside, ""),
    "absolute": (lambda folder: redescribe(folder, file=str(folder / "policy.onnx")), ""),
    "no model": (no_model, ""),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_hostile_directory_is_refused(damage: str, cart: Path, tmp_path: Path) -> None:
    make, words = DAMAGES[damage]
    shutil.copytree(cart, tmp_path / "other")
    make(tmp_path / "other")
    with pytest.raises(DeploymentError, match=words) as refused:
        load(tmp_path / "other")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 800


def replaced(content: Any, place: Sequence[Any], value: Any) -> Any:
    """A copy of JSON with another value at a place; `...` leaves the key out."""
    if not place:
        return value
    key, *rest = place
    own = dict(content) if isinstance(content, dict) else list(content)
    if value is ... and not rest:
        del own[key]
    else:
        own[key] = replaced(own[key], rest, value)
    return own


def places(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, child in entries:
        if isinstance(content, dict):
            yield (*place, key)
        yield from places(child, (*place, key))


@pytest.mark.parametrize("share", [8, pytest.param(1, marks=pytest.mark.every)])
def test_a_description_that_lacks_or_distorts_anything_is_refused_or_acts(
    share: int, nested: Any, tmp_path: Path
) -> None:
    """Each key left out, and each value replaced by one of another kind, also by another file or data type."""
    folder = Path(shutil.copytree(nested[2], tmp_path / "other"))
    description, refused = json.loads((folder / "policy.json").read_text()), 0
    for place in list(places(description))[::share]:
        for value in (..., "O"):
            (folder / "policy.json").write_text(json.dumps(replaced(description, place, value)))
            try:
                load(folder).act(OBS)
            except DeploymentError:
                refused += 1
    assert refused > 100 // share


def test_onnxruntime_missing_is_named_with_the_command(cart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="pip install onnxruntime"):
        load(cart)


def test_a_deployed_policy_knows_what_it_is(cart: Path) -> None:
    deployed = load(cart)
    assert isinstance(deployed, DeployedPolicy)
    assert deployed.description["algorithm"] == "PPO" and deployed.description["check"]["largest_difference"] <= 1e-5
