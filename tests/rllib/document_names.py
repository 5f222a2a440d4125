"""Every name, parameter, key and program of four texts that teach classic RLlib, and what it is here.

`page` writes docs/rllib_names.md from this table, and `test_document_names.py` checks each row. The texts are RLlib's
pages "RLlib Concepts" (Ray 0.7) and "RLlib Models, Preprocessors, and Action Distributions" (Ray 0.8), a walk through
the source of Ray 1.x from Trainable to losses, and a tutorial on custom policies (Ray 2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

HEAD = """# RLlib's names

<!-- `python scripts/regenerate.py` writes this page from `tests/rllib/document_names.py`. -->

This page lists every name, parameter, key, constant and program of four texts that teach classic RLlib: its pages
*RLlib Concepts* (Ray 0.7) and *Models, Preprocessors, and Action Distributions* (Ray 0.8), a walk through the source of
Ray 1.x, and a tutorial on custom policies (Ray 2.0). Paths are relative to `ray.rllib`; they are the same below
`lightning_rl.rllib`.

Of {total} items, {same} work as named, {other} have another name, and {none} belong to TensorFlow or Ray and have no
meaning here. `tests/rllib/test_document_names.py` checks every row: names are imported, functions take the parameters,
methods of a user's class are called with them, configs take the keys with these values, and each program is a test.
The last section lists what other programs import and is not here.
"""
SAME, OTHER, NONE = "same", "other", "none"


class Row(NamedTuple):
    """A name of a text.

    Attributes:
        kind: "import", "parameter" (that a function here takes), "method" (of a user's class, with a parameter that it
            gets), "attribute" (of an object), "key" (of a config), "model key", "input" (of a model), "constant",
            "command" or "program".
        name: as the page shows it.
        subject: what a check needs to find it: a path, an object, a method.
        member: the parameter, attribute or key.
        value: of a key or constant.
        other: what it is here, if that is another name; "" if it has no meaning.
        reason: why it is not the same.
    """

    kind: str
    name: str
    subject: str = ""
    member: str = ""
    value: Any = None
    other: str = ""
    reason: str = ""

    @property
    def status(self) -> str:
        """SAME, OTHER or NONE."""
        return SAME if not self.reason else OTHER if self.other else NONE


def imports(*paths: str) -> Iterator[Row]:
    """Names that a program imports, or reaches from what it imports, by their paths below `ray.rllib`."""
    return (Row("import", path, path) for path in paths)


def takes(path: str, parameters: str) -> Iterator[Row]:
    """A function or class, and its parameters, separated by spaces."""
    yield from imports(path)
    short = ".".join(path.split(".")[-2:]) if path.split(".")[-2][:1].isupper() else path.split(".")[-1]
    for parameter in parameters.split():
        yield Row("parameter", f"{short}({parameter})", path, parameter)


def gets(method: str, parameters: str) -> Iterator[Row]:
    """A method of a user's class, and the parameters that it has to have."""
    for parameter in parameters.split():
        yield Row("method", method if parameter == "self" else f"{method}({parameter})", method, parameter)


def has(owner: str, attributes: str) -> Iterator[Row]:
    """Attributes of an object that a program holds."""
    return (Row("attribute", f"{owner}.{name}", owner, name) for name in attributes.split())


def keys(algorithm: str, **values: Any) -> Iterator[Row]:
    """Keys of an algorithm's config, with the values that the text gives them."""
    return (Row("key", f'config["{key}"]', algorithm, key, value) for key, value in values.items())


def model_keys(**values: Any) -> Iterator[Row]:
    """Keys of MODEL_DEFAULTS, with their values there."""
    return (Row("model key", f'MODEL_DEFAULTS["{key}"]', "", key, value) for key, value in values.items())


def columns(**values: str) -> Iterator[Row]:
    """Constants of SampleBatch, with their values."""
    return (Row("constant", f"SampleBatch.{name}", "", name, value) for name, value in values.items())


def programs(**titles: str) -> Iterator[Row]:
    """Programs of a text, by the files of `tests/rllib/listings` that hold them."""
    return (Row("program", title, name) for name, title in titles.items())


def other(name: str, here: str, reason: str) -> Iterator[Row]:
    """A name that has another one here, the path or object of which is `here`."""
    yield Row("import", name, other=here, reason=reason)


def tensorflow(*names: str, twin: str = "") -> Iterator[Row]:
    """Names of TensorFlow, with the name of their counterpart in PyTorch if there is one."""
    for name in names:
        yield Row("import", name, other=twin, reason="TensorFlow only")


CONCEPTS = [
    *takes("policy.policy.Policy", "observation_space action_space config"),
    *gets(
        "Policy.compute_actions",
        "obs_batch state_batches prev_action_batch prev_reward_batch info_batch episodes kwargs",
    ),
    *gets("Policy.learn_on_batch", "samples"),
    *gets("Policy.get_weights", "self"),
    *gets("Policy.set_weights", "weights"),
    *imports("policy.sample_batch.SampleBatch", "evaluation.sample_batch.SampleBatch"),
    *imports("policy.sample_batch.SampleBatch.concat_samples"),
    *imports("evaluation.policy_graph.PolicyGraph", "evaluation.torch_policy_graph.TorchPolicyGraph"),
    *imports("evaluation.policy_evaluator.PolicyEvaluator", "evaluation.PolicyEvaluator.as_remote"),
    *has("worker", "sample set_weights get_weights"),
    *imports("policy.torch_policy.TorchPolicy"),
    *tensorflow("policy.tf_policy.TFPolicy", twin="policy.torch_policy.TorchPolicy"),
    *imports("optimizers.policy_optimizer.PolicyOptimizer"),
    *imports("optimizers.async_gradients_optimizer.AsyncGradientsOptimizer"),
    *imports("optimizers.sync_samples_optimizer.SyncSamplesOptimizer"),
    *takes("optimizers.async_samples_optimizer.AsyncSamplesOptimizer", "train_batch_size"),
    *imports("optimizers.AsyncSamplesOptimizer.step"),
    *takes("agents.ppo.PPOTrainer", "env config"),
    *imports("agents.ppo.PPOTrainer.train"),
    *keys("PPO", train_batch_size=4000),
    Row("command", "rllib train --run=PPO", "train", "--run=PPO"),
    Row("command", "rllib train --env=CartPole-v0", "train", "--env=CartPole-v0"),
    Row("command", "rllib train --config={…}", "train", '--config={"train_batch_size": 200}'),
    *programs(test_concepts_evaluators="A policy from scratch, and loops over evaluators and optimizers"),
    *programs(test_concepts_trainer="PPOTrainer in Python and on the command line"),
]

MODELS = [
    Row(
        "key",
        'config["model"]["conv_filters"]',
        "PPO",
        "model",
        {"dim": 42, "conv_filters": [[16, [4, 4], 2], [32, [4, 4], 2], [512, [11, 11], 1]]},
    ),
    *keys("DQN", hiddens=[], dueling=False, observation_filter="NoFilter"),
    *keys("A2C", use_pytorch=True),
    *tensorflow("models.tf.tf_modelv2.TFModelV2", twin="models.torch.torch_modelv2.TorchModelV2"),
    *tensorflow(
        "models.tf.recurrent_tf_modelv2.RecurrentTFModelV2", twin="models.torch.recurrent_net.RecurrentNetwork"
    ),
    *tensorflow("tf.layers.batch_normalization", twin="torch.nn.BatchNorm1d"),
    *tensorflow("multi_gpu_impl.py"),
    *imports("models.torch.torch_modelv2.TorchModelV2"),
    *gets("TorchModelV2.__init__", "obs_space action_space num_outputs model_config name"),
    *gets("TorchModelV2.forward", "input_dict state seq_lens"),
    *gets("TorchModelV2.value_function", "self"),
    *gets("TorchModelV2.custom_loss", "policy_loss loss_inputs"),
    *gets("TorchModelV2.metrics", "self"),
    *gets("TorchModelV2.get_initial_state", "self"),
    *has("model", "from_batch update_ops register_variables variables trainable_variables model_config num_outputs"),
    Row("input", 'input_dict["obs"]', member="obs"),
    Row("input", 'input_dict["is_training"]', member="is_training"),
    Row(
        "input",
        'input_dict["prev_action"]',
        member="prev_actions",
        other='input_dict["prev_actions"]',
        reason="the name that RLlib has, too; a class that reads it sets `prev_actions = 1`",
    ),
    Row(
        "input",
        'input_dict["prev_reward"]',
        member="prev_rewards",
        other='input_dict["prev_rewards"]',
        reason="the name that RLlib has, too; a class that reads it sets `prev_rewards = 1`",
    ),
    *imports("agents.ppo", "agents.a3c", "models.ModelCatalog"),
    *imports("models.ModelCatalog.register_custom_model", "models.ModelCatalog.register_custom_preprocessor"),
    *imports("models.ModelCatalog.register_custom_action_dist"),
    *imports("agents.a3c.A2CTrainer", "agents.a3c.A3CTrainer", "agents.pg.PGTrainer", "agents.impala.ImpalaTrainer"),
    Row("key", 'config["model"]["custom_model"]', "PPO", "model", {"custom_model": None}),
    Row("key", 'config["model"]["custom_options"]', "PPO", "model", {"custom_options": {}}),
    Row("key", 'config["model"]["use_lstm"]', "PPO", "model", {"use_lstm": True}),
    Row("key", 'config["model"]["custom_preprocessor"]', "PPO", "model", {"custom_preprocessor": None}),
    Row("key", 'config["model"]["custom_action_dist"]', "PPO", "model", {"custom_action_dist": None}),
    Row("key", 'config["model"]["vf_share_layers"]', "PPO", "model", {"vf_share_layers": True}),
    *imports("models.torch.recurrent_net.RecurrentNetwork"),
    *gets("RecurrentNetwork.forward_rnn", "inputs state seq_lens"),
    *gets("RecurrentNetwork.get_initial_state", "self"),
    *imports("models.preprocessors.Preprocessor", "models.preprocessors.OneHotPreprocessor"),
    *imports("models.preprocessors.TupleFlatteningPreprocessor", "models.preprocessors.DictFlatteningPreprocessor"),
    *gets("Preprocessor._init_shape", "obs_space options"),
    *gets("Preprocessor.transform", "observation"),
    *imports("models.action_dist.ActionDistribution", "models.ActionDistribution"),
    *gets("ActionDistribution.required_model_output_shape", "action_space model_config"),
    *gets("ActionDistribution.__init__", "inputs model"),
    *gets("ActionDistribution.sample", "self"),
    *gets("ActionDistribution.logp", "actions"),
    *gets("ActionDistribution.entropy", "self"),
    *imports("models.action_dist.TupleActions", "models.torch.torch_action_dist.TorchCategorical"),
    *imports("models.torch.misc.normc_initializer"),
    *takes("models.torch.fcnet.FullyConnectedNetwork", "obs_space action_space num_outputs model_config name"),
    *imports("offline.json_reader.JsonReader", "offline.input_reader.InputReader.next"),
    *programs(
        test_models_custom_model="A custom model, in PPO and with use_pytorch in A2C",
        test_models_conv_filters="conv_filters for images of 42 × 42",
        test_models_use_lstm="use_lstm in PPO, PG, IMPALA and A3C",
        test_models_recurrent="A recurrent model",
        test_models_batch_norm="Batch normalization by is_training",
        test_models_preprocessor="A custom preprocessor",
        test_models_action_dist="A custom action distribution",
        test_models_supervised_loss="A supervised loss",
        test_models_imitation_loss="A supervised loss over offline data",
        test_models_parametric_actions="Parametric actions",
        test_models_autoregressive_actions="Autoregressive actions",
    ),
]

WALK = [
    *imports("evaluation.rollout_worker.RolloutWorker"),
    Row("import", "ParallelIteratorWorker", reason="Ray's own, which Ray has removed"),
    Row("import", "from_actors", other="execution.rollout_ops.ParallelRollouts", reason="Ray's own, which Ray removed"),
    Row("import", "ParallelIterator", other="plans.LocalIterator", reason="Ray's own, which Ray has removed"),
    *takes(
        "evaluation.worker_set.WorkerSet", "env_creator validate_env policy_class trainer_config num_workers logdir"
    ),
    *has("workers", "local_worker remote_workers foreach_worker sync_weights"),
    *has("worker", "save restore preprocessors"),
    *imports("agents.callbacks.DefaultCallbacks"),
    *gets("DefaultCallbacks.on_episode_start", "worker base_env policies episode env_index"),
    *gets("DefaultCallbacks.on_episode_step", "worker base_env policies episode env_index"),
    *gets("DefaultCallbacks.on_episode_end", "worker base_env policies episode env_index"),
    *gets(
        "DefaultCallbacks.on_postprocess_trajectory",
        "worker episode agent_id policy_id policies postprocessed_batch original_batches",
    ),
    *gets("DefaultCallbacks.on_sample_end", "worker samples"),
    *gets("DefaultCallbacks.on_learn_on_batch", "policy train_batch result"),
    *gets("DefaultCallbacks.on_train_result", "trainer result"),
    *imports("agents.trainer.Trainer"),
    *takes("agents.trainer.Trainer.default_resource_request", "config"),
    *takes("agents.trainer.Trainer.train_buffered", "buffer_time_s max_buffer_length"),
    *imports("trainable.SHOULD_CHECKPOINT", "trainable.RESULT_DUPLICATE"),
    *imports("agents.trainer.Trainer.train", "agents.trainer.Trainer.step"),
    *takes("agents.trainer.Trainer.setup", "config"),
    *takes("agents.trainer.Trainer.save_checkpoint", "checkpoint_dir"),
    *takes("agents.trainer.Trainer.load_checkpoint", "checkpoint"),
    *imports("agents.trainer.Trainer.cleanup"),
    *takes("agents.trainer.Trainer.merge_trainer_configs", "config1 config2"),
    *takes("agents.trainer.Trainer._validate_config", "config trainer_obj_or_none"),
    *takes("agents.trainer.Trainer._make_workers", "env_creator validate_env policy_class config num_workers"),
    *takes("agents.trainer.Trainer._sync_weights_to_workers", "worker_set workers"),
    *takes("agents.trainer.Trainer._init", "config env_creator"),
    *has("trainer", "_env_id env_creator raw_user_config config callbacks logdir workers evaluation_workers"),
    *has("trainer", "_name _default_config _policy_class train_exec_impl evaluate"),
    *other("Trainer._register_if_needed", "register_env", "classes and functions are environments as they are"),
    *takes("agents.trainer.Trainer.get_policy", "policy_id"),
    *takes(
        "agents.trainer.Trainer.compute_single_action",
        "observation state prev_action prev_reward info policy_id full_fetch explore",
    ),
    *takes(
        "agents.trainer.Trainer.compute_actions",
        "observations state prev_action prev_reward info policy_id full_fetch explore",
    ),
    *takes(
        "agents.dqn.dqn_torch_policy.QLoss",
        "q_t_selected q_logits_t_selected q_tp1_best q_probs_tp1_best importance_weights rewards done_mask gamma "
        "n_step num_atoms v_min v_max",
    ),
    *has("q_loss", "td_error loss"),
    *takes("agents.dqn.dqn_torch_policy.build_q_losses", "policy model train_batch"),
    *imports("agents.dqn.dqn_torch_policy.PRIO_WEIGHTS", "utils.torch_ops.huber_loss"),
    *columns(REWARDS="rewards", DONES="dones"),
    *keys("DQN", gamma=0.99, n_step=3, num_atoms=51, v_min=-10.0, v_max=10.0, framework="torch"),
    Row(
        "key",
        'config["Exploration"]',
        "DQN",
        "exploration_config",
        {"type": "EpsilonGreedy"},
        other='config["exploration_config"]',
        reason="the key that RLlib has, too",
    ),
    *has("policy", "observation_space action_space action_space_struct global_timestep exploration"),
    *has("policy", "_create_exploration get_exploration_info get_exploration_state"),
    *has("policy", "get_num_samples_loaded_into_buffer learn_on_loaded_batch compute_actions"),
    *has("policy", "dist_class model model_gpu_towers devices loss"),
    *other(
        "TorchPolicy._compute_action_helper", "policy.torch_policy.TorchPolicy.compute_actions", "it does all itself"
    ),
    *other(
        "Exploration.before_compute_actions",
        "lightning_rl.exploration.Exploration.get_exploration_action",
        "an exploration strategy is called once for a batch of actions",
    ),
    *imports("models.torch.torch_action_dist.TorchDistributionWrapper"),
    *has("dist", "logp entropy kl sample sampled_action_logp"),
    *tensorflow("DQNTFPolicy", twin="agents.dqn.DQNTorchPolicy"),
    *tensorflow("SimpleQTFPolicy", twin="agents.dqn.SimpleQTorchPolicy"),
    *tensorflow("build_tf_policy", twin="policy.torch_policy_template.build_torch_policy"),
    *tensorflow("DynamicTFPolicy"),
    *takes("policy.policy_template.build_policy_class", "name framework loss_fn optimizer_fn"),
    *imports("agents.dqn.dqn_torch_policy.adam_optimizer"),
    *imports("execution.replay_buffer.LocalReplayBuffer", "execution.replay_buffer.LocalReplayBuffer.add_batch"),
    *imports("execution.replay_buffer.LocalReplayBuffer.replay"),
    *imports("execution.replay_buffer.LocalReplayBuffer.update_priorities"),
    *takes("execution.rollout_ops.ParallelRollouts", "workers mode"),
    *takes("execution.replay_ops.Replay", "local_buffer"),
    *takes("execution.replay_ops.StoreToReplayBuffer", "local_buffer"),
    *takes("execution.concurrency_ops.Concurrently", "ops mode output_indexes"),
    *takes("execution.metric_ops.StandardMetricsReporting", "train_op workers config"),
    *imports("execution.train_ops.TrainOneStep", "execution.train_ops.UpdateTargetNetwork"),
    *takes(
        "agents.trainer_template.build_trainer",
        "name default_policy get_policy_class execution_plan default_config validate_config mixins",
    ),
    *takes("agents.trainer.Trainer.with_updates", "name default_policy get_policy_class default_config execution_plan"),
    *takes("utils.add_mixins", "base mixins"),
    *imports("agents.trainer.COMMON_CONFIG", "agents.dqn.DEFAULT_CONFIG", "agents.dqn.simple_q.DEFAULT_CONFIG"),
    *imports("agents.dqn.SimpleQTrainer", "agents.dqn.GenericOffPolicyTrainer", "agents.dqn.DQNTrainer"),
    *imports("agents.dqn.DQNTorchPolicy", "agents.dqn.SimpleQTorchPolicy"),
    *programs(
        test_walk_trainer="From Trainable to Trainer",
        test_walk_callbacks="The seven callbacks",
        test_walk_q_loss="QLoss and build_q_losses",
        test_walk_policy="What a Policy holds",
        test_walk_torch_policy="What a TorchPolicy holds",
        test_walk_execution_plan="Execution plans, and trainers of build_trainer and with_updates",
    ),
]

POLICIES = [
    *takes("models.modelv2.ModelV2", "obs_space action_space num_outputs model_config name framework"),
    *imports("models.modelv2.ModelV2.forward", "models.modelv2.ModelV2.custom_loss", "models.modelv2.ModelV2.metrics"),
    *imports("models.modelv2.ModelV2.value_function"),
    Row(
        "input",
        'input_dict["obs_flatten"]',
        member="obs_flat",
        other='input_dict["obs_flat"]',
        reason="the name that RLlib has, too",
    ),
    *imports("utils.annotations.PublicAPI", "utils.annotations.DeveloperAPI", "utils.deprecation.DEPRECATED_VALUE"),
    *imports(
        *(
            f"utils.typing.{name}"
            for name in [
                "AgentID",
                "ModelConfigDict",
                "ModelGradients",
                "ModelWeights",
                "PolicyID",
                "PolicyState",
                "TensorStructType",
                "TensorType",
            ]
        )
    ),
    *imports("models.catalog.MODEL_DEFAULTS", "models.catalog.ModelCatalog"),
    *model_keys(
        _use_default_native_models=False,
        _disable_preprocessor_api=False,
        _disable_action_flattening=False,
        fcnet_hiddens=[256, 256],
        fcnet_activation="tanh",
        conv_filters=None,
        conv_activation="relu",
        post_fcnet_hiddens=[],
        post_fcnet_activation="relu",
        free_log_std=False,
        no_final_linear=False,
        vf_share_layers=True,
        use_lstm=False,
        max_seq_len=20,
        lstm_cell_size=256,
        lstm_use_prev_action=False,
        lstm_use_prev_reward=False,
        _time_major=False,
        use_attention=False,
        attention_num_transformer_units=1,
        attention_dim=64,
        attention_num_heads=1,
        attention_head_dim=32,
        attention_memory_inference=50,
        attention_memory_training=50,
        attention_position_wise_mlp_dim=32,
        attention_init_gru_gate_bias=2.0,
        attention_use_n_prev_actions=0,
        attention_use_n_prev_rewards=0,
        framestack=True,
        dim=84,
        grayscale=False,
        zero_mean=True,
        custom_model=None,
        custom_model_config={},
        custom_action_dist=None,
        custom_preprocessor=None,
        lstm_use_prev_action_reward=-1,
    ),
    *keys("PPO", lr=0.00001, env="CartPole-v0", num_gpus=0, num_workers=2),
    *takes(
        "policy.policy.Policy.compute_single_action",
        "obs state prev_action prev_reward info input_dict episode explore timestep",
    ),
    *takes("policy.policy.Policy.compute_actions_from_input_dict", "input_dict explore timestep episodes"),
    *takes(
        "policy.torch_policy.TorchPolicy.compute_actions",
        "obs_batch state_batches prev_action_batch prev_reward_batch info_batch episodes explore timestep",
    ),
    *takes(
        "policy.torch_policy.TorchPolicy.compute_log_likelihoods",
        "actions obs_batch state_batches prev_action_batch prev_reward_batch actions_normalized",
    ),
    *gets("TorchPolicy.postprocess_trajectory", "sample_batch other_agent_batches episode"),
    *gets("TorchPolicy.loss", "model dist_class train_batch"),
    *gets("Policy.compute_gradients", "postprocessed_batch"),
    *gets("Policy.apply_gradients", "gradients"),
    *imports("policy.policy.Policy.get_state"),
    *takes("policy.policy.Policy.set_state", "state"),
    *takes("policy.torch_policy.TorchPolicy.export_model", "export_dir onnx"),
    *takes("policy.policy.Policy.load_batch_into_buffer", "batch buffer_index"),
    *takes("policy.policy.Policy.learn_on_batch_from_replay_buffer", "replay_actor policy_id"),
    *takes("policy.policy.Policy.learn_on_loaded_batch", "offset buffer_index"),
    *other(
        "Policy.import_model_from_h5",
        "policy.policy.Policy.set_weights",
        "an error says so: HDF5 files hold models of Keras",
    ),
    *imports("evaluation.episode.Episode"),
    Row("import", "ActorHandle", reason="Ray's own"),
    *takes(
        "policy.torch_policy_template.build_torch_policy",
        "name get_default_config loss_fn stats_fn postprocess_fn extra_action_out_fn extra_grad_process_fn "
        "optimizer_fn mixins",
    ),
    *imports("agents.a3c.a3c_torch_policy.ValueNetworkMixin", "agents.a3c.a3c_torch_policy.A3CTorchPolicy"),
    *takes("algorithms.algorithm.Algorithm.get_default_policy_class", "config"),
    *imports("algorithms.algorithm.Algorithm"),
    *tensorflow("agents.ppo.ppo_tf_policy.PPOTFPolicy", twin="agents.ppo.ppo_torch_policy.PPOTorchPolicy"),
    *takes("agents.ppo.PPOTorchPolicy.with_updates", "name loss_fn"),
    *programs(
        test_policies_model_base="The methods of a model",
        test_policies_torch_model="A TorchModelV2, registered",
        test_policies_model_config="The keys of a model's config",
        test_policies_policy_base="The methods of a policy",
        test_policies_build_torch_policy="A policy of functions, trained by Tune",
        test_policies_a3c="A3CTorchPolicy",
        test_policies_with_updates="PPO with another loss",
        test_policies_batch_model="The model that a loss gets",
    ),
]

MEMBERS = [
    *takes("env.external_env.ExternalEnv", "action_space observation_space max_concurrent"),
    *takes("env.external_env.ExternalEnv.start_episode", "episode_id training_enabled"),
    *takes("env.external_env.ExternalEnv.log_returns", "episode_id reward info"),
    *takes("env.external_multi_agent_env.ExternalMultiAgentEnv.log_returns", "reward info multiagent_done_dict"),
    *(
        row
        for name in ("env.external_env.ExternalEnv", "env.policy_client.PolicyClient")
        for row in (
            *takes(f"{name}.get_action", "episode_id observation"),
            *takes(f"{name}.log_action", "episode_id observation action"),
            *takes(f"{name}.end_episode", "episode_id observation"),
        )
    ),
    *takes("env.policy_client.PolicyClient", "address inference_mode update_interval"),
    *imports("env.policy_client.PolicyClient.update_policy_weights"),
    *takes("env.policy_server_input.PolicyServerInput", "ioctx address port idle_timeout"),
    *imports(*(f"agents.trainer.Trainer.{name}" for name in ("save", "restore", "stop", "reset_config", "log_result"))),
    *has("trainer", "iteration training_iteration"),
    *takes("agents.trainer.Trainer.get_weights", "policies"),
    *takes("agents.trainer.Trainer.set_weights", "weights"),
    *takes("agents.trainer.Trainer.export_policy_model", "export_dir policy_id onnx"),
    *takes("agents.trainer.Trainer.export_policy_checkpoint", "export_dir filename_prefix policy_id"),
    *takes(
        "agents.trainer.Trainer.add_policy",
        "policy_id policy_cls observation_space action_space config policy_mapping_fn policies_to_train",
    ),
    *takes("agents.trainer.Trainer.remove_policy", "policy_id policy_mapping_fn policies_to_train"),
    *other("Trainer.import_policy_model_from_h5", "agents.trainer.Trainer.set_weights",
           "an error says so: HDF5 files hold models of Keras"),
    *columns(
        CUR_OBS="obs", NEXT_OBS="new_obs", ACTIONS="actions", PREV_ACTIONS="prev_actions", PREV_REWARDS="prev_rewards",
        INFOS="infos", SEQ_LENS="seq_lens", ACTION_DIST_INPUTS="action_dist_inputs", ACTION_PROB="action_prob",
        ACTION_LOGP="action_logp", VF_PREDS="vf_preds", EPS_ID="eps_id", ENV_ID="env_id", UNROLL_ID="unroll_id",
        AGENT_INDEX="agent_index", T="t",
    ),
]  # fmt: skip

# Modules and names that programs import from RLlib 1.x and that are not here, with what does their work.
ABSENT: dict[str, tuple[str, ...]] = {
    "there is no TensorFlow": (
        "models.tf", "policy.tf_policy", "policy.tf_policy_template", "policy.dynamic_tf_policy",
        "policy.eager_tf_policy", "utils.tf_utils", "utils.tf_run_builder", "execution.train_ops.TrainTFMultiGPU",
    ),
    "`num_envs_per_worker` and `remote_worker_envs` step several environments together": (
        "env.vector_env", "env.remote_vector_env", "env.remote_base_env",
    ),
    "a game's `env_config` has the settings of DeepMind's preprocessing": ("env.wrappers.atari_wrappers",),
    "sequences are padded for the model alone": (
        "policy.rnn_sequencing.chop_into_sequences", "policy.rnn_sequencing.pad_batch_to_sequences_of_same_size",
    ),
    "the key `n_step`: a replay buffer sums rewards itself": (
        "evaluation.postprocessing.adjust_nstep", "agents.dqn.dqn_torch_policy.postprocess_nstep_and_prio",
    ),
    "`DQNTorchPolicy` has its networks and TD errors": (
        "agents.dqn.dqn_torch_policy.build_q_model_and_distribution", "agents.dqn.dqn_torch_policy.compute_q_values",
        "agents.dqn.dqn_torch_policy.ComputeTDErrorMixin", "agents.dqn.simple_q_torch_policy.TargetNetworkMixin",
    ),
    "workers sample by themselves": ("evaluation.sampler", "evaluation.collectors"),
    "`worker.policy_map` is a dict": ("policy.policy_map",),
    "the key `observation_filter`: a filter is part of the policy": ("utils.filter", "utils.filter_manager"),
    "the key `use_attention`": ("models.torch.attention_net", "models.torch.modules"),
    "there are no such spaces": (
        "models.extra_spaces", "models.repeated_values", "utils.spaces.repeated", "utils.spaces.simplex",
    ),
    "the keys of replay, or `execution.LocalReplayBuffer`": (
        "execution.segment_tree", "execution.replay_buffer.ReplayBuffer",
        "execution.replay_buffer.PrioritizedReplayBuffer", "execution.replay_ops.SimpleReplayBuffer",
        "utils.replay_buffers",
    ),
    "an execution plan of operators, or a `training_step`": (
        "execution.replay_ops.WaitUntilTimestepsElapsed", "execution.metric_ops.CollectMetrics",
        "execution.tree_agg", "execution.parallel_requests",
        "execution.multi_gpu_learner_thread",
    ),
    "`SyncSamplesOptimizer` and `SyncReplayOptimizer` on the device of the policy": (
        "optimizers.LocalMultiGPUOptimizer", "optimizers.SyncBatchReplayOptimizer", "optimizers.AsyncReplayOptimizer",
        "optimizers.MicrobatchOptimizer",
    ),
    "`SACTorchPolicy` has its networks": ("agents.sac.sac_torch_model",),
    "helpers of RLlib's own code": (
        "env.utils", "utils.actors", "utils.from_config", "utils.memory", "utils.sgd", "utils.window_stat",
    ),
    "`lightning_rl.rllib.MADDPGTrainer`, for a group of agents": ("agents.maddpg",),
    "there are no such algorithms": (
        "agents.alpha_star", "agents.bandit", "agents.ddpg.apex", "agents.dreamer", "agents.maml", "agents.mbmpo",
        "agents.slateq", "contrib",
    ),
}  # fmt: skip

SECTIONS: dict[str, list[Row]] = {
    "RLlib Concepts": CONCEPTS,
    "Models, preprocessors and action distributions": MODELS,
    "From Trainable to losses": WALK,
    "Custom policies": POLICIES,
    "Related names": MEMBERS,
}


def rows() -> list[Row]:
    """All rows, each once."""
    return list({(row.kind, row.name): row for section in SECTIONS.values() for row in section}.values())


def page() -> str:
    """The text of docs/rllib_names.md."""
    every = rows()
    counts = {name: sum(row.status == name for row in every) for name in (SAME, OTHER, NONE)}
    lines = [HEAD.format(total=len(every), **counts)]
    shown: set[tuple[str, str]] = set()
    for title, section in SECTIONS.items():
        lines += [f"## {title}\n", "| there | | here |", "|---|---|---|"]
        for row in section:
            if (row.kind, row.name) in shown:
                continue
            shown.add((row.kind, row.name))
            name = row.name if row.kind == "program" else f"`{row.name}`"
            here = {SAME: "the same", OTHER: f"`{row.other}`: {row.reason}", NONE: f"no meaning: {row.reason}"}
            text = f"`tests/rllib/listings/{row.subject}.py`" if row.kind == "program" else here[row.status]
            lines.append(f"| {name} | {row.kind} | {text} |")
        lines.append("")
    lines += ["## What is not here\n", "| there | what does its work |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in names)} | {reason} |" for reason, names in ABSENT.items()]
    return "\n".join([*lines, ""])
