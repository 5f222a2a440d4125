"""Self-play in whole runs of rock, paper, scissors: the league, who plays whom, ratings, what a checkpoint holds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_rl import Algorithm, PolicySet
from lightning_rl.callbacks import SelfPlay
from lightning_rl.callbacks.metric_names import check_metric
from lightning_rl.callbacks.self_play import Member, elo_change, match_scores, prioritized_weight
from lightning_rl.config import check_config, compose_config
from lightning_rl.envs import EnvCreator
from lightning_rl.policies import Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from tests.callbacks.log_files import csv_rows
from tests.edited_runs import last_checkpoint
from tests.refusals import not_refused
from tests.run_comparison import assert_same_run, first_checkpoint, resume
from tests.run_processes import Run

SMALL = [
    *("policy=ppo", "env=rock_paper_scissors", "experiment=none", "model.fcnet_hiddens=[8]", "policy.passes=2"),
    *("policy.minibatches=2", "policy.lr=0.01", "workers.envs_per_worker=4", "workers.fragment_length=20"),
    *("evaluation.every_env_steps=0", "checkpoint.keep=20", "total_env_steps=800"),
]


def config(run_dir: Path, *overrides: str, **self_play: Any) -> dict[str, Any]:
    composed = compose_config([*SMALL, f"run_dir={run_dir}", *overrides])
    composed["callbacks"] = [{"callback": "lightning_rl.callbacks.SelfPlay", "every_env_steps": 200, **self_play}]
    check_config(composed)
    return composed


def league_of(trainer: Any) -> SelfPlay:
    (found,) = (each for each in trainer.callbacks if isinstance(each, SelfPlay))
    return found


def fit(given: dict[str, Any], *callbacks: Callback) -> tuple[Any, SelfPlay]:
    """Train in this process; the policy and the callback."""
    policy, datamodule, trainer = run.build(given)
    trainer.callbacks.extend(callbacks)  # type: ignore[attr-defined]
    run.fit(policy, datamodule, trainer)
    return policy, league_of(trainer)


class Watch(Callback):
    """Records, after each iteration, the league, its weights, and the episodes that ended."""

    def __init__(self) -> None:
        self.leagues: list[dict[str, int]] = []  # policy id → copied_at
        self.weights: dict[tuple[str, int], list[Any]] = {}
        self.own: dict[int, Any] = {}  # env steps → weights of the policy in training
        self.episodes: list[dict[str, tuple[str, float]]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.own[0] = pl_module.policies["shared"].get_weights()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.own[pl_module.env_steps] = pl_module.policies["shared"].get_weights()
        self.leagues.append({each.policy_id: each.copied_at for each in league_of(trainer).members})
        for member in self.leagues[-1].items():
            self.weights.setdefault(member, []).append(pl_module.policies[member[0]].get_weights())
        self.episodes += trainer.datamodule.agent_returns


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in first)


# -- the league --------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def league_of_three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, SelfPlay, Watch]:
    """A run whose league is full after half of it."""
    watch = Watch()
    return *fit(config(tmp_path_factory.mktemp("league"), league_size=3), watch), watch


def test_the_league_grows_at_multiples_of_env_steps_and_then_replaces_its_oldest_copy(
    league_of_three: tuple[Any, SelfPlay, Watch],
) -> None:
    policy, self_play, watch = league_of_three
    assert [*watch.leagues[0].values()] == [0] and len(watch.leagues[-1]) == 3
    joined = list(dict.fromkeys(copied_at for league in watch.leagues for copied_at in league.values()))
    assert [steps // 200 for steps in joined] == [0, 1, 2, 3, 4]
    assert [each.copied_at for each in self_play.members] == joined[-3:] and self_play.copies == 5
    assert [each.policy_id for each in self_play.members] == ["shared_past_2", "shared_past_0", "shared_past_1"]
    assert policy.policies_to_train == ["shared"]


def test_a_share_of_the_run_decides_when_copies_join(tmp_path: Path) -> None:
    assert len(fit(config(tmp_path, league_size=3, every_env_steps="50%"))[1].members) == 3
    given = config(tmp_path / "path")
    given["callbacks"] = ["lightning_rl.callbacks.SelfPlay"]
    assert league_of(run.build(given)[2]).every_env_steps == 40  # 5% of 800


def test_a_copy_keeps_the_weights_of_its_time_bit_by_bit(league_of_three: tuple[Any, SelfPlay, Watch]) -> None:
    _, _, watch = league_of_three
    assert len(watch.weights) == 5
    assert all(same(each, watch.own[at]) for (_, at), kept in watch.weights.items() for each in kept)
    assert not any(same(before, after) for before, after in pairwise(watch.own.values()))


def test_the_weakest_copy_by_elo_is_replaced(tmp_path: Path) -> None:
    short = config(tmp_path, "total_env_steps=150", every_env_steps=10_000, league_size=3, replace="weakest")
    policy, self_play = fit(short)
    elos = {"shared_past_0": 900.0, "shared_past_1": 1100.0, "shared_past_2": 800.0}
    self_play.members = [Member(policy_id, index, elo) for index, (policy_id, elo) in enumerate(elos.items())]
    before = policy.get_policy("shared_past_0").get_weights()
    for policy_id in ("shared_past_1", "shared_past_2"):
        policy.add_policy(policy_id, policy.get_policy("shared").copy_for_acting())
    with torch.no_grad():
        next(policy.get_policy("shared").parameters()).add_(1.0)
    self_play._add_copy(policy.trainer, policy)
    assert [each.policy_id for each in self_play.members] == ["shared_past_0", "shared_past_1", "shared_past_2"]
    assert self_play.members[-1].elo == self_play.elo
    assert same(policy.get_policy("shared_past_2").get_weights(), policy.get_policy("shared").get_weights())
    assert same(policy.get_policy("shared_past_0").get_weights(), before)


def test_a_copy_joins_once_the_policy_wins_often_enough(tmp_path: Path) -> None:
    watch = Watch()
    given = config(tmp_path, "total_env_steps=600", every_env_steps=None, win_rate=0.01, games=10, share_of_self=0.0)
    fit(given, watch)
    sizes = [len(league) for league in watch.leagues]
    assert sizes[0] == 1  # 10 games take longer than an iteration of 8 episodes at most
    assert sizes[-1] > 2
    never = config(tmp_path / "never", "total_env_steps=300", every_env_steps=None, win_rate=1.0, games=10)
    assert len(fit(never)[1].members) == 1


# -- who plays ---------------------------------------------------------------------------------------------------------
def test_both_seats_and_all_opponents_are_drawn(tmp_path: Path) -> None:
    watch = Watch()
    fit(config(tmp_path, "total_env_steps=3000", every_env_steps=500, share_of_self=0.5), watch)
    pairs = Counter(tuple(episode[agent][0] for agent in ("player_0", "player_1")) for episode in watch.episodes)
    games, own = sum(pairs.values()), pairs["shared", "shared"]
    assert games > 200 and all("shared" in pair for pair in pairs)
    first = sum(count for pair, count in pairs.items() if pair[0] == "shared") - own
    assert (own / games, first / (games - own)) == pytest.approx((0.5, 0.5), abs=0.1)
    assert {name for pair in pairs for name in pair} == {"shared", *(f"shared_past_{index}" for index in range(6))}


def test_the_latest_copy_alone_is_drawn(tmp_path: Path) -> None:
    watch = Watch()
    _, self_play = fit(config(tmp_path, opponents="latest", share_of_self=0.0), watch)
    assert self_play.odds() == {self_play.members[-1].policy_id: 1.0}
    pairs = [{policy_id for policy_id, _ in episode.values()} for episode in watch.episodes]
    assert all("shared" in pair and len(pair) == 2 for pair in pairs)


def test_episodes_go_on_when_only_the_odds_change() -> None:
    """Episodes of 10 steps, fragments of 6: the second one begins with step 6, or with step 0 after a reset."""
    env = EnvCreator("lightning_rl.envs.multi_agent.toy_games:RockPaperScissors", {"repetitions": 10})
    policies = {name: {"_target_": "random", "spaces_of": "player_0"} for name in ("main", "past_0", "past_1")}

    def matches(**opponents: float) -> dict[str, Any]:
        return {"_target_": "lightning_rl.policies.Matches", "policy": "main", "opponents": opponents}

    policy = PolicySet(*env.spaces(), policies=policies, policy_mapping=matches(past_0=1.0, past_1=1.0))
    worker = RolloutWorker(env, policy, num_envs=2, fragment_length=6)

    def first_step() -> int:
        return int(worker.sample()["main"].env_t[0].max())

    assert first_step() == 0
    policy.set_policy_mapping(matches(past_0=1.0, past_1=3.0))
    assert first_step() == 6
    policy.set_policy_mapping(matches(past_0=1.0))
    assert first_step() == 0
    worker.stop()


def test_prioritized_opponents_are_those_that_the_policy_loses_against() -> None:
    """One win and one loss are added: 0 of 2 points is 1/4, and (3/4)² = 0.5625; 2 of 2 gives (1/4)² = 0.0625."""
    assert [prioritized_weight(scores) for scores in ([], [0.0, 0.0], [1.0, 1.0])] == [0.25, 0.5625, 0.0625]
    league = SelfPlay(opponents="prioritized", share_of_self=0.2)
    league.members = [Member("hard", 0, 1000.0), Member("easy", 1, 1000.0)]
    league.members[0].scores.extend([0.0, 0.0])
    league.members[1].scores.extend([1.0, 1.0])
    assert league.odds() == pytest.approx({"shared": 0.2, "hard": 0.72, "easy": 0.08})


def test_evaluations_play_against_the_fixed_opponents(tmp_path: Path) -> None:
    """Against always rock, the best answer is paper; training games go on as before."""
    policies = "policies={shared:{},rock:{policy:'tests.callbacks.test_self_play:rock',spaces_of:player_0}}"
    evaluation = ("evaluation.every_env_steps=400", "evaluation.episodes=8", "evaluation.max_share=null")
    given = config(tmp_path, policies, "policy_mapping={player_*:shared}", *evaluation, evaluate_against=["rock"])
    watch = Watch()
    policy, self_play = fit(given, watch)
    latest = policy.trainer.callback_metrics
    assert latest["eval/rock/ep_rew_mean"] == pytest.approx(-float(latest["eval/shared/ep_rew_mean"]))
    assert "eval/shared_past_0/ep_rew_mean" not in latest
    assert policy.mapping.given["opponents"] == self_play.odds()
    assert not any(policy_id == "rock" for episode in watch.episodes for policy_id, _ in episode.values())


def rock(obs: Any) -> int:
    return 0


# -- ratings -----------------------------------------------------------------------------------------------------------
def test_ratings_follow_the_outcomes_of_games() -> None:
    """Against an independent calculation with Q = 10^(R / 400): E = Q / (Q + Q'). The first win of equals gives 8."""
    league = SelfPlay(games=4)
    league.members = [Member("past_0", 0, 1000.0), Member("past_1", 10, 1200.0)]
    own, ratings = 1000.0, {"past_0": 1000.0, "past_1": 1200.0}
    assert elo_change(1.0, 1000.0, 1000.0) == 8.0
    for opponent, score in (("past_0", 1.0), ("past_1", 1.0), ("past_1", 0.5), ("past_0", 0.0), ("past_0", 1.0)):
        mine, theirs = 10 ** (own / 400), 10 ** (ratings[opponent] / 400)
        change = 16 * (score - mine / (mine + theirs))
        own, ratings[opponent] = own + change, ratings[opponent] - change
        league._rate(league.members[int(opponent[-1])], score)
    assert league.elo == pytest.approx(own)
    assert [each.elo for each in league.members] == pytest.approx([*ratings.values()])
    assert own > 1000 > ratings["past_0"] and ratings["past_1"] < 1200
    metrics = league.metrics()
    assert metrics["self_play/win_rate"] == 0.5  # of the newest four
    assert metrics["self_play/past_0/loss_rate"] == pytest.approx(1 / 3)
    assert metrics["self_play/past_1/draw_rate"] == 0.5


def test_a_side_wins_by_the_sum_of_its_agents_returns() -> None:
    played = {"a": ("main", 1.0), "b": ("main", 2.0), "c": ("past", 4.0), "d": ("past", -1.0)}
    assert match_scores(played, "main", [["a", "b"], ["c", "d"]]) == [("past", 0.5)]
    assert match_scores({**played, "d": ("past", 0.0)}, "main", [["a", "b"], ["c", "d"]]) == [("past", 0.0)]
    assert match_scores(dict.fromkeys("abcd", ("main", 1.0)), "main", [["a", "b"], ["c", "d"]]) == []
    each = {"a": ("main", 1.0), "b": ("past_0", 0.0), "c": ("past_1", 2.0)}
    assert match_scores(each, "main", [["a"], ["b"], ["c"]]) == [("past_0", 1.0), ("past_1", 0.0)]


def test_every_rating_and_rate_is_written_under_a_registered_name(tmp_path: Path) -> None:
    _, self_play = fit(config(tmp_path, share_of_self=0.0))
    of_copies = {f"self_play/shared_past_1/{name}" for name in ("win_rate", "draw_rate", "loss_rate", "elo")}
    header = csv_rows(tmp_path / "metrics.csv")[0].keys()
    assert {"self_play/win_rate", "self_play/elo", "self_play/league_size", *of_copies} <= header
    for name in self_play.metrics():
        check_metric("stop.metric", name)


# -- checkpoints -------------------------------------------------------------------------------------------------------
LEAGUE = {"league_size": 2, "opponents": "prioritized", "games": 20}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints every 300 env steps, whose league is full before its end."""
    run_dir = tmp_path_factory.mktemp("league") / "whole"
    assert run.train(config(run_dir, "checkpoint.every_env_steps=300", **LEAGUE))["state"] == "ok"
    return run_dir


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.ray)])
def test_a_resumed_run_continues_the_league_as_if_it_had_not_stopped(whole: Path, tmp_path: Path, workers: int) -> None:
    assert_same_run(resume(whole, first_checkpoint(whole), tmp_path / "resumed", 800, workers), whole)


def test_a_copy_can_be_loaded_alone(whole: Path) -> None:
    file = whole / "checkpoints" / "last.ckpt"
    every, alone = Policy.load(file), Policy.load(file, policy_id="shared_past_1")
    assert same(alone.get_weights(), every.policies["shared_past_1"].get_weights())  # type: ignore[union-attr,index]
    assert alone.compute_single_action(np.zeros(6, np.float32)) in (0, 1, 2)


def test_the_league_goes_on_when_an_algorithm_trains_again(tmp_path: Path) -> None:
    entry = {"callback": "lightning_rl.callbacks.SelfPlay", "every_env_steps": 100}
    overrides = [*SMALL[2:-1], f"run_dir={tmp_path}"]
    algorithm = Algorithm("ppo", "rock_paper_scissors", config={"callbacks": [entry]}, overrides=overrides)
    results = [algorithm.train() for _ in range(4)]
    assert [result["self_play/copies"] for result in results] == [1, 2, 3, 4]
    algorithm.stop()


# -- refusals ----------------------------------------------------------------------------------------------------------
def test_self_play_that_cannot_work_is_refused_before_training(tmp_path: Path) -> None:
    idle = "policies={a:{},b:{spaces_of:player_0}}"
    cases = [
        ([], {"policy": "sharde"}, r"'sharde'.*'shared'"),
        ([], {"evaluate_against": ["rock"]}, "'rock'"),
        (["env=cartpole"], {}, "SelfPlay"),
        (["env=simple_speaker_listener"], {"policy": "speaker_0"}, "'speaker_0'.*listener_0"),
        (["policies={a:{},b:{}}", "policy_mapping={player_0:a,player_1:b}"], {"policy": "a"}, "player_0, .*player_1"),
        ([idle, "policy_mapping={player_*:a}", "policies_to_train=[b]"], {"policy": "a"}, r"SelfPlay.policy='a'"),
        ([], {"teams": {"all": ["player_*"]}}, "all agents"),
    ]
    assert not_refused(lambda overrides, keywords: fit(config(tmp_path, *overrides, **keywords)), cases) == []


def test_a_value_out_of_range_is_refused() -> None:
    cases = [
        ({"every_env_steps": None}, "never grow"),
        ({"opponents": "best"}, "SelfPlay.opponents='best'"),
        ({"share_of_self": 1.0}, "SelfPlay.share_of_self=1.0"),
        ({"league_size": 0}, "SelfPlay.league_size=0"),
    ]
    assert not_refused(lambda keywords: SelfPlay(**keywords), cases) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_league_of_two_ranks_rates_the_games_of_both(tmp_path: Path) -> None:
    """Each rank adds the same copies at the same time, or their gradients could not be averaged."""
    ranks = ("total_env_steps=2048", "trainer=ddp", "trainer.accelerator=cpu")
    with Run("train", *SMALL[:2], *ranks, "run_dir=out", "logger=csv", cwd=tmp_path) as process:
        assert process.wait(250) == 0, process.text
    (league,) = (state for name, state in last_checkpoint(tmp_path / "out")["callbacks"].items() if "SelfPlay" in name)
    assert len(league["members"]) == league["copies"] >= 4 and league["members"][0]["scores"]
    copied_at = [each["copied_at"] for each in league["members"]]
    assert copied_at == sorted({*copied_at})
