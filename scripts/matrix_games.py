"""Table of the climbing and penalty games (Claus & Boutilier 1998): returns of best actions, seed by seed.

    python scripts/matrix_games.py --json games.jsonl                            # everything: hours
    python scripts/matrix_games.py --algorithms VDN --games climbing --seeds 0 --json games.jsonl
    python scripts/matrix_games.py --table --json games.jsonl                    # of what was run so far

An episode repeats the game 25 times, so that the most is 275 in the climbing game and 250 in the penalty games. The two
agents share a policy that knows which of them it acts for. What is in the JSON file already is not run again.
"""

from __future__ import annotations

import tempfile
from statistics import fmean

from recorded_runs import Run, fill_table

from lightning_rl.config import compose_config
from lightning_rl.runs.run import train

GAMES = {
    "climbing": [
        "env.id=lightning_rl.envs.multi_agent.toy_games:ClimbingGame",
        "total_env_steps=200_000",  # the way to 7 leads over 5 and 6
    ],
    **{
        f"penalty {k}": [
            "env.id=lightning_rl.envs.multi_agent.toy_games:PenaltyGame",
            f"env.kwargs.k={k}",
            "total_env_steps=50_000",
        ]
        for k in (0, -50, -100)
    },
}
ON_POLICY = [
    "env.wrappers=[lightning_rl.envs.multi_agent.wrappers:AgentIds]",
    "policy.entropy_coef=0.01",
    "workers.envs_per_worker=8",
]
BY_VALUE = [
    "model.use_gru=false",
    "policy.last_action=false",
    "data.batch_size=256",
    "data.update_to_data_ratio=0.0625",
    "workers.envs_per_worker=8",
]
ALGORITHMS = {
    "IPPO": ["policy=ppo", *ON_POLICY],
    "MAPPO": ["policy=ppo", "policy.central_critic=true", *ON_POLICY],
    "IA2C": ["policy=a2c", *ON_POLICY],
    "MAA2C": ["policy=a2c", "policy.central_critic=true", *ON_POLICY],
    "IQL": ["policy=independent_q", *BY_VALUE],
    "VDN": ["policy=vdn", *BY_VALUE],
    "QMIX": ["policy=qmix", *BY_VALUE],
}


def play(algorithm: str, game: str, seed: int) -> Run:
    """Train, and evaluate the last policy: an episode, as nothing in it is random."""
    with tempfile.TemporaryDirectory(prefix="matrix_games_") as folder:
        given = ["env=custom", *ALGORITHMS[algorithm], *GAMES[game], "experiment=none", f"seed={seed}"]
        given += ["evaluation.episodes=1", "logger=none", f"run_dir={folder}/run"]
        status = train(compose_config([*given, "trainer.enable_progress_bar=false"]))
    if status["state"] != "ok":  # a signal ends the run, not this script
        raise SystemExit(f"{algorithm} {game} seed {seed}: {status['state']}")
    return {"return": status["evaluation"], "seconds": status["seconds"]}


def table(runs: list[Run]) -> str:
    """A Markdown table: a row for each algorithm, with the mean of the seeds and each of them."""
    lines = ["| | " + " | ".join(GAMES) + " |", "|---" * (len(GAMES) + 1) + "|"]
    for algorithm in ALGORITHMS:
        cells = []
        for game in GAMES:
            found = [run for run in runs if (run["algorithm"], run["game"]) == (algorithm, game)]
            returns = [run["return"] for run in sorted(found, key=lambda run: run["seed"])]
            cells.append(f"**{fmean(returns):.0f}** ({' '.join(f'{each:.0f}' for each in returns)})" if returns else "")
        lines.append(f"| {algorithm} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    fill_table(__doc__, {"algorithm": list(ALGORITHMS), "game": list(GAMES)}, play, table)
