"""The pictures of README and docs, of real runs: the first command in a terminal, its curves in TensorBoard, a report.

    python scripts/screenshots.py RUN_DIR        # needs chromium for the pages; RUN_DIR must not be there

Writes docs/first_command.svg, docs/tensorboard.png and docs/report.png.
"""

from __future__ import annotations

import argparse
import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
COLUMNS = 100
TAGS = "ep_rew_mean|approx_kl|entropy"


def screen_lines(command: list[str]) -> list[str]:
    """What a command leaves on the screen of a terminal: of a line that is redrawn, its last state."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT)
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        output += part
    if process.wait():
        raise SystemExit(output.decode())
    lines = output.decode().replace("\r\n", "\n").rstrip("\n").split("\n")
    return [line.rsplit("\x1b[2K", 1)[-1].strip("\r") for line in lines]


def terminal(run_dir: str) -> None:
    """Run the first command, evaluate what it leaves, and draw both."""
    train = ["train.py", "policy=ppo", "env=cartpole", f"run_dir={run_dir}"]
    evaluate = ["-m", "lightning_rl", "evaluate", run_dir]
    typed = [f"python {' '.join(train)}", f"lightning-rl evaluate {run_dir}"]
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    for line, command in zip(typed, (train, evaluate), strict=True):
        console.print(Text(f"$ {line}", style="bold"))
        for text in screen_lines([sys.executable, *command]):
            console.print(Text.from_ansi(text))
    picture = console.export_svg(title="lightning_rl", theme=MONOKAI)
    fonts = picture.split("@font-face")  # of a server elsewhere; any monospaced font will do
    kept = fonts[0] + "".join(part.split("}", 1)[1] for part in fonts[1:])
    (ROOT / "docs" / "first_command.svg").write_text(kept.replace("Fira Code, monospace", "monospace"))


def tensorboard(run_dir: str) -> None:
    """TensorBoard's page of the run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [sys.executable, "-m", "tensorboard.main", "--logdir", run_dir, "--port", str(port), "--host", "127.0.0.1"]
    server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(address)
                break
            except OSError:
                time.sleep(0.5)
        page = f"{address}#scalars&tagFilter={TAGS.replace('|', '%7C')}"
        take_picture(page, ROOT / "docs" / "tensorboard.png", "1450,780", "--virtual-time-budget=60000")
    finally:
        server.terminate()
        server.wait()


def report() -> None:
    """The beginning of the report that a sweep over two algorithms and five seeds ends with."""
    with tempfile.TemporaryDirectory() as directory:
        sweep = ["-m", "policy=ppo,a2c", "env=cartpole", "seed=0,1,2,3,4", f"run_dir={directory}/runs/cartpole"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, ROOT / "train.py", *sweep], check=True, cwd=directory, env=environment)
        named = [
            sys.executable,
            "-m",
            "lightning_rl",
            "report",
            "runs/cartpole",
        ]  # so that the page names no other place
        subprocess.run(named, check=True, cwd=directory, env=environment)
        page = Path(directory, "runs", "cartpole", "report.html").as_uri()
        take_picture(page, ROOT / "docs" / "report.png", "1150,1330", "--blink-settings=preferredColorScheme=1")


def take_picture(page: str, picture: Path, size: str, *more: str) -> None:
    """A page as a headless browser shows it."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("pictures of pages need chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
        own = [f"--window-size={size}", f"--user-data-dir={profile}", f"--screenshot={picture}", *more]
        subprocess.run([browser, *flags, *own, page], check=True, timeout=300, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", help="directory that the run makes; must not be there")
    run_dir = parser.parse_args().run_dir
    if os.path.exists(run_dir):
        parser.error(f"{run_dir} is there already: name a directory that is not")
    terminal(run_dir)
    tensorboard(run_dir)
    report()


if __name__ == "__main__":
    main()
