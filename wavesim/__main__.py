"""``python -m wavesim``: subcommands; each adds its own parser and a function to run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import tune_cli
from .demo import cli as demo


def parser() -> argparse.ArgumentParser:
    """The command line; every subcommand sets ``run``, which takes the parsed arguments."""
    top = argparse.ArgumentParser(prog="python -m wavesim", description="Wave propagation tools.")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    demo.add_parser(commands)
    tune_cli.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status. Without a command, print the help."""
    top = parser()
    options = top.parse_args(arguments)
    if not hasattr(options, "run"):
        top.print_help()
        return 0
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
