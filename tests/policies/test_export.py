"""Exported files answer as the policy does: every algorithm, kind of model, space and distribution."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging.handlers
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl import RandomPolicy, build_policy
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.exploration.catalog import STRATEGIES
from lightning_rl.models import Model
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.policies import (
    A2C,
    ARS,
    DDPG,
    DQN,
    ES,
    IMPALA,
    MADDPG,
    MATD3,
    PPO,
    PQN,
    PQNVDN,
    QMIX,
    R2D2,
    SAC,
    TD3,
    TQC,
    XQC,
    CrossQ,
    Policy,
    Rainbow,
    RecurrentSAC,
    export,
)
from lightning_rl.policies.export import FORMATS, ActingModule
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, flatten_fragment
from lightning_rl.spaces import ActionTransform, leaf_values, pack_leaves
from tests.families import each
from tests.feature_matrix import AnySpaces
from tests.policies.memories import MEMORIES
from tests.refusals import not_refused
from tests.space_cases import ACTIONS

SMALL = {"fcnet_hiddens": [8]}
VECTOR, DISCRETE = spaces.Box(-1, 1, (3,)), spaces.Discrete(3, start=-1)
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 7], np.float32))
IMAGE = spaces.Box(0, 255, (12, 12, 3), np.uint8)
MASKED = spaces.Dict({"x": VECTOR, "action_mask": spaces.MultiBinary(3)})
THREE = spaces.Discrete(3)
PAIR_OF_THREE = spaces.Tuple([THREE] * 2)
GROUP_MASKS = spaces.Tuple([spaces.MultiBinary(3)] * 2)
GROUP = spaces.Dict(agents=spaces.Tuple([VECTOR] * 2), present=spaces.MultiBinary(2), action_masks=GROUP_MASKS)
PLACE_AND_MARKS = spaces.Dict({"place": DISCRETE, "marks": spaces.MultiDiscrete([3, 2])})
NESTED = spaces.Tuple([VECTOR, PLACE_AND_MARKS, IMAGE])
BOTH_KINDS = spaces.Dict({"a": BOX, "b": DISCRETE})


def dist(name: str, **model: Any) -> dict[str, Any]:
    return {"model": {**SMALL, "custom_action_dist": name, **model}}


GROUP_NOISE = {"exploration": {"type": "group_noise"}}
OTHER_WINDOWS = {**MEMORIES["attention"], "attention_use_n_prev_actions": 2, "attention_use_n_prev_rewards": 3}
CASES: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "ppo": (PPO, VECTOR, DISCRETE, {"observation_filter": "mean_std"}),
    "gaussian": (PPO, VECTOR, BOX, {}),
    "clipped gaussian": (A2C, VECTOR, BOX, {"normalize_actions": False, "clip_actions": True}),
    "squashed": (PPO, VECTOR, BOX, dist("SquashedGaussian")),
    "beta": (PPO, VECTOR, BOX, dist("Beta")),
    "free log std": (PPO, VECTOR, BOX, {"model": {**SMALL, "free_log_std": True}}),
    "dirichlet": (PPO, VECTOR, spaces.Box(0, 1, (3,)), dist("Dirichlet")),
    "autoregressive": (PPO, VECTOR, spaces.MultiDiscrete([3, 2]), dist("Autoregressive")),
    "nested": (PPO, NESTED, BOTH_KINDS, {"model": {}}),
    "image": (PPO, IMAGE, DISCRETE, {"model": {}}),
    "masked": (DQN, MASKED, spaces.Discrete(3), {}),
    "dueling": (DQN, VECTOR, DISCRETE, {"dueling": True}),
    "c51": (DQN, VECTOR, DISCRETE, {"num_atoms": 11}),
    "noisy quantiles": (DQN, VECTOR, DISCRETE, {"num_quantiles": 5, "noisy": True}),
    "rainbow": (Rainbow, VECTOR, DISCRETE, {}),
    "parameter noise": (DQN, VECTOR, DISCRETE, {"exploration": {"type": "parameter_noise"}}),
    "r2d2": (R2D2, VECTOR, DISCRETE, {"model": {**SMALL, "use_lstm": True, "lstm_cell_size": 6}}),
    "impala": (IMPALA, VECTOR, DISCRETE, {}),
    "sac": (SAC, VECTOR, BOX, {}),
    "discrete sac": (SAC, VECTOR, DISCRETE, {}),
    "recurrent sac": (RecurrentSAC, VECTOR, BOX, {"model": {**SMALL, "use_lstm": True, "lstm_cell_size": 6}}),
    "td3": (TD3, VECTOR, BOX, {}),
    "ddpg": (DDPG, VECTOR, BOX, {}),
    "tqc": (TQC, VECTOR, BOX, {}),
    "crossq": (CrossQ, VECTOR, BOX, {"critic_hiddens": [8]}),
    "xqc": (XQC, VECTOR, BOX, {"critic_hiddens": [8]}),
    "gsde": (SAC, VECTOR, BOX, {"exploration": {"type": "gsde"}}),
    "es": (ES, VECTOR, BOX, {"observation_filter": "mean_std"}),
    "ars": (ARS, VECTOR, DISCRETE, {}),
    "pqn": (PQN, VECTOR, DISCRETE, {"model": {**SMALL, "layer_norm": True}}),
    "pqn_vdn": (PQNVDN, GROUP, PAIR_OF_THREE, {}),
    "qmix": (QMIX, GROUP, PAIR_OF_THREE, {}),
    "qmix with memory": (QMIX, GROUP, PAIR_OF_THREE, {"model": {**SMALL, "use_gru": True}}),
    "maddpg": (MADDPG, GROUP, PAIR_OF_THREE, {}),
    "matd3 with boxes": (MATD3, spaces.Tuple([VECTOR, MASKED]), spaces.Tuple([BOX, THREE]), GROUP_NOISE),
    "central critic": (PPO, VECTOR, DISCRETE, {"central_obs_size": 5}),
    **{
        f"memory {name}": (PPO, VECTOR, BOTH_KINDS, {"model": config})
        for name, config in {**MEMORIES, "other windows": OTHER_WINDOWS}.items()
    },
}
IN_ONNX = ("r2d2",)  # an ONNX file takes two seconds; the others are slow tests, and test_deploy.py has three


def made(case: str) -> tuple[Policy, SampleBatch]:
    """A policy whose weights and statistics are those of a trained one, and rows of its episodes."""
    cls, observations, actions, keywords = CASES[case]
    policy = cls(observations, actions, **{"model": SMALL, **keywords})
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.1)
    if keywords.get("observation_filter"):
        policy.observation_filter.update(3.0 * torch.randn(50, policy.preprocessor.size, generator=generator) + 2.0)
    return policy, recorded(policy)


def recorded(policy: Policy) -> SampleBatch:
    env = EnvCreator(AnySpaces, {"observation_space": policy.observation_space, "action_space": policy.action_space})
    with contextlib.ExitStack() as stack:
        worker = RolloutWorker(env, policy, num_envs=4, fragment_length=12, explore=False)
        stack.callback(worker.stop)
        return worker.sample()


def check_export(case: str, format: str, folder: Path) -> dict[str, Any]:
    policy, rows = made(case)
    written = policy.export_model(folder, rows, format=format)
    assert written["check"]["largest_difference"] <= 1e-5
    assert written["check"]["rows"] == flatten_fragment(rows).count == 40
    assert sorted(file.name for file in folder.iterdir()) == sorted(["policy.json", FORMATS[format]])
    assert json.loads((folder / "policy.json").read_text()) == written
    return written


ONE_OF_EACH_KIND = ("ppo", "nested", "masked", "r2d2", "sac", "td3", "es", "qmix")  # of output, input and memory


@pytest.mark.parametrize("case", each(CASES, ONE_OF_EACH_KIND))
def test_a_file_of_torch_export_answers_as_the_policy(case: str, tmp_path: Path) -> None:
    written = check_export(case, "torch.export", tmp_path)
    assert written["check"]["largest_difference"] == 0.0, "the same operations on the same machine"


@pytest.mark.parametrize("case", IN_ONNX)
def test_an_onnx_file_answers_as_the_policy(case: str, tmp_path: Path) -> None:
    """Without warnings about what a policy does not use, such as torchvision; logging is then as it was."""
    pytest.importorskip("onnxruntime")
    logger, said = logging.getLogger("torch.onnx"), logging.handlers.BufferingHandler(1000)
    logger.addHandler(said)
    level = logger.level
    try:
        written = check_export(case, "onnx", tmp_path)
    finally:
        logger.removeHandler(said)
    assert not [record for record in said.buffer if record.levelno >= logging.WARNING] and logger.level == level
    assert {"onnx", "onnxruntime"} <= written["versions"].keys()


@pytest.mark.parametrize("case", ["ppo", "nested", "memory previous"])
def test_a_torchscript_file_answers_as_the_policy(case: str, tmp_path: Path) -> None:
    check_export(case, "torchscript", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "torchscript"])
@pytest.mark.parametrize("case", CASES)
def test_every_format_holds_every_algorithm(case: str, format: str, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnxruntime")
    check_export(case, format, tmp_path)


@pytest.mark.parametrize("strategy", each(STRATEGIES, ("epsilon_greedy", "gaussian_noise", "parameter_noise")))
def test_no_exploration_strategy_gets_into_a_file(strategy: str, tmp_path: Path) -> None:
    kind: Any = (DQN, VECTOR, DISCRETE)
    if strategy in ("group_noise", "gsde"):
        kind = {"group_noise": (MADDPG, GROUP, PAIR_OF_THREE), "gsde": (PPO, VECTOR, BOX)}[strategy]
    elif "noise" in strategy and strategy != "parameter_noise":
        kind = (TD3, VECTOR, BOX)
    noisy = {"noisy": strategy == "noisy_network"} if kind[0] is DQN else {}
    policy = kind[0](*kind[1:], model=SMALL, exploration={"type": strategy}, **noisy)
    assert policy.export_model(tmp_path, format="torch.export")["check"]["largest_difference"] == 0.0


def test_the_description_names_inputs_outputs_and_memory(tmp_path: Path) -> None:
    written = check_export("memory previous", "torch.export", tmp_path)
    assert [(port["name"], port["dtype"], port["shape"]) for port in written["inputs"]] == [
        ("obs", "float32", ["batch", 3]),
        ("reward", "float32", ["batch"]),
        ("state.0", "float32", ["batch", 6]),
        ("state.1", "float32", ["batch", 6]),
        ("prev_actions.a", "float32", ["batch", 2]),
        ("prev_actions.b", "int64", ["batch"]),
    ]
    assert [port["name"] for port in written["outputs"]] == [
        "action.a", "action.b", "action_dist_inputs", "next_state.0", "next_state.1",
        "next_prev_actions.a", "next_prev_actions.b",
    ]  # fmt: skip
    shapes = [["batch", *shape] for shape in ([2], [], [7], [6], [6], [2], [])]  # 2 means, 2 deviations, 3 logits
    assert [port["shape"] for port in written["outputs"]] == shapes
    assert [(each["input"], each["initial"]) for each in written["memory"]][2:] == [
        ("prev_actions.a", 0.0),
        ("prev_actions.b", -1),
    ]
    assert written["format_version"] == 1, "what lightning_rl.deploy reads"
    assert written["algorithm"] == "PPO" and written["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize("memory", [*MEMORIES, "other windows"])
def test_outputs_fed_back_as_memory_give_the_actions_of_a_rollout(memory: str) -> None:
    """The file's own protocol, step by step, against the rows that a worker recorded."""
    policy, rows = made(f"memory {memory}")
    module, starts = ActingModule(policy), torch.ones(4, dtype=torch.bool)
    fed = {name: initial.expand(4, *initial.shape) for name, initial in module.memory.items()}
    columns = [name for name in ("obs", "state_in", "prev_actions", "prev_rewards") if name in rows]
    for step in range(12):
        acting = rows.valid[step]
        for name, initial in module.memory.items():
            fed[name] = torch.stack([initial if starts[env] else fed[name][env] for env in range(4)])
        inputs = {"obs": rows.obs[step], **fed}
        if module.reads_reward:
            inputs["reward"] = rows.rewards[step - 1].masked_fill(starts, 0.0)
        recorded = module.inputs_of(SampleBatch({name: rows[name][step] for name in columns}))
        assert list(recorded) == [port.name for port in module.inputs]
        for name, value in recorded.items():
            read = (acting, slice(1, None)) if name == "prev_rewards" else acting  # not the oldest reward
            assert_close(inputs[name][read], value[read], msg=f"{name} of step {step}")
        answer = module(inputs)
        taken = leaf_values(policy.action_space, policy.env_actions(rows.actions[step]))
        for name, action in zip(("action.a", "action.b"), taken, strict=True):
            assert_close(answer[name][acting], torch.as_tensor(action)[acting], msg=f"{name} of step {step}")
        fed, starts = {name: answer[f"next_{name}"] for name in fed}, ~acting


def test_rows_without_memory_are_those_of_an_episode_s_start() -> None:
    policy, _ = made("memory previous")
    module = ActingModule(policy)
    inputs = module.inputs_of(SampleBatch(obs=torch.zeros(2, 3)))
    assert list(inputs) == [port.name for port in module.inputs] and not inputs["reward"].any()
    for name, initial in module.memory.items():
        assert torch.equal(inputs[name], initial.expand(2, *initial.shape)), name


def test_columns_that_the_model_does_not_read_are_left_out() -> None:
    policy, rows = made("gaussian")
    rows = flatten_fragment(rows)
    before = {"prev_actions": rows.actions, "prev_rewards": rows.rewards}
    assert list(ActingModule(policy).inputs_of(SampleBatch(obs=rows.obs, **before))) == ["obs"]


def test_outputs_share_no_memory_with_inputs_or_each_other() -> None:
    policy = PPO(VECTOR, spaces.Discrete(3), model=MEMORIES["previous"])
    module = ActingModule(policy)
    inputs = module.inputs_of(SampleBatch(obs=torch.zeros(2, 3)))
    places = [value.data_ptr() for value in (*inputs.values(), *module(inputs).values())]
    assert len(set(places)) == len(places)


def test_a_mask_beside_the_observation_is_an_input_and_forbids(tmp_path: Path) -> None:
    """One allowed action each; the space counts from −1."""
    policy, fragment = made("ppo")
    rows, folder = flatten_fragment(fragment), tmp_path / "new" / "folder"
    rows["action_mask"] = torch.eye(3, dtype=torch.bool)[torch.arange(rows.count) % 3]
    written = policy.export_model(folder, rows, format="torch.export")
    assert written["action_mask"] == "action_mask"
    assert written["inputs"][1] == {"name": "action_mask", "dtype": "bool", "shape": ["batch", 3]}
    module = torch.export.load(folder / "policy.pt2").module()
    actions = module({"obs": rows.obs, "action_mask": rows.action_mask})["action"]
    assert torch.equal(actions, torch.arange(rows.count) % 3 - 1)


def test_without_rows_the_check_reads_samples_of_the_space(tmp_path: Path) -> None:
    written = export.export_policy(made("ppo")[0], tmp_path, format="torch.export", about={"env": "Maze"})
    assert written["check"]["source"] == "samples of the observation space" and written["env"] == "Maze"
    one, other = (export._sampled_rows(spaces.Box(-1, 1, (3,), seed=seed)).obs for seed in (1, 2))
    assert torch.equal(one, other) and len(one.unique(dim=0)) == 100


def test_exporting_changes_neither_the_mode_nor_the_actions_of_the_policy(tmp_path: Path) -> None:
    policy, rows = made("squashed")
    obs = flatten_fragment(rows).obs
    before = policy.compute_actions(obs, explore=False)[0]
    policy.train()
    policy.export_model(tmp_path, rows, format="torch.export")
    assert policy.training
    assert torch.equal(policy.compute_actions(obs, explore=False)[0], before)


# -- the action transform in torch -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("normalize", "clip"), [*itertools.product([False, True], repeat=2)])
def test_the_action_transform_of_tensors_gives_the_same_bits_as_that_of_arrays(normalize: bool, clip: bool) -> None:
    for space in ACTIONS:
        transform = ActionTransform(space, normalize=normalize, clip=clip)
        transform.policy_space.seed(0)
        actions = [leaf_values(space, transform.policy_space.sample()) for _ in range(5)]
        leaves = [torch.from_numpy(np.stack(parts)) for parts in zip(*actions, strict=True)]
        tensors = pack_leaves(space, iter([leaf * 3 if leaf.is_floating_point() else leaf for leaf in leaves]))
        arrays = leaf_values(space, transform.to_env(tensors))
        for ours, theirs in zip(transform.to_env_tensors(tensors), arrays, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs, err_msg=str(space))
            assert ours.numpy().dtype == theirs.dtype, space


# -- what is refused ---------------------------------------------------------------------------------------------------
class Leaking(Model):
    """Its outputs depend on the first row, by a number of Python."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.linear = nn.Linear(self.preprocessor.size, num_outputs)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        flat = input_dict["obs_flat"]
        self.values = flat[:, 0]
        return self.linear(flat) + float(flat[0].sum()), []

    def value_function(self) -> Tensor:
        return self.values


@pytest.mark.parametrize(("format", "message"), [("torchscript", "in 'action"), ("torch.export", r"x\.shape\[0\]")])
def test_a_file_that_differs_from_the_policy_is_an_error_and_leaves_nothing_that_claims_to_be_good(
    format: str, message: str, tmp_path: Path
) -> None:
    """TorchScript keeps the number of the first rows for ever, torch.export cannot trace it.

    The export before it is gone, too.
    """
    made("gaussian")[0].export_model(tmp_path, format="torchscript")
    policy = PPO(VECTOR, BOX, model={"custom_model": Leaking})
    with pytest.raises(ConfigError, match=message):
        policy.export_model(tmp_path, recorded(policy), format=format)
    assert not list(tmp_path.iterdir())


def test_every_row_is_asked_once_the_first_ones_alone() -> None:
    for count, sizes in (
        (3, [1] * 3),
        (16, [1] * 16),
        (17, [1] * 17),
        (80, [1] * 16 + [64]),
        (100, [1] * 16 + [64, 20]),
    ):
        rows = torch.arange(count)
        batches = [batch["obs"] for batch in export._batches({"obs": rows})]
        assert [len(batch) for batch in batches] == sizes and torch.equal(torch.cat(batches), rows)


def test_outputs_are_compared_as_vectors_and_actions_entry_by_entry() -> None:
    expected = np.array([[100.0, 0.0], [0.0, 0.5]], np.float32)
    given = expected + np.array([[0.0, 0.01], [0.0, 0.001]], np.float32)
    assert export._difference(given, expected) == pytest.approx(1e-3, rel=1e-3)
    assert export._difference(given, expected, 1.0) == pytest.approx(1e-2, rel=1e-3)
    assert export._difference(given, -expected) == pytest.approx(2.0, rel=1e-3)


def test_other_shapes_dtypes_integers_and_infinities_differ_infinitely() -> None:
    endless, half = np.array([-np.inf, 1], np.float32), np.array([0, 1], np.float32)
    same = [(np.array([1, 2]), np.array([1, 2])), (endless, endless.copy())]
    other = [
        (np.zeros((2, 1), np.float32), np.zeros((2, 2), np.float32)), (np.zeros(2), np.zeros(2, np.float32)),
        (np.array([1, 2]), np.array([1, 3])), (half, endless),
    ]  # fmt: skip
    assert [export._difference(*pair, 1.0) for pair in (*same, *other)] == [0.0] * 2 + [np.inf] * 4


@pytest.mark.parametrize(
    ("low", "high", "difference"),
    [(-np.inf, np.inf, 1e-2), (0, 512, 1e-2 / 256), (-1e-3, 1e-3, 10.0), (1000, 1000, 1e-2), (0, np.inf, 1e-2)],
)
def test_actions_are_compared_relative_to_their_range(low: float, high: float, difference: float) -> None:
    """1e-2 of 256 is what float32 rounds, and 1e-2 of 1e-3 is another action."""
    space = spaces.Dict({"arm": spaces.Box(low, high, (2,), np.float32), "hand": spaces.Discrete(2)})
    units = export._action_units(space)
    assert units.keys() == {"action.arm"}
    given, expected = (dict.fromkeys(("action.arm", "action_dist_inputs"), np.float32([[100, x]])) for x in (0.01, 0))
    found = export._compare(lambda inputs: given, {"obs": torch.zeros(1)}, [expected], units)
    assert found == pytest.approx({"action.arm": difference, "action_dist_inputs": 1e-4}, rel=1e-2)


def test_the_description_is_plain_data() -> None:
    """Infinite bounds as text, and a memory of equal numbers as one of them."""
    assert export._strict({"a": [np.inf, {"b": -np.inf}], "c": (1, "x")}) == {
        "a": ["inf", {"b": "-inf"}],
        "c": [1, "x"],
    }
    assert export._compact(torch.zeros(2, 2)) == 0.0 and export._compact(torch.tensor([0.0, 1.0])) == [0.0, 1.0]
    assert set(export._versions("torch.export")) == {"lightning_rl", "torch"}


def test_the_description_says_where_the_file_reads_the_mask() -> None:
    assert export._mask_place(made("masked")[0], None) == "obs.action_mask"
    assert export._mask_place(made("qmix")[0], None) == "obs.action_masks.0"
    assert export._mask_place(made("ppo")[0], None) is None
    assert export._mask_place(made("ppo")[0], torch.ones(1, 3)) == "action_mask"


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        (7e-6, None),
        (1.5e-5, r"by 1\.\d+e-05 in 'action_dist_inputs'"),
        (np.nan, "by nan in 'action_dist_inputs'"),
    ],
)
def test_a_difference_above_the_tolerance_is_an_error(
    shift: float, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the second of two outputs; that of the first, the action, is 0."""
    answers = ActingModule.answers_of_policy

    def other_answers(module: ActingModule, inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
        found = answers(module, inputs)
        return {**found, "action_dist_inputs": found["action_dist_inputs"] + np.float32(shift)}

    monkeypatch.setattr(ActingModule, "answers_of_policy", other_answers)
    policy, rows = made("gaussian")
    with pytest.raises(ConfigError, match=message) if message else contextlib.nullcontext():
        policy.export_model(tmp_path, rows, format="torch.export")


class InNumpy(Preprocessor):
    def _init_shape(self, obs_space: Any, options: Any) -> tuple[int, ...]:
        return (1,)

    def transform(self, obs: Any) -> np.ndarray:
        return np.asarray([obs.sum()], np.float32)


def sampler(policy: Any, model: Any, inputs: Any, state: Any, **how: Any) -> Any:
    return torch.zeros(len(inputs["obs"]), dtype=torch.int64), torch.zeros(len(inputs["obs"])), []


def test_what_no_file_can_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    sampling = build_policy("Sampler", loss_fn=lambda *_: None, action_sampler_fn=sampler)
    cases = [
        (RandomPolicy(VECTOR, DISCRETE), "RandomPolicy"),
        (sampling(VECTOR, DISCRETE), "compute_actions"),
        (PPO(VECTOR, DISCRETE, model={"custom_preprocessor": InNumpy}), "InNumpy computes in NumPy"),
    ]
    assert not_refused(lambda policy: policy.export_model(tmp_path / "export", format="torch.export"), cases) == []
    assert not (tmp_path / "export").exists()


def test_an_unknown_format_and_too_few_rows_are_refused(tmp_path: Path) -> None:
    policy, rows = made("ppo")
    with pytest.raises(ConfigError, match=r"format='onx'.*'onnx'"):
        policy.export_model(tmp_path, rows, format="onx")
    with pytest.raises(ConfigError, match=r"2 observations .*3"):
        policy.export_model(tmp_path, flatten_fragment(rows)[:2], format="torch.export")
    assert policy.export_model(tmp_path, flatten_fragment(rows)[:3], format="torch.export")["check"]["rows"] == 3


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ConfigError, match=r'"\.\[export\]"'):
        made("ppo")[0].export_model(tmp_path)
