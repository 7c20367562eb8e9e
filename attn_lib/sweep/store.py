"""Finished cells in a folder: a record in JSON and, where it succeeded, its values in npz.

Every file is written beside its place and then moved there, the values before the record: a record that exists is
complete, whenever a process is killed. A cell in progress has a lock, which the system releases when its process dies.
"""

import fcntl
import io
import json
import os
import socket
import time
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import numpy as np

__all__ = ["Store"]

PROBE = 1 << 20  # bytes
ABANDONED = 3600  # seconds; a file is written in far less


class Store:
    """A folder of cells.

    Parameters
    ----------
    folder : str or Path
    """

    def __init__(self, folder):
        self.folder = Path(folder).absolute()

    def prepare(self):
        """Make the folder, and make sure that it can be written to.

        Raises
        ------
        OSError
            It cannot: the message names the folder and the reason.
        """
        with self._said():
            self.folder.mkdir(parents=True, exist_ok=True)
            for partial in self.folder.glob("*.partial"):  # of a process that was killed while it wrote
                if time.time() - partial.stat().st_mtime > ABANDONED:
                    partial.unlink(missing_ok=True)
            self._written(self.folder / "probe", os.urandom(PROBE)).unlink()

    def keys(self):
        """Of all cells with a record.

        Returns
        -------
        list of str
        """
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def record(self, key):
        """What is known about a cell.

        Parameters
        ----------
        key : str

        Returns
        -------
        dict or None
            None when nothing is stored, or when its values are not those that the record describes.
        """
        try:
            record = json.loads(self._path(key, "json").read_text())
            expected = record["values"]
            intact = expected is None or sha256(self._path(key, "npz").read_bytes()).hexdigest() == expected
        except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, KeyError):
            return None
        return record if intact else None

    def values(self, key):
        """The arrays of a cell.

        Parameters
        ----------
        key : str

        Returns
        -------
        dict
        """
        with np.load(self._path(key, "npz"), allow_pickle=False) as archive:
            return dict(archive)

    def write(self, key, record, values=None):
        """Store a cell.

        Parameters
        ----------
        key : str
        record : dict
        values : dict of arrays, optional
            None if it failed.
        """
        digest = None
        if values is not None:
            content = io.BytesIO()
            np.savez(content, **values)
            digest = sha256(content.getbuffer()).hexdigest()
            self._replace(self._path(key, "npz"), content.getvalue())
        text = json.dumps({**record, "values": digest}, indent=1)
        self._replace(self._path(key, "json"), text.encode() + b"\n")

    @contextmanager
    def claim(self, key, run, *, wait):
        """Hold the lock of a cell.

        A file system without locks grants it always: at worst a cell is computed twice.

        Parameters
        ----------
        key : str
        run : str
            Who asks.
        wait : bool
            Until another process has released it.

        Yields
        ------
        int or None
            How many processes died while they held it for this run; None when it is not held.
        """
        path = self._path(key, "lock")
        with self._said():
            file = path.open("a+")
        with file:
            if not _locked(file, wait):
                yield None
                return
            deaths = _deaths(file, run)
            file.truncate(0)
            file.write(f"{run} {deaths + 1}")
            file.flush()
            try:
                yield deaths
            finally:
                path.unlink(missing_ok=True)

    def died(self, key, run):
        """Whether a process that this run started died while it computed a cell.

        Parameters
        ----------
        key, run : str

        Returns
        -------
        bool
        """
        try:
            with self._path(key, "lock").open("r+") as file:
                return _deaths(file, run) > 0 and _locked(file, wait=False)
        except FileNotFoundError:
            return False

    def _path(self, key, kind):
        return self.folder / f"{key}.{kind}"

    def _replace(self, path, content):
        with self._said():
            self._written(path, content).replace(path)

    @contextmanager
    def _said(self):
        """A failure names the machine, the reason and the folder."""
        try:
            yield
        except OSError as error:
            reason = f"{socket.gethostname()} cannot store results: {error.strerror}"
            raise OSError(error.errno, reason, str(self.folder)) from error

    @staticmethod
    def _written(path, content):
        """A new file beside the path; none is left where it could not be written."""
        new = path.with_name(f"{path.name}.{uuid4().hex}.partial")
        try:
            with new.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            new.unlink(missing_ok=True)
            raise
        return new


def _deaths(file, run):
    """Of a lock that may be left by a process that died."""
    file.seek(0)
    who, _, number = file.read().partition(" ")
    return int(number) if who == run else 0


def _locked(file, wait):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # no locks on this file system
        pass
    return True
