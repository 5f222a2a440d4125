"""Errors for mistyped import paths and names, with suggestions."""

from __future__ import annotations

import collections
import os.path
import pickle
import re
import threading
from pathlib import Path

import pytest

from lightning_rl.errors import ConfigError, did_you_mean, import_object
from tests.golden_messages import CALLS, FILE, answer_to


def test_calls_in_python_are_refused_in_the_words_of_the_golden_file() -> None:
    golden = FILE.read_text(encoding="utf-8").strip().split("\n\n")
    assert [call for call in CALLS if answer_to(call) not in golden] == []


def test_a_config_error_keeps_its_key_and_what_can_be_sent_of_its_value_in_another_process() -> None:
    unsendable = threading.Lock()
    for value, arrives in ((3.0, 3.0), ("x", "x"), (None, None), ([1, 2], "[1, 2]"), (unsendable, repr(unsendable))):
        sent = ConfigError("policy.lr=…", key="policy.lr", value=value)
        sent.add_note("in job 3")
        error = pickle.loads(pickle.dumps(sent))
        assert (str(error), error.key, error.value, error.__notes__) == (str(sent), sent.key, arrives, ["in job 3"])


def test_the_nearest_name_is_suggested_and_a_far_one_is_not() -> None:
    assert did_you_mean("gama", ["gamma", "lr"]) == " Did you mean 'gamma'?"
    assert did_you_mean("zebra", ["gamma", "lr"]) == ""
    assert did_you_mean("x", []) == ""


@pytest.mark.parametrize("path", ["collections:OrderedDict", "collections.OrderedDict"])
def test_both_forms_of_a_path_name_the_same_object(path: str) -> None:
    assert import_object(path) is collections.OrderedDict


def test_dots_after_the_colon_reach_into_the_object() -> None:
    assert import_object("collections:OrderedDict.fromkeys") == collections.OrderedDict.fromkeys
    assert import_object("os:path.join") is os.path.join


def test_the_error_for_a_malformed_import_path_names_it() -> None:
    for path in ("", "name", ":Name", "module:", ".envs:MyEnv", "a..b:C", "a:b..c"):
        with pytest.raises(ConfigError, match=re.escape(repr(path))):
            import_object(path)


@pytest.mark.parametrize(
    ("line", "error"), [("import not_installed_anywhere", ModuleNotFoundError), ("1 / 0", ZeroDivisionError)]
)
def test_an_error_inside_an_imported_module_is_raised_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, error: type[Exception]
) -> None:
    """A missing dependency of the user's file must not be reported as a missing file."""
    (tmp_path / "broken_envs.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error) as raised:
        import_object("broken_envs:MyEnv")
    assert raised.traceback[-1].path.name == "broken_envs.py"
