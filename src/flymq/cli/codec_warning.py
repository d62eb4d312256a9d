"""What to tell where the record codec could not be compiled."""

CODEC_IS_SLOW = "The compiled record codec is missing: encoding and decoding take about 10 times longer."
CODEC_ADVICE = "Install a C compiler, then FlyMQ again: pip install --force-reinstall --no-cache-dir flymq"
