"""Projects of declarative tables, run as a user runs them: with a session and processes of their own."""

import json
import os
import subprocess
import sys

import pytest

from flymq.client.sync.client import FlyMQClient
from flymq.model.errors import InvalidPipeline
from flymq.spark.declarative import find_spec, write_project

COMMAND = [sys.executable, "-m", "flymq", "pipeline"]


def run(*arguments):
    environ = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}  # a quicker start
    return subprocess.run([*COMMAND, *arguments], env=environ, capture_output=True, text=True)


def test_a_new_project_has_a_spec_and_transformations_in_python_and_sql(tmp_path):
    write_project(tmp_path / "shop", "orders")
    files = {str(path.relative_to(tmp_path)) for path in (tmp_path / "shop").rglob("*") if path.is_file()}
    assert files == {
        "shop/spark-pipeline.yml",
        "shop/transformations/records.py",
        "shop/transformations/records_per_key.sql",
        "shop/.gitignore",
    }
    assert "TOPIC = 'orders'" in (tmp_path / "shop/transformations/records.py").read_text()
    assert find_spec(tmp_path / "shop") == find_spec(tmp_path / "shop/spark-pipeline.yml")


def test_a_project_is_not_written_over_anything(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(InvalidPipeline, match="not empty"):
        write_project(tmp_path, "orders")


def test_a_folder_without_a_spec_is_told(tmp_path):
    with pytest.raises(InvalidPipeline, match=r"no spark-pipeline\.yml"):
        find_spec(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_run_of_a_project_adds_what_has_come_since_the_last(tmp_path, broker):
    project = str(tmp_path / "shop")
    assert run("init", project, "--topic", "purchases").returncode == 0
    with FlyMQClient(broker.address) as client:
        client.create_topic("purchases", 2)
        for number in range(10):
            client.produce("purchases", f"purchase {number}", key=f"k{number % 3}")
        client.flush()
        first = run("run", project, "--server", broker.address, "-o", "json")
        assert first.returncode == 0, first.stderr
        assert json.loads(first.stdout) == {"records": 10, "records_per_key": 3}
        client.produce("purchases", "one more", key="new")
        client.flush()
    second = run("run", project, "--server", broker.address, "-o", "json")
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout) == {"records": 11, "records_per_key": 4}
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]
