"""Checkpoints of the policies of several agents: resuming, loading all or one of them, and frozen ones from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from lightning_rl import MultiAgentBatch, MultiAgentPolicy, Policy, ScratchPolicy
from lightning_rl.checkpoint_files import version_entry
from lightning_rl.errors import CheckpointError, ConfigError, NonFiniteError
from lightning_rl.policies import DQN, PPO
from lightning_rl.policies.checkpoints import counters, read_checkpoint
from lightning_rl.sample_batch import SampleBatch, env_steps
from tests.envs.classic_control import CARTPOLE
from tests.policies.several_agents import DQN_ENTRY, PPO_ENTRY, SMALL, fragment_of, sample, several

FIRST_AND_SECOND = {"cart_0": "first", "cart_1": "second"}


class Counting(ScratchPolicy):
    """Always acts 0, and counts the rows that it learned from."""

    rows = 0

    def compute_actions(self, obs: Any, state: Any = ()) -> Any:  # type: ignore[override]
        return np.zeros(len(obs), np.int64), [], {}

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        self.rows += batch.count
        return {"rows": self.rows}

    def get_weights(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def set_weights(self, weights: Any) -> None:
        self.rows = int(weights["rows"])


def alternate(agent_id: str) -> str:
    return "first" if agent_id.endswith("0") else "second"


def three() -> MultiAgentPolicy:
    entries = {"first": PPO_ENTRY, "second": DQN_ENTRY, "third": Counting}
    return several(entries, {**FIRST_AND_SECOND, "cart_2": "third"}, carts=3, seed=2)


def saved(policy: MultiAgentPolicy, file: Path) -> Path:
    """A checkpoint as a run writes it, without the optimizers."""
    content: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(content)
    torch.save(content, file)
    return file


def trainer_of(directory: Path, epochs: int) -> Trainer:
    return Trainer(
        max_epochs=epochs,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=directory,
        accelerator="cpu",
    )


def loader(*batches: MultiAgentBatch) -> DataLoader[Any]:
    return DataLoader(list(batches), batch_size=None)  # type: ignore[arg-type]


def assert_same(one: Any, other: Any) -> None:
    """Equal states: nested containers of tensors, arrays and numbers."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)


# -- resuming ---------------------------------------------------------------------------------------------------------
def test_a_resumed_run_continues_with_equal_weights_optimizers_and_counters(tmp_path: Path) -> None:
    """Adam's moments matter: without them the second epoch would end with other weights."""
    policy = three()
    batches = [sample(policy, seed=seed) for seed in range(2)]
    trainer = trainer_of(tmp_path, 1)
    trainer.fit(policy, loader(*batches))
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    resumed = three()
    trainer_of(tmp_path, 2).fit(resumed, loader(*batches), ckpt_path=tmp_path / "run.ckpt", weights_only=True)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(policy, loader(*batches))
    assert counters(resumed) == counters(policy)
    assert resumed.policies["third"].rows == policy.policies["third"].rows > 0
    assert_same(resumed.get_state(), policy.get_state())


def test_optimizer_states_belong_to_policies_not_to_places(tmp_path: Path) -> None:
    """The resumed run trains the policies in another order, and one that had no optimizer before."""
    entries = {"first": PPO_ENTRY, "second": PPO_ENTRY, "third": PPO_ENTRY}
    mapping = {"cart_0": "first", "cart_1": "second", "cart_2": "third"}
    policy = several(entries, mapping, carts=3, policies_to_train=["first", "second"])
    trainer = trainer_of(tmp_path, 1)
    trainer.fit(policy, loader(sample(policy)))
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    resumed = several(entries, mapping, carts=3, policies_to_train=["third", "second", "first"])
    trainer_of(tmp_path, 1).fit(resumed, loader(sample(policy)), ckpt_path=tmp_path / "run.ckpt", weights_only=True)
    for name in ("first", "second"):
        states = [each.policies[name].get_state()["optimizer"] for each in (resumed, policy)]
        assert states[0]["state"] and states[1]["state"]
        assert_same(*states)
    assert not resumed.policies["third"].get_state()["optimizer"]["state"]


def test_a_resumed_run_has_the_policies_that_the_run_had_added(tmp_path: Path) -> None:
    policy = several({"main": PPO_ENTRY, "other": "random"}, {"cart_0": "main", "cart_1": "other"})
    policy.learn_on_batch(sample(policy, "main"))
    snapshot = policy.policies["main"].copy_for_acting()
    policy.add_policy("main_1", snapshot, policy_mapping={"cart_0": "main", "cart_1": ["other", "main_1"]})
    policy.add_policy("learner", {**PPO_ENTRY, "lr": 1e-2}, trained=True, spaces_of="cart_1")
    trainer = trainer_of(tmp_path, 1)
    trainer.fit(policy, loader(sample(policy, "main", "learner")))
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    resumed = several({"main": PPO_ENTRY, "other": "random"}, {"cart_0": "main", "cart_1": "other"})
    trainer_of(tmp_path, 1).fit(resumed, loader(sample(policy)), ckpt_path=tmp_path / "run.ckpt", weights_only=True)
    assert list(resumed.policies) == ["main", "other", "main_1", "learner"]
    assert resumed.policies_to_train == ["main", "learner"] and resumed.agents_of("main_1") == ["cart_1"]
    assert counters(resumed) == counters(policy)
    assert_same(resumed.get_state(), policy.get_state())


def test_a_resumed_run_without_further_policies_keeps_its_own_mapping() -> None:
    entries = {"first": PPO_ENTRY, "second": PPO_ENTRY}
    content: dict[str, Any] = {"state_dict": (policy := several(entries, FIRST_AND_SECOND)).state_dict()}
    policy.on_save_checkpoint(content)
    other = several(entries, {"cart_0": "second", "cart_1": "first"}, policies_to_train=["second"])
    other.on_load_checkpoint(content)
    assert other.agents_of("first") == ["cart_1"] and other.policies_to_train == ["second"]


def test_a_policy_added_to_a_running_fit_learns_with_an_optimizer_of_the_trainer(tmp_path: Path) -> None:
    policy = several({"main": PPO_ENTRY})
    fragment = fragment_of(policy.get_policy())

    class Adding(list[MultiAgentBatch]):
        """Adds the policy while the Trainer takes the second batch."""

        def __getitem__(self, index: Any) -> Any:
            if index == 1:
                policy.add_policy("late", PPO_ENTRY, trained=True, spaces_of="cart_0")
            return super().__getitem__(index)

    parts = [{"main": fragment}, {"main": fragment, "late": fragment}]
    batches = Adding(MultiAgentBatch(part, env_steps(fragment)) for part in parts)
    trainer = trainer_of(tmp_path, 1)
    trainer.fit(policy, DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
    late = policy.policies["late"]
    assert late.gradient_steps > 0 and policy.policies["main"].gradient_steps == 2 * late.gradient_steps
    assert trainer.global_step == policy.gradient_steps
    assert trainer.optimizers[1] is late.learner.optimiser.torch_optimizer


def test_a_checkpoint_of_other_policies_is_refused(tmp_path: Path) -> None:
    content: dict[str, Any] = {"state_dict": (policy := three()).state_dict()}
    policy.on_save_checkpoint(content)
    other = several({"first": PPO_ENTRY, "fourth": DQN_ENTRY}, {"cart_0": "first", "cart_1": "fourth"}, carts=2)
    with pytest.raises(CheckpointError, match="observation_space"):
        other.on_load_checkpoint(content)
    other = several({"first": PPO_ENTRY, "fourth": DQN_ENTRY}, {"cart_0": "first", "*": "fourth"}, carts=3)
    with pytest.raises(CheckpointError, match=r"policies\.fourth.* absent"):
        other.on_load_checkpoint(content)
    alone = PPO(*CARTPOLE.spaces(), model=SMALL)
    of_one: dict[str, Any] = {"state_dict": alone.state_dict()}
    alone.on_save_checkpoint(of_one)
    for kwargs in (of_one["policy"]["kwargs"], {"policies": ["first"]}, None):
        of_one["policy"]["kwargs"] = kwargs
        with pytest.raises(CheckpointError, match=r"PPO.*MultiAgentPolicy"):
            other.on_load_checkpoint(of_one)
    with pytest.raises(CheckpointError, match=r"MultiAgentPolicy.*PPO"):
        PPO(*CARTPOLE.spaces(), model=SMALL).on_load_checkpoint(content)


# -- loading ----------------------------------------------------------------------------------------------------------
def test_load_gives_all_policies_or_one_ready_to_act(tmp_path: Path) -> None:
    policy = three()
    for seed in range(2):
        policy.learn_on_batch(sample(policy, seed=seed))
    file = saved(policy, tmp_path / "some.ckpt")
    everything = Policy.load(file, trust=__name__)
    assert isinstance(everything, MultiAgentPolicy) and counters(everything) == counters(policy)
    assert_same(everything.get_weights(), policy.get_weights())
    assert everything.mapping.policy_of("cart_2") == "third"
    obs = CARTPOLE.spaces()[0].sample()
    for name, kind in (("first", PPO), ("second", DQN), ("third", Counting)):
        own, part = policy.policies[name], Policy.load(file, policy_id=name, trust=__name__)
        assert type(part) is kind and not part.training
        assert (part.observation_space, part.action_space) == CARTPOLE.spaces()
        assert_same(part.get_weights(), own.get_weights())
        assert counters(part) == counters(own) and part.seed == own.seed
        assert part.compute_single_action(obs) == own.compute_single_action(obs)


def test_a_policy_comes_from_the_last_checkpoint_of_a_run_directory(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    trained = three()
    saved(trained, tmp_path / "checkpoints" / "last.ckpt")
    policy = several(
        {"old": {"checkpoint": str(tmp_path), "policy_id": "first"}, "new": PPO_ENTRY}, {"*": ["old", "new"]}
    )
    assert policy.policies_to_train == ["new"]
    assert_same(policy.policies["old"].get_weights(), trained.policies["first"].get_weights())
    with pytest.raises(CheckpointError, match=r"nowhere.ckpt"):
        several({"old": {"checkpoint": str(tmp_path / "nowhere.ckpt")}})


def test_a_mapping_function_is_loaded_by_its_path_if_it_is_trusted(tmp_path: Path) -> None:
    policy = several({"first": PPO_ENTRY, "second": PPO_ENTRY}, alternate)
    file = saved(policy, tmp_path / "some.ckpt")
    loaded = Policy.load(file, trust=__name__)
    assert isinstance(loaded, MultiAgentPolicy) and loaded.mapping.policy_of("cart_1") == "second"
    content = read_checkpoint(file)
    assert content["policy"]["kwargs"]["policy_mapping"] == f"{__name__}:alternate"


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("policies.first._target_", "subprocess:Popen"),
        ("policies.first._target_", "strange_package:Policy"),
        ("policy_mapping", "os:system"),
        ("policies.first.model.custom_model", "strange_package:Net"),
        ("policies.first.optimizer", "strange_package:Adam"),
    ],
)
def test_load_refuses_code_that_is_not_trusted(place: str, path: str, tmp_path: Path) -> None:
    file = saved(several({"first": PPO_ENTRY, "second": DQN_ENTRY}, FIRST_AND_SECOND), tmp_path / "some.ckpt")
    content = torch.load(file, weights_only=True)
    *parents, key = place.split(".")
    section = content["policy"]["kwargs"]
    for parent in parents:
        section = section[parent]
    section[key] = path
    torch.save(content, file)
    with pytest.raises(CheckpointError, match="trusted"):
        Policy.load(file)
    if place != "policy_mapping":
        with pytest.raises(CheckpointError, match="trusted"):
            Policy.load(file, policy_id="first")
        assert isinstance(Policy.load(file, policy_id="second"), DQN)
        assert isinstance(DQN.load(file, policy_id="second"), DQN)
        with pytest.raises(CheckpointError, match=r"PPO.load: .* holds a DQN: use DQN.load, or Policy.load"):
            PPO.load(file, policy_id="second")


@pytest.mark.parametrize(
    "entry",
    [
        {"checkpoint": "some.ckpt"},
        {"_target_": "lightning_rl.policies:PPO", "checkpoint": "some.ckpt"},
        {"_target_": 3},
        "lightning_rl.errors:import_object",
        3,
        None,
    ],
)
def test_a_file_names_the_class_of_each_policy_and_nothing_else(entry: Any, tmp_path: Path) -> None:
    file = saved(several({"first": PPO_ENTRY}), tmp_path / "some.ckpt")
    content = torch.load(file, weights_only=True)
    content["policy"]["kwargs"]["policies"]["first"] = entry
    torch.save(content, file)
    for policy_id in (None, "first"):
        with pytest.raises(CheckpointError, match=r"policies\.first"):
            Policy.load(file, policy_id=policy_id)


def test_a_resumed_run_adds_no_policy_of_code_that_is_not_trusted() -> None:
    policy = several({"main": PPO_ENTRY})
    policy.add_policy("late", PPO_ENTRY, spaces_of="cart_0")
    content: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(content)
    content["policy"]["kwargs"]["policies"]["late"]["_target_"] = "strange_package:Policy"
    with pytest.raises(CheckpointError, match="trusted"):
        several({"main": PPO_ENTRY}).on_load_checkpoint(content)


def test_a_resumed_run_adds_no_policy_whose_id_divides_names() -> None:
    policy = several({"main": PPO_ENTRY})
    policy.add_policy("late", PPO_ENTRY, spaces_of="cart_0")
    content: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(content)
    entries = content["policy"]["kwargs"]["policies"]
    entries["late/1"] = entries.pop("late")
    resumed = several({"main": PPO_ENTRY})
    with pytest.raises(CheckpointError, match="the id 'late/1' has a"):
        resumed.on_load_checkpoint(content)
    assert list(resumed.policies) == ["main"]


def test_an_unknown_id_and_a_file_of_one_policy_are_refused(tmp_path: Path) -> None:
    file = saved(several({"first": PPO_ENTRY, "second": DQN_ENTRY}, FIRST_AND_SECOND), tmp_path / "some.ckpt")
    with pytest.raises(CheckpointError, match=r"'frist'.*'first'"):
        Policy.load(file, policy_id="frist")
    alone = PPO(*CARTPOLE.spaces(), model=SMALL)
    content: dict[str, Any] = {"state_dict": alone.state_dict()}
    alone.on_save_checkpoint(content)
    torch.save(content, tmp_path / "one.ckpt")
    with pytest.raises(CheckpointError, match=r"PPO.*policy_id='first'"):
        Policy.load(tmp_path / "one.ckpt", policy_id="first")


@pytest.mark.parametrize("missing", ["policies", "first", "counters"])
def test_a_file_without_the_entry_of_a_policy_is_refused(missing: str, tmp_path: Path) -> None:
    file = saved(several({"first": PPO_ENTRY, "second": DQN_ENTRY}, FIRST_AND_SECOND), tmp_path / "some.ckpt")
    content = torch.load(file, weights_only=True)
    parts = content["policies"]
    del {"policies": content, "first": parts, "counters": parts["first"]}[missing][missing]
    torch.save(content, file)
    for policy_id in (None, "first"):
        with pytest.raises(CheckpointError, match=r"policies\.first"):
            Policy.load(file, policy_id=policy_id)


def test_a_checkpoint_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    content = torch.load(saved(three(), tmp_path / "some.ckpt"), weights_only=True)
    assert content | version_entry() == content


def test_weights_that_are_not_finite_are_not_saved() -> None:
    """Parameters, and tensors among the weights of a policy without a model."""
    policy = three()
    policy.policies["third"].get_weights = lambda: {"table": torch.tensor([0.0, torch.nan])}
    with pytest.raises(NonFiniteError, match=r"weights\['third'\]\['table'\] .* hold NaN"):
        policy.on_save_checkpoint({"state_dict": policy.state_dict()})
    policy = three()
    next(policy.policies["second"].parameters()).data[0] = torch.inf
    with pytest.raises(NonFiniteError, match=r"policies\.second\..* hold NaN"):
        policy.on_save_checkpoint({"state_dict": policy.state_dict()})


def test_a_drawing_mapping_without_a_plain_form_is_refused_when_it_is_saved() -> None:
    """One that gives each agent the same policy in each episode is saved as these."""
    fixed = several({"first": PPO_ENTRY}, lambda agent: "first")
    assert fixed.spec()["kwargs"]["policy_mapping"] == {"cart_0": "first", "cart_1": "first"}
    names = ("first", "second")
    policy = several({name: PPO_ENTRY for name in names}, lambda agent, rng: names[int(rng.integers(2))])
    with pytest.raises(CheckpointError, match="policy_mapping"):
        policy.on_save_checkpoint({"state_dict": policy.state_dict()})


# -- frozen policies from a file ---------------------------------------------------------------------------------------
def test_a_policy_from_a_checkpoint_is_frozen_unless_it_is_named(tmp_path: Path) -> None:
    source = several({"first": PPO_ENTRY, "second": DQN_ENTRY}, FIRST_AND_SECOND)
    source.learn_on_batch(sample(source))
    file = saved(source, tmp_path / "some.ckpt")
    entries = {"main": PPO_ENTRY, "old": {"checkpoint": str(file), "policy_id": "first"}}
    mapping = {"cart_0": "main", "cart_1": "old"}
    policy = several(entries, mapping)
    assert policy.policies_to_train == ["main"]
    assert policy.policies["old"].env_steps == source.env_steps
    policy.learn_on_batch(sample(policy))
    assert_same(policy.policies["old"].get_weights(), source.policies["first"].get_weights())
    file.unlink()  # copies and checkpoints do not need the file again
    spaces_, keywords = policy.constructor_arguments()
    twin = MultiAgentPolicy(*spaces_, **keywords)
    assert twin.policies_to_train == ["main"] and type(twin.policies["old"]) is PPO
    saved(source, file)
    trained = several(entries, mapping, policies_to_train=["old"])
    trained.learn_on_batch(sample(trained))
    assert trained.policies["old"].gradient_steps > source.policies["first"].gradient_steps


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"checkpoint": "nowhere.ckpt"}, r"nowhere.ckpt"),
        ({"checkpoint": "some.ckpt", "lr": 1.0}, r"policies\.old\.lr beside checkpoint"),
        ({"checkpoint": "some.ckpt", "policy_id": "frist"}, "'frist'"),
        ({"checkpoint": "some.ckpt"}, r"policies\.old.*policy_id"),
    ],
)
def test_checkpoint_entries_that_cannot_work_are_refused(
    entry: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(several({"first": PPO_ENTRY}), tmp_path / "some.ckpt")
    with pytest.raises((ConfigError, CheckpointError), match=message):
        several({"main": PPO_ENTRY, "old": entry}, {"cart_0": "main", "cart_1": "old"})
