"""Three brokers that share topics, beside three Kafka brokers in the same run: `python -m benchmarks.cluster`.

Both get the same load over Kafka's protocol: prepared bytes on plain sockets where the brokers are to be the limit,
librdkafka where it matters what a client sees. CPU time is that of all brokers together, with the metadata store.
"""
