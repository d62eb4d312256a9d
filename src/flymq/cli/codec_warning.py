"""The warning for installations without the compiled record codec."""

CODEC_IS_SLOW = "The compiled record codec is missing: encoding is about 25 times and decoding about 45 times slower."
CODEC_ADVICE = "Install a C compiler, then FlyMQ again: pip install --force-reinstall --no-cache-dir flymq"
