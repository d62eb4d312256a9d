# Columns to bytes: straight from Arrow's buffers, without a Python object per record.


@cython.final
cdef class Borrowed:
    """A borrowed column of byte strings. Its offsets are checked when a value is read."""

    cdef Py_buffer ends
    cdef Py_buffer data
    cdef Py_buffer validity
    cdef int held
    cdef bint has_nulls
    cdef Py_ssize_t count

    def __cinit__(self, column, Py_ssize_t count):
        self.count = count
        PyObject_GetBuffer(column.ends, &self.ends, PyBUF_SIMPLE)
        self.held = 1
        PyObject_GetBuffer(column.data, &self.data, PyBUF_SIMPLE)
        self.held = 2
        self.has_nulls = column.validity is not None
        if self.has_nulls:
            PyObject_GetBuffer(column.validity, &self.validity, PyBUF_SIMPLE)
            self.held = 3
        if self.ends.len < 4 * (count + 1) or (self.has_nulls and self.validity.len < (count + 7) >> 3):
            raise ValueError("a column is shorter than its rows")

    def __dealloc__(self):
        if self.held > 0:
            PyBuffer_Release(&self.ends)
        if self.held > 1:
            PyBuffer_Release(&self.data)
        if self.held > 2:
            PyBuffer_Release(&self.validity)

    cdef inline int take(self, Py_ssize_t row, const char **data, Py_ssize_t *size) except -1:
        cdef const int32_t *ends = <const int32_t *>self.ends.buf
        if row < 0 or row >= self.count:
            raise IndexError("a row is not in the columns")
        if self.has_nulls and not (<const uint8_t *>self.validity.buf)[row >> 3] >> (row & 7) & 1:
            data[0] = NULL
            size[0] = -1
            return 0
        if ends[row] < 0 or ends[row] > ends[row + 1] or ends[row + 1] > self.data.len:
            raise ValueError("a column's ends do not fit its data")
        data[0] = <const char *>self.data.buf + ends[row]
        size[0] = ends[row + 1] - ends[row]
        return 0


@cython.final
cdef class Numbers:
    """Borrowed native integers."""

    cdef Py_buffer view
    cdef bint is_held

    def __cinit__(self, buffer, Py_ssize_t bytes_min):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.is_held = True
        if self.view.len < bytes_min:
            raise ValueError("a column is shorter than its rows")

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)


@cython.final
cdef class Table:
    """Records to be written, as columns, and the base of their timestamps."""

    cdef Borrowed key
    cdef Borrowed value
    cdef Borrowed header_name
    cdef Borrowed header_value
    cdef Numbers header_ends
    cdef Numbers timestamps
    cdef Numbers rows
    cdef Py_ssize_t count
    cdef int64_t timestamp
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp

    def __cinit__(self, columns, rows, int64_t timestamp):
        cdef Py_ssize_t total = columns.row_count
        self.timestamp = self.base_timestamp = self.max_timestamp = timestamp
        self.value = Borrowed(columns.value, total)
        if columns.key is not None:
            self.key = Borrowed(columns.key, total)
        if columns.timestamp_ms is not None:
            self.timestamps = Numbers(columns.timestamp_ms, 8 * total)
        if columns.header_ends is not None:
            self.header_ends = Numbers(columns.header_ends, 4 * (total + 1))
            self.header_name = Borrowed(columns.header_name, columns.header_count)
            self.header_value = Borrowed(columns.header_value, columns.header_count)
        self.rows = Numbers(rows, 0)
        self.count = self.rows.view.len // 8

    cdef inline Py_ssize_t take(self, Py_ssize_t index, Source *source) except -1:
        """Borrow the record of one row; return the row."""
        cdef Py_ssize_t row = (<const int64_t *>self.rows.view.buf)[index]
        source.headers = NULL
        source.key = NULL
        source.key_size = -1
        self.value.take(row, &source.value, &source.value_size)
        if self.key is not None:
            self.key.take(row, &source.key, &source.key_size)
        source.timestamp = self.timestamp
        if self.timestamps is not None:
            source.timestamp = (<const int64_t *>self.timestamps.view.buf)[row]
            if source.timestamp == NO_TIMESTAMP:
                source.timestamp = self.timestamp
        source.offset_delta = index
        if index == 0:
            self.base_timestamp = source.timestamp
        if not subtract(source.timestamp, self.base_timestamp, &source.timestamp_delta):
            raise InvalidBatch("a record's time is out of range")
        return row

    cdef inline int header_range(self, Py_ssize_t row, Py_ssize_t *first, Py_ssize_t *end) except -1:
        first[0] = end[0] = 0
        if self.header_ends is not None:
            first[0] = (<const int32_t *>self.header_ends.view.buf)[row]
            end[0] = (<const int32_t *>self.header_ends.view.buf)[row + 1]
            if first[0] < 0 or first[0] > end[0] or end[0] > self.header_name.count:
                raise ValueError("a column's ends do not fit its data")
        return 0

    cdef int take_header(self, Py_ssize_t at, Source *header) except -1:
        """Borrow the header's name as the key of `header` and its value as the value."""
        self.header_name.take(at, &header.key, &header.key_size)
        if header.key_size < 0:
            raise ValueError("a header has no name")
        self.header_value.take(at, &header.value, &header.value_size)
        return 0

    cdef inline Py_ssize_t size_of(self, Py_ssize_t row, Source *source) except -1:
        """Return the size of the record without the length in front of it."""
        cdef Py_ssize_t first, end, at
        cdef Source header
        cdef Py_ssize_t size = body_size(source) - 1
        self.header_range(row, &first, &end)
        size += varint_size(end - first)
        for at in range(first, end):
            self.take_header(at, &header)
            size += nullable_size(header.key_size) + nullable_size(header.value_size)
        return size

    cdef Py_ssize_t measure(self, Py_ssize_t headroom) except -1:
        cdef Source source
        cdef Py_ssize_t index, row, size, total = headroom
        for index in range(self.count):
            row = self.take(index, &source)
            if index == 0 or source.timestamp > self.max_timestamp:
                self.max_timestamp = source.timestamp
            size = self.size_of(row, &source)
            total += varint_size(size) + size
            if total > INT32_MAX:
                raise MessageTooLarge("a batch is smaller than 2 GiB")
        return total

    cdef bytearray write(self, Py_ssize_t headroom):
        cdef Source source, header
        cdef Py_ssize_t index, row, first, end, header_at, size = self.measure(headroom)
        cdef bytearray out = PyByteArray_FromStringAndSize(NULL, size)
        cdef uint8_t *at = <uint8_t *>PyByteArray_AS_STRING(out)
        memset(at, 0, headroom)
        at += headroom
        for index in range(self.count):
            row = self.take(index, &source)
            at = write_varint(at, self.size_of(row, &source))
            at[0] = 0
            at = write_varint(at + 1, source.timestamp_delta)
            at = write_varint(at, source.offset_delta)
            at = write_nullable(at, source.key, source.key_size)
            at = write_nullable(at, source.value, source.value_size)
            self.header_range(row, &first, &end)
            at = write_varint(at, end - first)
            for header_at in range(first, end):
                self.take_header(header_at, &header)
                at = write_nullable(at, header.key, header.key_size)
                at = write_nullable(at, header.value, header.value_size)
        assert at == <uint8_t *>PyByteArray_AS_STRING(out) + size
        return out


def encode_columns(columns, rows, Py_ssize_t headroom, timestamp_ms=NO_TIMESTAMP):
    """Return the records of these rows after `headroom` free bytes, the base timestamp and the highest one."""
    cdef Table table = Table(columns, rows, time_of(timestamp_ms))
    cdef bytearray out = table.write(headroom)
    return out, table.base_timestamp, table.max_timestamp


def hash_keys(column, Py_ssize_t count):
    """Return the non-negative hash of each key, as native int32; -1 for no key."""
    cdef Borrowed keys = Borrowed(column, count)
    cdef bytearray out = PyByteArray_FromStringAndSize(NULL, 4 * count)
    cdef int32_t *found = <int32_t *>PyByteArray_AS_STRING(out)
    cdef const char *data
    cdef Py_ssize_t row, size
    for row in range(count):
        keys.take(row, &data, &size)
        found[row] = -1 if size < 0 else <int32_t>(hash_of(<const uint8_t *>data, size) & 0x7FFFFFFF)
    return out
