"""MADDPG and MATD3: losses against slow references, gradients, masks, decentralised actors, whole runs."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.models import FullyConnectedNetwork, Model
from lightning_rl.policies import MADDPG, MATD3, Policy
from lightning_rl.runs.algorithm import Algorithm
from lightning_rl.sample_batch import SampleBatch, from_nested_batch
from tests.families import first
from tests.models.parameters import parameter_vector
from tests.refusals import not_refused

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
MASKED = spaces.Dict({"action_mask": spaces.MultiBinary(4), "x": spaces.Box(-1.0, 1.0, (2,), np.float32)})
# A continuous member, one whose own observation has a mask, and one with a Discrete observation.
OBS = spaces.Dict(
    {
        "agents": spaces.Tuple([VECTOR, MASKED, spaces.Discrete(5)]),
        "present": spaces.MultiBinary(3),
        "state": spaces.Box(-1.0, 1.0, (2,), np.float32),
    }
)
ACTIONS = spaces.Tuple([spaces.Box(-2.0, 2.0, (2,), np.float32), spaces.Discrete(4), spaces.Discrete(3, start=1)])
SIZES = [2, 4, 3]
OWNERS = [0, 0, 1, 1, 1, 1, 2, 2, 2]
MODEL = {"fcnet_hiddens": [16], "fcnet_activation": "tanh"}
CASES: dict[str, tuple[type[MADDPG], dict[str, Any]]] = {
    "maddpg": (MADDPG, {}),
    "maddpg, shared": (MADDPG, {"shared_critic": True}),
    "matd3": (MATD3, {"policy_delay": 1}),
    "matd3, shared": (MATD3, {"policy_delay": 1, "shared_critic": True}),
}
each_case = pytest.mark.parametrize("name", CASES)


def made(name: str = "maddpg", **changes: Any) -> Any:
    """A small policy, whose target networks differ from those that they follow."""
    policy_class, keywords = CASES[name]
    policy = policy_class(OBS, ACTIONS, **{"model": MODEL, **keywords, **changes})
    for target in (policy.target_model, policy.target_critic):
        for parameter in target.parameters():
            parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return policy


def observations(count: int, seed: int, present: Tensor | None = None) -> Any:
    generator = torch.Generator().manual_seed(seed)
    masks = (torch.rand(count, 4, generator=generator) < 0.6).to(torch.int8)
    masks[:, 1] = 1
    agents = (
        torch.rand(count, 3, generator=generator),
        {"action_mask": masks, "x": torch.rand(count, 2, generator=generator)},
        torch.randint(5, (count,), generator=generator),
    )
    present = torch.ones(count, 3, dtype=torch.int8) if present is None else present
    return SampleBatch(agents=agents, present=present, state=torch.rand(count, 2, generator=generator))


def transitions(count: int = 6, present: Tensor | None = None) -> Any:
    """Rows in whose next observations other members are present: those of the rows from the last to the first."""
    generator = torch.Generator().manual_seed(1)
    actions = (
        torch.rand(count, 2, generator=generator) * 2 - 1,
        torch.ones(count, dtype=torch.int64),
        torch.randint(3, (count,), generator=generator),
    )
    return SampleBatch(
        obs=observations(count, 2, present),
        next_obs=observations(count, 3, None if present is None else present.flip(0)),
        actions=actions,
        rewards=torch.randn(count, generator=generator),
        terminated=torch.arange(count) % 3 == 0,
        discounts=torch.full((count,), 0.9),
    )


# -- a slow reference --------------------------------------------------------------------------------------------------
def member_vector(obs: Any, member: int) -> Tensor:
    """One member's observation of one row as a vector."""
    if member == 0:
        return obs["agents"][0]
    if member == 1:
        own = obs["agents"][1]
        return torch.cat([own["action_mask"].float(), own["x"]])
    return torch.eye(5)[obs["agents"][2]]


def actor_output(actors: Any, obs: Any, member: int) -> Tensor:
    network = actors.actors[member]
    hidden = torch.tanh(network.trunk.layers[0](member_vector(obs, member)))
    logits = network.head.linear(hidden)
    if member == 1:
        return torch.where(obs["agents"][1]["action_mask"].bool(), logits, torch.tensor(-torch.inf))
    return logits


def q_value(critic: Any, number: int, obs: Any, actions: list[Tensor]) -> Tensor:
    """One critic's Q-value of one row: a network of one hidden layer."""
    everything = [*(member_vector(obs, member) for member in range(3)), obs["present"].float(), obs["state"]]
    weights, biases = critic.networks.weights, critic.networks.biases
    x = torch.cat([*everything, *actions])
    hidden = torch.tanh(x @ weights[0][number] + biases[0][number, 0])
    return (hidden @ weights[1][number] + biases[1][number, 0])[0]


def rows_of(policy: Any, obs: SampleBatch) -> list[Any]:
    return [from_nested_batch(OBS, obs[row]) for row in range(obs.count)]


def slow_loss(policy: Any, batch: Any, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """The loss as algorithm 1 of the papers, row by row, with the random numbers in the order of the policy's.

    Also the mean absolute TD error of each row, and the mean of all Q-values.
    """
    torch.manual_seed(seed)
    count, members = batch.count, range(3)
    critics_of = [0, 0, 0] if policy.shared_critic else [0, 1, 2]
    noise = [torch.randn(count, 2) if policy.target_noise else torch.zeros(count, 2)]
    races = [torch.empty(count, size).exponential_() if policy.target_noise else None for size in (4, 3)]
    gumbel = [-torch.empty(count, size).exponential_().log() for size in (4, 3)]
    each = list(zip(rows_of(policy, batch.obs), rows_of(policy, batch.next_obs), strict=True))
    value_loss, policy_loss = torch.zeros(()), torch.zeros(())
    judged: list[list[Tensor]] = [[] for _ in range(count)]
    missed: list[list[Tensor]] = [[] for _ in range(count)]
    here = batch.obs.present.float()
    for row, (obs, next_obs) in enumerate(each):
        there = next_obs["present"].float()
        following = []
        for member in members:
            output = actor_output(policy.target_model, next_obs, member)
            if member == 0:
                smooth = (noise[0][row] * policy.target_noise).clamp(-0.5, 0.5)
                action = (output.tanh() + smooth).clamp(-1, 1)
            else:
                race = races[member - 1]
                best = output.argmax() if race is None else (output.softmax(0) / race[row]).argmax()
                action = torch.eye(SIZES[member])[best]
            following.append(action * there[member])
        taken = [batch.actions["0"][row], torch.eye(4)[batch.actions["1"][row]], torch.eye(3)[batch.actions["2"][row]]]
        taken = [action * here[row, member] for member, action in enumerate(taken)]
        for number in sorted(set(critics_of)):
            lowest = min(q_value(critic, number, next_obs, following) for critic in policy.target_critic)
            target = batch.rewards[row] + 0.9 * lowest * (not batch.terminated[row])
            for critic in policy.critic:
                value = q_value(critic, number, obs, taken)
                judged[row].append(value.detach())
                missed[row].append((value - target).abs().detach())
                value_loss = value_loss + 0.5 * (value - target.detach()) ** 2 / count
        frozen = copy.deepcopy(policy.critic[0]).requires_grad_(False)
        for member in members:
            output = actor_output(policy.model, obs, member)
            if member == 0:
                action = output.tanh()
            else:
                relaxed = (output.log_softmax(0) + gumbel[member - 1][row]).softmax(0)
                action = torch.eye(SIZES[member])[relaxed.argmax()] + relaxed - relaxed.detach()
            joint = [action * here[row, member] if other == member else taken[other] for other in members]
            share = here[row, member] / here[:, member].sum().clamp(min=1)
            policy_loss = policy_loss - q_value(frozen, critics_of[member], obs, joint) * share
            raw = torch.where(output.isfinite(), output, 0.0)
            if member == 1:  # the penalty is that of the network's outputs, before the mask
                network = policy.model.actors[1]
                raw = network.head.linear(torch.tanh(network.trunk.layers[0](member_vector(obs, 1))))
            policy_loss = policy_loss + policy.output_penalty * raw.square().mean() / count
    q_values, errors = (torch.tensor(each) for each in (judged, missed))  # [N, critics · M]
    return value_loss + policy_loss, errors.mean(1), q_values.mean()


PRESENT = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.int8)
RARE = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]], dtype=torch.int8)
NEVER = torch.tensor([[1, 1, 0]] * 6, dtype=torch.int8)
PRESENCES = {"all present": None, "some absent": PRESENT, "one in a single row": RARE, "one in no row": NEVER}


@each_case
@pytest.mark.parametrize("present", PRESENCES.values(), ids=PRESENCES)
def test_loss_and_gradients_equal_the_slow_reference(name: str, present: Tensor | None) -> None:
    policy, batch = made(name, output_penalty=0.1), transitions(present=present)
    parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    expected, td_errors, q_mean = slow_loss(policy, batch, seed=11)
    wanted = torch.autograd.grad(expected, parameters, allow_unused=True)
    torch.manual_seed(11)
    loss, metrics = policy.loss(batch)
    given = torch.autograd.grad(loss, parameters, allow_unused=True)
    assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    assert_close(loss, metrics["value_loss"] + metrics["policy_loss"] + 0.1 * metrics["squared_outputs"])
    assert_close(metrics["td_errors"], td_errors, atol=1e-5, rtol=1e-5)
    assert not metrics["td_errors"].requires_grad
    assert_close(metrics["q_mean"], q_mean, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(given, wanted, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@each_case
def test_the_actors_loss_of_a_group_without_presence_is_that_of_one_whose_members_are_all_there(name: str) -> None:
    policy, batch = made(name), transitions()
    inputs, actions = policy.inputs_of(batch), policy.action_vectors(batch.actions)
    losses = []
    for present in (None, torch.ones(6, 3, dtype=torch.bool)):
        torch.manual_seed(0)
        losses.append(policy.policy_loss(batch, inputs, actions, present)[0])
    assert_close(*losses)


# -- gradients ---------------------------------------------------------------------------------------------------------
def test_matd3_delays_the_actors_and_the_targets() -> None:
    policy, found = made("matd3", policy_delay=3), []
    parts = ("critic", "model", "target_model", "target_critic")
    for _ in range(6):
        before = {part: parameter_vector(getattr(policy, part)) for part in parts}
        metrics = policy.learn_on_batch(transitions())
        moved = [not torch.equal(before[part], parameter_vector(getattr(policy, part))) for part in parts]
        found.append(["policy_loss" in metrics, *moved])
    resting, learning = [False, True, False, False, False], [True] * 5
    assert found == [resting, resting, learning] * 2


# -- acting ------------------------------------------------------------------------------------------------------------
EXPLORATION = {"type": "group_noise"}


@pytest.mark.parametrize("explore", [False, True])
def test_an_actor_sees_only_its_own_observation(explore: bool) -> None:
    """Everything but a member's own observation is replaced: its actions stay, and the others' change."""
    policy = made(exploration=EXPLORATION)
    for parameter in policy.model.parameters():
        parameter.data.mul_(5.0)
    first, second = observations(64, 2), observations(64, 9)
    for member in range(3):
        mixed = second.copy()
        mixed["agents"] = {str(i): (first if i == member else second).agents[str(i)] for i in range(3)}
        chosen = []
        for obs in (first, mixed):
            policy.seed_exploration(4)
            chosen.append(policy.compute_actions(from_nested_batch(OBS, obs), explore=explore)[0])
        assert torch.equal(chosen[0][member], chosen[1][member])
        assert any(not torch.equal(chosen[0][i], chosen[1][i]) for i in range(3) if i != member)


@pytest.mark.parametrize("random_timesteps", [0, 1000])
@pytest.mark.parametrize("explore", [False, True])
def test_masked_actions_are_never_taken(explore: bool, random_timesteps: int) -> None:
    policy = made(exploration={**EXPLORATION, "random_timesteps": random_timesteps})
    obs = observations(500, 2)
    actions, _, _ = policy.compute_actions(from_nested_batch(OBS, obs), explore=explore, timestep=10)
    assert bool(obs.agents["1"]["action_mask"].gather(1, actions[1].unsqueeze(1)).all())
    assert explore is False or len(set(actions[1].tolist())) == 4


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_masked_actions_are_never_in_targets_or_in_relaxed_actions(noise: float) -> None:
    policy, obs = made(target_noise=noise), observations(500, 2)
    rows = SampleBatch(obs=obs, next_obs=obs)
    dist = policy.distribution(policy.model(policy.inputs_of(rows), (), None)[0], policy.mask_of(rows))
    forbidden = obs.agents["1"]["action_mask"] == 0
    assert not policy.target_actions(dist)[:, 2:6][forbidden].any()
    assert not dist.children[1].rsample()[forbidden].any()


def test_masks_beside_the_members_observations_are_those_of_their_own() -> None:
    """The Dict's "action_masks" against entries of the members' Dict observations."""
    member, x = MASKED["x"], torch.zeros(1, 2)
    masks = spaces.Tuple([spaces.MultiBinary(4), spaces.MultiBinary(3)])
    beside = spaces.Dict({"agents": spaces.Tuple([member, member]), "action_masks": masks})
    first, second = torch.tensor([[1, 0, 0, 1]], dtype=torch.int8), torch.tensor([[0, 1, 0]], dtype=torch.int8)
    own: Any = {"0": {"action_mask": first, "x": x}, "1": x}
    for space, obs, of_second in (
        (beside, SampleBatch(agents=(x, x), action_masks=(first, second)), [False, True, False]),
        (spaces.Tuple([MASKED, member]), SampleBatch(own), [True, True, True]),
    ):
        policy = MADDPG(space, spaces.Tuple([spaces.Discrete(4), spaces.Discrete(3)]), model=MODEL)
        mask: Any = policy.mask_of(SampleBatch(obs=obs))
        assert mask.tolist() == [[True, False, False, True, *of_second]]


def test_without_exploring_actions_are_the_best_and_in_the_environments_space() -> None:
    policy = made(exploration=EXPLORATION)
    for seed in range(5):
        OBS.seed(seed)
        action = policy.compute_single_action(OBS.sample())
        assert ACTIONS.contains(tuple(action))


def test_smoothed_targets_stay_within_the_bounds_of_their_own_member() -> None:
    """The noise is so large that each entry is at one of its bounds."""
    low, high = [[-1.0], [-2.0, -3.0]], [[1.0], [4.0, 5.0]]
    boxes = [spaces.Box(np.float32(a), np.float32(b)) for a, b in zip(low, high, strict=True)]
    space = spaces.Tuple([boxes[0], spaces.Discrete(2), boxes[1]])
    noisy: dict[str, Any] = {"normalize_actions": False, "target_noise": 1e6, "target_noise_clip": 1e6}
    policy = MADDPG(spaces.Tuple([VECTOR] * 3), space, model=MODEL, **noisy)
    rows = SampleBatch(obs=SampleBatch({str(member): torch.zeros(50, 3) for member in range(3)}))
    torch.manual_seed(0)
    dist: Any = policy.distribution(policy.model(policy.inputs_of(rows), (), None)[0], None)
    actions = policy.target_actions(dist)[:, [0, 3, 4]]
    assert_close(actions.amin(0), torch.tensor([-1.0, -2.0, -3.0]))
    assert_close(actions.amax(0), torch.tensor([1.0, 4.0, 5.0]))


def test_the_temperature_relaxes_the_actions_of_learning() -> None:
    """Straight-through samples are one-hot at any temperature; their gradient is larger at a low one."""
    obs = observations(500, 2)
    rows, sizes = SampleBatch(obs=obs), []
    for temperature in (0.5, 5.0):
        policy = made(temperature=temperature)
        outputs = policy.model(policy.inputs_of(rows), (), None)[0].detach().requires_grad_()
        torch.manual_seed(0)
        sample = policy.distribution(outputs, policy.mask_of(rows)).children[2].rsample()
        assert_close(sample.sum(1), torch.ones(500))
        sample[:, 0].sum().backward()
        assert outputs.grad is not None
        sizes.append(float(outputs.grad.abs().mean()))
    assert sizes[0] > 3 * sizes[1]


# -- models ------------------------------------------------------------------------------------------------------------
class Auxiliary(FullyConnectedNetwork):
    """A network with a loss of its own, 0.1 per member."""

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> list[Tensor]:
        own = loss_inputs.next_obs["action_mask"] if isinstance(loss_inputs.obs, SampleBatch) else loss_inputs.obs
        assert len(own) == len(loss_inputs.actions) == 6 and torch.is_tensor(loss_inputs.actions)
        return [policy_loss, torch.tensor(0.1)]

    def metrics(self) -> dict[str, Tensor | float]:
        return {"width": float(self.num_outputs)}


def test_custom_models_are_those_of_the_members_with_their_losses_and_metrics() -> None:
    policy = made(model={"custom_model": Auxiliary})
    assert all(isinstance(actor, Auxiliary) for actor in policy.model.actors)
    metrics = policy.learn_on_batch(transitions())
    assert [metrics[f"model/{member}/width"] for member in range(3)] == [2.0, 4.0, 3.0]
    plain = metrics["value_loss"] + metrics["policy_loss"] + 1e-3 * metrics["squared_outputs"]
    assert metrics["loss"] == pytest.approx(plain + 0.3, abs=1e-5)


def test_members_may_see_images() -> None:
    image = spaces.Box(0, 255, (12, 12, 3), np.uint8)
    observed = spaces.Tuple([image, spaces.Dict({"camera": image, "x": VECTOR}), VECTOR])
    policy = MATD3(observed, ACTIONS, model=MODEL, policy_delay=1, observation_filter="mean_std")
    pixels = torch.randint(256, (4, 12, 12, 3), dtype=torch.uint8)
    obs = {"0": pixels, "1": {"camera": pixels, "x": torch.rand(4, 3)}, "2": torch.rand(4, 3)}
    batch = transitions(4)
    batch["obs"] = batch["next_obs"] = SampleBatch(obs)
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    policy.learn_on_batch(batch)
    assert policy.preprocessor.size == 6
    for old, (name, new) in zip(before, policy.model.named_parameters(), strict=True):
        assert "value" in name or not torch.equal(old, new), name


def test_given_convolutions_read_parts_of_three_dimensions_as_images() -> None:
    grid = spaces.Box(0.0, 1.0, (5, 5, 2), np.float32)
    space = spaces.Tuple([grid, grid])
    for layers in ({"conv_filters": [[4, 3, 1]]}, {"conv_residual_channels": [4]}):
        policy = MADDPG(space, spaces.Tuple([spaces.Discrete(2)] * 2), model={**MODEL, **layers})
        assert policy.preprocessor.size == 0
        assert any(isinstance(module, nn.Conv2d) for module in policy.model.modules())


def test_the_actors_have_no_value_network_of_their_own() -> None:
    """Nothing would train it: the critics give the values."""
    names = {name.split(".")[2] for name, _ in made().model.named_parameters()}
    assert names == {"trunk", "head", "value_head"}


def test_checkpoints_do_not_have_what_follows_from_the_spaces() -> None:
    policy = made()
    assert policy.entry_owner.tolist() == OWNERS and "entry_owner" not in policy.state_dict()


class Rewarded(Model):
    """A custom model that lacks nothing."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.layer = nn.Linear(self.preprocessor.size, self.num_outputs)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        return self.layer(input_dict["obs_flat"]), list(state)


def test_a_custom_model_reads_the_filtered_observation_of_its_member() -> None:
    policy = made(model={"custom_model": Rewarded}, observation_filter="mean_std")
    obs = observations(100, 2)
    policy.update_filters(SampleBatch(obs=obs))
    inputs = policy.inputs_of(SampleBatch(obs=obs))
    own = policy.model.inputs(inputs, 0)["obs_flat"]
    assert_close(own.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    assert_close(policy.model(inputs)[0][:, :2], policy.model.actors[0].layer(own))


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_spaces_that_are_no_group_s_and_models_that_do_not_fit_are_refused_in_one_line() -> None:
    one, two = (spaces.Tuple([spaces.Discrete(2)] * count) for count in (1, 2))
    alone = spaces.Tuple([VECTOR])
    present = spaces.Dict({"agents": alone, "present": spaces.MultiBinary(2)})
    masked = spaces.Dict({"agents": alone, "action_masks": spaces.Tuple([spaces.MultiBinary(3)])})
    cases: list[Any] = [
        (VECTOR, spaces.Discrete(2), {}, r"MADDPG.*Discrete\(2\)"),
        (VECTOR, one, {}, "group_agents=all"),
        (alone, two, {}, r"1 observations and 2 actions"),
        (alone, spaces.Tuple([spaces.MultiDiscrete([2, 2])]), {}, "member 0"),
        (alone, spaces.Tuple([spaces.Box(-np.inf, np.inf, (1,))]), {}, "finite bounds"),
        (present, one, {}, r"part 'present' .* expected shape \[1\]"),
        (masked, one, {}, r"part 'action_masks.0' .* expected shape \[2\]"),
        (OBS, ACTIONS, {"use_lstm": True}, "MADDPG"),
    ]
    lines = [(*case, rf"\A.*{pattern}.*\Z") for *case, pattern in cases]
    assert (
        not_refused(lambda obs, actions, model: MADDPG(obs, actions, model=model), lines, UnsupportedSpaceError) == []
    )
    with pytest.raises(ConfigError, match=r"model\.custom_action_dist: MADDPG"):
        made(model={"custom_action_dist": "GumbelSoftmax"})


# -- whole runs --------------------------------------------------------------------------------------------------------
RUN = ["model.fcnet_hiddens=[32,32]", "data.batch_size=64", "evaluation.episodes=50"]


@pytest.mark.parametrize(
    ("name", "game", "overrides"),
    first(
        2,
        [
            ("matd3", "Beam", ["data.n_step=3"]),
            ("maddpg", "Cues", []),
            ("maddpg", "Beam", ["data.prioritized=true"]),
            (
                "maddpg",
                "Beam",
                ["exploration.sub_exploration.type=ornstein_uhlenbeck_noise", "~exploration.sub_exploration.stddev"],
            ),
        ],
    ),
)
def test_a_policy_that_learned_from_replay_acts_bit_equally_when_it_is_loaded(
    name: str, game: str, overrides: list[str], tmp_path: Any
) -> None:
    """Also with priorities, n-step returns and other noise; an Ornstein-Uhlenbeck process is not saved."""
    explored = (False,) if "ornstein" in str(overrides) else (False, True)
    overrides = [f"run_dir={tmp_path}", "data.learning_starts=64", *overrides, *RUN]
    algorithm = Algorithm(name, f"tests.envs.groups:{game}", overrides=overrides)
    for _ in range(3):
        algorithm.train()
    assert algorithm.policy.gradient_steps > 10
    loaded = Policy.load(str(algorithm.save()))
    for explore in explored:
        for seed in range(5):
            algorithm.policy.observation_space.seed(seed)
            obs, actions = algorithm.policy.observation_space.sample(), []
            for policy in (algorithm.policy, loaded):
                policy.seed_exploration(seed)
                actions.append(policy.compute_single_action(obs, explore=explore))
            assert all(np.array_equal(a, b) for a, b in zip(*actions, strict=True))
    algorithm.stop()


def trained(name: str, env: str, env_steps: int, *overrides: str) -> float:
    """The mean return of 50 episodes with the best actions, after learning for so many steps."""
    algorithm = Algorithm(name, env, overrides=[*RUN, f"total_env_steps={env_steps}", *overrides])
    while algorithm.policy.env_steps < env_steps:
        algorithm.train()
    result = algorithm.evaluate()
    algorithm.stop()
    return result["eval/ep_rew_mean"]


@pytest.mark.every
def test_maddpg_learns_a_game_of_discrete_actions(tmp_path: Any) -> None:
    """The best return is 5; random play gives 0.56."""
    started = ["data.learning_starts=200", f"run_dir={tmp_path}"]
    assert trained("maddpg", "tests.envs.groups:Cues", 1200, *started) > 4.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maddpg", "matd3"])
@pytest.mark.parametrize("shared", ["true", "false"])
def test_the_beam_is_lifted_level(name: str, shared: str, tmp_path: Any) -> None:
    """The best return is about −2, random actions give about −40."""
    more = ["data.learning_starts=500", f"policy.shared_critic={shared}", f"run_dir={tmp_path}"]
    assert trained(name, "tests.envs.groups:Beam", 4000, *more) > -8.0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_listener_learns_to_follow_the_speaker(tmp_path: Any) -> None:
    """MPE's speaker sees the goal and cannot move, the listener moves and does not see it; random play gives −89."""
    started = ["data.update_to_data_ratio=0.2", "workers.envs_per_worker=4", "data.batch_size=256"]
    learning = ["policy.gamma=0.95", "policy.tau=0.01", "model.fcnet_hiddens=[64,64]", f"run_dir={tmp_path}"]
    assert trained("matd3", "simple_speaker_listener", 40_000, *started, *learning) > -28.0
