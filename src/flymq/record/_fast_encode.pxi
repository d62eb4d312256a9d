# Records to bytes.


cdef struct Source:
    # One record to be written; everything is borrowed from the caller's tuple.
    int64_t timestamp
    int64_t timestamp_delta
    int64_t offset_delta
    const char *key
    Py_ssize_t key_size  # -1: null
    const char *value
    Py_ssize_t value_size
    PyObject *headers  # a list or a tuple; NULL: none


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline Py_ssize_t varint_size(int64_t number) noexcept nogil:
    return (bits_of(zigzag(number)) + 6) // 7


cdef inline uint8_t *write_varint(uint8_t *at, int64_t number) noexcept nogil:
    cdef uint64_t rest = zigzag(number)
    while rest >= 0x80:
        at[0] = <uint8_t>(rest | 0x80)
        at += 1
        rest >>= 7
    at[0] = <uint8_t>rest
    return at + 1


cdef inline Py_ssize_t nullable_size(Py_ssize_t size) noexcept nogil:
    return 1 if size < 0 else varint_size(size) + size


cdef inline uint8_t *write_nullable(uint8_t *at, const char *data, Py_ssize_t size) noexcept nogil:
    at = write_varint(at, size)
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at


cdef inline bint subtract(int64_t a, int64_t b, int64_t *result) noexcept nogil:
    """Set `result` to a - b; false when that needs more than 64 bits."""
    result[0] = <int64_t>(<uint64_t>a - <uint64_t>b)
    return ((a ^ b) & (a ^ result[0])) >= 0


cdef inline int borrow_bytes(object field, const char **data, Py_ssize_t *size) except -1:
    if field is None:
        data[0] = NULL
        size[0] = -1
    elif PyBytes_Check(field):
        data[0] = PyBytes_AS_STRING(field)
        size[0] = PyBytes_GET_SIZE(field)
    else:
        raise TypeError(f"keys and values are bytes or None, not {type(field).__name__}")
    return 0


cdef inline int borrow_fields(object key, object value, object headers, Source *source) except -1:
    borrow_bytes(key, &source.key, &source.key_size)
    borrow_bytes(value, &source.value, &source.value_size)
    if not (PyTuple_Check(headers) or PyList_Check(headers)):
        raise TypeError("headers are a list or tuple of (str, bytes | None) tuples")
    source.headers = <PyObject *>headers if PySequence_Fast_GET_SIZE(headers) else NULL
    return 0


cdef inline int borrow_record(object record, int64_t timestamp, Source *source) except -1:
    """Take a record, or a tuple of its first fields. One without a timestamp gets `timestamp`."""
    cdef Py_ssize_t size
    if type(record) is Record:
        borrow_fields((<Record>record).key, (<Record>record).value, (<Record>record).headers, source)
        source.timestamp = (<Record>record).timestamp_ms
    else:
        size = PyTuple_GET_SIZE(record) if PyTuple_Check(record) else 0
        if size < 2 or size > 4:
            raise TypeError("a record is a Record or a tuple (key, value[, headers[, timestamp_ms]])")
        borrow_fields(
            <object>PyTuple_GET_ITEM(record, 0),
            <object>PyTuple_GET_ITEM(record, 1),
            <object>PyTuple_GET_ITEM(record, 2) if size > 2 else (),
            source,
        )
        source.timestamp = time_of(<object>PyTuple_GET_ITEM(record, 3)) if size > 3 else NO_TIMESTAMP
    if source.timestamp == NO_TIMESTAMP:
        source.timestamp = timestamp
    return 0


cdef int borrow_header(object header, Source *source) except -1:
    """Take the header's name as the key of `source` and its value as the value."""
    name = <object>PyTuple_GET_ITEM(header, 0) if PyTuple_Check(header) and PyTuple_GET_SIZE(header) == 2 else None
    if not PyUnicode_Check(name):
        raise TypeError("headers are a list or tuple of (str, bytes | None) tuples")
    source.key = PyUnicode_AsUTF8AndSize(name, &source.key_size)
    return borrow_bytes(<object>PyTuple_GET_ITEM(header, 1), &source.value, &source.value_size)


cdef Py_ssize_t headers_size(object headers) except -1:
    cdef Source header
    cdef Py_ssize_t index, count = PySequence_Fast_GET_SIZE(headers)
    cdef Py_ssize_t size = varint_size(count)
    for index in range(count):
        borrow_header(<object>PySequence_Fast_GET_ITEM(headers, index), &header)
        size += nullable_size(header.key_size) + nullable_size(header.value_size)
    return size


cdef uint8_t *write_headers(uint8_t *at, object headers) except NULL:
    cdef Source header
    cdef Py_ssize_t index, count = PySequence_Fast_GET_SIZE(headers)
    at = write_varint(at, count)
    for index in range(count):
        borrow_header(<object>PySequence_Fast_GET_ITEM(headers, index), &header)
        at = write_nullable(at, header.key, header.key_size)
        at = write_nullable(at, header.value, header.value_size)
    return at


cdef inline Py_ssize_t body_size(Source *source) except -1:
    """Return the size of the record without the length in front of it."""
    return (
        1
        + varint_size(source.timestamp_delta)
        + varint_size(source.offset_delta)
        + nullable_size(source.key_size)
        + nullable_size(source.value_size)
        + (1 if source.headers is NULL else headers_size(<object>source.headers))
    )


cdef inline uint8_t *write_record(uint8_t *at, Source *source) except NULL:
    at = write_varint(at, body_size(source))
    at[0] = 0
    at = write_varint(at + 1, source.timestamp_delta)
    at = write_varint(at, source.offset_delta)
    at = write_nullable(at, source.key, source.key_size)
    at = write_nullable(at, source.value, source.value_size)
    if source.headers is NULL:
        at[0] = 0
        return at + 1
    return write_headers(at, <object>source.headers)


@cython.final
cdef class Writer:
    """Records to be written, and the bases of their timestamps and offsets."""

    cdef object records
    cdef int64_t timestamp
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp
    cdef int64_t base_offset
    cdef bint keeps_offsets

    def __cinit__(self, records, int64_t timestamp):
        if not (PyList_Check(records) or PyTuple_Check(records)):
            raise TypeError("records are a list or a tuple")
        self.records = records
        self.timestamp = self.base_timestamp = self.max_timestamp = timestamp

    cdef inline int take(self, Py_ssize_t index, Source *source) except -1:
        record = <object>PySequence_Fast_GET_ITEM(self.records, index)
        borrow_record(record, self.timestamp, source)
        source.offset_delta = index
        if self.keeps_offsets:
            source.offset_delta = (<Record?>record).offset - self.base_offset
        elif index == 0:
            self.base_timestamp = source.timestamp
        if not subtract(source.timestamp, self.base_timestamp, &source.timestamp_delta):
            raise InvalidBatch("a record's time is out of range")
        return 0

    cdef Py_ssize_t measure(self, Py_ssize_t headroom) except -1:
        cdef Source source
        cdef Py_ssize_t index, size, total = headroom
        for index in range(PySequence_Fast_GET_SIZE(self.records)):
            self.take(index, &source)
            if index == 0 or source.timestamp > self.max_timestamp:
                self.max_timestamp = source.timestamp
            size = body_size(&source)
            total += varint_size(size) + size
            if total > INT32_MAX:
                raise MessageTooLarge("a batch is smaller than 2 GiB")
        return total

    cdef bytearray write(self, Py_ssize_t headroom):
        cdef Source source
        cdef Py_ssize_t index, size = self.measure(headroom)
        cdef bytearray out = PyByteArray_FromStringAndSize(NULL, size)
        cdef uint8_t *at = <uint8_t *>PyByteArray_AS_STRING(out)
        memset(at, 0, headroom)
        at += headroom
        for index in range(PySequence_Fast_GET_SIZE(self.records)):
            self.take(index, &source)
            at = write_record(at, &source)
        assert at == <uint8_t *>PyByteArray_AS_STRING(out) + size
        return out


def encode_records(records, Py_ssize_t headroom, timestamp_ms=NO_TIMESTAMP):
    """Return the records after `headroom` free bytes, the base timestamp and the highest one."""
    cdef Writer writer = Writer(records, time_of(timestamp_ms))
    cdef bytearray out = writer.write(headroom)
    return out, writer.base_timestamp, writer.max_timestamp


def encode_kept(records, Py_ssize_t headroom, int64_t base_offset, int64_t base_timestamp):
    """Return the records after `headroom` free bytes, each with its own offset and timestamp."""
    cdef Writer writer = Writer(records, NO_TIMESTAMP)
    writer.keeps_offsets = True
    writer.base_offset = base_offset
    writer.base_timestamp = base_timestamp
    return writer.write(headroom)
