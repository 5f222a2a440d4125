"""build_policy: the class that they give, and when and how each hook is called."""

from __future__ import annotations

import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lightning_rl import Algorithm, Policy, RolloutWorker, SampleBatch, build_policy, rllib
from lightning_rl.cli import main
from lightning_rl.config import compose_config
from lightning_rl.config.groups import group_options
from lightning_rl.errors import CheckpointError, ConfigError, UnsupportedSpaceError, import_object
from lightning_rl.learning.policy_optimizer import PolicyOptimizer
from lightning_rl.models import Model
from lightning_rl.models.distributions import ActionDistribution, Categorical
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.policies import A2C, DQN, PG, PPO
from lightning_rl.policies.advantages import advantage_rows
from lightning_rl.rllib.build_policy import HOOKS
from lightning_rl.rllib.function_optimizer import FunctionOptimizer
from lightning_rl.schema.signatures import keywords_of
from tests.envs.classic_control import CARTPOLE
from tests.models.parameters import parameter_vector
from tests.refusals import not_refused
from tests.rollouts.small_worker import small_worker


def default_config() -> dict[str, Any]:
    return {"lr": 1e-2, "gamma": 0.5, "lambda": 0.9, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "grad_clip": 0.25}


def actor_critic_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    logits, _ = model.from_batch(train_batch)
    values = model.value_function()
    dist = dist_class(logits, model)
    policy.policy_error = -(train_batch["advantages"] * dist.logp(train_batch["actions"])).mean()
    policy.value_error = (values - train_batch["value_targets"]).square().mean()
    entropy = dist.entropy().mean()
    config = policy.config
    return policy.policy_error + config["vf_loss_coeff"] * policy.value_error - config["entropy_coeff"] * entropy


def loss_stats(policy: Any, train_batch: SampleBatch) -> dict[str, Any]:
    return {"policy_loss": policy.policy_error.item(), "vf_loss": policy.value_error.item(), "n": train_batch.count}


def add_advantages(policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None) -> Any:
    return advantage_rows(policy, sample_batch, policy.config["lambda"])


def value_predictions(policy: Any, input_dict: Any, state_batches: Any, model: Model, action_dist: Any) -> Any:
    assert input_dict["obs_flat"].shape == (len(action_dist.inputs), 4) and state_batches == []
    return {"acting_values": model.value_function()}


def clip_gradients(policy: Any, optimizer: torch.optim.Optimizer, loss: Tensor) -> dict[str, Any]:
    (group,) = optimizer.param_groups
    return {"grad_gnorm": torch.nn.utils.clip_grad_norm_(group["params"], policy.config["grad_clip"])}


def adam(policy: Any, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.Adam(policy.model.parameters(), lr=config["lr"])


class GreetingMixin:
    def greet(self) -> str:
        return f"hello from {type(self).__name__}"

    def after_iteration(self, metrics: dict[str, float]) -> None:
        metrics["mixed_in"] = 1.0


ActorCritic = build_policy(
    "ActorCritic", get_default_config=default_config, loss_fn=actor_critic_loss, stats_fn=loss_stats,
    postprocess_fn=add_advantages, extra_action_out_fn=value_predictions, extra_grad_process_fn=clip_gradients,
    optimizer_fn=adam, mixins=[GreetingMixin],
)  # fmt: skip


def half_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> list[Tensor]:
    loss, _ = PPO.loss(policy, train_batch)
    return [loss / 4, loss / 4]


HalfPPO = build_policy("AnotherName", base=PPO, loss_fn=half_loss)  # checkpoints name it by its variable


def sampled(policy: Any = None, **keywords: Any) -> SampleBatch:
    """A fragment of CartPole."""
    return small_worker(PPO(*CARTPOLE.spaces()) if policy is None else policy, **keywords).sample()


def built(base: Any, **hooks: Any) -> Any:
    """A policy of the base's class with these hooks."""
    keywords = {name: hooks.pop(name) for name in ("passes", "minibatches", "lr", "optimizer") if name in hooks}
    return build_policy("Built", base=base, **hooks)(*CARTPOLE.spaces(), **keywords)


# -- the class --------------------------------------------------------------------------------------------------------
def test_build_policy_gives_an_importable_subclass_of_policy_with_its_mixins() -> None:
    assert ActorCritic.__name__ == "ActorCritic" and ActorCritic.__module__ == __name__
    assert issubclass(ActorCritic, Policy) and issubclass(HalfPPO, PPO)
    policy: Any = ActorCritic(*CARTPOLE.spaces())
    assert isinstance(policy, Policy) and isinstance(policy, GreetingMixin)
    assert policy.greet() == "hello from ActorCritic"
    assert pickle.loads(pickle.dumps(ActorCritic)) is ActorCritic


def test_build_policy_takes_keyword_defaults_from_get_default_config() -> None:
    defaults = {name: keyword.default for name, keyword in keywords_of(ActorCritic).items()}
    of_base = set(keywords_of(Policy))
    assert set(defaults) == of_base and defaults["lr"] == 1e-2 and defaults["gamma"] == 0.5
    assert defaults["config"] == {"lambda": 0.9, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "grad_clip": 0.25}
    policy: Any = ActorCritic(*CARTPOLE.spaces(), {"lambda": 0.2}, gamma=0.7)
    assert policy.gamma == policy.config["gamma"] == 0.7 and policy.config["lambda"] == 0.2
    assert policy.config["grad_clip"] == 0.25 and policy.config["seed"] == 0
    assert set(keywords_of(HalfPPO)) == set(keywords_of(PPO)) and HalfPPO(*CARTPOLE.spaces(), clip=0.1).clip == 0.1


def test_a_derived_class_adds_hooks_and_leaves_its_base_unchanged() -> None:
    third: Any = build_policy("Third", base=HalfPPO, stats_fn=lambda policy, batch: {"one": 1})
    assert issubclass(third, HalfPPO) and set(third.hooks) == {"loss_fn", "stats_fn"}
    assert set(HalfPPO.hooks) == {"loss_fn"}
    assert third(*CARTPOLE.spaces(), passes=1, minibatches=1).learn_on_batch(sampled())["one"] == 1.0


# -- each function ----------------------------------------------------------------------------------------------------
def test_hooks_of_an_actor_critic_record_postprocess_clip_report_and_step() -> None:
    """Adam's first step is as long as the learning rate."""
    policy: Any = ActorCritic(*CARTPOLE.spaces(), seed=1)
    fragment = sampled(policy)
    assert fragment["acting_values"].shape == (16, 4)
    torch.testing.assert_close(fragment["acting_values"], policy.values(fragment.obs)[:-1])
    before = parameter_vector(policy)
    metrics = policy.learn_on_batch(fragment)
    assert metrics["grad_norm"] == pytest.approx(0.25, rel=1e-3) and metrics["grad_gnorm"] > 0.25
    assert metrics["vf_loss"] > 0 and metrics["n"] == int(fragment.valid.sum()) and metrics["mixed_in"] == 1.0
    assert metrics["lr"] == 1e-2 and isinstance(policy.learner.optimizer.torch_optimizer, torch.optim.Adam)
    assert 0 < (parameter_vector(policy) - before).abs().max() <= 0.0101


def test_loss_fn_learns_what_an_equal_loss_method_learns() -> None:
    """A2C's loss as a method and as a function, with a recurrent model, gives equal weights."""

    def loss(policy: Any, model: Any, dist_class: Any, batch: SampleBatch) -> Any:
        logits, _ = model(batch)
        logp, values = dist_class(logits).logp(batch.actions), model.value_function()
        policy_loss = -(logp * batch.advantages).mean()
        return policy_loss + 0.5 * (values - batch.value_targets).square().mean(), {"policy_loss": policy_loss}

    ends = []
    for cls in (A2C, build_policy("Same", base=A2C, loss_fn=loss)):
        policy = cls(*CARTPOLE.spaces(), model={"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}, seed=1)
        source = small_worker(policy)
        for _ in range(2):
            policy.learn_on_batch(source.sample())
        ends.append(parameter_vector(policy))
    torch.testing.assert_close(*ends)


def test_dist_class_in_loss_fn_applies_the_batch_s_action_mask() -> None:
    """An action that is the only allowed one has probability 1."""
    rows = SampleBatch(obs=torch.zeros(3, 4), action_mask=torch.tensor([[True, False]] * 3))

    def loss(policy: Any, model: Any, dist_class: Any, batch: SampleBatch) -> Tensor:
        return dist_class(model(batch)[0], model).logp(torch.zeros(3, dtype=torch.int64)).sum()

    assert built(PPO, loss_fn=loss).loss(rows)[0].item() == pytest.approx(0.0, abs=1e-6)


ACTING_AND_GRADIENTS = {"action_sampler_fn": adam, "compute_gradients_fn": adam}


@pytest.mark.parametrize(
    ("base", "hooks", "overridden", "has_loss"),
    [
        (Policy, {"loss_fn": actor_critic_loss}, set(), True),
        (Policy, {"compute_gradients_fn": adam}, {"compute_gradients"}, False),
        (PPO, {"postprocess_fn": add_advantages}, set(), True),
        (PPO, {"loss_fn": actor_critic_loss}, set(), True),
        (PPO, {"apply_gradients_fn": adam}, {"apply_gradients"}, True),
        (PPO, ACTING_AND_GRADIENTS, {"compute_actions", "compute_gradients"}, True),
    ],
)
def test_a_class_says_which_methods_its_hooks_replace(base: Any, hooks: Any, overridden: Any, has_loss: bool) -> None:
    found = build_policy("Built", base=base, **hooks)
    assert found.overridden == overridden and found.has_loss == has_loss


def test_gradient_steps_are_the_package_s_own_without_hooks_that_change_them() -> None:
    assert type(built(PPO, loss_fn=actor_critic_loss).learner.optimizer) is PolicyOptimizer
    assert type(built(PPO, optimizer_fn=adam).learner.optimizer) is FunctionOptimizer


def test_hooks_are_called_in_rllib_s_order() -> None:
    calls: list[str] = []

    def recording(name: str, result: Any) -> Any:
        def function(*arguments: Any) -> Any:
            calls.append(name)
            return result(*arguments) if callable(result) else result

        return function

    def make_model(policy: Any, obs_space: Any, action_space: Any, config: Any) -> Model:
        return FullyConnectedNetwork(obs_space, action_space, 2, fcnet_hiddens=[3])

    building = {"validate_spaces": None, "before_init": None, "make_model": make_model, "before_loss_init": None}
    learning = {
        "optimizer_fn": lambda policy, config: torch.optim.SGD(policy.parameters(), lr=0.1),
        "postprocess_fn": lambda policy, batch, *_: PG.postprocess_trajectory(policy, batch),
        "loss_fn": lambda policy, model, dist_class, batch: PG.loss(policy, batch)[0],
        "stats_fn": {},
        "extra_grad_process_fn": {},
        "extra_learn_fetches_fn": {"fetched": 2.0},
    }
    hooks = {**building, "_after_loss_init": None, "extra_action_out_fn": {}, **learning}
    policy = built(PG, **{name: recording(name, result) for name, result in hooks.items()})
    assert calls == [*building, "_after_loss_init"]
    RolloutWorker(CARTPOLE, policy, fragment_length=1).sample()
    policy.learn_on_batch(RolloutWorker(CARTPOLE, PG(*CARTPOLE.spaces()), fragment_length=9).sample())
    assert calls == list(hooks)
    assert policy.model.trunk is not None and policy.iteration_metrics["fetched"] == 2.0


def test_compute_gradients_fn_and_apply_gradients_fn_replace_the_gradient_step() -> None:
    def compute(policy: Any, batch: SampleBatch) -> Any:
        return [torch.ones_like(p) for p in policy.parameters()], {"loss": 3.0}

    def apply(policy: Any, gradients: Any) -> None:
        with torch.no_grad():
            for parameter, gradient in zip(policy.parameters(), gradients, strict=True):
                parameter -= gradient

    policy = build_policy("ByHand", compute_gradients_fn=compute, apply_gradients_fn=apply)(*CARTPOLE.spaces(), seed=1)
    before = parameter_vector(policy)
    metrics = policy.learn_on_batch(sampled(policy))
    torch.testing.assert_close(parameter_vector(policy), before - 1)
    assert metrics["loss"] == 3.0 and policy.gradient_steps == 1


def test_action_sampler_fn_replaces_sampling_in_eval_mode_without_gradient() -> None:
    modes: list[bool] = []

    def sampler(policy: Any, model: Any, inputs: Any, state: Any, *, explore: bool, timestep: int) -> Any:
        modes.append(policy.training)
        outputs, _ = model(inputs)
        return torch.full((len(outputs),), int(explore)), outputs.amax(1), []

    policy = built(PPO, action_sampler_fn=sampler)
    for explore in (True, False):
        fragment = sampled(policy, explore=explore)
        assert bool((fragment.actions == int(explore)).all()) and fragment.action_logp.any()
    _, _, columns = policy.train().compute_actions(np.ones((3, 4), np.float32))
    assert not any(modes) and not columns["action_logp"].requires_grad and policy.training


def test_action_distribution_fn_replaces_the_distribution() -> None:
    """Logits of 0 and 20 give action 1 the probability 1."""

    def distribution(policy: Any, model: Any, input_dict: Any, **given: Any) -> Any:
        outputs, _ = model(input_dict)
        assert given["state_batches"] == [] and given["is_training"] is False
        return torch.stack([outputs[:, 0] * 0, outputs[:, 0] * 0 + 20], dim=1), policy.dist_class, []

    policy = built(PPO, action_distribution_fn=distribution)
    assert bool((sampled(policy).actions == 1).all())
    for mode in (False, True):
        policy.train(mode).compute_actions(np.zeros((2, 4), np.float32), [])
        assert policy.training is mode


def test_action_distribution_fn_of_observations_gets_them() -> None:
    def distribution(policy: Any, model: Any, obs_batch: Any, *, explore: bool, is_training: bool, **given: Any) -> Any:
        assert obs_batch.shape[1:] == (4,) and not is_training and not given.get("state_batches")
        return torch.stack([obs_batch[:, 0] * 0, obs_batch[:, 0] * 0 + 20], dim=1), policy.dist_class, []

    assert bool((sampled(built(PPO, action_distribution_fn=distribution)).actions == 1).all())


def test_postprocess_fn_may_change_its_batch_and_the_fragment_stays_as_it_was() -> None:
    def postprocess(policy: Any, sample_batch: SampleBatch, *others: Any) -> SampleBatch:
        sample_batch["rewards"] = sample_batch.rewards + 1.0
        return sample_batch

    policy = built(PG, postprocess_fn=postprocess)
    fragment = sampled(policy)
    before = fragment.rewards
    assert bool((policy.postprocess_trajectory(fragment).rewards == 2.0).all()) and fragment.rewards is before


# -- what the class takes from its base -------------------------------------------------------------------------------
def squares(policy: Any, model: Any, dist_class: Any, batch: SampleBatch) -> Tensor:
    return model(batch)[0].square().mean()


def test_build_policy_gives_the_class_the_caller_s_module_or_the_named_one() -> None:
    """And `PPOTorchPolicy.with_updates` the base's name, unless one is given."""
    assert build_policy("Here", loss_fn=squares).__module__ == __name__
    assert build_policy("There", loss_fn=squares, module="my_pkg.mine").__module__ == "my_pkg.mine"
    derived = rllib.PPOTorchPolicy.with_updates(loss_fn=squares)
    assert (derived.__name__, derived.__module__) == (
        "PPOTorchPolicy",
        __name__,
    ) and derived is not rllib.PPOTorchPolicy
    assert build_policy("Other", base=PPO, loss_fn=squares).__name__ == "Other"


def test_build_policy_supports_recurrent_models_as_its_base_does() -> None:
    """A class with its own loss_fn only supports them."""
    memory = {"use_lstm": True, "lstm_cell_size": 8}
    for policy_class in (build_policy("Free", loss_fn=squares), build_policy("Theirs", base=A2C, loss_fn=squares)):
        assert policy_class(*CARTPOLE.spaces(), model=memory).is_recurrent
    with pytest.raises(UnsupportedSpaceError, match="Feedforward"):
        build_policy("Feedforward", base=DQN, stats_fn=len)(*CARTPOLE.spaces(), model=memory)


@pytest.mark.parametrize("changed", [{"lr": 0.5, "mine": 3}, {"lr": 0.5}, {}])
def test_the_class_has_the_base_s_signature_with_defaults_of_get_default_config(changed: dict[str, Any]) -> None:
    """Keys that the base does not have become the default of `config`."""
    derived = build_policy("Changed", base=A2C, get_default_config=lambda: changed)
    before, after = keywords_of(A2C), inspect.signature(derived.__init__).parameters
    places = ["self", "observation_space", "action_space", "config"]
    assert list(after)[:4] == places and set(after) - {*places} == before.keys() - {*places}
    assert after["config"].default == ({"mine": 3} if "mine" in changed else None)
    for name in before.keys() - {*places}:
        assert after[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert after[name].default == changed.get(name, before[name].default)
    assert derived.__init__.__annotations__["gae_lambda"] == before["gae_lambda"].annotation
    with pytest.raises(ConfigError, match=r"policy\.gae_lambda=2\.0"):
        derived(*CARTPOLE.spaces(), gae_lambda=2.0)


def test_make_model_and_action_dist_gives_model_and_distribution() -> None:
    class OtherNetwork(FullyConnectedNetwork):
        """A class that the catalog does not give."""

    def both(policy: Any, obs_space: Any, action_space: Any, config: Any) -> Any:
        return OtherNetwork(obs_space, action_space, 2, fcnet_hiddens=[3]), Categorical

    policy = built(PG, make_model_and_action_dist=both)
    assert type(policy.model) is OtherNetwork and policy.dist_class is Categorical


# -- acting and losses by functions -----------------------------------------------------------------------------------


def test_loss_fn_may_return_a_scalar_a_list_a_tuple_or_a_pair_with_metrics() -> None:
    three, five, seven = torch.tensor([3.0, 5.0, 7.0])
    for answer, expected, reported in (
        (three, 3.0, {}),
        ([three, five, seven], 15.0, {}),
        ((three, five), 8.0, {}),
        ((three,), 3.0, {}),
        ((three, {"five": 5}), 3.0, {"five": torch.tensor(5)}),
    ):
        policy = build_policy("Formed", loss_fn=lambda *_: answer)(*CARTPOLE.spaces())  # noqa: B023
        loss, metrics = policy.loss(SampleBatch(obs=torch.zeros(2, 4)))
        assert loss.item() == expected and metrics == reported


def test_the_base_s_batch_metrics_are_left_out_with_an_own_postprocess_fn_and_loss_fn() -> None:
    """Explained variance needs the columns of values and targets."""
    fragment = sampled(A2C(*CARTPOLE.spaces()))
    own = {"postprocess_fn": lambda policy, batch: PG.postprocess_trajectory(policy, batch), "loss_fn": squares}
    for hooks, reported in (({"stats_fn": lambda policy, batch: {}}, True), (own, False)):
        assert ("explained_variance" in built(A2C, **hooks).learn_on_batch(fragment)) is reported


RARE = {"number": 1.0, "rare": 7.0}


@pytest.mark.parametrize(
    ("passes", "reports", "means"),
    [
        (2, [{"number": number} for number in (1.0, 2.0, 3.0, 4.0)], {"number": 2.5}),
        (1, [RARE, {"number": 3.0}], {"number": 2.0, "rare": 7.0}),
        (1, [{"number": 3.0}, RARE], {"number": 2.0, "rare": 7.0}),
    ],
)
def test_metrics_of_compute_gradients_fn_are_means_over_the_minibatches_that_report_them(
    passes: int, reports: list[dict[str, float]], means: dict[str, float]
) -> None:
    left = iter(reports)

    def compute(policy: Any, batch: SampleBatch) -> Any:
        return [torch.zeros_like(p) for p in policy.parameters()], next(left)

    policy = built(PPO, compute_gradients_fn=compute, passes=passes, minibatches=2)
    learned = policy.learn_on_batch(sampled())
    assert means.items() <= learned.items() and policy.gradient_steps == len(reports)


# -- optimizers and gradients by functions ----------------------------------------------------------------------------
def test_the_learning_rate_is_that_of_optimizer_fn_s_optimizer_or_of_the_schedule() -> None:
    """SGD with rate 0.5 whatever `lr` is; without `optimizer_fn` the schedule is at half of 0.1 after one fragment."""
    rates: list[float] = []

    def sgd(policy: Any, config: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(policy.parameters(), lr=0.5)

    def nothing(policy: Any, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        rates.append(optimizer.param_groups[0]["lr"])

    fragment = sampled(PG(*CARTPOLE.spaces()))
    falling = [[0, 0.1], [2 * int(fragment.valid.sum()), 0.0]]
    assert built(PG, optimizer_fn=sgd, lr=0.1).learn_on_batch(fragment)["lr"] == 0.5
    metrics = built(PG, extra_grad_process_fn=nothing, lr=falling).learn_on_batch(fragment)
    assert [metrics["lr"], *rates] == pytest.approx([0.05, 0.05])


def test_parameter_groups_of_optimizer_fn_may_have_an_interval_every() -> None:
    """A group with `every=2` steps at every second gradient step."""

    def sgd(policy: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": list(policy.parameters()), "every": 2}], lr=0.5)

    policy = built(PG, optimizer_fn=sgd)
    fragment, changed = sampled(policy), []
    for _ in range(4):
        before = parameter_vector(policy)
        policy.learn_on_batch(fragment)
        changed.append(not torch.equal(parameter_vector(policy), before))
    assert changed == [False, True, False, True]


def test_extra_grad_process_fn_gets_the_loss_and_may_return_none() -> None:
    seen: list[Tensor] = []

    def process(policy: Any, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        seen.append(loss.detach())

    policy = built(PPO, extra_grad_process_fn=process, passes=1, minibatches=1)
    assert policy.learn_on_batch(sampled(policy))["loss"] == pytest.approx(seen[0].item())
    assert policy.learner.optimizer.info == {} and len(seen) == 1


class UsersSGD(torch.optim.SGD):
    """An optimizer that may not treat each number separately, so it gets no flat tensor."""


def test_a_user_s_optimizer_gets_a_list_of_parameters_with_extra_grad_process_fn_too() -> None:
    policy = built(PG, extra_grad_process_fn=lambda policy: {}, optimizer=f"{__name__}:UsersSGD")
    (group,) = policy.learner.optimizer.torch_optimizer.param_groups
    assert [p.shape for p in group["params"]] == [p.shape for p in policy.parameters()]


def test_apply_gradients_works_without_a_loss_computed_before() -> None:
    here, there = (built(PG, stats_fn=lambda policy, batch: {}) for _ in range(2))
    gradients, _ = there.compute_gradients(sampled(there))
    here.apply_gradients(gradients)
    assert here.gradient_steps == 1


# -- mistakes ---------------------------------------------------------------------------------------------------------
def test_build_policy_names_unknown_and_wrong_hooks() -> None:
    cases = [
        ({"los_fn": len}, r"'los_fn'.*'loss_fn'"),
        ({"loss_fn": 3}, r"loss_fn=3; expected a function \(policy, model, dist_class, train_batch\)"),
        ({"stats_fn": loss_stats}, "give loss_fn"),
    ]
    assert not_refused(lambda hooks: build_policy("Wrong", **hooks), cases) == []


def test_the_error_for_a_hook_s_wrong_result_names_the_hook() -> None:
    cases = [
        ({"loss_fn": lambda *_: torch.zeros(2)}, "loss_fn returned"),
        ({"loss_fn": lambda *_: 1.5}, r"loss_fn returned 1\.5; expected a scalar tensor"),
        ({"make_model": lambda *_: torch.nn.Linear(4, 2)}, "expected a lightning_rl.models.Model"),
        ({"postprocess_fn": lambda *_: {}}, "postprocess_fn returned dict; expected a SampleBatch"),
        ({"optimizer_fn": lambda policy: [1]}, r"optimizer_fn returned \[1\]; expected one torch.optim.Optimizer"),
    ]
    assert not_refused(lambda hooks: built(PPO, **hooks).learn_on_batch(sampled()), cases) == []


def test_every_hook_has_a_description_of_its_arguments() -> None:
    assert all(text.startswith("(") for text in HOOKS.values())


# -- runs, workers, checkpoints ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["ActorCritic", "HalfPPO"])
def test_a_built_policy_trains_from_the_command_line_and_loads_from_its_checkpoint(name: str, tmp_path: Path) -> None:
    overrides = ["env=cartpole", "total_env_steps=512", "workers.envs_per_worker=4", "workers.fragment_length=32"]
    assert main(["train", f"policy={__name__}:{name}", *overrides, f"run_dir={tmp_path / 'run'}", "logger=none"]) == 0
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "ok" and status["env_steps"] >= 512
    loaded = Policy.load(str(tmp_path / "run" / "checkpoints" / "last.ckpt"))
    assert type(loaded) is import_object(f"{__name__}:{name}")
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0


def test_the_command_line_checks_a_built_policy_s_keywords_and_config_keys() -> None:
    config = compose_config([f"policy={__name__}:ActorCritic", "policy.config.lambda=0.5", "policy.gamma=0.9"])
    policy = config["policy"]
    assert policy["config"]["lambda"] == 0.5 and policy["gamma"] == 0.9 and policy["lr"] == 1e-2
    assert policy["model"] == config["model"]
    with pytest.raises(ConfigError, match=r"'policy.gama'.*'policy.gamma'"):
        compose_config([f"policy={__name__}:ActorCritic", "policy.gama=0.9"])
    assert all(":" not in name for name in group_options("policy"))


def test_a_policy_derived_from_a2c_gets_a2c_s_config_groups() -> None:
    config, shipped = (
        compose_config([choice, "experiment=none"]) for choice in (f"policy._target_={__name__}:Derived", "policy=a2c")
    )
    assert config["workers"]["fragment_length"] == shipped["workers"]["fragment_length"] == 64
    assert config["policy"]["_target_"] == f"{__name__}:Derived" and config["policy"]["microbatches"] == 1


Derived = build_policy("Derived", base=A2C, stats_fn=lambda policy, batch: {})


def of_local_functions(directory: Path, *overrides: str, **hooks: Any) -> Algorithm:
    """A policy without an import path that has learned for an iteration."""

    def stats(policy: Any, batch: SampleBatch) -> dict[str, Any]:
        return {"two": 2}

    local = build_policy("Local", base=HalfPPO, stats_fn=stats, **hooks)
    keys = [f"run_dir={directory}", "workers.fragment_length=16", *overrides]
    algorithm = Algorithm(local, "CartPole-v1", overrides=keys)
    assert algorithm.train()["train/two"] == 2.0
    return algorithm


def test_load_names_a_class_that_cannot_be_imported_and_accepts_it_as_an_argument(tmp_path: Path) -> None:
    algorithm = of_local_functions(tmp_path)
    path = str(algorithm.save())
    algorithm.stop()
    with pytest.raises(CheckpointError, match=r"class='.*:Local'.*Policy.load\(path, policy_class=…"):
        Policy.load(path)
    assert isinstance(Policy.load(path, policy_class=type(algorithm.policy)), HalfPPO)


@pytest.mark.ray
def test_a_built_policy_of_local_functions_acts_in_worker_processes(tmp_path: Path) -> None:
    of_local_functions(tmp_path, "workers.num_workers=2", extra_action_out_fn=value_predictions).stop()


def test_compute_log_likelihoods_of_a_built_policy_gives_the_recorded_action_logp() -> None:
    policy: Any = ActorCritic(*CARTPOLE.spaces(), seed=2)
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    actions, _, extra = policy.compute_actions(obs)
    assert isinstance(policy.distribution_of(SampleBatch(obs=torch.from_numpy(obs))), ActionDistribution)
    torch.testing.assert_close(policy.compute_log_likelihoods(actions, obs), extra["action_logp"])
