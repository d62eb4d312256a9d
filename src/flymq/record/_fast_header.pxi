# The 61 bytes in front of a batch, for the one place that sees every batch: an append.


cdef inline int64_t be64(const uint8_t *at) noexcept nogil:
    return <int64_t>((<uint64_t>be32(at) << 32) | be32(at + 4))


cdef inline uint32_t be32(const uint8_t *at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int16_t be16(const uint8_t *at) noexcept nogil:
    return <int16_t>((<uint16_t>at[0] << 8) | at[1])


cdef inline void put_be32(uint8_t *at, uint32_t number) noexcept nogil:
    at[0] = number >> 24
    at[1] = (number >> 16) & 0xFF
    at[2] = (number >> 8) & 0xFF
    at[3] = number & 0xFF


def assign_batch(buffer, Py_ssize_t position, int64_t base_offset, int32_t leader_epoch):
    """Check the batch at `position`; return its header with the assigned offset and epoch, and its first 16 bytes.

    An invalid batch is passed to the plain version, which raises the error.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    cdef const uint8_t *at = <const uint8_t *>view.buf + position
    cdef Py_ssize_t available = view.len - position
    cdef int32_t length
    cdef bytes assigned = None
    cdef object header
    try:
        if available >= HEADER_SIZE and at[16] == 2:
            length = <int32_t>be32(at + 8)
            if HEADER_SIZE - LENGTH_END <= length <= available - LENGTH_END:
                header = right_header(at, base_offset, leader_epoch)
                if header is not None:
                    if crc32c(memoryview(buffer)[position + 21 : position + LENGTH_END + length]) == be32(at + 17):
                        assigned = assigned_bytes(length, base_offset, leader_epoch)
    finally:
        PyBuffer_Release(&view)
    if assigned is None:
        return plain_assign_batch(buffer, position, base_offset, leader_epoch)
    return assigned, header


cdef object right_header(const uint8_t *at, int64_t base_offset, int32_t leader_epoch):
    """Return the header at this position; None if it is invalid."""
    cdef int32_t last_offset_delta = <int32_t>be32(at + 23)
    cdef int32_t record_count = <int32_t>be32(at + 57)
    if at[0] & 0x80 or last_offset_delta < 0 or record_count < 0:
        return None
    return new_header(BatchHeader, (
        base_offset, <int32_t>be32(at + 8), leader_epoch, 2, be32(at + 17), be16(at + 21), last_offset_delta,
        be64(at + 27), be64(at + 35), be64(at + 43), be16(at + 51), <int32_t>be32(at + 53), record_count,
    ))


cdef bytes assigned_bytes(int32_t length, int64_t base_offset, int32_t leader_epoch):
    cdef bytes assigned = PyBytes_FromStringAndSize(NULL, 16)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(assigned)
    put_be32(at, <uint64_t>base_offset >> 32)
    put_be32(at + 4, <uint32_t>base_offset)
    put_be32(at + 8, <uint32_t>length)
    put_be32(at + 12, <uint32_t>leader_epoch)
    return assigned
