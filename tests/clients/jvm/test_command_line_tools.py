"""Kafka's command-line tools, and what they end with; docs/reference/kafka-admin.md is made of the same table."""

import json

from tests.clients.jvm import outcomes
from tests.clients.jvm.command_line import COMMANDS, SCRIPTS
from tests.clients.servers import FLYMQ, Server


def first_segment(server: Server, topic: str) -> str:
    pattern = f"topics/{topic}~*/0/*.log" if server.name == FLYMQ else f"{topic}-0/*.log"
    return str(next(server.data_dir.glob(pattern), ""))


def test_kafkas_command_line_tools_end_as_the_table_says(server, topic, kafka4, tmp_path):
    records = {"partitions": [{"topic": topic, "partition": 2, "offset": 1}], "version": 1}
    (tmp_path / "records.json").write_text(json.dumps(records))
    (tmp_path / "empty").touch()
    names = {"topic": topic, "folder": tmp_path, "id": server.broker_id, "log": ""}
    told, said = {}, []
    with kafka4.start("Tools") as tools:
        for command in COMMANDS:
            names["log"] = first_segment(server, topic)
            script, *arguments = command.words(server.address, names)
            request = {"tool": SCRIPTS[script], "arguments": arguments, "given": command.given}
            tools.stdin.write(json.dumps(request) + "\n")
            answer = json.loads(tools.stdout.readline())
            told[command.what] = command.outcome(answer["code"], answer["output"], names)
            said.append(f"$ {command.line}\n{answer['output']}")
    (tmp_path / "output.txt").write_text("\n".join(said))
    outcomes.compare("tools", server.name, told)
