"""A whole broker in a folder: topics, their settings, their records, and how far groups had read.

BACKUP/
├─ backup.json        what the backup is of; written last, so a backup without it was cut short
├─ manifests/         an archive of all topics, as docs/formats/archive.md says
└─ data/
"""
