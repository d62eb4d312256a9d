# The framing of records, checked before a batch enters a log: no reader, of ours or another, may stumble over it.

cdef enum:
    WITHOUT_LOCK_FROM = 1 << 20  # bytes; a shorter check costs less than giving the interpreter's lock away and waiting


cdef struct Checked:
    int64_t index  # of the record that is being checked; -1: it is about the batch
    int64_t max_timestamp
    int64_t keyless


cdef inline Fault read_int(const uint8_t **at, const uint8_t *end, int64_t *number) noexcept nogil:
    """Read a varint of 32 bits. Readers of ours take longer ones too, those in Java do not."""
    cdef const uint8_t *next = at[0]
    cdef uint32_t byte, bits = 0
    cdef int shift = 0
    while next < end:
        byte = next[0]
        next += 1
        if shift == 28 and byte > 0x0F:
            return b"a number of a record has more than 32 bits"
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = <int32_t>(bits >> 1) ^ -<int32_t>(bits & 1)
            at[0] = next
            return NULL
        shift += 7
    return b"a record ends in the middle of a field"


cdef inline Fault skip_nullable(const uint8_t **at, const uint8_t *end, int64_t *size) noexcept nogil:
    cdef Fault fault = read_int(at, end, size)
    if fault is not NULL or size[0] == -1:
        return fault
    if size[0] < 0 or size[0] > end - at[0]:
        return b"a field is longer than its record"
    at[0] += size[0]
    return NULL


cdef inline bint follows(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef bint is_utf8(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Whether the bytes are UTF-8 in its shortest form, without surrogates, up to U+10FFFF."""
    while at < end:
        if at[0] < 0x80:
            at += 1
        elif 0xC2 <= at[0] <= 0xDF:
            if end - at < 2 or not follows(at[1]):
                return False
            at += 2
        elif 0xE0 <= at[0] <= 0xEF:
            if end - at < 3 or not follows(at[1]) or not follows(at[2]):
                return False
            if (at[0] == 0xE0 and at[1] < 0xA0) or (at[0] == 0xED and at[1] > 0x9F):
                return False
            at += 3
        elif 0xF0 <= at[0] <= 0xF4:
            if end - at < 4 or not follows(at[1]) or not follows(at[2]) or not follows(at[3]):
                return False
            if (at[0] == 0xF0 and at[1] < 0x90) or (at[0] == 0xF4 and at[1] > 0x8F):
                return False
            at += 4
        else:
            return False
    return True


cdef Fault check_headers(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef int64_t count, size
    cdef Fault fault = read_int(&at, end, &count)
    if fault is not NULL:
        return fault
    if count < 0 or count > (end - at) // 2:
        return b"a record counts more headers than its bytes can hold"
    while count > 0:
        count -= 1
        fault = skip_nullable(&at, end, &size)
        if fault is not NULL:
            return fault
        if size < 0:
            return b"a header has no name"
        if not is_utf8(at - size, at):
            return b"the name of a header is not UTF-8"
        fault = skip_nullable(&at, end, &size)
        if fault is not NULL:
            return fault
    if at != end:
        return b"bytes are left after the last field of a record"
    return NULL


cdef Fault check_all(
    const uint8_t *at, const uint8_t *end, int64_t record_count, int64_t base_timestamp, Checked *checked
) noexcept nogil:
    cdef const uint8_t *record_end
    cdef int64_t number, key_size, value_size, timestamp
    cdef Fault fault
    checked.index = -1
    checked.keyless = 0
    checked.max_timestamp = INT64_MIN
    if record_count < 0 or record_count > (end - at) // 7:  # seven fields of one byte each
        return b"the batch counts more records than its bytes can hold"
    while checked.index + 1 < record_count:
        checked.index += 1
        fault = read_int(&at, end, &number)
        if fault is not NULL:
            return fault
        if number < 0 or number > end - at:
            return b"a record is longer than its batch"
        if number == 0:
            return b"a record ends in the middle of a field"
        record_end = at + number
        at += 1
        fault = read_varint(&at, record_end, &number)
        if fault is not NULL:
            return fault
        if not add(base_timestamp, number, &timestamp):
            return b"a record's time is out of range"
        if timestamp > checked.max_timestamp:
            checked.max_timestamp = timestamp
        fault = read_int(&at, record_end, &number)
        if fault is not NULL:
            return fault
        if number != checked.index:
            return b"the offsets of a new batch's records are not 0, 1, 2 and so on"
        fault = skip_nullable(&at, record_end, &key_size)
        if fault is NULL:
            fault = skip_nullable(&at, record_end, &value_size)
        if fault is not NULL:
            return fault
        checked.keyless += key_size < 0
        if record_end - at != 1 or at[0] != 0:  # most records have no headers
            fault = check_headers(at, record_end)
            if fault is not NULL:
                return fault
        at = record_end
    checked.index = -1
    return NULL if at == end else <Fault>b"bytes are left after the last record of the batch"


def check_records(payload, int64_t record_count, int64_t base_timestamp):
    """Check the records of a new batch; return the highest timestamp and the number of records without a key."""
    cdef Py_buffer view
    cdef Checked checked
    cdef Fault fault
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    cdef const uint8_t *at = <const uint8_t *>view.buf
    try:
        if view.len >= WITHOUT_LOCK_FROM:
            with nogil:
                fault = check_all(at, at + view.len, record_count, base_timestamp, &checked)
        else:
            fault = check_all(at, at + view.len, record_count, base_timestamp, &checked)
    finally:
        PyBuffer_Release(&view)
    if fault is not NULL:
        if checked.index < 0:
            refuse(fault)
        raise InvalidRecord("record %d: %s" % (checked.index, fault.decode()), indexes=[checked.index])
    return checked.max_timestamp, checked.keyless


def keyless_records(section, Py_ssize_t limit):
    """Return the positions of the first records without a key."""
    cdef Parsed parsed
    cdef Walk walk = Walk(section, 0)
    cdef int64_t index = 0
    cdef list out = []
    while len(out) < limit and walk.advance(&parsed):
        if parsed.key.size < 0:
            out.append(index)
        index += 1
    return out


def untimely_records(section, object earliest_ms, object latest_ms, Py_ssize_t limit):
    """Return the positions of the first records whose time lies outside of these; -1, no time, does not."""
    cdef Parsed parsed
    cdef Walk walk = Walk(section, 0)
    cdef int64_t earliest = max(earliest_ms, -1 << 63), latest = min(latest_ms, (1 << 63) - 1)
    cdef int64_t index = 0
    cdef list out = []
    while len(out) < limit and walk.advance(&parsed):
        if parsed.timestamp != -1 and not earliest <= parsed.timestamp <= latest:
            out.append(index)
        index += 1
    return out
