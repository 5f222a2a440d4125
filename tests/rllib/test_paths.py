"""RLlib's module paths: programs import from them as from RLlib."""

from __future__ import annotations

import importlib
import pickle
import pkgutil

import pytest

from lightning_rl import rllib

# Names that programs for RLlib import, by module below `ray.rllib`.
NAMES = {
    "agents": "Trainer DefaultCallbacks",
    "agents.a3c": "A2CTrainer A3CTrainer DEFAULT_CONFIG",
    "agents.a3c.a2c": "A2CTrainer",
    "agents.a3c.a3c_torch_policy": "A3CTorchPolicy",
    "agents.ars": "ARSTrainer",
    "agents.callbacks": "DefaultCallbacks",
    "agents.cql": "CQLTrainer CQLTorchPolicy DEFAULT_CONFIG",
    "agents.ddpg": "DDPGTrainer TD3Trainer",
    "agents.dqn": "DQNTrainer SimpleQTrainer DEFAULT_CONFIG DQNTorchPolicy",
    "agents.dqn.dqn_torch_policy": "DQNTorchPolicy",
    "agents.dqn.simple_q": "SimpleQTrainer DEFAULT_CONFIG",
    "agents.es": "ESTrainer",
    "agents.impala": "ImpalaTrainer",
    "agents.marwil": "MARWILTrainer BCTrainer MARWILTorchPolicy DEFAULT_CONFIG",
    "agents.pg": "PGTrainer PGTorchPolicy",
    "agents.ppo": "PPOTrainer APPOTrainer DDPPOTrainer DEFAULT_CONFIG PPOTorchPolicy",
    "agents.ppo.ppo": "PPOTrainer DEFAULT_CONFIG",
    "agents.ppo.ppo_torch_policy": "PPOTorchPolicy",
    "agents.qmix": "QMixTrainer",
    "agents.sac": "SACTrainer SACTorchPolicy",
    "agents.trainer": "Trainer",
    "agents.trainer_template": "build_trainer",
    "algorithms.algorithm": "Algorithm",
    "env": "EnvContext MultiAgentEnv",
    "env.multi_agent_env": "MultiAgentEnv make_multi_agent",
    "evaluation": "RolloutWorker WorkerSet SampleBatch PolicyEvaluator MultiAgentBatch",
    "evaluation.policy_evaluator": "PolicyEvaluator",
    "evaluation.policy_graph": "PolicyGraph",
    "evaluation.postprocessing": "Postprocessing compute_advantages compute_gae_for_sample_batch",
    "evaluation.rollout_worker": "RolloutWorker",
    "evaluation.sample_batch_builder": "SampleBatchBuilder",
    "evaluation.worker_set": "WorkerSet",
    "execution": "ParallelRollouts Concurrently Replay StoreToReplayBuffer TrainOneStep UpdateTargetNetwork",
    "execution.concurrency_ops": "Concurrently",
    "execution.metric_ops": "StandardMetricsReporting",
    "execution.replay_buffer": "LocalReplayBuffer ReplayActor",
    "execution.replay_ops": "Replay StoreToReplayBuffer",
    "execution.rollout_ops": "ParallelRollouts ConcatBatches",
    "execution.train_ops": "TrainOneStep UpdateTargetNetwork",
    "models": "ModelCatalog ActionDistribution Preprocessor MODEL_DEFAULTS",
    "models.action_dist": "ActionDistribution TupleActions",
    "models.catalog": "ModelCatalog MODEL_DEFAULTS",
    "models.modelv2": "ModelV2 restore_original_dimensions",
    "models.preprocessors": "Preprocessor get_preprocessor NoPreprocessor",
    "models.torch.misc": "SlimFC normc_initializer",
    "models.torch.torch_action_dist": "TorchCategorical TorchDiagGaussian TorchDistributionWrapper",
    "models.torch.torch_modelv2": "TorchModelV2",
    "offline": "InputReader IOContext JsonReader JsonWriter MixedInput ShuffledInput OutputWriter NoopOutput",
    "offline.d4rl_reader": "D4RLReader",
    "offline.dataset_reader": "DatasetReader",
    "offline.estimators": "ImportanceSampling WeightedImportanceSampling",
    "offline.input_reader": "InputReader",
    "offline.io_context": "IOContext",
    "offline.is_estimator": "ImportanceSamplingEstimator",
    "offline.json_reader": "JsonReader",
    "offline.json_writer": "JsonWriter",
    "offline.mixed_input": "MixedInput",
    "offline.off_policy_estimator": "OffPolicyEstimator OffPolicyEstimate",
    "offline.output_writer": "OutputWriter NoopOutput",
    "offline.shuffled_input": "ShuffledInput",
    "offline.wis_estimator": "WeightedImportanceSamplingEstimator",
    "optimizers": "SyncSamplesOptimizer AsyncSamplesOptimizer AsyncGradientsOptimizer SyncReplayOptimizer",
    "optimizers.async_samples_optimizer": "AsyncSamplesOptimizer",
    "policy": "Policy TorchPolicy build_torch_policy",
    "policy.policy": "Policy",
    "policy.policy_template": "build_policy_class",
    "policy.sample_batch": "SampleBatch MultiAgentBatch DEFAULT_POLICY_ID",
    "policy.torch_policy": "TorchPolicy",
    "policy.torch_policy_template": "build_torch_policy",
    "utils": "merge_dicts add_mixins try_import_torch",
    "utils.annotations": "override PublicAPI DeveloperAPI",
    "utils.framework": "try_import_torch",
    "utils.torch_ops": "huber_loss sequence_mask explained_variance apply_grad_clipping",
    "utils.torch_utils": "huber_loss FLOAT_MIN",
    "utils.typing": "TensorType ModelConfigDict AgentID PolicyID",
}


def test_programs_import_from_rllib_s_paths() -> None:
    missing = [
        f"{path}.{name}"
        for path, names in NAMES.items()
        for name in names.split()
        if not hasattr(importlib.import_module(f"lightning_rl.rllib.{path}"), name)
    ]
    assert not missing


def test_every_module_exports_what_it_lists() -> None:
    for found in pkgutil.walk_packages(rllib.__path__, "lightning_rl.rllib."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            assert all(hasattr(module, name) for name in getattr(module, "__all__", ())), found.name


@pytest.mark.parametrize("name", ["PPOTrainer", "SimpleQTrainer", "ImpalaTrainer", "PPOTorchPolicy"])
def test_a_class_is_the_same_by_every_path_and_is_pickled_by_name(name: str) -> None:
    room = {"PPO": "ppo", "Sim": "dqn", "Imp": "impala"}[name[:3]]
    found = getattr(importlib.import_module(f"lightning_rl.rllib.agents.{room}"), name)
    assert found is getattr(rllib, name) is pickle.loads(pickle.dumps(found))
    assert rllib.PPOPolicyGraph is rllib.PPOTorchPolicy  # type: ignore[attr-defined]


@pytest.mark.parametrize("room", ["ppo", "dqn", "a3c", "pg", "impala"])
def test_a_trainer_of_its_default_config_is_the_trainer_without_a_config(room: str) -> None:
    module = importlib.import_module(f"lightning_rl.rllib.agents.{room}")
    trainer = getattr(module, {"dqn": "DQN", "a3c": "A3C", "impala": "Impala"}.get(room, room.upper()) + "Trainer")
    default, given = trainer(env="CartPole-v1"), trainer(env="CartPole-v1", config=module.DEFAULT_CONFIG.copy())
    for section in ("policy", "workers", "data", "evaluation", "exploration", "env"):
        found, expected = ({**each.run_config[section]} for each in (given, default))
        found.pop("config", None), expected.pop("config", None)
        assert found == expected, section
