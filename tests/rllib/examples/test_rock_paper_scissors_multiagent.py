"""rock_paper_scissors_multiagent: a policy that learns against two rules, with and without memory."""

from __future__ import annotations

import random

import gymnasium as gym
import pytest
import torch
from gymnasium.spaces import Discrete

from lightning_rl.rllib.agents.pg import PGTorchPolicy, PGTrainer
from lightning_rl.rllib.env.multi_agent_env import MultiAgentEnv
from lightning_rl.rllib.policy.policy import Policy

ROCK, PAPER, SCISSORS = range(3)


class RockPaperScissors(MultiAgentEnv):
    """Ten rounds; an observation is the opponent's last move."""

    def __init__(self, _):
        self.action_space = self.observation_space = Discrete(3)
        self.player1, self.player2 = "player1", "player2"
        self.player1_score = self.player2_score = 0

    def reset(self):
        self.num_moves = 0
        return {self.player1: 0, self.player2: 0}

    def step(self, action_dict):
        move1, move2 = action_dict[self.player1], action_dict[self.player2]
        reward = (0, 1, -1)[(move1 - move2) % 3]
        self.player1_score += reward == 1
        self.player2_score += reward == -1
        self.num_moves += 1
        obs = {self.player1: move2, self.player2: move1}
        return obs, {self.player1: reward, self.player2: -reward}, {"__all__": self.num_moves >= 10}, {}


class AlwaysSameHeuristic(Policy):
    """Pick a random move and stick with it for the entire episode."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.exploration = self._create_exploration()

    def get_initial_state(self):
        return [random.choice([ROCK, PAPER, SCISSORS])]

    def compute_actions(
        self,
        obs_batch,
        state_batches=None,
        prev_action_batch=None,
        prev_reward_batch=None,
        info_batch=None,
        episodes=None,
        **kwargs,
    ):
        return state_batches[0], state_batches, {}


class BeatLastHeuristic(Policy):
    """Play the move that would beat the last move of the opponent."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.exploration = self._create_exploration()

    def compute_actions(
        self,
        obs_batch,
        state_batches=None,
        prev_action_batch=None,
        prev_reward_batch=None,
        info_batch=None,
        episodes=None,
        **kwargs,
    ):
        def successor(x):
            assert isinstance(self.observation_space, gym.spaces.Discrete)
            return {ROCK: PAPER, PAPER: SCISSORS, SCISSORS: ROCK}[int(x)]

        return [successor(x) for x in obs_batch], [], {}

    def learn_on_batch(self, samples):
        pass

    def get_weights(self):
        pass

    def set_weights(self, weights):
        pass


def run_heuristic_vs_learned(use_lstm=False, trainer=PGTrainer, stop_reward=1000.0, stop_iters=150):
    """The learned agent should win about 5 of 10 rounds without memory, and 7 with it."""

    def select_policy(agent_id, episode=None, **kwargs):
        return "learned" if agent_id == "player1" else random.choice(["always_same", "beat_last"])

    config = {
        "env": RockPaperScissors,
        "gamma": 0.9,
        "num_gpus": 0,
        "num_workers": 0,
        "num_envs_per_worker": 4,
        "rollout_fragment_length": 10,
        "train_batch_size": 200,
        "multiagent": {
            "policies_to_train": ["learned"],
            "policies": {
                "always_same": (AlwaysSameHeuristic, Discrete(3), Discrete(3), {}),
                "beat_last": (BeatLastHeuristic, Discrete(3), Discrete(3), {}),
                "learned": (
                    None,
                    Discrete(3),
                    Discrete(3),
                    {"model": {"use_lstm": use_lstm}, "framework": "torch"},
                ),
            },
            "policy_mapping_fn": select_policy,
        },
        "framework": "torch",
    }
    trainer_obj = trainer(config=config)
    env = trainer_obj.workers.local_worker().foreach_env(lambda env: env)[0]
    for _ in range(stop_iters):
        results = trainer_obj.train()
        if env.player1_score - env.player2_score > stop_reward:
            break
    trainer_obj.stop()
    score = env.player1_score - env.player2_score
    assert score > stop_reward, f"only {score}: {results['policy_reward_mean']}"


def test_both_players_with_one_policy_sum_to_zero() -> None:
    trainer = PGTrainer(config={"env": RockPaperScissors, "framework": "torch"})
    for _ in range(2):
        result = trainer.train()
    trainer.stop()
    assert result["episode_reward_mean"] == 0


@pytest.mark.parametrize("stop_reward", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_it_wins_against_the_rules(stop_reward: float) -> None:
    run_heuristic_vs_learned(stop_reward=stop_reward, stop_iters=600)


@pytest.mark.slow
def test_it_wins_with_an_lstm() -> None:
    run_heuristic_vs_learned(use_lstm=True, stop_iters=600)


@pytest.mark.slow
def test_it_wins_with_a_loss_that_adds_entropy() -> None:
    def entropy_policy_gradient_loss(policy, model, dist_class, train_batch):
        logits, _ = model.from_batch(train_batch)
        action_dist = dist_class(logits, model)
        policy.pi_err = torch.tensor([0.0])
        return torch.mean(
            -0.1 * action_dist.entropy() - (action_dist.logp(train_batch["actions"]) * train_batch["advantages"])
        )

    EntropyPolicy = PGTorchPolicy.with_updates(loss_fn=entropy_policy_gradient_loss)  # noqa: N806
    EntropyLossPG = PGTrainer.with_updates(  # noqa: N806
        name="EntropyPG", get_policy_class=lambda _: EntropyPolicy
    )
    run_heuristic_vs_learned(use_lstm=True, trainer=EntropyLossPG, stop_iters=600)
