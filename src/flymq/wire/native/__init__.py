"""FlyMQ's native protocol: frames, messages and operations. Specified in docs/formats/native-protocol.md."""
