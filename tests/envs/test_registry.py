"""How the context of an environment comes to the classes and functions that create it."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_rl.envs.registry import EnvContext, call_creator


class Named:
    def __init__(self, size: int = 3, env_config: Any = None) -> None:
        self.got = size, env_config


class Unnamed:
    def __init__(self, c: Any) -> None:
        self.got = c


class Optional:
    def __init__(self, ctx: Any = None) -> None:
        self.got = ctx


class Variadic:
    def __init__(self, *arguments: Any) -> None:
        (self.got,) = arguments


class Keywords:
    def __init__(self, size: int, render_mode: Any = None) -> None:
        self.got = size, render_mode


def test_a_context_is_passed_to_the_one_argument_that_can_be_it() -> None:
    context = EnvContext({"k": 1}, worker_index=2)
    for creator in (Unnamed, Optional, Variadic):
        assert call_creator(creator, context, {}).got is context, creator
    assert call_creator(Named, context, {}).got == (3, context)
    assert call_creator(lambda whatever: whatever, context, {}) is context
    assert call_creator(lambda *all: all[0], context, {}) is context


def test_arguments_that_the_keywords_name_get_them() -> None:
    assert call_creator(Unnamed, EnvContext({"c": 1}), {}).got == 1
    assert (
        call_creator(Optional, EnvContext({"ctx": 1}), {}).got == 1
        and call_creator(Optional, EnvContext(), {}).got is None
    )
    assert call_creator(Keywords, EnvContext({"size": 4}), {"render_mode": "human"}).got == (4, "human")
    with pytest.raises(TypeError, match="size"):
        call_creator(Keywords, EnvContext({"render_mode": "human"}), {})
    with pytest.raises(TypeError, match="sise"):
        call_creator(Named, EnvContext({"sise": 1, "env_config": 2}), {})


def test_a_context_is_copied_with_overrides_and_gets_defaults() -> None:
    context = EnvContext({"a": 1}, worker_index=2, num_workers=3)
    other = context.copy_with_overrides(vector_index=4, worker_index=None)
    other.set_defaults({"a": 5, "b": 6})
    assert other == {"a": 1, "b": 6} and context == {"a": 1}
    assert vars(other) == {"worker_index": 2, "vector_index": 4, "num_workers": 3, "remote": False}
    assert context.copy_with_overrides(env_config={"c": 7}) == {"c": 7}
