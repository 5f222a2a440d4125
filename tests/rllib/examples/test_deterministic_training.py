"""deterministic_training: two runs of one seed are the same run."""

from __future__ import annotations

from lightning_rl.rllib.agents.ppo import PPOTrainer


def run(seed):
    config = {
        "env": "CartPole-v1",
        "num_workers": 0,
        "num_envs_per_worker": 2,
        "framework": "torch",
        "seed": seed,
        "train_batch_size": 100,
        "sgd_minibatch_size": 10,
        "num_sgd_iter": 5,
        "rollout_fragment_length": 50,
    }
    trainer = PPOTrainer(config=config)
    results = [trainer.train() for _ in range(2)]
    trainer.stop()
    return results[-1]


def test_histograms_and_statistics_of_learning_are_equal() -> None:
    results1, results2, other = run(42), run(42), run(43)
    assert results1["hist_stats"] == results2["hist_stats"] != other["hist_stats"]
    stats = [each["info"]["learner"]["default_policy"]["learner_stats"] for each in (results1, results2, other)]
    assert stats[0] == stats[1] != stats[2]
