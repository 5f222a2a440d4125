"""RLlib's module paths: programs import from them as from RLlib."""

from __future__ import annotations

import importlib
import pickle
import pkgutil

import pytest

from lightning_rl import rllib
from lightning_rl.rllib.agents.registry import get_trainer_class
from lightning_rl.rllib.algorithms.ppo import PPO, PPOConfig, ppo
from lightning_rl.rllib.algorithms.registry import get_algorithm_class
from lightning_rl.rllib.execution.common import STEPS_TRAINED_COUNTER
from lightning_rl.rllib.utils.metrics import NUM_AGENT_STEPS_TRAINED, NUM_ENV_STEPS_SAMPLED
from lightning_rl.rllib.utils.metrics.learner_info import LEARNER_INFO, LEARNER_STATS_KEY

# Names that programs for RLlib import, by module below `ray.rllib`.
NAMES = {
    "agents": "Trainer DefaultCallbacks",
    "agents.a3c": "A2CTrainer A3CTrainer DEFAULT_CONFIG",
    "agents.a3c.a2c": "A2CTrainer A2C_DEFAULT_CONFIG",
    "agents.a3c.a3c_torch_policy": "A3CTorchPolicy actor_critic_loss ValueNetworkMixin",
    "agents.ars": "ARSTrainer",
    "agents.callbacks": "DefaultCallbacks",
    "agents.cql": "CQLTrainer CQLTorchPolicy DEFAULT_CONFIG CQL_DEFAULT_CONFIG",
    "agents.cql.cql": "CQLTrainer CQL_DEFAULT_CONFIG",
    "agents.cql.cql_torch_policy": "CQLTorchPolicy",
    "agents.ddpg": "DDPGTrainer TD3Trainer",
    "agents.ddpg.td3": "TD3Trainer TD3_DEFAULT_CONFIG",
    "agents.dqn": (
        "DQNTrainer SimpleQTrainer DEFAULT_CONFIG DQNTorchPolicy APEX_DEFAULT_CONFIG ApexTrainer "
        "R2D2Trainer R2D2_DEFAULT_CONFIG SIMPLE_Q_DEFAULT_CONFIG"
    ),
    "agents.dqn.apex": "ApexTrainer APEX_DEFAULT_CONFIG",
    "agents.dqn.dqn_torch_policy": "DQNTorchPolicy QLoss build_q_losses adam_optimizer",
    "agents.dqn.r2d2": "R2D2Trainer R2D2_DEFAULT_CONFIG",
    "agents.dqn.r2d2_torch_policy": "R2D2TorchPolicy",
    "agents.dqn.simple_q": "SimpleQTrainer DEFAULT_CONFIG",
    "agents.dqn.simple_q_torch_policy": "SimpleQTorchPolicy build_q_losses",
    "agents.es": "ESTrainer",
    "agents.impala": "ImpalaTrainer",
    "agents.impala.vtrace_torch_policy": "VTraceTorchPolicy",
    "agents.marwil": "MARWILTrainer BCTrainer MARWILTorchPolicy DEFAULT_CONFIG BC_DEFAULT_CONFIG",
    "agents.marwil.bc": "BCTrainer BC_DEFAULT_CONFIG",
    "agents.marwil.marwil": "MARWILTrainer DEFAULT_CONFIG",
    "agents.marwil.marwil_torch_policy": "MARWILTorchPolicy",
    "agents.pg": "PGTrainer PGTorchPolicy PGConfig DEFAULT_CONFIG",
    "agents.pg.pg": "PGConfig PGTrainer",
    "agents.pg.pg_torch_policy": "PGTorchPolicy pg_torch_loss",
    "agents.pg.utils": "post_process_advantages",
    "agents.ppo": "PPOTrainer APPOTrainer DDPPOTrainer DEFAULT_CONFIG PPOTorchPolicy PPOConfig",
    "agents.ppo.ppo": "PPOTrainer DEFAULT_CONFIG PPOConfig UpdateKL",
    "agents.ppo.ppo_torch_policy": (
        "PPOTorchPolicy KLCoeffMixin ValueNetworkMixin kl_and_loss_stats ppo_surrogate_loss vf_preds_fetches"
    ),
    "agents.qmix": "QMixTrainer",
    "agents.registry": "get_agent_class get_trainer_class",
    "agents.sac": "SACTrainer SACTorchPolicy RNNSACTrainer RNNSAC_DEFAULT_CONFIG",
    "agents.sac.rnnsac": "RNNSACTrainer",
    "agents.trainer": "Trainer",
    "agents.trainer_template": "build_trainer",
    "algorithms.a2c": "A2C A2CConfig",
    "algorithms.a3c": "A3C A3CConfig A3CTorchPolicy",
    "algorithms.algorithm": "Algorithm",
    "algorithms.algorithm_config": "AlgorithmConfig",
    "algorithms.apex_dqn": "ApexDQN ApexDQNConfig",
    "algorithms.appo": "APPO APPOConfig",
    "algorithms.ars": "ARS ARSConfig",
    "algorithms.bc": "BC BCConfig",
    "algorithms.callbacks": "DefaultCallbacks",
    "algorithms.cql": "CQL CQLConfig",
    "algorithms.ddpg": "DDPG DDPGConfig",
    "algorithms.ddppo": "DDPPO DDPPOConfig",
    "algorithms.dqn": "DQN DQNConfig DQNTorchPolicy",
    "algorithms.dqn.dqn": "DQN DQNConfig",
    "algorithms.es": "ES ESConfig",
    "algorithms.impala": "Impala ImpalaConfig",
    "algorithms.marwil": "BC BCConfig MARWIL MARWILConfig",
    "algorithms.pg": "PG PGConfig PGTorchPolicy",
    "algorithms.ppo": "PPO PPOConfig PPOTorchPolicy",
    "algorithms.ppo.ppo": "PPO PPOConfig",
    "algorithms.qmix": "QMix QMixConfig",
    "algorithms.r2d2": "R2D2 R2D2Config",
    "algorithms.registry": "get_algorithm_class",
    "algorithms.sac": "RNNSAC RNNSACConfig SAC SACConfig SACTorchPolicy",
    "algorithms.simple_q": "SimpleQ SimpleQConfig",
    "algorithms.td3": "TD3 TD3Config",
    "env": "EnvContext MultiAgentEnv",
    "env.multi_agent_env": "MultiAgentEnv make_multi_agent",
    "env.wrappers.group_agents_wrapper": "GroupAgentsWrapper",
    "env.wrappers.pettingzoo_env": "PettingZooEnv ParallelPettingZooEnv",
    "evaluation": (
        "RolloutWorker WorkerSet SampleBatch PolicyEvaluator MultiAgentBatch PolicyGraph "
        "SampleBatchBuilder TorchPolicyGraph collect_metrics compute_advantages"
    ),
    "evaluation.policy_evaluator": "PolicyEvaluator",
    "evaluation.policy_graph": "PolicyGraph",
    "evaluation.postprocessing": "Postprocessing compute_advantages compute_gae_for_sample_batch",
    "evaluation.rollout_worker": "RolloutWorker",
    "evaluation.sample_batch_builder": "SampleBatchBuilder",
    "evaluation.worker_set": "WorkerSet",
    "execution": (
        "ParallelRollouts Concurrently Replay StoreToReplayBuffer TrainOneStep UpdateTargetNetwork "
        "AsyncGradients ComputeGradients ApplyGradients AverageGradients ConcatBatches Dequeue Enqueue "
        "LearnerThread LocalReplayBuffer MixInReplay MultiGPUTrainOneStep OncePerTimeInterval "
        "OncePerTimestepsElapsed SelectExperiences StandardMetricsReporting StandardizeFields"
    ),
    "execution.concurrency_ops": "Concurrently Dequeue Enqueue",
    "execution.learner_thread": "LearnerThread",
    "execution.metric_ops": "StandardMetricsReporting OncePerTimeInterval OncePerTimestepsElapsed",
    "execution.replay_buffer": "LocalReplayBuffer ReplayActor",
    "execution.replay_ops": "Replay StoreToReplayBuffer MixInReplay",
    "execution.rollout_ops": "ParallelRollouts ConcatBatches AsyncGradients SelectExperiences StandardizeFields "
    "standardize_fields synchronous_parallel_sample",
    "execution.train_ops": (
        "TrainOneStep UpdateTargetNetwork ApplyGradients AverageGradients ComputeGradients MultiGPUTrainOneStep "
        "multi_gpu_train_one_step train_one_step"
    ),
    "models": "ModelCatalog ActionDistribution Preprocessor MODEL_DEFAULTS",
    "models.action_dist": "ActionDistribution TupleActions",
    "models.catalog": "ModelCatalog MODEL_DEFAULTS",
    "models.modelv2": "ModelV2 restore_original_dimensions",
    "models.preprocessors": "Preprocessor get_preprocessor NoPreprocessor",
    "models.torch.complex_input_net": "ComplexInputNetwork",
    "models.torch.misc": "SlimFC normc_initializer AppendBiasLayer Reshape SlimConv2d same_padding",
    "models.torch.torch_action_dist": "TorchCategorical TorchDiagGaussian TorchDistributionWrapper "
    "TorchDeterministic TorchDirichlet TorchMultiActionDistribution TorchMultiCategorical",
    "models.torch.torch_modelv2": "TorchModelV2",
    "models.utils": "get_activation_fn",
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
    "policy": "Policy TorchPolicy build_torch_policy build_policy_class",
    "policy.policy": "Policy",
    "policy.policy_template": "build_policy_class",
    "policy.rnn_sequencing": "add_time_dimension",
    "policy.sample_batch": "SampleBatch MultiAgentBatch DEFAULT_POLICY_ID",
    "policy.torch_policy": "TorchPolicy",
    "policy.torch_policy_template": "build_torch_policy",
    "utils": (
        "merge_dicts add_mixins try_import_torch DeveloperAPI check deprecation_warning fc force_list "
        "framework_iterator one_hot override relu sigmoid softmax try_import_tf"
    ),
    "utils.annotations": "override PublicAPI DeveloperAPI Deprecated ExperimentalAPI",
    "utils.debug": "log_once summarize",
    "utils.deprecation": "DEPRECATED_VALUE deprecation_warning",
    "utils.error": "EnvError UnsupportedSpaceException",
    "utils.exploration": (
        "EpsilonGreedy StochasticSampling GaussianNoise OrnsteinUhlenbeckNoise SoftQ Random "
        "ParameterNoise Curiosity RND PerWorkerEpsilonGreedy"
    ),
    "utils.framework": "try_import_torch try_import_tf try_import_tfp try_import_jax TensorType",
    "utils.metrics": "NUM_ENV_STEPS_SAMPLED NUM_AGENT_STEPS_SAMPLED",
    "utils.metrics.learner_info": "LEARNER_INFO LEARNER_STATS_KEY",
    "utils.numpy": (
        "softmax sigmoid fc one_hot relu huber_loss l2_loss SMALL_NUMBER MIN_LOG_NN_OUTPUT "
        "MAX_LOG_NN_OUTPUT LARGE_INTEGER convert_to_numpy"
    ),
    "utils.schedules": (
        "Schedule ConstantSchedule LinearSchedule PiecewiseSchedule ExponentialSchedule PolynomialSchedule"
    ),
    "utils.spaces.space_utils": (
        "flatten_space flatten_to_single_ndarray get_base_struct_from_space unbatch clip_action "
        "unsquash_action normalize_action"
    ),
    "utils.test_utils": "check framework_iterator",
    "utils.timer": "TimerStat",
    "utils.torch_ops": "huber_loss sequence_mask explained_variance apply_grad_clipping",
    "utils.torch_utils": "huber_loss FLOAT_MIN",
    "utils.typing": (
        "TensorType ModelConfigDict AgentID PolicyID SampleBatchType MultiAgentDict EnvCreator TrainerConfigDict"
    ),
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
    """But PPO's default config has `num_sgd_iter`, with which every gradient step is taken, as in RLlib."""
    module = importlib.import_module(f"lightning_rl.rllib.agents.{room}")
    trainer = getattr(module, {"dqn": "DQN", "a3c": "A3C", "impala": "Impala"}.get(room, room.upper()) + "Trainer")
    default, given = trainer(env="CartPole-v1"), trainer(env="CartPole-v1", config=module.DEFAULT_CONFIG.copy())
    for section in ("policy", "workers", "data", "evaluation", "exploration", "env"):
        found, expected = ({**each.run_config[section]} for each in (given, default))
        found.pop("config", None), expected.pop("config", None)
        if room == "ppo" and section == "policy":
            assert (found.pop("target_kl"), expected.pop("target_kl")) == (None, 0.1)
        assert found == expected, section


def test_algorithms_are_the_trainers_by_the_names_of_ray_2_0() -> None:
    assert PPO is ppo.PPO is rllib.PPOTrainer is get_algorithm_class("PPO")  # type: ignore[attr-defined]
    trainer_class, config = get_trainer_class("RNNSAC", return_config=True)
    assert trainer_class.__name__ == "RecurrentSACTrainer" and config["replay_sequence_length"] > 1
    algorithm = PPOConfig().environment("CartPole-v1").training(train_batch_size=64).build()
    assert type(algorithm) is PPO
    info = algorithm.train()["info"]
    assert info[NUM_ENV_STEPS_SAMPLED] == info[NUM_AGENT_STEPS_TRAINED] == info[STEPS_TRAINED_COUNTER] == 64
    assert "policy_loss" in info[LEARNER_INFO]["default_policy"][LEARNER_STATS_KEY]
    algorithm.stop()
