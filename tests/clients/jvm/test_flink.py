"""A Flink job with an exactly-once sink goes on from its last checkpoint. Run with FLYMQ_TEST_HEAVY=1."""

from tests.clients.jvm.topics import Reader, create, write

NUMBERS = 1_000


def test_a_flink_job_doubles_every_number_once_though_it_fails_on_its_way(server, topic, flink, tmp_path):
    create(server.address, f"{topic}-numbers", f"{topic}-doubled", partitions=1)
    write(server.address, f"{topic}-numbers", map(str, range(NUMBERS)))
    assert flink.run("Doubling", server.address, topic, tmp_path) == ["failed once: true"]
    reader = Reader(server.address, f"{topic}-doubled")
    assert list(map(int, reader.read(NUMBERS))) == [2 * number for number in range(NUMBERS)]
    reader.close()
