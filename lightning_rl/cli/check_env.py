"""`lightning-rl check-env`: checks an environment and lists the policies that support it."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_rl.cli.parser import Parser, whole_number
from lightning_rl.config import compose_config
from lightning_rl.config.compose import key_of
from lightning_rl.config.groups import group_options
from lightning_rl.errors import ConfigError, check_at_least_one

__all__ = ["check_env"]


def check_env(arguments: Sequence[str]) -> int:
    """Check an environment and list the policies that support it: check-env ENV [env.kwargs.size=5 …].

    ENV may also be given as for other verbs: env=NAME or env.id=ID.
    """
    parser = Parser(prog="lightning-rl check-env", description=check_env.__doc__)
    parser.add_argument("env", help="a name from `lightning-rl list envs`, an environment id, or an import path")
    parser.add_argument("overrides", nargs="*", help="keys of env, such as env.kwargs.size=5 env.agents=2")
    parser.add_argument(
        "--steps", type=whole_number, default=1000, help="length of the longest random walk (at most 10 s)"
    )
    options = parser.options(arguments)
    check_at_least_one("--", steps=options.steps)
    words = [options.env, *options.overrides]
    if not {"env", "env.id"} & {key_of(word) for word in words if "=" in word}:
        words[0] = f"env={words[0]}" if words[0] in group_options("env") else f"env.id='{words[0]}'"
    if others := [word for word in words if "=" not in word or not f"{key_of(word)}.".startswith("env.")]:
        raise ConfigError(f"{others[0]} is not a key of env; expected keys such as env.kwargs.size=5")
    config = compose_config([*words, "experiment=none"])
    from lightning_rl.diagnosis.environment import examine_env
    from lightning_rl.diagnosis.findings import as_json, as_text, exit_code
    from lightning_rl.envs.creator import EnvCreator

    findings = examine_env(EnvCreator(**config["env"]), options.steps)
    parser.show(as_json(findings), as_text(findings))
    return exit_code(findings)
