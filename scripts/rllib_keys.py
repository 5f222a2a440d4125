"""The page docs/rllib_keys.md: every key of RLlib's default configs, and what it is here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightning_rl.rllib.default_configs import ALGORITHMS, COMMON_CONFIG
from lightning_rl.rllib.keys import FIXED, KEYS, NO_EFFECT, SPECIAL

HEAD = """# RLlib's config keys

<!-- `python scripts/regenerate.py` writes this page from the tables of `lightning_rl/rllib/`. -->

Trainers of `lightning_rl.rllib` take the keys of RLlib 1.x. Here are all keys of its common config and of its
algorithms' default configs, with the defaults of RLlib 1.9. Values of keys that are left out are this package's own,
unless the config has `"defaults": "rllib"`:

```python
from lightning_rl.rllib import PPOTrainer

trainer = PPOTrainer(env="CartPole-v1", config={"defaults": "rllib", "num_workers": 0, "lr": 3e-4})
print(trainer.run_config["policy"]["passes"], trainer.run_config["model"]["fcnet_hiddens"])  # 30 [256, 256]
trainer.stop()
```

The third column says what a key is here: *same*, with the key of this package's config; *counted*, the same in other
units or in another place; *fixed*, to the only value that it can have, with the reason (another value is refused); or
*no effect*, with the reason (a value is warned of).
"""


def meaning(key: str) -> str:
    """What a key is here, as a cell of the table."""
    if key in KEYS:
        return f"same: `{KEYS[key]}`"
    if key in SPECIAL:
        return f"counted: {SPECIAL[key]}"
    if key in FIXED:
        value, reason = FIXED[key]
        return f"fixed to `{value!r}`: {reason}"
    return f"no effect: {NO_EFFECT[key]}"


def table(config: Mapping[str, Any]) -> Iterable[str]:
    """The rows of a config's keys."""
    yield "| key | default there | here |"
    yield "|---|---|---|"
    for key, value in config.items():
        shown = "the model's keys" if key == "model" and len(value) > 5 else repr(value)
        yield (
            f"| `{key}` | `{shown}` | {meaning(key)} |"
            if shown == repr(value)
            else f"| `{key}` | {shown} | {meaning(key)} |"
        )


def page() -> str:
    """The text of docs/rllib_keys.md."""
    lines = [HEAD, "## Common config\n", *table(COMMON_CONFIG)]
    for option, (base, own) in ALGORITHMS.items():
        and_more = "the common config" if base is None else f"`{base}`"
        lines += [f"\n## {option}\n", f"`policy={option}`; other keys as in {and_more}.\n", *table(own)]
    later = sorted(
        {*KEYS, *SPECIAL, *FIXED, *NO_EFFECT} - {*COMMON_CONFIG, *(k for _, own in ALGORITHMS.values() for k in own)}
    )
    lines += ["\n## Keys of other versions of RLlib, and of this package\n", "| key | here |", "|---|---|"]
    lines += [f"| `{key}` | {meaning(key)} |" for key in later]
    return "\n".join(lines) + "\n"
