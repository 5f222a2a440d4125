"""Tests for every promise in the README, by sentence; the README's commands compose.

A new sentence has to be given its test (or be listed as one that promises nothing), and a test that is renamed has to
be named anew. Python code in the README is run by test_docs.py.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from lightning_rl.cli import VERBS
from lightning_rl.config import check_config, compose_config
from lightning_rl.config.sweeps import sweep_jobs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Words of a sentence → the tests that show it, wherever they are.
CLAIMS = {
    # Export
    "one file from observation to action, checked against the policy": [
        "test_an_onnx_file_answers_as_the_policy",
        "test_a_file_that_differs_from_the_policy_is_an_error_and_leaves_nothing_that_claims_to_be_good",
    ],
    "On a machine without torch an [exported](docs/deploy.md) policy acts by NumPy and onnxruntime alone": [
        "test_it_acts_where_neither_torch_nor_gymnasium_nor_this_package_can_be_imported_further",
        "test_a_deployed_policy_has_the_returns_of_evaluate_on_equal_seeds",
    ],
    # Your own
    "**An algorithm that replays** says so with `data`": [
        "test_a_policy_without_a_config_file_gets_the_datamodule_that_policy_data_names",
        "test_a_datamodule_of_another_kind_than_policy_data_is_refused",
    ],
    "its rows are transitions": ["test_the_transitions_of_real_workers_come_back_whole"],
    "**A metric** that `loss` returns is logged": ["test_stop_metric_may_be_a_registered_metric_that_a_loss_returns"],
    "registered, it can end a run or choose": ["test_stop_metric_may_be_a_registered_metric_that_a_loss_returns"],
    # Everyday commands
    "ten runs of one config": ["test_each_seed_has_its_run_and_the_table_comes_at_the_end"],
    "a search of hyperparameters, which can be": ["test_tune_leaves_runs_a_table_and_an_experiment_and_goes_on"],
    "fine-tuning": [
        "test_weights_and_filters_are_those_of_the_file_and_counters_are_0",
        "test_a_run_keeps_them_and_resumes",
    ],
    "where a value comes from": [
        "test_the_chain_is_algorithm_experiment_command_line",
        "test_a_run_is_explained_by_its_own_overrides_and_its_history",
    ],
    "what is wrong with": ["test_each_fault_has_its_finding_and_its_fix", "test_policies_are_sorted_by_what_they_take"],
    "what this machine lacks": ["test_doctor_examines_this_machine"],
    "a project folder in which everything runs": ["test_a_new_project_trains", "test_the_tests_of_a_new_project_pass"],
    # What it is
    "each **Policy is a LightningModule**": ["test_early_stopping_and_model_checkpoint_read_the_metrics"],
    "its `training_step` wraps the RL loss": [
        "test_custom_losses_train_the_model_and_are_reported_by_every_algorithm",
        "test_a_model_s_custom_loss_trains_its_parameters_and_its_metrics_are_reported",
    ],
    "feed a sized **IterableDataset**": ["test_processes_do_not_change_the_result"],
    "a DataModule owns all data and its state": ["test_a_resumed_run_continues_replay_priorities_and_the_ratio"],
    "**Hydra** composes": ["test_pairs_compose_and_pass_the_check"],
    "every YAML key is a constructor's keyword": [
        "test_a_policys_config_is_its_constructor",
        "test_the_other_sections_yaml_are_their_constructors_signatures",
    ],
    "**Lightning's Trainer** does devices": [
        "test_ranks_have_equal_weights_after_training",
        "test_early_stopping_and_model_checkpoint_read_the_metrics_of_a_run",
    ],
    "**TensorBoard** shows the run": ["test_the_hparams_tab_has_the_config_and_the_evaluation_as_hp_metric"],
    # What it promises
    "on-policy data are never stale": ["test_ppo_s_kl_is_0_on_the_first_minibatch_of_an_iteration"],
    "the same seed": ["test_policies_with_equal_seeds_learn_equal_weights", "test_processes_do_not_change_the_result"],
    "no checkpoint cuts an episode": ["test_saves_at_every_iteration_change_nothing_that_is_learned"],
    "a run that is killed and resumed ends bit-equal": [
        "test_n_and_n_more_steps_are_2n",
        "test_a_run_resumed_from_a_save_by_the_clock_is_the_run_that_went_on",
        "test_a_run_resumed_from_a_best_file_is_the_run_that_went_on",
        "test_a_run_resumed_after_ctrl_c_equals_an_uninterrupted_run",
    ],
    "a time limit is not taken for an end": [
        "test_gae_cuts_at_both_ends_but_bootstraps_only_the_truncated_one",
        "test_an_endless_reward_is_worth_its_geometric_sum_under_a_time_limit",
    ],
    "a checkpoint is whole or not there": ["test_kill_9_while_writing_leaves_the_old_or_the_new_file_whole"],
    "loading a file runs no code": [
        "test_code_in_a_file_is_not_run",
        "test_a_hostile_file_is_refused",
        "test_nothing_that_the_config_of_a_run_names_is_run",
        "test_a_policy_of_one_s_own_is_loaded_where_its_package_is_trusted",
    ],
    "an evaluation with which evaluations would take more than a fifth of the wall time is put off": [
        "test_evaluations_take_no_more_than_their_share_of_the_time",
        "test_the_first_evaluation_is_expected_to_last_as_its_own_steps_say",
    ],
    "they come at multiples of environment": ["test_evaluations_come_after_multiples_of_env_steps_in_every_pipeline"],
    # Everyday commands
    "group=choice, key=value": ["test_tuned_values_of_a_pair_apply_by_default_and_overrides_win"],
    "my_envs.py in the working directory": ["test_the_program_finds_modules_of_the_working_directory"],
    "means over seeds in sweep.md and sweep.csv": [
        "test_a_sweep_leaves_means_and_intervals_over_seeds",
        "test_a_failing_job_leaves_its_traceback_and_does_not_stop_the_others",
    ],
    "rollouts in two Ray processes": ["test_processes_do_not_change_the_result"],
    "acting and learning at once": ["test_workers_act_while_the_policy_learns"],
    "without gradients: es, ars": ["test_returns_alone_move_a_continuous_action_to_where_it_pays"],
    "off-policy: dqn": ["test_the_action_that_matches_the_observation_is_learned"],
    "pip install -e '.[atari]'": ["test_every_experiment_composes_and_passes_the_check"],
    "two ranks, on GPUs": ["test_trainer_devices_2_is_enough_to_train_on_two_ranks"],
    "or tensorboard, wandb, mlflow, none": [
        "test_a_logger_is_a_choice",
        "test_wandb_has_the_curve_of_metrics_csv_and_a_resumed_run_continues_it",
        "test_mlflow_has_the_curve_of_metrics_csv_and_a_resumed_run_continues_it",
    ],
    "mean ± deviation, confidence interval": ["test_train_leaves_a_run_directory_that_evaluate_and_resume_take"],
    "--best: the best checkpoint": ["test_the_end_of_a_run_reports_last_and_best_and_both_can_be_evaluated"],
    "in a window or in the terminal; space pauses, q quits": [
        "test_a_window_opens_where_there_is_a_display",
        "test_pictures_are_drawn_below_each_other_where_the_output_is_a_pipe",
        "test_space_pauses_n_steps_and_q_quits",
    ],
    "episodes side by side in an MP4 or a GIF": [
        "test_a_grid_shows_the_episodes_that_an_evaluation_counts",
        "test_an_mp4_has_a_picture_of_each_step",
    ],
    "goes on to more steps; tuned schedules with it": ["test_tuned_schedules_end_with_the_run"],
    "goals that pay seldom: hindsight experience replay": ["test_every_algorithm_of_single_rows_learns_with_hindsight"],
    "noise that is a function of the state": ["test_noise_is_a_linear_function_of_the_features"],
    "policies, environments, experiments": ["test_list_names_choices_with_a_line_about_each"],
    "one offline page: verdict": [
        "test_the_page_tells_the_whole_story",
        "test_a_browser_shows_the_page_without_errors_and_requests",
        "test_runs_of_two_algorithms_become_a_page",
    ],
    "two runs, or two directories of seeds": ["test_two_sets_of_seeds_are_compared"],
    "how each run below ./runs is doing": ["test_list_runs_shows_how_each_is_doing"],
    "what each key means": ["test_describe_explains_groups_choices_and_keys"],
    "takes tuned values from": ["test_tuned_values_of_a_pair_apply_by_default_and_overrides_win"],
    "`experiment=none` turns them off": ["test_tuned_values_of_a_pair_apply_by_default_and_overrides_win"],
    "A run directory holds": ["test_train_leaves_a_run_directory_that_evaluate_and_resume_take"],
    "Your own `./conf` adds choices": ["test_the_users_conf_adds_to_the_groups"],
    # From Python
    "by hand log the same metrics": [
        "test_lightning_s_loggers_get_the_metrics_of_a_run_at_env_steps",
        "test_early_stopping_and_model_checkpoint_read_the_metrics",
    ],
    "`PPO.load_from_checkpoint(file)`": ["test_load_from_checkpoint_gives_the_policy_again"],
    "A trained policy acts in three lines": ["test_acting_needs_neither_ray_nor_hydra"],
    # Several agents
    "several agents: pip install -e": ["test_what_trains_one_agent_trains_several"],
    "agents with the same spaces share one policy": ["test_agents_with_equal_spaces_share_the_runs_policy"],
    "MAPPO: values from what all agents see": ["test_what_trains_one_agent_trains_several"],
    "QMIX: one value for a group of agents": ["test_the_joint_value_never_falls_where_a_member_s_rises"],
    "`policies` gives agents policies of different algorithms": [
        "test_policies_of_several_algorithms_train_in_one_run",
        "test_a_frozen_policy_keeps_its_weights",
    ],
    "`policy_mapping` says whose is whose": ["test_patterns_and_functions_give_each_agent_its_policy"],
    "Agents may act together or in": ["test_each_policy_is_asked_once_a_step_for_all_its_lanes_and_only_if_one_acts"],
    # Add your own
    "**An algorithm** is one file": ["test_code_blocks_run"],
    "then needs `_target_": ["test_the_users_conf_adds_to_the_groups"],
    "Without a YAML": ["test_a_built_policy_trains_from_the_command_line_and_loads_from_its_checkpoint"],
    "`python train.py": ["test_a_built_policy_trains_from_the_command_line_and_loads_from_its_checkpoint"],
    "**An algorithm from functions** is": ["test_build_policy_gives_an_importable_subclass_of_policy_with_its_mixins"],
    "the functions are methods": ["test_every_hook_has_a_description_of_its_arguments"],
    "**A policy from scratch** has neither": ["test_a_scratch_policy_has_no_model_parameters_or_optimizer"],
    "`compute_actions` and `learn_on_batch` are its": ["test_concat_samples_joins_the_transitions_of_several_workers"],
    "It runs in a loop of your own": [
        "test_a_scratch_policy_trains_evaluates_saves_loads_and_resumes",
        "test_the_classic_loop_with_remote_workers",
    ],
    "**A model** is an `nn.Module`": ["test_registered_pieces_go_with_every_algorithm"],
    "**An environment** is an import path": ["test_a_class_a_function_and_an_import_path_make_the_same_environment"],
    "it is checked before training starts": ["test_a_mistake_is_answered_in_one_line_before_anything_is_written"],
    "A name": ["test_a_registered_environment_trains", "test_a_registered_environment_runs_in_async_vector_processes"],
    "may take an `EnvContext`": ["test_the_context_has_the_index_of_the_worker_and_of_the_environment"],
    "`lightning_rl.rllib` has its names": ["test_classic_keys_reach_their_places"],
    "`PPOTrainer(env=": ["test_a_trainer_gives_classic_results_and_restores"],
    # What works with what
    "is written by a program that tries each pair": ["test_the_page_of_the_feature_matrix_is_up_to_date"],
    "action and observation spaces, masks": ["test_the_page_has_no_other_rows"],
    "Box, Discrete, MultiDiscrete": ["test_every_supported_observation_reaches_outputs_and_values"],
    "Images go through convolutions": [
        "test_a_preset_serves_images_inside_a_dict_too",
        "test_each_part_has_the_encoder_of_its_kind",
        "test_the_filter_normalises_vectors_and_never_meets_a_pixel",
    ],
    "Anything else is refused": ["test_unsupported_spaces_are_refused_by_name"],
}

NO_PROMISE = (
    *("Train", "Test", "Observations", "a DataModule owns", "(Without a CUDA device", "**Coming from RLlib**"),
    *("the newest PyTorch of the package index", "Reinforcement learning with the concepts of classic RLlib"),
    *("What it promises, [each sentence with its test]", "Policy, data and Lightning's Trainer"),
    *("(`build_policy` names them all)", "[The feature matrix]", "[The page on several agents]"),
)


def sentences() -> list[str]:
    """The README's prose but for headings and the list of pages, and the comments of its commands."""
    text = README.split("## Read on", maxsplit=1)[0]
    commands = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).splitlines()
    comments = [line.split(" # ", 1)[1].strip() for line in commands if " # " in line]
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^(#.*|!\[.*)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), text)  # no sentence ends in there
    blocks = (re.sub(r"[ \n]+", " ", block) for block in re.split(r"\n\s*\n|\n- ", text))
    prose = [part.removeprefix("- ").strip(" .;:") for block in blocks for part in re.split(r"(?<=[.;:])\s+", block)]
    return [sentence.replace("\0", " ") for sentence in [*prose, *comments] if sentence]


def commands(program: str) -> list[list[str]]:
    """The arguments of each of the README's commands of a program."""
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", README, re.DOTALL))
    lines = (line.split(" # ", 1)[0].rpartition("&& ")[2] for line in blocks.splitlines())
    return [shlex.split(line)[len(program.split()) :] for line in lines if line.startswith(program)]


def test_every_sentence_that_promises_something_has_a_test() -> None:
    promises = [sentence for sentence in sentences() if not sentence.startswith(NO_PROMISE)]
    assert [sentence for sentence in promises if not any(words in sentence for words in CLAIMS)] == []


def test_the_claims_are_in_the_readme_and_their_tests_are_there() -> None:
    whole = " ".join(README.split())
    assert [words for words in CLAIMS if words not in whole] == []
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert [name for names in CLAIMS.values() for name in names if name not in there] == []


def test_the_commands_of_train_py_compose_and_pass_the_check() -> None:
    found = commands("python train.py")
    assert len(found) > 5
    for arguments in found:
        overrides = [argument for argument in arguments if argument != "-m"]
        for job in sweep_jobs(overrides) if "-m" in arguments else [overrides]:
            check_config(compose_config(job))


def test_the_commands_of_lightning_rl_are_verbs() -> None:
    assert {arguments[0] for arguments in commands("lightning-rl")} <= set(VERBS)
