# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The records of a batch, compiled. `_plain` is the reference: same functions, same bytes, same errors.

Reading trusts nothing: every length is checked against the record it is in and every record against its batch, at the
moment it is used. Writing measures all records, allocates once and writes; no other Python code can run in between.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Check
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from flymq.model.errors import DecompressedTooLarge, InvalidBatch, InvalidRecord, MessageTooLarge
from flymq.record._plain import NO_OFFSET, RecordLike
from flymq.record._plain import assign_batch as plain_assign_batch
from flymq.record.checksum import crc32c
from flymq.record.header import BatchHeader
from flymq.record.shapes import BinaryColumn, Columns

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)
    PyObject *PySequence_Fast_GET_ITEM(object sequence, Py_ssize_t index)

cdef extern from *:
    """
    /* A tuple that the garbage collector need not visit: ours hold bytes, numbers, text and such tuples, no cycle. */
    static CYTHON_INLINE PyObject *new_tuple(Py_ssize_t size) {
        PyObject *made = PyTuple_New(size);
        if (made != NULL && size > 0) PyObject_GC_UnTrack(made);
        return made;
    }
    static CYTHON_INLINE int bits_of(unsigned long long number) {
    #if defined(__GNUC__) || defined(__clang__)
        return 64 - __builtin_clzll(number | 1);
    #else
        int bits = 1;
        while (number >>= 1) bits++;
        return bits;
    #endif
    }
    """
    tuple new_tuple(Py_ssize_t size)
    int bits_of(uint64_t number) noexcept nogil

cdef enum:
    NO_TIMESTAMP = -1
    LENGTH_END = 12
    HEADER_SIZE = 61

cdef object new_header = tuple.__new__  # half the cost of calling the class


include "_fast_header.pxi"
include "_fast_record.pxi"
include "_fast_encode.pxi"
include "_fast_parse.pxi"
include "_fast_check.pxi"
include "_fast_columns.pxi"
include "_fast_time.pxi"
include "_fast_compaction.pxi"


cdef inline uint32_t hash_of(const uint8_t *at, Py_ssize_t rest) noexcept nogil:
    """Return the 32-bit MurmurHash2 with the seed of Kafka's clients."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t word, value = <uint32_t>0x9747B28C ^ <uint32_t>rest
    while rest >= 4:
        word = (at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24) * m
        value = value * m ^ (word ^ word >> 24) * m
        at += 4
        rest -= 4
    if rest > 0:
        for word in range(<uint32_t>rest):
            value ^= <uint32_t>at[word] << 8 * word
        value *= m
    value = (value ^ value >> 13) * m
    return value ^ value >> 15


def murmur2(key):
    """Return the 32-bit MurmurHash2 with the seed of Kafka's clients."""
    cdef bytes data = key if PyBytes_Check(key) else bytes(key)
    return hash_of(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


include "_fast_table.pxi"
