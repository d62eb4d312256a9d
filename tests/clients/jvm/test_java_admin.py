"""Every method of Java's Admin, and what it ends with; docs/reference/kafka-admin.md is made of the same tables."""

import pytest
from tests.clients.jvm import outcomes


@pytest.mark.shows("admin", client="Java")
@pytest.mark.parametrize(("version", "program"), [("kafka4", "AdminMethodsOf4"), ("kafka3", "AdminMethodsOf3")])
def test_every_method_of_javas_admin_ends_as_the_table_says(server, topic, version, program, request):
    told = request.getfixturevalue(version).run(program, server.address, topic)
    outcomes.compare(f"admin-{version}", server.name, dict(line.split("\t") for line in told))
