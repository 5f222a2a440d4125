"""A trainer whose class defines `training_step` samples and learns as that says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_rl.envs.multi_agent.toy_games import TwoStepGame
from lightning_rl.errors import ConfigError
from lightning_rl.rllib import DQNTrainer, PPOTrainer
from lightning_rl.rllib.execution.rollout_ops import standardize_fields, synchronous_parallel_sample
from lightning_rl.rllib.execution.train_ops import multi_gpu_train_one_step, train_one_step
from lightning_rl.rllib.utils.metrics import NUM_AGENT_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED

KEYS = {"train_batch_size": 60, "rollout_fragment_length": 20, "sgd_minibatch_size": 30, "num_sgd_iter": 2}


class OwnPPO(PPOTrainer):
    """RLlib 2.0's `training_step` of PPO."""

    def training_step(self) -> dict[str, Any]:
        by_agents, size = self._by_agent_steps, self.config["train_batch_size"]
        least = {"max_agent_steps": size} if by_agents else {"max_env_steps": size}
        batch = synchronous_parallel_sample(worker_set=self.workers, **least).as_multi_agent()
        self._counters[NUM_AGENT_STEPS_SAMPLED] += batch.agent_steps()
        self._counters[NUM_ENV_STEPS_SAMPLED] += batch.env_steps()
        self._counters["calls"] += 1
        batch = standardize_fields(batch, ["advantages"])
        learn = train_one_step if self.config["simple_optimizer"] else multi_gpu_train_one_step
        results = learn(self, batch)
        counts = {"timestep": self._counters[NUM_AGENT_STEPS_SAMPLED]}
        with self._timers["synch_weights"]:
            self.workers.sync_weights(global_vars=counts)
        for policy_id, info in results.items():
            self.get_policy(policy_id).update_kl(info["learner_stats"].get("kl"))
        return results


class OwnDQN(DQNTrainer):
    """RLlib 1.13's name of the method, with the trainer's replay buffer."""

    def training_iteration(self) -> dict[str, Any]:  # type: ignore[override]
        self.local_replay_buffer.add_batch(synchronous_parallel_sample(worker_set=self.workers))
        batch = self.local_replay_buffer.replay()
        return {} if batch is None else train_one_step(self, batch)


def test_a_training_step_takes_the_place_of_the_algorithm_s_own(tmp_path: Path) -> None:
    """60 rows in minibatches of 30, twice: 4 gradient steps."""
    made = OwnPPO(env="CartPole-v1", config=KEYS)
    _, result = made.train(), made.train()
    assert result["info"]["calls"] == 2 and made.get_policy().gradient_steps == 8
    assert result["timesteps_total"] == result["num_env_steps_trained"] == result["num_agent_steps_sampled"] == 120
    assert result["info"]["learner"]["default_policy"]["learner_stats"]["vf_loss"] > 0
    assert result["timers"]["synch_weights_time_ms"] > 0
    again = OwnPPO(env="CartPole-v1", config=KEYS)
    again.restore(made.save(str(tmp_path)))
    assert again.train()["timesteps_total"] == 180
    made.stop(), again.stop()


@pytest.mark.parametrize(("by", "steps"), [("env_steps", 60), ("agent_steps", 30)])
def test_a_training_step_with_several_agents_counts_as_the_config_says(by: str, steps: int) -> None:
    """Two agents of policy a have 2 rows in each step: 120 or 60, in minibatches of 30, twice."""
    section = {"policies": ["a"], "policy_mapping_fn": lambda agent, *_, **__: "a", "count_steps_by": by}
    made = OwnPPO(env=TwoStepGame, config={**KEYS, "multiagent": section})
    result = made.train()
    made.stop()
    assert (result["num_env_steps_sampled"], result["num_agent_steps_sampled"]) == (steps, 2 * steps)
    assert made.get_policy("a").gradient_steps == 2 * (2 * steps // 30)


def test_a_training_iteration_replays_from_the_trainer_s_buffer() -> None:
    """16 rows are there after 40 steps, then one gradient step follows each fragment of 4."""
    keys = {"learning_starts": 40, "train_batch_size": 16, "rollout_fragment_length": 4}
    made = OwnDQN(env="CartPole-v1", config={**keys, "min_sample_timesteps_per_reporting": 60})
    result = made.train()
    made.stop()
    assert result["timesteps_total"] == made.local_replay_buffer.num_added == 60
    assert made.get_policy().gradient_steps == 6 and result["num_env_steps_trained"] == 6 * 16


def test_the_base_has_no_training_step_to_call() -> None:
    class Calling(PPOTrainer):
        def training_step(self):
            return super().training_step()

    made = Calling(env="CartPole-v1", config=KEYS)
    with pytest.raises(ConfigError, match="synchronous_parallel_sample and train_one_step"):
        made.train()
    made.stop()
