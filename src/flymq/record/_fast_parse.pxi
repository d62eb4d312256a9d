# Bytes to records.

ctypedef const char *Fault  # what is wrong, in words; NULL: nothing


cdef struct Field:
    const uint8_t *data
    int64_t size  # -1: null


cdef struct Parsed:
    # One record; its fields point into the payload it was read from.
    int64_t offset
    int64_t timestamp
    Field key
    Field value
    int64_t header_count
    const uint8_t *headers
    const uint8_t *end


cdef inline Fault read_varint(const uint8_t **at, const uint8_t *end, int64_t *number) noexcept nogil:
    cdef const uint8_t *next = at[0]
    cdef uint64_t byte, bits = 0
    cdef int shift = 0
    while next < end:
        byte = next[0]
        next += 1
        if shift == 63 and byte > 1:
            return b"a number of a record has more than 64 bits"
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
            at[0] = next
            return NULL
        shift += 7
    return b"a record ends in the middle of a field"


cdef inline Fault read_nullable(const uint8_t **at, const uint8_t *end, Field *field) noexcept nogil:
    cdef Fault fault = read_varint(at, end, &field.size)
    if fault is not NULL:
        return fault
    field.data = at[0]
    if field.size == -1:
        return NULL
    if field.size < 0 or field.size > end - at[0]:
        return b"a field is longer than its record"
    at[0] += field.size
    return NULL


cdef inline Fault read_header(const uint8_t **at, const uint8_t *end, Field *name, Field *value) noexcept nogil:
    cdef Fault fault = read_nullable(at, end, name)
    if fault is not NULL:
        return fault
    if name.size < 0:
        return b"a header has no name"
    return read_nullable(at, end, value)


cdef inline Fault read_fields(const uint8_t *at, Parsed *record) noexcept nogil:
    """Read key, value and headers, which must fill the record. The headers are checked but not copied."""
    cdef Field name, value
    cdef int64_t index
    cdef Fault fault = read_nullable(&at, record.end, &record.key)
    if fault is NULL:
        fault = read_nullable(&at, record.end, &record.value)
    if fault is NULL:
        fault = read_varint(&at, record.end, &record.header_count)
    if fault is not NULL:
        return fault
    if record.header_count < 0 or record.header_count > (record.end - at) // 2:
        return b"a record counts more headers than its bytes can hold"
    record.headers = at
    for index in range(record.header_count):
        fault = read_header(&at, record.end, &name, &value)
        if fault is not NULL:
            return fault
    if at != record.end:
        return b"bytes are left after the last field of a record"
    return NULL


cdef inline bint add(int64_t a, int64_t b, int64_t *result) noexcept nogil:
    """Set `result` to a + b; false when that needs more than 64 bits."""
    result[0] = <int64_t>(<uint64_t>a + <uint64_t>b)
    return ((a ^ result[0]) & (b ^ result[0])) >= 0


cdef int refuse(Fault fault) except -1:
    raise InvalidBatch(fault.decode())


@cython.final
cdef class Walk:
    """The records of one section from `start_offset` on, one after another."""

    cdef Py_buffer payload
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t remaining
    cdef int64_t base_offset
    cdef int64_t delta
    cdef int64_t last_delta
    cdef int64_t base_timestamp
    cdef int64_t append_time
    cdef bint has_append_time
    cdef int64_t start_offset

    def __cinit__(self, section, int64_t start_offset):
        payload, self.remaining, self.base_offset, self.last_delta, self.base_timestamp, append_time = section
        self.has_append_time = append_time is not None
        if self.has_append_time:
            self.append_time = append_time
        self.delta = -1
        self.start_offset = start_offset
        PyObject_GetBuffer(payload, &self.payload, PyBUF_SIMPLE)
        self.at = <const uint8_t *>self.payload.buf
        self.end = self.at + self.payload.len
        if self.remaining < 0 or self.remaining > self.payload.len // 7:  # seven fields of one byte each
            refuse(b"the batch counts more records than its bytes can hold")

    def __dealloc__(self):
        PyBuffer_Release(&self.payload)

    cdef inline Fault read(self, Parsed *record) noexcept nogil:
        """Read the next record. One before the start is skipped by its length, without decoding."""
        cdef int64_t length, timestamp_delta, delta
        cdef Fault fault = read_varint(&self.at, self.end, &length)
        if fault is not NULL:
            return fault
        if length < 0 or length > self.end - self.at:
            return b"a record is longer than its batch"
        if length == 0:
            return b"a record ends in the middle of a field"
        record.end = self.at + length
        self.at += 1
        fault = read_varint(&self.at, record.end, &timestamp_delta)
        if fault is NULL:
            fault = read_varint(&self.at, record.end, &delta)
        if fault is not NULL:
            return fault
        if delta <= self.delta or delta > self.last_delta:
            return b"the offsets of the batch's records do not ascend within it"
        self.delta = delta
        record.offset = self.base_offset + delta
        if record.offset >= self.start_offset:
            record.timestamp = self.append_time
            if not self.has_append_time and not add(self.base_timestamp, timestamp_delta, &record.timestamp):
                return b"a record's time is out of range"
            fault = read_fields(self.at, record)
        self.at = record.end
        return fault

    cdef inline bint advance(self, Parsed *record) except -1:
        """Go to the next record from the start on; false when there is none."""
        cdef Fault fault
        while self.remaining > 0:
            self.remaining -= 1
            fault = self.read(record)
            if fault is not NULL:
                refuse(fault)
            if record.offset >= self.start_offset:
                return True
        self.check_end()
        return False

    cdef inline int check_end(self) except -1:
        """After the last record nothing may be left."""
        if self.at != self.end:
            refuse(b"bytes are left after the last record of the batch")
        return 0


cdef enum:
    NAMES_KEPT = 8


@cython.final
cdef class Names:
    """Header names repeat from record to record: the last one at each place is kept, and compared before decoding."""

    cdef list kept
    cdef const char *utf8[NAMES_KEPT]
    cdef Py_ssize_t sizes[NAMES_KEPT]

    def __cinit__(self):
        self.kept = [None] * NAMES_KEPT
        memset(self.sizes, 0xFF, sizeof(self.sizes))

    cdef object at(self, int64_t place, Field *field):
        cdef Py_ssize_t slot = place % NAMES_KEPT
        if self.sizes[slot] == field.size and memcmp(self.utf8[slot], field.data, field.size) == 0:
            return self.kept[slot]
        try:
            name = PyUnicode_DecodeUTF8(<const char *>field.data, field.size, NULL)
        except UnicodeDecodeError as fault:
            raise InvalidBatch("the name of a header is not UTF-8") from fault
        self.sizes[slot] = -1
        self.kept[slot] = name
        self.utf8[slot] = PyUnicode_AsUTF8AndSize(name, &self.sizes[slot])
        return name


cdef inline object as_bytes(Field *field):
    if field.size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>field.data, field.size)


cdef inline int put(tuple made, Py_ssize_t index, object item) except -1:
    Py_INCREF(item)  # the tuple takes this reference over
    PyTuple_SET_ITEM(made, index, item)
    return 0


cdef tuple as_headers(Parsed *record, Names names):
    cdef const uint8_t *at = record.headers
    cdef Field name = Field(NULL, 0), value = Field(NULL, 0)
    cdef Fault fault
    cdef int64_t index
    cdef tuple header, headers = new_tuple(record.header_count)
    for index in range(record.header_count):
        fault = read_header(&at, record.end, &name, &value)
        if fault is not NULL:
            refuse(fault)
        header = new_tuple(2)
        put(header, 0, names.at(index, &name))
        put(header, 1, as_bytes(&value))
        put(headers, index, header)
    return headers


def parse_records(sections, int64_t start_offset):
    """Return the records from `start_offset` on."""
    cdef Parsed parsed
    cdef Walk walk
    cdef Record record
    cdef list out = []
    cdef Names names = Names()
    for section in sections:
        walk = Walk(section, start_offset)
        while walk.advance(&parsed):
            record = Record.__new__(Record)
            record.key = as_bytes(&parsed.key)
            record.value = as_bytes(&parsed.value)
            record.headers = as_headers(&parsed, names) if parsed.header_count else ()
            record.timestamp_ms = parsed.timestamp
            record.offset = parsed.offset
            out.append(record)
    return out


def parse_pairs(sections, int64_t start_offset):
    """Return (key, value) of the records from `start_offset` on."""
    cdef Parsed parsed
    cdef Walk walk
    cdef tuple pair
    cdef list out = []
    for section in sections:
        walk = Walk(section, start_offset)
        while walk.advance(&parsed):
            pair = new_tuple(2)
            put(pair, 0, as_bytes(&parsed.key))
            put(pair, 1, as_bytes(&parsed.value))
            out.append(pair)
    return out


def parse_rows(sections, int64_t start_offset):
    """Return (offset, timestamp, key, value) of the records from `start_offset` on."""
    cdef Parsed parsed
    cdef Walk walk
    cdef tuple row
    cdef list out = []
    cdef int64_t seen = NO_TIMESTAMP
    cdef object timestamp = NO_TIMESTAMP  # neighbours often share their time, and then its object
    for section in sections:
        walk = Walk(section, start_offset)
        while walk.advance(&parsed):
            if parsed.timestamp != seen:
                seen = parsed.timestamp
                timestamp = seen
            row = new_tuple(4)
            put(row, 0, parsed.offset)
            put(row, 1, timestamp)
            put(row, 2, as_bytes(&parsed.key))
            put(row, 3, as_bytes(&parsed.value))
            out.append(row)
    return out
