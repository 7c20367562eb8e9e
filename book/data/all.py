"""All stored results, one script after the other: python book/data/all.py --help. --anew reproduces the book."""

from command import command
from store import scripts

if __name__ == "__main__":
    command(*scripts())
