"""Self-play: a policy trains against itself and against a league of frozen copies of itself.

The copies are policies of the run: checkpoints hold them, workers act with them, `Policy.load(…, policy_id=…)` finds
them. The policy mapping draws who plays in an episode; this callback changes its odds between two iterations, from
the outcomes of the training episodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from lightning.pytorch import Trainer

from lightning_rl.callbacks.hooks import RLCallback
from lightning_rl.envs.multi_agent.wrappers import find_members
from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import Count, CountEnvSteps, Portion, Range
from lightning_rl.schema.signatures import check_keywords

__all__ = ["Member", "SelfPlay", "elo_change", "expected_score", "match_scores", "prioritized_weight"]

MATCHES = "lightning_rl.policies.Matches"
FIRST_ELO = 1000.0  # of the first copy, and of the policy at that time
ELO_STEP = 16.0  # K, the most that one game changes a rating
HARDNESS = 2  # exponent p of prioritized opponents
WIN, DRAW, LOSS = 1.0, 0.5, 0.0  # scores of a game


def expected_score(elo: float, opponent_elo: float) -> float:
    """The mean score (win 1, draw 0.5) that ratings predict: 1 / (1 + 10^((R_opponent − R) / 400)). Elo 1978."""
    return 1.0 / (1.0 + 10.0 ** ((opponent_elo - elo) / 400.0))


def elo_change(score: float, elo: float, opponent_elo: float) -> float:
    """What a game adds to the rating of a player, and takes from the opponent's: K · (score − expected score)."""
    return ELO_STEP * (score - expected_score(elo, opponent_elo))


def prioritized_weight(scores: Sequence[float]) -> float:
    """How often to play an opponent, relative to others: (1 − mean score)^p, so that hard ones come more often.

    Prioritized fictitious self-play, Vinyals et al. 2019 (AlphaStar), doi:10.1038/s41586-019-1724-z, f_hard with p = 2.

    Args:
        scores: the scores of games against the opponent; one win and one loss are added, so that a new one counts as
            equal.
    """
    return (1.0 - (sum(scores) + 1.0) / (len(scores) + 2.0)) ** HARDNESS


def match_scores(
    agent_returns: Mapping[str, tuple[str, float]], policy: str, sides: Sequence[Sequence[str]]
) -> list[tuple[str, float]]:
    """Outcomes of an episode for a policy: a side wins against another one if its agents received more in sum.

    Args:
        agent_returns: agent → (the policy that acted for it, its return).
        policy: id of the policy; with several sides, the mean of their returns counts.
        sides: the agents of each side.

    Returns:
        (policy id, score) for each side that another policy had; empty if the policy played against itself only.
    """
    returns: dict[str, list[float]] = {}
    for side in sides:
        played = [agent_returns[agent] for agent in side if agent in agent_returns]
        if played:
            returns.setdefault(played[0][0], []).append(sum(gain for _, gain in played))
    own = returns.pop(policy, [])
    if not own:
        return []
    mean = sum(own) / len(own)
    return [
        (opponent, WIN if mean > theirs else DRAW if mean == theirs else LOSS)
        for opponent, others in returns.items()
        for theirs in others
    ]


@dataclass(slots=True)
class Member:
    """A frozen copy in the league.

    Attributes:
        policy_id: its id among the policies of the run.
        copied_at: env steps of the policy when it was copied.
        elo: its rating.
        scores: the scores of the policy in training in its newest games against this copy.
    """

    policy_id: str
    copied_at: int
    elo: float
    scores: deque[float] = field(default_factory=deque)


class SelfPlay(RLCallback):
    """Lets a policy play against frozen copies of itself, made while it trains, and against itself.

    The policy takes a random side in each episode. The first copy is of the initial weights. Only the policy in
    training learns, from all agents that it acts for: both sides where it plays against itself. Workers begin new
    episodes when the league changes.

    Args:
        policy: id of a trained policy, which has all agents that take part in the mapping of the run.
        every_env_steps: a copy joins the league at the first iteration past each multiple of this, which may be a share
            of the run such as "5%"; `None`: only by `win_rate`.
        win_rate: a copy joins as well, once the policy's mean score against the league (win 1, draw 0.5) is at least
            this over the last `games` games, all since the last copy; `None`: only by `every_env_steps`.
        league_size: most copies.
        replace: which copy gives its place to a new one when the league is full: the "oldest", or the "weakest" by Elo.
        opponents: which copies are drawn: "uniform", all equally often; "latest", only the newest; "prioritized", those
            that the policy loses against more often (`prioritized_weight`).
        share_of_self: chance of a side to be the policy itself rather than a copy, in [0, 1).
        games: win rates are over that many of the newest games, against each copy and against all.
        teams: team → its agents or patterns; the agents of a team have the same policy in an episode, and it wins by
            the sum of their returns. `None`: each agent plays for itself.
        evaluate_against: ids of policies of the run, such as a random or a scripted one, that the policy plays in
            evaluations; `None`: evaluations draw opponents as training does.

    Raises:
        ConfigError: a value is out of range, or neither `every_env_steps` nor `win_rate` is given.

    Attributes:
        members: the league, oldest copy first.
        elo: the rating of the policy in training.
        copies: how many copies have joined so far.
    """

    @check_keywords("SelfPlay")
    def __init__(
        self,
        policy: str = "shared",
        *,
        every_env_steps: CountEnvSteps | None = "5%",  # type: ignore[assignment]  # pyright: ignore
        win_rate: Portion | None = None,
        league_size: Count = 10,
        replace: Literal["oldest", "weakest"] = "oldest",
        opponents: Literal["uniform", "latest", "prioritized"] = "uniform",
        share_of_self: Annotated[float, Range(0, 1, below_high=True)] = 0.5,
        games: Count = 100,
        teams: Mapping[str, Any] | None = None,
        evaluate_against: Sequence[str] | None = None,
    ) -> None:
        if every_env_steps is None and win_rate is None:
            raise ConfigError(
                "SelfPlay.every_env_steps=None and SelfPlay.win_rate=None: the league would never grow; give one"
            )
        self.policy, self.every_env_steps, self.win_rate = policy, to_env_steps(every_env_steps), win_rate
        self.league_size, self.replace, self.opponents = league_size, replace, opponents
        self.share_of_self, self.games, self.teams = share_of_self, games, teams
        self.evaluate_against = None if evaluate_against is None else [*evaluate_against]
        self.members: list[Member] = []
        self.elo, self.copies = FIRST_ELO, 0
        self._scores: deque[float] = deque(maxlen=games)  # of the newest games against any copy
        self._since_copy = 0  # games
        self._env_steps = 0  # at the end of the last iteration
        self._sides: list[list[str]] = []
        self._others: dict[str, str] = {}  # agents on no side → their policies
        self._before_evaluation: Any = None

    # -- Lightning ----------------------------------------------------------------------------------------------------
    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Check that copies can play against the policy.

        Raises:
            ConfigError: the policy is unknown or does not learn, fewer than two agents have it, a policy to evaluate
                against is unknown, or there are two such callbacks.
        """
        others = [each for each in trainer.callbacks if isinstance(each, SelfPlay)]  # pyright: ignore[reportAttributeAccessIssue]
        if len(others) > 1:
            raise ConfigError("callbacks: SelfPlay is there twice, and each decides who plays: leave one of them out")
        if not pl_module.agents:
            raise ConfigError(
                "SelfPlay needs an environment with several agents, and this one has one: choose another env"
            )
        self._check_policies(trainer, pl_module)
        seats = self._seats(pl_module)
        teams = find_members(seats, self.teams, "SelfPlay.teams:") if self.teams else {}
        free = [seat for seat in seats if not any(seat in team for team in teams.values())]
        self._sides = [*teams.values(), *([seat] for seat in free)]
        if len(self._sides) < 2:
            raise ConfigError(f"SelfPlay.teams={self.teams} makes one side of all agents; expected at least two")

    def _check_policies(self, trainer: Trainer, policy: Any) -> None:
        for named in (self.policy, *(self.evaluate_against or ())):
            if named not in policy.policies:
                raise ConfigError(
                    f"SelfPlay: {named!r} is not a policy of this run.{did_you_mean(named, policy.policies)} Policies: "
                    f"{', '.join(map(repr, policy.policies))}"
                )
        if self.policy not in policy.policies_to_train:
            raise ConfigError(
                f"SelfPlay.policy={self.policy!r} does not learn, so its copies would be equal; policies_to_train: "
                f"{', '.join(map(repr, policy.policies_to_train))}"
            )
        evaluation = getattr(getattr(trainer, "datamodule", None), "evaluation", {})
        if self.evaluate_against is not None and (not self.evaluate_against or evaluation.get("parallel")):
            raise ConfigError(
                f"SelfPlay.evaluate_against={self.evaluate_against}; expected at least one id of a policy, and "
                "evaluation.parallel=false, because evaluations and training have different opponents"
            )

    def _seats(self, policy: Any) -> list[str]:
        """The agents that take part: those that have the policy by the run's mapping."""
        seats = policy.mapping.agents_of(self.policy)
        if len(seats) < 2:
            raise ConfigError(
                f"SelfPlay.policy={self.policy!r} acts for {', '.join(seats) or 'no agent'}; self-play needs two of "
                f"the agents {', '.join(policy.agents)} with equal spaces: let policy_mapping give it both sides"
            )
        self._others = {agent: policy.mapping.policy_of(agent) for agent in policy.agents if agent not in seats}
        return seats

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin the league with a copy of the initial weights; in a resumed run, continue it."""
        self._env_steps = int(pl_module.env_steps)
        if not self.members:
            self._add_copy(trainer, pl_module)
        self._set_odds(pl_module)

    def on_train_result(self, *, trainer: Trainer, policy: Any, result: dict[str, float]) -> None:
        """Rate the iteration's games, copy the policy if that is due, and report."""
        datamodule: Any = trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
        members = {each.policy_id: each for each in self.members}
        for agent_returns in datamodule.agent_returns:
            for opponent, score in match_scores(agent_returns, self.policy, self._sides):
                if opponent in members:
                    self._rate(members[opponent], score)
        if self._is_due(int(policy.env_steps)):
            self._add_copy(trainer, policy)
        self._env_steps = int(policy.env_steps)
        self._set_odds(policy)
        result.update(self.metrics())

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Let evaluations play against the fixed opponents."""
        if self.evaluate_against is not None:
            self._before_evaluation = pl_module.mapping.given
            pl_module.set_policy_mapping(self._matches(dict.fromkeys(self.evaluate_against, 1.0)))

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Let training play as before."""
        if self._before_evaluation is not None:
            pl_module.set_policy_mapping(self._before_evaluation)
            self._before_evaluation = None

    # -- the league ---------------------------------------------------------------------------------------------------
    def odds(self) -> dict[str, float]:
        """Policy id → the chance that it is the opponent of the policy in training."""
        if self.opponents == "latest":
            weights = {self.members[-1].policy_id: 1.0}
        elif self.opponents == "uniform":
            weights = {each.policy_id: 1.0 for each in self.members}
        else:
            weights = {each.policy_id: prioritized_weight(each.scores) for each in self.members}
        total = sum(weights.values())
        copies = {policy_id: (1.0 - self.share_of_self) * weight / total for policy_id, weight in weights.items()}
        return ({self.policy: self.share_of_self} if self.share_of_self else {}) | copies

    def metrics(self) -> dict[str, float]:
        """Numbers of the league, under the names of the metric registry."""
        found = {"elo": self.elo, "league_size": float(len(self.members)), "copies": float(self.copies)}
        found |= _rates(self._scores)
        for each in self.members:
            own = {"elo": each.elo, "copied_at": float(each.copied_at), **_rates(each.scores)}
            found |= {f"{each.policy_id}/{name}": value for name, value in own.items()}
        return {f"self_play/{name}": value for name, value in found.items()}

    def _rate(self, member: Member, score: float) -> None:
        """Count a game of the policy in training against a copy."""
        change = elo_change(score, self.elo, member.elo)
        self.elo += change
        member.elo -= change
        member.scores.append(score)
        self._scores.append(score)
        self._since_copy += 1

    def _is_due(self, env_steps: int) -> bool:
        every = self.every_env_steps
        if every is not None and env_steps // every > self._env_steps // every:
            return True
        if self.win_rate is None or self._since_copy < self.games:
            return False
        return sum(self._scores) / len(self._scores) >= self.win_rate

    def _add_copy(self, trainer: Trainer, policy: Any) -> None:
        """Let a copy of the present weights join the league."""
        scores: deque[float] = deque(maxlen=self.games)
        source = policy.get_policy(self.policy)
        if len(self.members) < self.league_size:
            policy_id = f"{self.policy}_past_{len(self.members)}"
            twin = source.copy_for_acting().requires_grad_(False)
            policy.add_policy(policy_id, twin, spaces_of=self._sides[0][0])
        else:
            replaced = self.members[0] if self.replace == "oldest" else min(self.members, key=lambda each: each.elo)
            self.members.remove(replaced)
            policy_id = replaced.policy_id
            policy.get_policy(policy_id).set_weights(source.get_weights())
            trainer.datamodule.force_reset()  # pyright: ignore[reportAttributeAccessIssue]  # else games change players
        self.members.append(Member(policy_id, int(policy.env_steps), self.elo, scores))
        self.copies += 1
        self._since_copy = 0

    def _set_odds(self, policy: Any) -> None:
        given = self._matches(self.odds())
        if policy.mapping.given != given:
            policy.set_policy_mapping(given)

    def _matches(self, opponents: Mapping[str, float]) -> dict[str, Any]:
        """A policy mapping in which the policy in training plays against these."""
        own = {"policy": self.policy, "opponents": dict(opponents), "sides": self._sides, "others": self._others}
        return {"_target_": MATCHES, **own}

    # -- checkpoints --------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """The league and the ratings, as plain numbers and names; the weights are those of the run's policies."""
        members = [{**asdict(each), "scores": list(each.scores)} for each in self.members]
        numbers = {"elo": self.elo, "copies": self.copies, "since_copy": self._since_copy}
        return {"members": members, "scores": list(self._scores), **numbers}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the league."""
        self.elo, self.copies = float(state_dict["elo"]), int(state_dict["copies"])
        self._since_copy = int(state_dict["since_copy"])
        self._scores = deque(state_dict["scores"], maxlen=self.games)
        self.members = [
            Member(each["policy_id"], int(each["copied_at"]), float(each["elo"]), deque(each["scores"], self.games))
            for each in state_dict["members"]
        ]


def _rates(scores: Sequence[float]) -> dict[str, float]:
    """Shares of games won, drawn and lost; empty without games."""
    names = {"win_rate": WIN, "draw_rate": DRAW, "loss_rate": LOSS}
    return {name: scores.count(score) / len(scores) for name, score in names.items()} if scores else {}
