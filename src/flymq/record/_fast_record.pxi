# The record itself: a third of the cost of a named tuple to make and to free.


@cython.final
@cython.no_gc  # it holds bytes and headers, which cannot lead back to it
@cython.freelist(1024)
cdef class Record:
    """One message. A null value under a key is a tombstone: compaction removes the key.

    A record to be written needs neither time nor offset; a record that was read has both.
    """

    __match_args__ = ("key", "value", "headers", "timestamp_ms", "offset")

    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly int64_t timestamp_ms
    cdef readonly int64_t offset

    def __init__(self, key, value, headers=(), timestamp_ms=NO_TIMESTAMP, int64_t offset=NO_OFFSET):
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_ms = time_of(timestamp_ms)
        self.offset = offset

    def __iter__(self):
        return iter(self.fields())

    def __eq__(self, other):
        return self.fields() == (<Record>other).fields() if isinstance(other, Record) else NotImplemented

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        return "Record(key=%r, value=%r, headers=%r, timestamp_ms=%r, offset=%r)" % self.fields()

    def __reduce__(self):
        return Record, self.fields()

    cdef tuple fields(self):
        return self.key, self.value, self.headers, self.timestamp_ms, self.offset


cdef int64_t time_of(object number) except? -1:
    cdef int overflow = 0
    if not PyLong_Check(number):
        raise TypeError("a record's timestamp_ms is an int")
    cdef int64_t timestamp = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow:
        raise InvalidBatch("a record's time is out of range")
    return timestamp
