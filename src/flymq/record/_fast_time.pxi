# Search a batch by time, without the interpreter's lock: it can have millions of records.


def find_time(section, int64_t timestamp_ms, int64_t start_offset):
    """Return offset and timestamp of the first record from `start_offset` on that is of this time or later."""
    cdef Walk walk = Walk(section, start_offset)
    cdef Parsed record
    cdef Fault fault = NULL
    cdef bint found = False
    with nogil:
        while not found and fault is NULL and walk.remaining > 0:
            walk.remaining -= 1
            fault = walk.read(&record)
            found = fault is NULL and record.offset >= start_offset and record.timestamp >= timestamp_ms
    if fault is not NULL:
        refuse(fault)
    if found:
        return record.offset, record.timestamp
    walk.check_end()
    return None


def find_latest_time(section, int64_t start_offset):
    """Return offset and timestamp of the first record from `start_offset` on that has the latest time of them."""
    cdef Walk walk = Walk(section, start_offset)
    cdef Parsed record
    cdef Fault fault = NULL
    cdef bint found = False
    cdef int64_t offset = 0, timestamp = 0
    with nogil:
        while fault is NULL and walk.remaining > 0:
            walk.remaining -= 1
            fault = walk.read(&record)
            if fault is NULL and record.offset >= start_offset and (not found or record.timestamp > timestamp):
                found = True
                offset = record.offset
                timestamp = record.timestamp
    if fault is not NULL:
        refuse(fault)
    walk.check_end()
    return (offset, timestamp) if found else None
