"""Rates are measured, and compared with the bands in the package's data."""

from __future__ import annotations

import pytest

from lightning_rl.diagnosis.speed import MEASUREMENTS, examine_speed, judge_rate, rate_of, reference_speeds


def test_each_measurement_has_a_band_around_what_was_measured():
    bands = reference_speeds()
    assert bands.keys() == MEASUREMENTS.keys()
    for band in bands.values():
        assert band["measured"] * 0.39 < band["low"] < band["measured"] < band["high"] < band["measured"] * 2.6


def test_a_slow_machine_is_a_warning_and_a_very_slow_one_bad():
    for rate, level in ((100.0, "ok"), (1000.0, "ok"), (99.0, "warn"), (10.0, "warn"), (9.0, "bad")):
        finding = judge_rate({"what": "x", "unit": "steps/s", "low": 100, "high": 200}, rate)
        assert finding.level == level and bool(finding.fix) == (level != "ok")


def test_a_rate_counts_units_over_the_time_passed(monkeypatch: pytest.MonkeyPatch):
    """A step of 2 units that takes 10 ms by the clock: 200 units a second."""
    now = [0.0]
    monkeypatch.setattr("lightning_rl.diagnosis.speed.time.perf_counter", lambda: now[0])

    def step() -> int:
        now[0] += 0.01
        return 2

    assert rate_of(step, 0.2) == pytest.approx(200)


def test_all_rates_are_positive():
    assert all(measure(0.02) > 0 for measure in MEASUREMENTS.values())
    assert [finding.subject.split(":")[0] for finding in examine_speed(0.02)] == ["speed"] * 3
