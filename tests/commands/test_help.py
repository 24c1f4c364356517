"""What every command says of itself, what that costs, and words that no command takes."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from importlib import metadata
from typing import Any

import pytest
import typer

from helpers import ends_well, run_cli, run_here
from smallvit.cli import app
from smallvit.commands.examples import EXAMPLES


def all_commands() -> dict[str, Any]:
    """By what is typed: recipe and cache are words before others."""
    root: Any = typer.main.get_command(app)
    found: dict[str, Any] = {}
    for name, command in root.commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {word}": inner[word] for word in inner} if inner else {name: command}
    return found


def test_the_commands() -> None:
    assert {"demo", "train", "resume", "evaluate", "predict", "report", "list", "recipe show"} <= set(all_commands())


@pytest.mark.parametrize("name", ["", "recipe", *all_commands()])
def test_every_command_has_help(name: str) -> None:
    outcome = ends_well(run_here(*name.split(), "--help"))
    assert "Usage: " in outcome.out
    assert outcome.err == ""


@pytest.mark.parametrize("name", all_commands())
def test_every_command_and_option_says_what_it_does(name: str) -> None:
    command = all_commands()[name]
    assert command.help
    assert [option.name for option in command.params if not getattr(option, "help", None)] == []


@pytest.mark.parametrize("name", all_commands())
def test_every_command_has_examples_that_it_takes(name: str) -> None:
    shown = ends_well(run_here(*name.split(), "--help")).out
    assert "Examples:\n" in shown and EXAMPLES.keys() == all_commands().keys()
    for line in EXAMPLES[name]:
        assert line in shown and len(line) < 80
        program, *words = shlex.split(line)
        named = next(known for known in all_commands() if words[: len(known.split())] == known.split())
        assert program == "smallvit"
        all_commands()[named].make_context(named, words[len(named.split()) :])  # fails where an option is unknown
    assert any(line.startswith(f"smallvit {name}") for line in EXAMPLES[name])


def test_versions() -> None:
    shown = ends_well(run_here("--version")).out
    assert shown.startswith(f"smallvit {metadata.version('smallvit')} (Python ")
    assert f"torch {metadata.version('torch')}, timm {metadata.version('timm')})" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    """As the line that `--install-completion` leaves in a shell's start-up file asks for it."""
    asked = {"_SMALLVIT_COMPLETE": f"complete_{shell}", "COMP_WORDS": "smallvit eva", "COMP_CWORD": "1"}
    asked |= {"_TYPER_COMPLETE_ARGS": "smallvit eva", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = run_cli(env=asked)
    assert "evaluate" in done.stdout and "predict" not in done.stdout, done.stderr


HEAVY = ("torch", "torchvision", "timm", "numpy", "pydantic", "PIL", "sklearn", "scipy", "matplotlib", "mlxtend")


@pytest.mark.parametrize("code", ["import smallvit", "import smallvit.cli", "--help"])
def test_nothing_heavy_is_imported_for_help(code: str) -> None:
    if code == "--help":
        code = "import sys; sys.argv = ['smallvit', '--help']\nfrom smallvit.cli import main\ntry: main()\nexcept SystemExit: pass"
    check = f"{code}\nimport sys; print('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "loaded:"


def test_help_costs_little_more_than_the_library_that_prints_it() -> None:
    def seconds(*words: str) -> float:
        """The best of five: a busy machine only ever slows things down."""
        times = []
        for _ in range(5):
            started = time.perf_counter()
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            times.append(time.perf_counter() - started)
        return min(times)

    assert seconds("-m", "smallvit", "--help") < 2 * seconds("-c", "import typer.main, typer.core")


@pytest.mark.parametrize("words", [(), ("recipe",)])
def test_without_a_command_there_is_help_and_status_2(words: tuple[str, ...]) -> None:
    outcome = run_here(*words)
    assert outcome.status == 2
    assert "Usage: smallvit" in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["train", "--nonsense"], "No such option: --nonsense"),
        (["train", "--epochs", "many"], "Invalid value for '--epochs'"),
        (["train", "a", "b"], "unexpected extra argument"),
        (["predict", "runs/a"], "Missing argument"),
        (["evaluate"], "Missing argument"),
        (["resume", "runs/a", "--jobs", "0"], "Invalid value for '--jobs'"),
    ],
)
def test_words_that_no_command_takes(words: list[str], phrase: str) -> None:
    outcome = run_here(*words)
    assert outcome.status == 2
    assert phrase in outcome.err
    assert "Usage: " in outcome.err
    assert "Traceback" not in outcome.err
