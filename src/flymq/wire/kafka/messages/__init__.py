"""One module per request, written by tools/generate_kafka_codecs.py."""
