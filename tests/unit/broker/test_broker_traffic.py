"""What is counted of reads and writes."""

from flymq.broker.service.traffic import Traffic


def test_the_sums_of_a_protocol_outlive_its_topics() -> None:
    traffic = Traffic()
    traffic.wrote("native", "a", 2, 200)
    traffic.wrote("native", "b", 3, 300)
    traffic.read("http", "a", 4, 50)
    traffic.forget("a")
    assert [(protocol, topic) for protocol, topic, _ in traffic] == [("native", "b")]
    sums = traffic.by_protocol()
    assert (sums["native"].records_in, sums["native"].bytes_in) == (5, 500)
    assert (sums["http"].records_out, sums["http"].bytes_out) == (4, 50)
