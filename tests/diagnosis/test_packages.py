"""Versions are compared with the package's own metadata, without imports."""

from __future__ import annotations

from importlib import metadata

import pytest
from packaging.requirements import Requirement

from lightning_rl.diagnosis import packages
from lightning_rl.diagnosis.packages import examine_extras, examine_package, examine_packages, unmet


def test_every_requirement_of_the_package_is_examined():
    needed = {Requirement(line).name for line in metadata.requires("lightning_rl") or [] if "extra" not in line}
    findings = {finding.subject: finding for finding in examine_packages()}
    assert set(findings) == {"lightning_rl", "python", *needed} and "torch" in needed
    assert findings["torch"].text == metadata.version("torch") and findings["torch"].level == "ok"


def test_a_missing_package_or_version_is_bad_and_says_how_to_install_it():
    missing, old = (examine_package(Requirement(name)) for name in ("no-such-package-of-anyone>=2", "numpy>=999"))
    assert (missing.level, missing.text) == ("bad", "not installed")
    assert missing.fix == 'pip install "no-such-package-of-anyone>=2"'
    assert old.level == "bad" and old.text.endswith("; >=999 is needed") and old.fix.endswith('"numpy>=999"')


def test_extras_of_extras_are_followed():
    """gymnasium[box2d] of the extra box2d needs Box2D by gymnasium's own metadata."""
    wanted = {
        Requirement(line).name
        for line in metadata.requires("gymnasium") or []
        if Requirement(line).marker and Requirement(line).marker.evaluate({"extra": "box2d"})  # type: ignore[union-attr]
    }
    installed = {name for name in wanted if packages.installed_version(name) is not None}
    assert {name.split(">")[0].split("=")[0] for name in unmet("lightning_rl", "box2d")} == wanted - installed


def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch):
    real = packages.installed_version
    monkeypatch.setattr(packages, "installed_version", lambda name: None if name == "imageio" else real(name))
    video = next(finding for finding in examine_extras() if finding.subject == "extra video")
    assert video.level == "ok" and "imageio" in video.text and 'pip install -e ".[video]"' in video.fix


def test_a_folder_that_is_not_installed_is_bad(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packages, "installed_version", lambda name: None)
    (finding,) = examine_packages()
    assert finding.level == "bad" and "pip install -e ." in finding.fix and examine_extras() == []
