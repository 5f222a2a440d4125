"""iterated_prisoners_dilemma_env: two learners of policy gradients in a social dilemma."""

from __future__ import annotations

from gymnasium.spaces import Discrete

from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.env.multi_agent_env import MultiAgentEnv

PAYOFF = {(0, 0): (-1, -1), (0, 1): (-3, 0), (1, 0): (0, -3), (1, 1): (-2, -2)}


class IteratedPrisonersDilemma(MultiAgentEnv):
    """Each observes both actions of the round before; 0 cooperates and 1 defects."""

    observation_space, action_space = Discrete(5), Discrete(2)

    def __init__(self, config):
        self.players_ids, self.max_steps = config["players_ids"], config["max_steps"]

    def reset(self):
        self.step_count = 0
        return dict.fromkeys(self.players_ids, 4)

    def step(self, actions):
        self.step_count += 1
        first, second = (int(actions[player]) for player in self.players_ids)
        rewards = dict(zip(self.players_ids, PAYOFF[first, second], strict=True))
        obs = dict(zip(self.players_ids, (2 * first + second, 2 * second + first), strict=True))
        return obs, rewards, {"__all__": self.step_count == self.max_steps}, {}


def test_both_learn_to_defect() -> None:
    """To defect is better whatever the other does: −2 for both in each of 20 rounds."""
    env_config = {"players_ids": ["player_row", "player_col"], "max_steps": 20}
    section = {
        "policies": {name: (None, Discrete(5), Discrete(2), {}) for name in env_config["players_ids"]},
        "policy_mapping_fn": lambda agent_id, **kwargs: agent_id,
    }
    config = {"env": IteratedPrisonersDilemma, "env_config": env_config, "gamma": 0.5, "lr": 5e-3}
    config |= {"train_batch_size": 200, "multiagent": section, "framework": "torch", "seed": 0}
    trainer = PGTrainer(config=config)
    for _ in range(60):
        result = trainer.train()
    trainer.stop()
    rewards = result["policy_reward_mean"]
    assert rewards.keys() == set(env_config["players_ids"]) and all(-46 < each < -34 for each in rewards.values())
    assert result["episode_reward_mean"] < -70
