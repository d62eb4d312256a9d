"""Topics as Parquet files with manifests: written by jobs, read by anything that reads Parquet, restored to the byte.

ARCHIVE/
├─ manifests/<query>-<batch>.json                      what belongs to the archive, one manifest a batch
├─ data/topic=<topic>/partition=<n>/<…>.parquet        the records, a range of offsets in each file
└─ lock                                                held by the one job that writes

docs/formats/archive.md is the specification.
"""
