"""The samples of the how-to run as they are printed, one after the other, on one broker."""

import re
from pathlib import Path

from flymq import FlyMQClient

PAGE = Path(__file__).parents[3] / "docs/how-to/kafka-clients.md"


def test_the_samples_run(broker, capsys):
    for sample in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(sample.replace("localhost:9092", broker.address), PAGE.name, "exec"), {})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "b'alice' b'signed in' [('source', b'web')]"
    # The two clients hash keys differently, so their records may be in two partitions, whose order is open.
    assert second in ("events b'signed in'", "events b'signed out'")
    with FlyMQClient(broker.address) as client:
        partitions = len(client.admin.describe_topic("doubled").partitions)
        doubled = {each.value for number in range(partitions) for each in client.fetch("doubled", number)}
    assert doubled == {b"signed insigned in", b"signed outsigned out"}
