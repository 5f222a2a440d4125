"""Builds the policies of a run in an environment with several agents, and says what each learns from."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_rl.errors import ConfigError, import_object, import_path, short_repr

if TYPE_CHECKING:
    from lightning_rl.envs.creator import EnvCreator
    from lightning_rl.envs.multi_agent import AgentLayout

__all__ = ["build_policy", "check_one_agent", "default_policies", "sources"]

ENV_STEPS_OF_ITERATION = 32  # least number where all policies replay; an iteration costs as much as some gradient steps
SHARED = "shared"  # the id of the policy of all agents, where they have the same spaces

Config = Mapping[str, Any]


def check_one_agent(config: Config, env: EnvCreator) -> None:
    """Refuse the keys of several agents for an environment with one.

    Raises:
        ConfigError: names the key.
    """
    for key in ("policies", "policy_mapping", "policies_to_train"):
        if config.get(key) and env.group_agents is not None:
            raise ConfigError(
                f"{key} is for environments with several agents, and env.group_agents={short_repr(env.group_agents)} "
                f"makes one of those of {env.name!r}: set env.group_agents=null, and give each policy its algorithm, "
                f"or leave {key} out"
            )
        if config.get(key):
            raise ConfigError(
                f"{key} is for environments with several agents, and {env.name!r} has one: leave it out, or set "
                "env.agents=2 to train in that many copies of it"
            )


def default_policies(config: Config, layout: AgentLayout) -> tuple[dict[str, Any], dict[str, str]]:
    """The policies and the mapping of a run that names no `policies`: its own policy, once for each kind of agents.

    Returns:
        The entries of `policies`, and `policy_mapping`. The id is "shared" if all agents have the same spaces, else the
        name of the kind's first agent, with "_" for marks and a number where it would be no id or that of another kind.
    """
    firsts = [layout.agents[kind.slots[0]] for kind in layout.kinds]
    names = [SHARED] if len(firsts) == 1 else _as_ids(firsts)
    own = {key: value for key, value in config["policy"].items() if key != "seed"}  # each derives its own
    entry = {**own, "data": config["data"]}
    mapping = {
        glob.escape(layout.agents[slot]): name
        for name, kind in zip(names, layout.kinds, strict=True)
        for slot in kind.slots
    }
    return {name: dict(entry) for name in names}, mapping


def build_policy(
    config: Config, env: EnvCreator, layout: AgentLayout, spaces: Sequence[Any], ckpt_path: Path | None = None
) -> tuple[Any, dict[str, Any]]:
    """The policy that holds all policies, and the `data` sections of those that learn from replay.

    Args:
        config: the run's config, with env steps in place of shares of the run.
        env: the environment.
        layout: the layout of the environment's agents.
        spaces: observation space and action space, Dicts by agent.
        ckpt_path: a checkpoint of this run that will be restored. It holds the policies of other files as well, which
            may be gone.

    Raises:
        CheckpointError: a policy's file cannot be read.
        ConfigError: the policies, the mapping and the agents do not fit together.
        UnsupportedSpaceError: a policy cannot take its agents' spaces.
    """
    from lightning_rl.policies import PolicySet

    entries, mapping = dict(config["policies"]), config["policy_mapping"]
    if not entries:
        entries, default_mapping = default_policies(config, layout)
        mapping = default_mapping if mapping is None else mapping
    if ckpt_path is not None:
        own = {name: {"checkpoint": str(ckpt_path), "policy_id": name} for name in entries}
        entries = {name: own[name] if "checkpoint" in entry else entry for name, entry in entries.items()}
    data = {name: entry["data"] for name, entry in entries.items() if "data" in entry}
    central = any(entry.get("central_critic") for entry in entries.values())
    if central and layout.state_space is None:
        _check_that_agents_meet(env)
    policy = PolicySet(
        *spaces,
        policies={
            name: {key: value for key, value in entry.items() if key != "data"} for name, entry in entries.items()
        },
        policy_mapping=mapping,
        policies_to_train=config["policies_to_train"],
        count_steps_by=config["count_steps_by"],
        central_size=layout.central_size if central else 0,
        seed=config["seed"],
    )
    return policy, data


def _check_that_agents_meet(env: EnvCreator) -> None:
    """Refuse a central critic where it would see no more than the actor: agents take turns, and there is no state."""
    from lightning_rl.envs.multi_agent.random_play import agents_meet

    packed: Any = env.make_single()
    try:
        if not agents_meet(packed.env, env.name):
            raise ConfigError(
                f"policy.central_critic=true: in 50 random steps of {env.name!r} no two agents acted at the same time, "
                "so no observation of another agent is there to be seen: set it to false, or give the environment a "
                "state_space and state()"
            )
    finally:
        packed.close()


def sources(config: Config, policy: Any, data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config with the source that collects for all policies, and a feed for each policy that learns from replay.

    Args:
        config: the config of the run.
        policy: a `PolicySet`.
        data: id → `data` section.

    Raises:
        ConfigError: the source gives no rollouts, or a policy needs its own rollouts or its own data that are not
            there.
    """
    from lightning_rl.data.gradient_source import GradientSource
    from lightning_rl.data.kinds_of_data import SERVE_SEVERAL_AGENTS, kind_of_data
    from lightning_rl.data.offline.source import OfflineSource
    from lightning_rl.data.replay_feed import ReplayFeed
    from lightning_rl.data.source import SyncSource

    trained = {name: policy.policies[name] for name in policy.policies_to_train}
    if not trained and config["policies_to_train"] is not None:
        raise ConfigError(
            f"policies_to_train=[] trains no policy: name some of {', '.join(policy.policies)}, leave it out to train "
            "all that can learn, or play with `lightning-rl evaluate`"
        )
    if not trained:
        raise ConfigError(
            f"none of the policies {', '.join(policy.policies)} learns from steps of several agents: name one that "
            "does, such as policy=ppo, or play with `lightning-rl evaluate`"
        )
    kind = _class_of(config["data"])
    if f"{kind.__module__}:{kind.__qualname__}" not in SERVE_SEVERAL_AGENTS:
        raise ConfigError(
            f"data._target_={import_path(kind)} serves one agent; several agents take data=on_policy, async, "
            "gradients, replay, where each policy that replays has a buffer of its own, or offline, where each has its "
            "own data"
        )
    if kind is OfflineSource:
        return _data_sets(config, list(trained), data), {}
    planned = config["data"].get("plan") is not None  # and then it may give anything to a policy without a buffer
    replays = [name for name, each in policy.policies.items() if kind_of_data(type(each)) == "transitions"]
    replaying = [name for name in trained if name in replays and not (planned and not _has_buffer(data.get(name)))]
    if kind is GradientSource and replaying:
        raise ConfigError(
            f"policies {', '.join(replaying)} learn from replay, and data=gradients keeps the samples in the workers: "
            "use data=on_policy or async"
        )
    if kind is ReplayFeed:
        config = {**config, "data": {"_target_": SyncSource}}
    if len(replaying) == len(trained):
        workers = config["workers"]
        least = max(workers["fragment_length"], -(-ENV_STEPS_OF_ITERATION // workers["envs_per_worker"]))
        config = {**config, "workers": {**workers, "fragment_length": least}}
    # Policies that are not trained now may be trained later.
    with_feed = [name for name in replays if name in replaying or (name not in trained and name in data)]
    return dict(config), {name: _feed(name, data.get(name)) for name in with_feed}


def _data_sets(config: Config, trained: Sequence[str], data: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the data set of each policy in training: the directory of its name in that of the run."""
    from lightning_rl.data.offline.policy_data_sets import PolicyDataSets
    from lightning_rl.data.offline.source import OfflineSource

    if config["count_steps_by"] != "env_steps":
        raise ConfigError(
            f"count_steps_by={config['count_steps_by']} with data=offline: env steps are counted by the data that are "
            "read; set it to env_steps"
        )
    everyones, data_sets = config["data"]["input"], {}
    for name in trained:
        section = {key: value for key, value in {**config["data"], **data.get(name, {})}.items() if key != "_target_"}
        if section["input"] is None or section["input"] == everyones:
            if not isinstance(everyones, str) or not (Path(everyones) / name).is_dir():
                raise ConfigError(
                    f"data.input={short_repr(everyones)}: the policy {name!r} has no data there; expected data.output "
                    f"of a run of several agents, which holds a directory {name}, or policies.{name}.data.input"
                )
            section["input"] = str(Path(everyones) / name)
        data_sets[name] = OfflineSource(**section)
    return {**config, "data": {"_target_": PolicyDataSets, "data_sets": data_sets}}


def _feed(name: str, section: Mapping[str, Any] | None) -> Any:
    if section is None or not _has_buffer(section):
        raise ConfigError(
            f"policies.{name} learns from replay, and nothing says how: give policies.{name}.data, or name its "
            f"algorithm with policies.{name}.policy"
        )
    return _class_of(section)(**{key: value for key, value in section.items() if key != "_target_"})


def _has_buffer(section: Mapping[str, Any] | None) -> bool:
    return section is not None and _class_of(section).gives == ("transitions",)


def _class_of(section: Mapping[str, Any]) -> Any:
    target = section["_target_"]
    return import_object(target) if isinstance(target, str) else target


def _as_ids(agents: Sequence[str]) -> list[str]:
    """Names of agents as ids of policies, which are parts of the names of metrics and modules: all different."""
    from lightning_rl.policies.policy_entries import TAKEN_NAMES

    ids: list[str] = []
    for agent in agents:
        name = re.sub(r"\W+", "_", agent) or SHARED
        numbered = chain([name], (f"{name}_{number}" for number in count(2)))
        ids.append(next(each for each in numbered if each not in ids and each not in TAKEN_NAMES))
    return ids
