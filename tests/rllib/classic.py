"""Classic trainers by the name of their algorithm."""

from __future__ import annotations

from typing import Any

from lightning_rl import rllib

CONTINUOUS = ("SAC", "TD3", "DDPG", "TQC", "CQL")


def trainer(name: str = "PPO", plan: Any = None, env: Any = None, **keys: Any) -> Any:
    """`PPOTrainer(env=…, config=keys)`, with an execution plan of one's own if there is one."""
    made = getattr(rllib, f"{name}Trainer")
    env = env or ("Pendulum-v1" if name in CONTINUOUS else "CartPole-v1")
    return (made if plan is None else made.with_updates("Planned", execution_plan=plan))(env=env, config=keys)


def config(name: str, **keys: Any) -> dict[str, Any]:
    """The configuration that a classic trainer makes of these keys."""
    return trainer(name, **keys).run_config


def value_at(config: Any, path: str) -> Any:
    """`config["a"]["b"]` for "a.b"."""
    for name in path.split("."):
        config = config[name]
    return config
