"""metrics.csv is read as far as it holds numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_rl.run_directory.metrics_file import points_of_csv

HEAD = "env_steps,loss\r\n"


@pytest.mark.parametrize("line", ['10,"odd', "9" * 200_000, "\x00\xff", "10,1.0,2.0", "ten,1.0", "10,one"])
def test_a_damaged_line_takes_no_other_line_with_it(tmp_path: Path, line: str):
    """A stray quote would open a cell that ends with the file; a cell of more than 131,072 characters is an error."""
    file = tmp_path / "metrics.csv"
    file.write_text(f"{HEAD}1,0.5\r\n{line}\r\n20,0.25\r\n30,0.1", encoding="latin-1")
    assert list(points_of_csv(file)) == [("loss", 1, 0.5), ("loss", 20, 0.25)]


@pytest.mark.parametrize("content", ["", HEAD, "step,loss\n1,2\n"])
def test_a_file_without_numbers_gives_none(tmp_path: Path, content: str):
    (tmp_path / "metrics.csv").write_text(content)
    assert list(points_of_csv(tmp_path / "metrics.csv")) == []
