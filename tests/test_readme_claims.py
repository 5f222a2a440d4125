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
    # What it is
    "every policy is a `LightningModule`": ["test_early_stopping_and_model_checkpoint_read_the_metrics"],
    "rollout workers feed a `DataModule`": ["test_processes_do_not_change_the_result"],
    "Lightning's `Trainer` runs the loop": [
        "test_ranks_have_equal_weights_after_training",
        "test_early_stopping_and_model_checkpoint_read_the_metrics_of_a_run",
    ],
    "Hydra composes the configuration": [
        "test_pairs_compose_and_pass_the_check",
        "test_a_policys_config_is_its_constructor",
    ],
    # Train a policy
    "The command above trains PPO on CartPole": ["test_tuned_values_of_a_pair_apply_by_default_and_overrides_win"],
    "After 100,000 steps the last policy reaches the maximum return of 500": ["test_the_best_actions_reach_the_score"],
    "one iteration per call of `train()`": ["test_code_blocks_run"],
    "It writes only what you save": ["test_an_algorithm_writes_only_what_is_saved"],
    "A saved policy acts without Ray, Hydra or a Trainer": ["test_acting_needs_neither_ray_nor_hydra"],
    # Everyday commands
    "choose files of conf/, change any key": ["test_tuned_values_of_a_pair_apply_by_default_and_overrides_win"],
    "sample in two Ray processes": ["test_processes_do_not_change_the_result"],
    "a sweep, with a table of means over seeds": [
        "test_a_sweep_leaves_means_and_intervals_over_seeds",
        "test_a_failing_job_leaves_its_traceback_and_does_not_stop_the_others",
    ],
    "mean return with a confidence interval": ["test_the_end_of_a_run_reports_last_and_best_and_both_can_be_evaluated"],
    "every key, its default and meaning": ["test_describe_explains_groups_choices_and_keys"],
    # Bring your own
    "a Gymnasium `Env`, PettingZoo's API": [
        "test_a_class_a_function_and_an_import_path_make_the_same_environment",
        "test_what_trains_one_agent_trains_several",
    ],
    "a `Model` with `forward`": ["test_registered_pieces_go_with_every_algorithm"],
    "a `Policy` with `postprocess_trajectory`": [
        "test_code_blocks_run",
        "test_a_built_policy_trains_from_the_command_line_and_loads_from_its_checkpoint",
    ],
    "with Lightning's own Trainer": ["test_lightning_s_loggers_get_the_metrics_of_a_run_at_env_steps"],
    "`conf/experiment/NAME.yaml`": [
        "test_the_users_conf_adds_to_the_groups",
        "test_tune_leaves_runs_a_table_and_an_experiment_and_goes_on",
    ],
    "ONNX, checked against the policy": [
        "test_an_onnx_file_answers_as_the_policy",
        "test_a_file_that_differs_from_the_policy_is_an_error_and_leaves_nothing_that_claims_to_be_good",
        "test_it_acts_where_neither_torch_nor_gymnasium_nor_this_package_can_be_imported_further",
    ],
    # Guarantees
    "the same seed and number of logical workers give the same weights": [
        "test_policies_with_equal_seeds_learn_equal_weights",
        "test_processes_do_not_change_the_result",
    ],
    "a run that is killed and resumed ends bit-identical": [
        "test_n_and_n_more_steps_are_2n",
        "test_saves_at_every_iteration_change_nothing_that_is_learned",
        "test_a_run_resumed_from_a_save_by_the_clock_is_the_run_that_went_on",
        "test_a_run_resumed_from_a_best_file_is_the_run_that_went_on",
        "test_a_run_resumed_after_ctrl_c_equals_an_uninterrupted_run",
    ],
    "PPO's KL divergence is 0": ["test_ppo_s_kl_is_0_on_the_first_minibatch_of_an_iteration"],
    "truncated episodes are bootstrapped": [
        "test_gae_cuts_at_both_ends_but_bootstraps_only_the_truncated_one",
        "test_an_endless_reward_is_worth_its_geometric_sum_under_a_time_limit",
    ],
    "checkpoints are written atomically": [
        "test_kill_9_while_writing_leaves_the_old_or_the_new_file_whole",
        "test_a_run_whose_workers_are_killed_is_the_run_without",
    ],
    "loading a checkpoint runs no code": [
        "test_code_in_a_file_is_not_run",
        "test_a_hostile_file_is_refused",
        "test_nothing_that_the_config_of_a_run_names_is_run",
        "test_a_policy_of_one_s_own_is_loaded_where_its_package_is_trusted",
    ],
    # The table: this package's column
    "a policy each or shared, MAPPO": [
        "test_agents_with_equal_spaces_share_the_runs_policy",
        "test_policies_of_several_algorithms_train_in_one_run",
    ],
    "LSTM, GRU, GTrXL": ["test_the_page_of_the_feature_matrix_is_up_to_date"],
    "bit-identical, tested": ["test_a_resumed_run_continues_replay_priorities_and_the_ratio"],
}

NO_PROMISE = (
    *("Reinforcement learning on PyTorch Lightning", "play, video", "**"),  # bold words name a guarantee
    *("For researchers who want", "Python ≥ 3.11", "version 0.1", "In a clone of this repository", "Extras such as"),
    *(
        "From Python",
        "[Other verbs]",
        "Use something else if you want",
        "[Each cell has its source]",
        "Tests",
        "`pytest` as below",
        "without a CUDA device",
    ),
    *("lightning_rl is not affiliated", "[Which one", "[Tutorial]", "the API may still change", "|"),
)


def sentences() -> list[str]:
    """The README's prose but for headings and tables, and the comments of its commands."""
    text = README
    commands = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).splitlines()
    comments = [line.split(" # ", 1)[1].strip() for line in commands if " # " in line]
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^(#.*|!\[.*|\|.*)$", "", text, flags=re.MULTILINE)
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
    assert len(found) >= 4
    for arguments in found:
        overrides = [argument for argument in arguments if argument != "-m"]
        for job in sweep_jobs(overrides) if "-m" in arguments else [overrides]:
            check_config(compose_config(job))


def test_the_commands_of_lightning_rl_are_verbs() -> None:
    assert {arguments[0] for arguments in commands("lightning-rl")} <= set(VERBS)
