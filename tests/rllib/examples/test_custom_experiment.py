"""custom_experiment: training with checkpoints, and an evaluation by hand of a restored trainer."""

from __future__ import annotations

import gymnasium as gym

from lightning_rl.rllib.agents import ppo


def experiment(config, trial_dir):
    iterations = config.pop("train-iterations")
    train_agent = ppo.PPOTrainer(config=config, env="CartPole-v1")
    checkpoint, train_results = None, {}
    for i in range(iterations):
        train_results = train_agent.train()
        if i % 2 == 0 or i == iterations - 1:
            checkpoint = train_agent.save(trial_dir)
    train_agent.stop()

    config["num_workers"], config["explore"] = 0, False
    eval_agent = ppo.PPOTrainer(config=config, env="CartPole-v1")
    eval_agent.restore(checkpoint)
    env = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    done, eval_results = False, {"eval_reward": 0, "eval_eps_length": 0}
    while not done:
        action = eval_agent.compute_action(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        eval_results["eval_reward"] += reward
        eval_results["eval_eps_length"] += 1
    eval_agent.stop()
    return {**train_results, **eval_results}


def test_the_restored_agent_balances_longer_than_chance(tmp_path) -> None:
    config = ppo.DEFAULT_CONFIG.copy()
    config["train-iterations"] = 8
    config["env"] = "CartPole-v1"
    results = experiment(config, str(tmp_path))
    assert results["training_iteration"] == 8
    assert results["eval_reward"] == results["eval_eps_length"] > 60
