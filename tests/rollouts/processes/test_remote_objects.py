"""Objects in this process and in a Ray process have the same interface."""

from __future__ import annotations

import os

import pytest

from lightning_rl.errors import EnvError
from lightning_rl.rollouts.processes.remote_objects import make_objects


class Diary:
    """Keeps lines of text."""

    def __init__(self, title: str) -> None:
        self.lines = [title]

    def write(self, line: str) -> int:
        self.lines.append(line)
        return len(self.lines)

    def read(self) -> list[str]:
        return self.lines

    def where(self) -> int:
        return os.getpid()

    def burn(self) -> None:
        raise ValueError(f"{self.lines[0]} does not burn")

    def vanish(self) -> None:
        os._exit(1)


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.ray)], ids=["here", "ray"])
def remote(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_an_object_does_submitted_calls_in_order(remote: bool) -> None:
    diaries = make_objects(Diary, [{"title": "a"}, {"title": "b"}], remote=remote)
    futures = [diary.submit("write", line) for line in "xyz" for diary in diaries]
    assert [future.result() for future in futures] == [2, 2, 3, 3, 4, 4]
    assert all(future.done() for future in futures)
    assert [diary.submit("read").result() for diary in diaries] == [["a", "x", "y", "z"], ["b", "x", "y", "z"]]
    places = {diary.submit("where").result() for diary in diaries}
    assert len(places) == (2 if remote else 1) and (os.getpid() in places) is not remote
    for _ in range(2):
        for diary in diaries:
            diary.stop()


def test_result_raises_the_error_of_the_method(remote: bool) -> None:
    (diary,) = make_objects(Diary, [{"title": "a"}], remote=remote)
    with pytest.raises(ValueError, match="a does not burn"):
        diary.submit("burn").result()
    assert diary.submit("read").result() == ["a"]


@pytest.mark.ray
@pytest.mark.parametrize("remote", [True], indirect=True)
def test_result_raises_env_error_if_the_process_of_the_object_has_died(remote: bool) -> None:
    (diary,) = make_objects(Diary, [{"title": "a"}], remote=remote, remedy="write less")
    future = diary.submit("vanish")
    with pytest.raises(EnvError, match=r"(?s)Diary died.*write less"):
        future.result()
