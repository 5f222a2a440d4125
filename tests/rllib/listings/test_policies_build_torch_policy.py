"""A policy made of functions, an algorithm that trains it, and Tune that runs the algorithm."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lightning_rl.rllib.agents.a3c.a3c_torch_policy import ValueNetworkMixin
from lightning_rl.rllib.algorithms.algorithm import Algorithm
from lightning_rl.rllib.evaluation.postprocessing import compute_advantages
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from lightning_rl.rllib.policy.torch_policy_template import build_torch_policy

args = SimpleNamespace(stop_iters=2)
config = lambda: {"lr": 1e-3, "gamma": 0.98, "lambda": 0.9, "vf_loss_coeff": 0.5, "grad_clip": 0.5}  # noqa: E731


def actor_critic_loss(policy, model, dist_class, train_batch):
    logits, _ = model.from_batch(train_batch)
    values = model.value_function()
    dist = dist_class(logits, model)
    log_probs = dist.logp(train_batch[SampleBatch.ACTIONS])
    policy.entropy = dist.entropy().mean()
    policy.pi_err = -(train_batch["advantages"] * log_probs).mean()
    policy.value_err = (values - train_batch["value_targets"]).square().mean()
    return policy.pi_err + policy.config["vf_loss_coeff"] * policy.value_err


def loss_and_entropy_stats(policy, train_batch):
    return {"policy_entropy": policy.entropy.item(), "vf_loss": policy.value_err.item()}


def add_advantages(policy, sample_batch, other_agent_batches=None, episode=None):
    completed = sample_batch[SampleBatch.DONES][-1]
    last_r = 0.0 if completed else policy._value(sample_batch[SampleBatch.NEXT_OBS][-1])
    return compute_advantages(sample_batch, last_r, policy.config["gamma"], policy.config["lambda"])


def model_value_predictions(policy, input_dict, state_batches, model, action_dist):
    return {SampleBatch.VF_PREDS: model.value_function()}


def apply_grad_clipping(policy, optimizer, loss):
    parameters = optimizer.param_groups[0]["params"]
    return {"grad_gnorm": nn.utils.clip_grad_norm_(parameters, policy.config["grad_clip"])}


def torch_optimizer(policy, config):
    return torch.optim.Adam(policy.model.parameters(), lr=config["lr"])


MyTorchPolicy = build_torch_policy(  # this makes a policy class
    name="MyTorchPolicy",
    get_default_config=config,
    loss_fn=actor_critic_loss,
    stats_fn=loss_and_entropy_stats,
    postprocess_fn=add_advantages,
    extra_action_out_fn=model_value_predictions,
    extra_grad_process_fn=apply_grad_clipping,
    optimizer_fn=torch_optimizer,
    mixins=[ValueNetworkMixin],
)


# Create a new Algorithm using the Policy defined above.
class MyAlgorithm(Algorithm):
    def get_default_policy_class(self, config):
        return MyTorchPolicy


@pytest.mark.ray(own_session=True)
def test_tune_runs_the_algorithm_to_its_stop(tmp_path: Path) -> None:
    """On Ray's own Tune; a session of its three cores and where it writes are added."""
    tune = pytest.importorskip("ray.tune", exc_type=ImportError)
    import ray

    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
    try:
        analysis = tune.run(
            MyAlgorithm,
            stop={"training_iteration": args.stop_iters},
            config={
                "env": "CartPole-v0",
                # Use GPUs iff `RLLIB_NUM_GPUS` env var set to > 0.
                "num_gpus": int(os.environ.get("RLLIB_NUM_GPUS", "0")),
                "num_workers": 2,
                "framework": "torch",
            },
            storage_path=str(tmp_path),
            verbose=0,
        )
    finally:
        ray.shutdown()
    (trial,) = analysis.trials
    assert trial.last_result["training_iteration"] == 2 and 0 < trial.last_result["train/policy_entropy"] < 0.7


def test_the_functions_are_what_learns() -> None:
    trainer = MyAlgorithm(env="CartPole-v1", config={"train_batch_size": 256, "rollout_fragment_length": 64})
    assert type(trainer.policy) is MyTorchPolicy
    results = [trainer.train() for _ in range(3)]
    trainer.stop()
    assert results[-1]["train/vf_loss"] > 0 and results[-1]["train/grad_gnorm"] > 0
    assert results[-1]["train/grad_norm"] <= 0.5001
