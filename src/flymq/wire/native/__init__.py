"""FlyMQ's own protocol: frames, messages and the table of operations. Specified in docs/formats/native-protocol.md."""
