"""What a GPU has to do: every pipeline trains, resumes, evaluates and exports there.

Most tests run twice: on a simulated device in the default suite, and on a card with `pytest -m gpu`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.strategies import DDPStrategy

from lightning_rl import Algorithm
from lightning_rl.errors import CheckpointError, NonFiniteError
from lightning_rl.policies import DQN, PPO, SAC, Policy
from lightning_rl.runs import run
from lightning_rl.sample_batch import SampleBatch
from tests import feature_matrix
from tests.families import each
from tests.run_comparison import checked_config
from tests.shipped_policies import POLICIES

SMALL = """experiment=none logger=none trainer.enable_progress_bar=false workers.logical_workers=2
    workers.envs_per_worker=1 evaluation.episodes=1 evaluation.every_env_steps=96 evaluation.max_share=null
    env.max_episode_steps=50"""
VECTORS = "env=cartpole model.fcnet_hiddens=[16]"
FRAGMENTS = "workers.fragment_length=16 policy.minibatches=2"
REPLAY = """workers.fragment_length=8 data.capacity=200 data.batch_size=8 data.learning_starts=24
    data.update_to_data_ratio=0.3 model.fcnet_hiddens=[16]"""
SEQUENCES = "model.lstm_cell_size=8 data.sequence_stride=2"
LSTM = "model=lstm model.lstm_cell_size=8 model.lstm_use_prev_action=true"
FILTERS = "policy.observation_filter=mean_std policy.reward_filter=return_std"
IMAGES = "env.id=tests.gpu.environments:Blocks env.kwargs.size=24 workers.fragment_length=16"
PIPELINES = {
    "ppo": f"policy=ppo {VECTORS} {FRAGMENTS} {FILTERS} policy.lr=[[0,1e-3],[1000,0.0]]",
    "ppo, lstm": f"policy=ppo env=cartpole {FRAGMENTS} {LSTM}",
    "ppo, attention": f"policy=ppo env=cartpole {FRAGMENTS} model=attention model.attention_dim=8",
    "ppo, images": f"policy=ppo {IMAGES} policy.minibatches=2",
    "ppo, rnd": f"policy=ppo {VECTORS} {FRAGMENTS} exploration=rnd",
    "ppo, several agents": f"policy=ppo env=multi_agent_cartpole env.agents=2 {FRAGMENTS}",
    "a2c": "policy=a2c env=pendulum workers.fragment_length=16 model.fcnet_hiddens=[16]",
    "a3c": f"policy=a3c {VECTORS} workers.fragment_length=16 data.gradients_per_iteration=2 {FILTERS}",
    "impala": f"policy=impala {VECTORS} {FRAGMENTS} data.order=fixed data.replay_proportion=1.0",
    "appo": f"policy=appo {VECTORS} {FRAGMENTS} data.order=fixed policy.kl_coef=0.5",
    "dqn": f"policy=dqn env=cartpole {REPLAY} data.prioritized=true data.n_step=3",
    "dqn, rmsprop": f"policy=dqn env=cartpole {REPLAY} data.prioritized=true data.n_step=3 policy.optimizer=rmsprop",
    "dqn, images": f"policy=dqn {IMAGES} data.capacity=500 data.batch_size=8 data.learning_starts=24",
    "dqn, curiosity": f"policy=dqn env=cartpole {REPLAY} exploration=curiosity",
    "dqn, hindsight": f"policy=dqn env=bit_flipping data=hindsight {REPLAY}",
    "dqn, parameter noise": f"policy=dqn env=cartpole {REPLAY} exploration=parameter_noise",
    "rainbow": f"policy=rainbow env=cartpole {REPLAY} policy.num_atoms=5",
    "apex": f"policy=apex env=cartpole {REPLAY} data.num_shards=2 data.learning_starts=32",
    "r2d2": f"""policy=r2d2 env=cartpole {REPLAY} {SEQUENCES} data.sequence_length=4 data.burn_in=2
        data.learning_starts=40 workers.fragment_length=16""",
    "recurrent_sac": f"""policy=recurrent_sac env=pendulum {REPLAY} {SEQUENCES} data.sequence_length=4 data.burn_in=2
        data.learning_starts=40 workers.fragment_length=16""",
    "sac": f"policy=sac env=pendulum {REPLAY} {FILTERS} data.n_step=2",
    "sac, gsde": f"policy=sac env=pendulum {REPLAY} exploration=gsde",
    "td3": f"policy=td3 env=pendulum {REPLAY}",
    "tqc": f"policy=tqc env=pendulum {REPLAY} policy.num_quantiles=5",
    "crossq": f"policy=crossq env=pendulum {REPLAY} policy.critic_hiddens=[16]",
    "xqc": f"policy=xqc env=pendulum {REPLAY} policy.critic_hiddens=[16] policy.num_atoms=5 data.learning_starts=32",
    "es": f"policy=es {VECTORS} data.directions=2 data.eval_prob=0.5 policy.observation_filter=mean_std",
    "qmix": f"policy=qmix env=two_step_game {REPLAY} {SEQUENCES} data.sequence_length=2",
}
VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
MARKS = {"ppo": (), "sac": pytest.mark.every, "dqn, curiosity": pytest.mark.every}  # others are slow


class Watch(Callback):
    """Notes on which device the policy is while it learns."""

    devices: set[str]

    def __init__(self) -> None:
        self.devices = set()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *others: Any) -> None:
        self.devices |= {parameter.device.type for parameter in pl_module.parameters()}


def config_of(run_dir: Path, device: str, pipeline: str, *overrides: str, total: int = 128) -> dict[str, Any]:
    place = "cpu" if device == "cpu" else "gpu"
    steps = (f"total_env_steps={total}", f"checkpoint.every_env_steps={total // 2}", f"run_dir={run_dir}")
    return checked_config(*SMALL.split(), *pipeline.split(), *overrides, *steps, f"trainer.accelerator={place}")


def train(config: dict[str, Any], device: str, ckpt_path: Path | None = None) -> Policy:
    """Run it, and check that it learned on the device; gives the policy of the last checkpoint, on the CPU."""
    policy, data, trainer = run.build(config)
    trainer.callbacks.append(watch := Watch())
    run.fit(policy, data, trainer, ckpt_path)
    assert watch.devices == {device}
    assert policy.env_steps >= config["total_env_steps"]
    return policy


def last_checkpoint(run_dir: Path) -> Path:
    return run_dir / "checkpoints" / "last.ckpt"


def is_simulated(request: pytest.FixtureRequest) -> bool:
    return "simulated" in request.node.callspec.id


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in PIPELINES])
def test_a_pipeline_trains_evaluates_and_resumes(name: str, device: str, tmp_path: Path):
    config = config_of(tmp_path / "run", device, PIPELINES[name])
    first = train(config, device)
    loaded: Any = Policy.load(last_checkpoint(tmp_path / "run"))
    assert {parameter.device.type for parameter in loaded.parameters()} == {"cpu"}
    config["total_env_steps"], config["run_dir"] = 192, str(tmp_path / "again")
    again = train(config, device, last_checkpoint(tmp_path / "run"))
    assert steps_of(again) > steps_of(first)


def steps_of(policy: Any) -> int:
    return sum(part.gradient_steps for part in policy.policies.values())


@pytest.mark.parametrize("name", each(["ppo", "sac"], default=["ppo"]))
def test_a_checkpoint_of_a_cpu_goes_on_on_a_gpu(name: str, device: str, tmp_path: Path):
    train(config_of(tmp_path / "cpu", "cpu", PIPELINES[name]), "cpu")
    config = config_of(tmp_path / "gpu", device, PIPELINES[name], total=192)
    train(config, device, last_checkpoint(tmp_path / "cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "ppo, lstm", "dqn"])
@pytest.mark.parametrize("place", ["cpu", "learner"])
def test_workers_act_on_either_device(name: str, place: str, device: str, tmp_path: Path):
    seen: set[str] = set()
    config = config_of(tmp_path, device, PIPELINES[name], f"workers.act_on={place}")
    policy, data, trainer = run.build(config)
    acting = type(policy).compute_actions

    def watched(self: Any, *args: Any, **keywords: Any) -> Any:
        seen.add(self.device.type)
        return acting(self, *args, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(policy), "compute_actions", watched)
        run.fit(policy, data, trainer)
    assert seen == {device if place == "learner" else "cpu"}


PRECISIONS = ("bf16-mixed", "16-mixed", "bf16-true")
HALF = [(name, precision) for name in ("ppo", "sac", "dqn, rmsprop") for precision in PRECISIONS]


@pytest.mark.parametrize(
    ("name", "precision"), [pytest.param(*case, marks=pytest.mark.every if n else ()) for n, case in enumerate(HALF)]
)
def test_policies_learn_in_half_precision(name: str, precision: str, device: str, tmp_path: Path):
    if device == "cpu" and precision == "16-mixed":
        pytest.skip("float16 is refused on a CPU")
    policy = train(config_of(tmp_path, device, PIPELINES[name], f"trainer.precision={precision}"), device)
    assert steps_of(policy) > 0
    assert all(bool(parameter.isfinite().all()) for parameter in policy.parameters())


def rows_for(policy: Any) -> SampleBatch:
    """Rows of random numbers that a policy for CartPole-like spaces can learn from."""
    numbers = torch.Generator().manual_seed(5)
    obs, following = (torch.randn(32, 4, generator=numbers) for _ in range(2))
    flags = torch.zeros(32, dtype=torch.bool)
    actions = torch.randint(2, (32,), generator=numbers)
    if isinstance(policy.action_space, gym.spaces.Box):
        actions = torch.rand(32, 1, generator=numbers)
    own = {
        "obs": obs, "next_obs": following, "actions": actions, "rewards": torch.randn(32, generator=numbers),
        "terminated": flags, "truncated": flags, "discounts": torch.full((32,), 0.99),
        "action_logp": torch.full((32,), -0.7), "advantages": torch.randn(32, generator=numbers),
        "value_targets": torch.randn(32, generator=numbers), "vf_preds": torch.zeros(32),
        "action_dist_inputs": torch.zeros(32, 2), "weights": torch.ones(32),
    }  # fmt: skip
    return SampleBatch(own)


@pytest.mark.parametrize("policy_class", [PPO, DQN])
def test_an_update_on_a_gpu_equals_that_on_a_cpu(policy_class: type[Any], device: str):
    """Up to the order of sums in float32."""
    spaces = VECTOR, gym.spaces.Discrete(2)
    model = {"fcnet_hiddens": [64, 64]}
    here, there = (policy_class(*spaces, model=model, max_grad_norm=0.5, seed=3) for _ in range(2))
    there.to(device)
    for _ in range(3):
        losses = [each.learn_on_batch(rows_for(each).to(each.device))["loss"] for each in (here, there)]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4, atol=1e-6)
    for name, value in here.get_weights().items():
        np.testing.assert_allclose(there.get_weights()[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("policy_class", "column"), [(PPO, "advantages"), (DQN, "rewards")])
def test_nothing_is_stepped_by_a_loss_that_is_nan(policy_class: type[Any], column: str, device: str):
    spaces = VECTOR, gym.spaces.Discrete(2)
    policy = policy_class(*spaces, model={"fcnet_hiddens": [8]}).to(device)
    before = policy.get_weights()
    rows = rows_for(policy)
    rows[column][3] = torch.nan
    with pytest.raises(NonFiniteError, match="gradient step 0"):
        policy.learn_on_batch(rows.to(policy.device))
    assert all(np.array_equal(value, before[name]) for name, value in policy.get_weights().items())


def test_a_checkpoint_of_weights_that_are_nan_is_refused(device: str):
    policy = PPO(VECTOR, gym.spaces.Discrete(2)).to(device)
    with torch.no_grad():
        next(policy.parameters()).fill_(torch.nan)
    with pytest.raises((NonFiniteError, CheckpointError), match="NaN"):
        policy.on_save_checkpoint({})


@pytest.mark.parametrize("policy_class", [PPO, SAC])
def test_a_policy_on_a_gpu_acts_exports_and_gives_its_state_to_a_cpu(
    policy_class: type[Any], device: str, tmp_path: Path
):
    spaces = VECTOR, gym.spaces.Box(-2, 2, (1,), np.float32)
    policy = policy_class(*spaces, model={"fcnet_hiddens": [8]}).to(device)
    policy.learn_on_batch(rows_for(policy).to(policy.device))
    obs = np.full(4, 0.3, np.float32)
    action = policy.compute_single_action(obs, explore=False)
    assert policy.compute_single_action(obs, explore=True).shape == (1,)
    policy.export_model(tmp_path, format="torchscript")
    state = policy.get_state()
    held = [value for each in state["optimizer"]["state"].values() for value in each.values()]
    assert {value.device.type for value in held if isinstance(value, torch.Tensor)} == {"cpu"}
    other = policy_class(*spaces, model={"fcnet_hiddens": [8]}, seed=1)
    other.set_state(state)
    np.testing.assert_allclose(other.compute_single_action(obs, explore=False), action, rtol=1e-4, atol=1e-5)
    policy.set_state(other.get_state())
    policy.learn_on_batch(rows_for(policy).to(policy.device))


@pytest.mark.parametrize("optimizer", each(["adam", "rmsprop"], default=["adam"]))
def test_an_algorithm_trains_iteration_by_iteration(optimizer: str, device: str, tmp_path: Path):
    """Lightning moves policy and moments to the CPU after each of them."""
    place = "trainer.accelerator=cpu" if device == "cpu" else "trainer.accelerator=gpu"
    overrides = f"{SMALL} model.fcnet_hiddens=[16] {FRAGMENTS} {place} policy.optimizer={optimizer} run_dir={tmp_path}"
    algorithm = Algorithm("ppo", env="CartPole-v1", overrides=overrides.split())
    steps = [algorithm.train()["env_steps"] for _ in range(3)]
    assert 0 < steps[0] < steps[1] < steps[2]
    algorithm.stop()


@pytest.mark.slow
@pytest.mark.parametrize("feature", [name for name in feature_matrix.FEATURES if name not in feature_matrix.SLOW])
def test_every_policy_learns_every_feature_on_a_gpu(
    feature: str, device: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    """As the table of features says for a CPU."""
    # The simulated device moves a policy only while no graph of its parameters is alive, which evolution keeps.
    left_out = {"ars", "es"} if is_simulated(request) else set()
    for name in sorted({*POLICIES} - left_out):
        monkeypatch.setattr(feature_matrix, "DEVICE", "cpu")
        expected = feature_matrix.works(name, feature)
        monkeypatch.setattr(feature_matrix, "DEVICE", device)
        assert feature_matrix.works(name, feature) == expected, name


# -- what only a card has ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_compiled_networks_learn(name: str, mode: str, real_device: str, tmp_path: Path):
    if real_device == "cpu" and (mode != "default" or shutil.which("g++") is None):
        pytest.skip("CUDA graphs need a card, and compiling for a CPU needs g++")
    config = config_of(tmp_path, real_device, PIPELINES[name])
    config["callbacks"] = [{"callback": "lightning_rl.callbacks:CompileNetworks", "mode": mode}]
    assert steps_of(train(config, real_device)) > 0
    Policy.load(last_checkpoint(tmp_path))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["ppo", "dqn", "ppo, several agents"])
def test_ddp_with_one_rank_trains_by_nccl(name: str, real_device: str, tmp_path: Path):
    config = config_of(tmp_path, real_device, PIPELINES[name], "trainer.strategy=ddp")
    policy, data, trainer = run.build(config)
    run.fit(policy, data, trainer)
    assert isinstance(trainer.strategy, DDPStrategy)
    assert trainer.strategy.process_group_backend == ("gloo" if real_device == "cpu" else "nccl")
    assert steps_of(policy) > 0
