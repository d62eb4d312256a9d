"""The segmented log: one partition is one directory of files that survive any crash. No `await` in log and segment:
a state change is one synchronous step, so nothing here needs a lock.

    data_directory.py    opens the log of every partition; one process at a time
    log.py               the log of one partition: append, read, truncate, make durable
    batch_validation.py  what a batch must be to enter a log; offsets assigned, duplicates recognised
    leader_epochs.py     which leader wrote from which offset
    sync_point.py        what is written but not yet on the disk
    flusher.py           group commit: many logs share one round of fsyncs in a thread
    retention.py         which segments are too old or too many
    memory_log.py        the log of a `memory` topic
    segments/            one file of batches with its indexes
    producers/           sequence numbers, open and aborted transactions, their snapshots
    recovery/            opening a log, the scan after a crash, checkpoints
    compaction/          keep the last record of each key
"""
