"""Build the compiled record codec. Where that fails, FlyMQ installs without it and uses the one in plain Python."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("flymq.record._fast", ["src/flymq/record/_fast.pyx"], optional=True)])
