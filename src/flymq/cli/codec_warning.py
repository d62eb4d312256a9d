"""The warning for installations without the compiled record codec."""

CODEC_IS_SLOW = "The compiled record codec is missing: encoding and decoding take about 10 times longer."
CODEC_ADVICE = "Install a C compiler, then FlyMQ again: pip install --force-reinstall --no-cache-dir flymq"
