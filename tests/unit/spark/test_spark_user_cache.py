"""Folders that are generated once, whoever comes first."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flymq.spark.user_cache import cache_root, keep_folder

FILES = {"bin/java": "#!/bin/sh\nexit 0\n", "release": "JAVA_VERSION=21\n"}


def test_the_cache_is_where_xdg_says():
    assert cache_root({"XDG_CACHE_HOME": "/var/cache/me", "HOME": "/home/me"}) == Path("/var/cache/me/flymq")
    assert cache_root({"HOME": "/home/me"}) == Path("/home/me/.cache/flymq")


def test_a_relative_cache_home_is_ignored_as_xdg_says():
    assert cache_root({"XDG_CACHE_HOME": "cache", "HOME": "/home/me"}) == Path("/home/me/.cache/flymq")


def test_a_folder_has_its_files_and_those_in_bin_can_run(tmp_path):
    folder = keep_folder("java", FILES, root=tmp_path / "not" / "there" / "yet")
    assert {path: (folder / path).read_text() for path in FILES} == FILES
    assert os.access(folder / "bin/java", os.X_OK)
    assert not (folder / "release").stat().st_mode & 0o111


def test_the_same_files_get_the_same_folder_and_others_another(tmp_path):
    first = keep_folder("java", FILES, root=tmp_path)
    made = (first / "release").stat().st_mtime_ns
    assert keep_folder("java", FILES, root=tmp_path) == first
    assert (first / "release").stat().st_mtime_ns == made
    assert keep_folder("java", {**FILES, "release": "other"}, root=tmp_path) != first


def test_many_at_once_get_one_whole_folder_and_leave_nothing_else(tmp_path):
    with ThreadPoolExecutor(16) as threads:
        folders = set(threads.map(lambda _: keep_folder("java", FILES, root=tmp_path), range(64)))
    assert list(tmp_path.iterdir()) == list(folders)
    assert (folders.pop() / "bin/java").read_text() == FILES["bin/java"]


def test_a_folder_that_somebody_damaged_is_mended(tmp_path):
    folder = keep_folder("java", FILES, root=tmp_path)
    (folder / "release").write_text("JAVA_VER")
    (folder / "bin/java").unlink()
    assert keep_folder("java", FILES, root=tmp_path) == folder
    assert {path: (folder / path).read_text() for path in FILES} == FILES
    assert list(tmp_path.iterdir()) == [folder]
