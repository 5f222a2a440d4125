"""`lightning-rl completion`: scripts with which shells complete verbs, options, choices and keys."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress

from lightning_rl.cli.parser import Parser

__all__ = ["option_table", "print_script"]

Verbs = Mapping[str, Callable[[Sequence[str]], int]]

SCRIPTS = {
    "bash": """# source <(lightning-rl completion bash), as a line of ~/.bashrc
_lightning_rl() {
  mapfile -t COMPREPLY < <(PROGRAM bash VERBS "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} -eq 1 && -z ${COMPREPLY[0]} ]] && COMPREPLY=()
  [[ ${COMPREPLY[0]} == *[=.] ]] && type compopt &>/dev/null && compopt -o nospace 2>/dev/null
  return 0
}
complete -o default -F _lightning_rl lightning-rl""",
    "zsh": """# source <(lightning-rl completion zsh), as a line of ~/.zshrc after compinit
_lightning_rl() {
  local -a found
  found=("${(@f)$(PROGRAM zsh VERBS "$LBUFFER" 2>/dev/null)}")
  found=(${found:#})
  (( $#found )) || { _files; return }
  compadd -Q -S '' -- ${(M)found:#*[=.]}
  compadd -Q -- ${found:#*[=.]}
}
compdef _lightning_rl lightning-rl""",
    "fish": """# lightning-rl completion fish | source, as a line of ~/.config/fish/config.fish
complete -c lightning-rl -a '(PROGRAM fish VERBS (commandline -cp) 2>/dev/null)'""",
}


def print_script(arguments: Sequence[str], verbs: Verbs, description: str | None) -> int:
    """Print the script for a shell.

    Args:
        arguments: the shell's name, or --help.
        verbs: the verbs of the command line.
        description: the description of the verb that prints the script.

    Raises:
        ConfigError: there is no script for that shell.
    """
    parser = Parser(prog="lightning-rl completion", description=description)
    parser.add_argument("shell", choices=[*SCRIPTS], help="shell that runs the script")
    shell = parser.parse_args(arguments).shell
    program = f"{shlex.quote(sys.executable)} -m lightning_rl.config.completions"
    script = SCRIPTS[shell].replace("PROGRAM", program).replace("VERBS", f'"{option_table(verbs)}"')
    print(script)
    return 0


def option_table(verbs: Verbs) -> str:
    """The verbs, each with the options that its help names: "train --cfg --multirun;list --json"."""
    return ";".join(
        " ".join([verb, *options_of(function)]) if verb != "completion" else verb for verb, function in verbs.items()
    )


def options_of(function: Callable[[Sequence[str]], int]) -> list[str]:
    """The long options in a verb's help."""
    shown = io.StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        function(["--help"])
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", shown.getvalue().partition("options:")[2])))
