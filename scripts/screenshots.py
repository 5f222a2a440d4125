"""The README's two pictures, of a real run: the first command in a terminal, and its curves in TensorBoard.

    python scripts/screenshots.py RUN_DIR        # needs chromium for TensorBoard's page; RUN_DIR must not be there

Writes docs/first_command.svg and docs/tensorboard.png.
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
            console.print(Text(text))
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
        with tempfile.TemporaryDirectory() as profile:
            browser = shutil.which("chromium") or shutil.which("google-chrome")
            if browser is None:
                raise SystemExit("TensorBoard's page needs chromium: apt-get install chromium")
            flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            size = ["--window-size=1450,780", "--virtual-time-budget=60000", f"--user-data-dir={profile}"]
            picture = f"--screenshot={ROOT / 'docs' / 'tensorboard.png'}"
            page = f"{address}#scalars&tagFilter={TAGS.replace('|', '%7C')}"
            subprocess.run([browser, *flags, *size, picture, page], check=True, timeout=300, capture_output=True)
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", help="directory that the run makes; must not be there")
    run_dir = parser.parse_args().run_dir
    if os.path.exists(run_dir):
        parser.error(f"{run_dir} is there already: name a directory that is not")
    terminal(run_dir)
    tensorboard(run_dir)


if __name__ == "__main__":
    main()
