"""Checkpoints of the policies of several agents: resuming, loading all or one of them, and frozen ones from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from lightning_rl import MultiAgentBatch, Policy, PolicySet, ScratchPolicy
from lightning_rl.errors import CheckpointError, ConfigError, NonFiniteError
from lightning_rl.policies import DQN, PPO
from lightning_rl.policies.checkpoints import counters, read_checkpoint
from lightning_rl.run_directory.checkpoint_files import version_entry
from lightning_rl.sample_batch import SampleBatch, env_steps
from tests.envs.classic_control import CARTPOLE
from tests.policies.fits_and_files import assert_same, content_of, loader, saved, trainer_of
from tests.policies.several_agents import (
    DQN_ENTRY,
    FIRST_AND_SECOND,
    PPO_ENTRY,
    SMALL,
    fragment_of,
    ppo_and_dqn,
    sample,
    several,
    states_of,
    two_ppo,
)
from tests.refusals import not_refused


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


def three() -> PolicySet:
    entries = {"first": PPO_ENTRY, "second": DQN_ENTRY, "third": Counting}
    return several(entries, {**FIRST_AND_SECOND, "cart_2": "third"}, carts=3, seed=2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A checkpoint of a PPO and a DQN."""
    return saved(ppo_and_dqn(), tmp_path / "some.ckpt")


def fitted(policy: PolicySet, directory: Path, *batches: MultiAgentBatch, **keywords: Any) -> Trainer:
    """The Trainer that fitted the policy; with `resume`, from the checkpoint that `save_run` wrote."""
    trainer = trainer_of(directory, max_epochs=keywords.pop("epochs", 1))
    path = directory / "run.ckpt" if keywords.pop("resume", False) else None
    trainer.fit(policy, loader(*batches), ckpt_path=path, weights_only=True)
    if path is None:
        trainer.save_checkpoint(directory / "run.ckpt")
    return trainer


# -- resuming ---------------------------------------------------------------------------------------------------------
def test_a_resumed_run_continues_with_equal_weights_optimizers_and_counters(tmp_path: Path) -> None:
    """Adam's moments matter: without them the second epoch would end with other weights."""
    policy, resumed = three(), three()
    batches = [sample(policy, seed=seed) for seed in range(2)]
    trainer = fitted(policy, tmp_path, *batches)
    fitted(resumed, tmp_path, *batches, epochs=2, resume=True)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(policy, loader(*batches))
    assert resumed.policies["third"].rows == policy.policies["third"].rows > 0
    assert counters(resumed) == counters(policy)
    assert_same(states_of(resumed), states_of(policy))


def test_optimizer_states_belong_to_policies_not_to_places(tmp_path: Path) -> None:
    """The resumed run trains the policies in another order, and one that had no optimizer before."""
    entries, mapping = dict.fromkeys(("first", "second", "third"), PPO_ENTRY), {**FIRST_AND_SECOND, "cart_2": "third"}
    policy, resumed = (
        several(entries, mapping, carts=3, policies_to_train=trained)
        for trained in (["first", "second"], ["third", "second", "first"])
    )
    fitted(policy, tmp_path, sample(policy))
    fitted(resumed, tmp_path, sample(policy), resume=True)
    for name in ("first", "second"):
        states = [each.policies[name].get_state()["optimizer"] for each in (resumed, policy)]
        assert states[0]["state"] and states[1]["state"]
        assert_same(*states)
    assert not resumed.policies["third"].get_state()["optimizer"]["state"]


def test_a_resumed_run_has_the_policies_that_the_run_had_added(tmp_path: Path) -> None:
    policy, resumed = (
        several({"main": PPO_ENTRY, "other": "random"}, {"cart_0": "main", "cart_1": "other"}) for _ in range(2)
    )
    policy.learn_on_batch(sample(policy, "main"))
    snapshot = policy.policies["main"].copy_for_acting()
    policy.add_policy("main_1", snapshot, policy_mapping={"cart_0": "main", "cart_1": ["other", "main_1"]})
    policy.add_policy("learner", {**PPO_ENTRY, "lr": 1e-2}, trained=True, spaces_of="cart_1")
    fitted(policy, tmp_path, sample(policy, "main", "learner"))
    fitted(resumed, tmp_path, sample(policy), resume=True)
    assert list(resumed.policies) == ["main", "other", "main_1", "learner"]
    assert resumed.policies_to_train == ["main", "learner"] and resumed.agents_of("main_1") == ["cart_1"]
    assert counters(resumed) == counters(policy)
    assert_same(states_of(resumed), states_of(policy))


def test_a_resumed_run_without_further_policies_keeps_its_own_mapping() -> None:
    entries = {"first": PPO_ENTRY, "second": PPO_ENTRY}
    other = several(entries, {"cart_0": "second", "cart_1": "first"}, policies_to_train=["second"])
    other.on_load_checkpoint(content_of(two_ppo()))
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
    trainer = trainer_of(tmp_path)
    trainer.fit(policy, DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
    late = policy.policies["late"]
    assert late.gradient_steps > 0 and policy.policies["main"].gradient_steps == 2 * late.gradient_steps
    assert trainer.global_step == policy.gradient_steps
    assert trainer.optimizers[1] is late.learner.optimizer.torch_optimizer


def test_a_checkpoint_of_other_policies_is_refused() -> None:
    content, alone = content_of(three()), PPO(*CARTPOLE.spaces(), model=SMALL)
    entries = {"first": PPO_ENTRY, "fourth": DQN_ENTRY}
    two = several(entries, {"cart_0": "first", "cart_1": "fourth"})
    other = several(entries, {"cart_0": "first", "*": "fourth"}, carts=3)
    of_one = [
        {**content_of(alone), "policy": {**alone.spec(), "kwargs": kwargs}}
        for kwargs in (alone.spec()["kwargs"], {"policies": ["first"]}, None)
    ]
    cases = [
        (two, content, "observation_space"),
        (other, content, r"policies\.fourth.* absent"),
        *((other, each, r"PPO.*PolicySet") for each in of_one),
        (alone, content, r"PolicySet.*PPO"),
    ]
    assert not_refused(lambda policy, given: policy.on_load_checkpoint(given), cases, CheckpointError) == []


# -- loading ----------------------------------------------------------------------------------------------------------
def test_load_gives_all_policies_or_one_ready_to_act(tmp_path: Path) -> None:
    policy = three()
    for seed in range(2):
        policy.learn_on_batch(sample(policy, seed=seed))
    file = saved(policy, tmp_path / "some.ckpt")
    everything = Policy.load(file, trust=__name__)
    assert isinstance(everything, PolicySet) and counters(everything) == counters(policy)
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
    old = {"checkpoint": str(tmp_path), "policy_id": "first"}
    policy = several({"old": old, "new": PPO_ENTRY}, {"*": ["old", "new"]})
    assert policy.policies_to_train == ["new"]
    assert_same(policy.policies["old"].get_weights(), trained.policies["first"].get_weights())


def test_a_mapping_function_is_loaded_by_its_path_if_it_is_trusted(file: Path) -> None:
    policy = several({"first": PPO_ENTRY, "second": PPO_ENTRY}, alternate)
    loaded = Policy.load(saved(policy, file), trust=__name__)
    assert isinstance(loaded, PolicySet) and loaded.mapping.policy_of("cart_1") == "second"
    assert read_checkpoint(file)["policy"]["kwargs"]["policy_mapping"] == f"{__name__}:alternate"


def test_load_refuses_code_that_is_not_trusted(file: Path) -> None:
    """Of the policy that is loaded; another one of the same file is."""
    for place, path in (
        ("policy_mapping", "os:system"),
        ("policies.first._target_", "subprocess:Popen"),
        ("policies.first._target_", "strange_package:Policy"),
        ("policies.first.model.custom_model", "strange_package:Net"),
        ("policies.first.optimizer", "strange_package:Adam"),
    ):
        content = content_of(ppo_and_dqn())
        *parents, key = place.split(".")
        section = content["policy"]["kwargs"]
        for parent in parents:
            section = section[parent]
        section[key] = path
        saved(content, file)
        for policy_id in (None, "first") if parents else (None,):
            with pytest.raises(CheckpointError, match="trusted"):
                Policy.load(file, policy_id=policy_id)
    assert isinstance(Policy.load(file, policy_id="second"), DQN)
    assert isinstance(DQN.load(file, policy_id="second"), DQN)
    with pytest.raises(CheckpointError, match=r"PPO.load: .* holds a DQN: use DQN.load, or Policy.load"):
        PPO.load(file, policy_id="second")


@pytest.mark.parametrize("policy_id", [None, "first"])
def test_a_file_names_the_class_of_each_policy_and_nothing_else(policy_id: str | None, file: Path) -> None:
    """And holds an entry with counters of each."""
    content = content_of(ppo_and_dqn())
    spec, parts = content["policy"], content["policies"]
    entries = [
        {"checkpoint": "some.ckpt"}, {"_target_": "lightning_rl.policies:PPO", "checkpoint": "some.ckpt"},
        {"_target_": 3}, "lightning_rl.errors:import_object", 3, None,
    ]  # fmt: skip
    kwargs = [{**spec["kwargs"], "policies": {**spec["kwargs"]["policies"], "first": entry}} for entry in entries]
    without_counters = {name: value for name, value in parts["first"].items() if name != "counters"}
    wrong = [
        *({**content, "policy": {**spec, "kwargs": each}} for each in kwargs),
        {name: value for name, value in content.items() if name != "policies"},
        {**content, "policies": {"second": parts["second"]}},
        {**content, "policies": {**parts, "first": without_counters}},
    ]
    cases = [(each, r"policies\.first") for each in wrong]
    assert not_refused(lambda each: Policy.load(saved(each, file), policy_id=policy_id), cases, CheckpointError) == []


def test_a_resumed_run_adds_no_policy_of_code_that_is_not_trusted_or_whose_id_divides_names() -> None:
    policy = several({"main": PPO_ENTRY})
    policy.add_policy("late", PPO_ENTRY, spaces_of="cart_0")
    strange, divided = content_of(policy), content_of(policy)
    strange["policy"]["kwargs"]["policies"]["late"]["_target_"] = "strange_package:Policy"
    entries = divided["policy"]["kwargs"]["policies"]
    entries["late/1"] = entries.pop("late")
    resumed = several({"main": PPO_ENTRY})
    cases = [(strange, "trusted"), (divided, "the id 'late/1' has a")]
    assert not_refused(resumed.on_load_checkpoint, cases, CheckpointError) == []
    assert list(resumed.policies) == ["main"]


def test_an_unknown_id_and_a_file_of_one_policy_are_refused(file: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'frist'.*'first'"):
        Policy.load(file, policy_id="frist")
    saved(PPO(*CARTPOLE.spaces(), model=SMALL), file)
    with pytest.raises(CheckpointError, match=r"PPO.*policy_id='first'"):
        Policy.load(file, policy_id="first")


def test_a_checkpoint_names_the_version_that_wrote_it() -> None:
    assert content_of(three()).items() >= version_entry().items()


def test_weights_that_are_not_finite_are_not_saved() -> None:
    """Parameters, and tensors among the weights of a policy without a model."""
    table, parameters = three(), three()
    table.policies["third"].get_weights = lambda: {"table": torch.tensor([0.0, torch.nan])}
    next(parameters.policies["second"].parameters()).data[0] = torch.inf
    cases = [(table, r"weights\['third'\]\['table'\] .* hold NaN"), (parameters, r"policies\.second\..* hold NaN")]
    assert not_refused(content_of, cases, NonFiniteError) == []


def test_a_drawing_mapping_without_a_plain_form_is_refused_when_it_is_saved() -> None:
    """One that gives each agent the same policy in each episode is saved as these."""
    fixed = several({"first": PPO_ENTRY}, lambda agent: "first")
    assert fixed.spec()["kwargs"]["policy_mapping"] == {"cart_0": "first", "cart_1": "first"}
    names = ("first", "second")
    with pytest.raises(CheckpointError, match="policy_mapping"):
        content_of(several(dict.fromkeys(names, PPO_ENTRY), lambda agent, rng: names[int(rng.integers(2))]))


# -- frozen policies from a file ---------------------------------------------------------------------------------------
def test_a_policy_from_a_checkpoint_is_frozen_unless_it_is_named(file: Path) -> None:
    source = ppo_and_dqn()
    source.learn_on_batch(sample(source))
    saved(source, file)
    entries = {"main": PPO_ENTRY, "old": {"checkpoint": str(file), "policy_id": "first"}}
    mapping = {"cart_0": "main", "cart_1": "old"}
    policy, trained = several(entries, mapping), several(entries, mapping, policies_to_train=["old"])
    assert policy.policies_to_train == ["main"]
    assert policy.policies["old"].env_steps == source.env_steps
    policy.learn_on_batch(sample(policy))
    assert_same(policy.policies["old"].get_weights(), source.policies["first"].get_weights())
    file.unlink()  # copies and checkpoints do not need the file again
    spaces_, keywords = policy.constructor_arguments()
    twin = PolicySet(*spaces_, **keywords)
    assert twin.policies_to_train == ["main"] and type(twin.policies["old"]) is PPO
    trained.learn_on_batch(sample(trained))
    assert trained.policies["old"].gradient_steps > source.policies["first"].gradient_steps


def test_checkpoint_entries_that_cannot_work_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    cases = [
        ({"checkpoint": "nowhere.ckpt"}, r"nowhere.ckpt"),
        ({"checkpoint": "some.ckpt", "lr": 1.0}, r"policies\.old\.lr beside checkpoint"),
        ({"checkpoint": "some.ckpt", "policy_id": "frist"}, "'frist'"),
        ({"checkpoint": "some.ckpt"}, r"policies\.old.*policy_id"),
    ]

    def with_entry(entry: Any) -> PolicySet:
        return several({"main": PPO_ENTRY, "old": entry}, {"cart_0": "main", "cart_1": "old"})

    assert not_refused(with_entry, cases, (ConfigError, CheckpointError)) == []
