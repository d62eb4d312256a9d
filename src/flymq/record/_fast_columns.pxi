# Bytes to columns: straight into Arrow's buffers, without a Python object per record.


@cython.final
cdef class Growing:
    """A byte buffer that grows as it is written, by doubling."""

    cdef bytearray buffer
    cdef uint8_t *data
    cdef Py_ssize_t capacity

    def __cinit__(self, Py_ssize_t capacity):
        self.buffer = PyByteArray_FromStringAndSize(NULL, capacity)
        self.data = <uint8_t *>PyByteArray_AS_STRING(self.buffer)
        self.capacity = capacity

    cdef inline int hold(self, Py_ssize_t size) except -1:
        if size > self.capacity:
            self.resize(2 * size)
        return 0

    cdef int resize(self, Py_ssize_t size) except -1:
        PyByteArray_Resize(self.buffer, size)
        self.data = <uint8_t *>PyByteArray_AS_STRING(self.buffer)
        self.capacity = size
        return 0

    cdef bytearray cut(self, Py_ssize_t size):
        self.resize(size)
        return self.buffer


@cython.final
cdef class Strings:
    """A column of byte strings. The bitmap of nulls begins with the first null; until then all bits count as set."""

    cdef Growing ends
    cdef Growing data
    cdef Growing validity
    cdef Py_ssize_t count
    cdef int32_t size
    cdef Py_ssize_t null_count

    def __cinit__(self, Py_ssize_t count, Py_ssize_t size):
        self.ends = Growing(4 * (count + 1))
        (<int32_t *>self.ends.data)[0] = 0
        self.data = Growing(size)
        self.validity = Growing(0)

    cdef inline int append(self, Field *field) except -1:
        if field.size < 0:
            self.append_null_bit()
        else:
            self.data.hold(self.size + field.size)
            memcpy(self.data.data + self.size, field.data, field.size)
            self.size += <int32_t>field.size
        self.count += 1
        self.ends.hold(4 * (self.count + 1))
        (<int32_t *>self.ends.data)[self.count] = self.size
        return 0

    cdef int append_null_bit(self) except -1:
        self.set_bits(self.count + 1)
        self.validity.data[self.count >> 3] &= ~(1 << (self.count & 7))
        self.null_count += 1
        return 0

    cdef int set_bits(self, Py_ssize_t count) except -1:
        """Make the bitmap hold at least `count` bits; the new ones are set."""
        cdef Py_ssize_t before = self.validity.capacity
        self.validity.hold((count + 7) >> 3)
        memset(self.validity.data + before, 0xFF, self.validity.capacity - before)
        return 0

    cdef object cut(self):
        validity = None
        if self.null_count:
            self.set_bits(self.count)
            if self.count & 7:
                self.validity.data[self.count >> 3] &= (1 << (self.count & 7)) - 1
            validity = self.validity.cut((self.count + 7) >> 3)
        return BinaryColumn(self.null_count, validity, self.ends.cut(4 * (self.count + 1)), self.data.cut(self.size))


cdef int append_headers(Parsed *record, Names names, Strings name_column, Strings value_column) except -1:
    cdef const uint8_t *at = record.headers
    cdef Field name, value
    cdef Fault fault
    cdef int64_t index
    for index in range(record.header_count):
        fault = read_header(&at, record.end, &name, &value)
        if fault is not NULL:
            refuse(fault)
        names.at(index, &name)  # refuses what is not UTF-8
        name_column.append(&name)
        value_column.append(&value)
    return 0


def parse_columns(sections, int64_t start_offset):
    """Return the records from `start_offset` on as Arrow buffers."""
    cdef Parsed parsed
    cdef Walk walk
    cdef Names names = Names()
    cdef list walks = [Walk(section, start_offset) for section in sections]
    cdef Py_ssize_t row = 0, rows_max = 0, bytes_max = 0
    for walk in walks:
        rows_max += walk.remaining
        bytes_max += walk.payload.len
    if bytes_max > INT32_MAX:
        raise DecompressedTooLarge("the run unpacks to 2 GiB or more; decode fewer batches at a time")
    cdef Growing offset = Growing(8 * rows_max)
    cdef Growing timestamp = Growing(8 * rows_max)
    cdef Growing header_ends = Growing(4 * (rows_max + 1))
    cdef Strings key = Strings(rows_max, 16 * rows_max)  # a guess; it grows
    cdef Strings value = Strings(rows_max, bytes_max)
    cdef Strings header_name = Strings(0, 0)
    cdef Strings header_value = Strings(0, 0)
    (<int32_t *>header_ends.data)[0] = 0
    for walk in walks:
        while walk.advance(&parsed):
            (<int64_t *>offset.data)[row] = parsed.offset
            (<int64_t *>timestamp.data)[row] = parsed.timestamp
            key.append(&parsed.key)
            value.append(&parsed.value)
            if parsed.header_count:
                append_headers(&parsed, names, header_name, header_value)
            row += 1
            (<int32_t *>header_ends.data)[row] = <int32_t>header_name.count
    return Columns(
        row,
        offset.cut(8 * row),
        timestamp.cut(8 * row),
        key.cut(),
        value.cut(),
        header_ends.cut(4 * (row + 1)),
        header_name.count,
        header_name.cut(),
        header_value.cut(),
    )
