"""The command line: ``python -m attn_lib --help``."""

import argparse
import sys

from attn_lib.sweep import command


def main():
    """Run one command.

    Returns
    -------
    int
        0, 1 if a part failed, 2 for bad input or a place that cannot be written to.
    """
    parser = argparse.ArgumentParser(prog="python -m attn_lib", description="Solvable attention.")
    command.add_to(parser.add_subparsers(required=True, metavar="COMMAND"))
    arguments = parser.parse_args()
    try:
        return arguments.command(arguments)
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: what was finished is stored", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
