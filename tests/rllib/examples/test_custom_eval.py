"""custom_eval: evaluations in another corridor than training, and by a function of the program's own."""

from __future__ import annotations

import pytest

from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.evaluation.metrics import collect_episodes, summarize_episodes
from tests.rllib.examples.envs import SimpleCorridor
from tests.rllib.examples.training import train_until


def custom_eval_function(trainer, eval_workers):
    """Five episodes of each environment, in a corridor that is 4 long in the first worker and 7 in the others."""
    length_of = {0: 4}
    eval_workers.foreach_worker(
        lambda w: w.foreach_env(lambda env: env.set_corridor_length(length_of.get(w.worker_index, 7)))
    )
    for _ in range(5):
        eval_workers.foreach_worker(lambda w: w.sample())
    episodes, _ = collect_episodes(workers=eval_workers, timeout_seconds=99999)
    metrics = summarize_episodes(episodes)
    metrics["foo"] = 1
    return metrics


@pytest.mark.parametrize("eval_fn", [None, custom_eval_function])
def test_evaluations_are_in_the_result(eval_fn) -> None:
    config = {
        "env": SimpleCorridor,
        "env_config": {"corridor_length": 10},
        "horizon": 20,
        "num_workers": 0,
        "evaluation_num_workers": 0,
        "evaluation_interval": 1,
        "evaluation_num_episodes": 10,
        "evaluation_config": {"env_config": {"corridor_length": 5}, "explore": False},
        "custom_eval_function": eval_fn,
        "framework": "torch",
        "lr": 3e-3,
    }
    trainer = PGTrainer(config=config)
    result = train_until(trainer, stop_reward=0, stop_iters=50)
    trainer.stop()
    evaluation = result["evaluation"]
    if eval_fn is None:
        assert evaluation["episodes_this_iter"] == 10 and evaluation["episode_len_mean"] == 5
    else:
        assert evaluation["foo"] == 1 and evaluation["episode_len_mean"] == 4
