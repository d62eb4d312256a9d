# The last offset of each key, and the records of a batch that are the last of their keys. Without the interpreter's
# lock: compaction goes through every record of a log, and the event loop must not wait for that.
#
# A key is known by a digest of 16 bytes, as in Kafka, so that a key takes 24 bytes in the table, however long it is. The
# digest is SipHash-2-4 with a secret of the process: two keys with the same one cannot be made, and do not happen.

from libc.stdlib cimport calloc, free


cdef struct Digest:
    uint64_t high
    uint64_t low


cdef struct Slot:
    Digest digest
    int64_t place  # offset + 1; 0: empty


cdef inline uint64_t rotated(uint64_t word, int bits) noexcept nogil:
    return word << bits | word >> (64 - bits)


cdef inline void sip_rounds(uint64_t *v, int count) noexcept nogil:
    cdef int round
    for round in range(count):
        v[0] += v[1]
        v[2] += v[3]
        v[1] = rotated(v[1], 13) ^ v[0]
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] = rotated(v[0], 32)
        v[2] += v[1]
        v[0] += v[3]
        v[1] = rotated(v[1], 17) ^ v[2]
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] = rotated(v[2], 32)


cdef Digest digest_of(const uint8_t *data, int64_t size, uint64_t secret, uint64_t other_secret) noexcept nogil:
    """Return the 128-bit SipHash-2-4."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Digest digest
    cdef int64_t at = 0
    v[0] = secret ^ <uint64_t>0x736F6D6570736575
    v[1] = other_secret ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = secret ^ <uint64_t>0x6C7967656E657261
    v[3] = other_secret ^ <uint64_t>0x7465646279746573
    while at + 8 <= size:
        memcpy(&word, data + at, 8)  # little-endian, as all that FlyMQ runs on
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
        at += 8
    word = 0
    memcpy(&word, data + at, size - at)
    word |= <uint64_t>size << 56
    v[3] ^= word
    sip_rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    sip_rounds(v, 4)
    digest.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_rounds(v, 4)
    digest.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    return digest


def sip_hash(bytes data, uint64_t secret, uint64_t other_secret):
    """Return the digest of a key, to compare it with the published values."""
    cdef Digest digest = digest_of(
        <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), secret, other_secret
    )
    return digest.low.to_bytes(8, "little") + digest.high.to_bytes(8, "little")


@cython.final
cdef class LastOffsets:
    """The last offset of each key: an open-addressing table that is never more than three quarters full."""

    cdef Slot *slots
    cdef uint64_t mask
    cdef uint64_t used
    cdef uint64_t secret
    cdef uint64_t other_secret

    def __cinit__(self):
        self.mask = (1 << 10) - 1
        self.slots = <Slot *>calloc(self.mask + 1, sizeof(Slot))
        if self.slots is NULL:
            raise MemoryError
        # Hashes of bytes are randomized with a secret of the process.
        self.secret = <uint64_t><int64_t>hash(b"last offsets")
        self.other_secret = <uint64_t><int64_t>hash(b"of keys")

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.used

    cdef inline Slot *find(self, Digest digest) noexcept nogil:
        """Return the slot of a key, or the empty one where it belongs."""
        cdef uint64_t at = digest.low & self.mask
        while self.slots[at].place != 0 and (
            self.slots[at].digest.low != digest.low or self.slots[at].digest.high != digest.high
        ):
            at = (at + 1) & self.mask
        return &self.slots[at]

    cdef bint grow(self) noexcept nogil:
        """Double the table; false when there is no memory."""
        cdef Slot *before = self.slots
        cdef uint64_t at, count = self.mask + 1
        cdef Slot *bigger = <Slot *>calloc(2 * count, sizeof(Slot))
        if bigger is NULL:
            return False
        self.slots = bigger
        self.mask = 2 * count - 1
        for at in range(count):
            if before[at].place != 0:
                self.find(before[at].digest)[0] = before[at]
        free(before)
        return True

    cdef bint note(self, Parsed *record) noexcept nogil:
        """Take the offset of a record for that of its key; false when there is no memory."""
        cdef Slot *slot
        cdef Digest digest
        if self.used * 4 >= self.mask * 3 and not self.grow():
            return False
        digest = digest_of(record.key.data, record.key.size, self.secret, self.other_secret)
        slot = self.find(digest)
        if slot.place == 0:
            slot.digest = digest
            self.used += 1
        if slot.place <= record.offset:
            slot.place = record.offset + 1
        return True

    cdef inline bint keeps(self, Parsed *record, bint drop_tombstones) noexcept nogil:
        if record.key.size < 0:
            return True
        if drop_tombstones and record.value.size < 0:
            return False
        return self.find(
            digest_of(record.key.data, record.key.size, self.secret, self.other_secret)
        ).place <= record.offset + 1

    def add(self, section):
        """Note the keys of all records; of an invalid batch, none."""
        cdef Walk check = Walk(section, 0)
        cdef Walk walk = Walk(section, 0)
        cdef Parsed record
        cdef Fault fault = NULL
        cdef bint has_memory = True
        with nogil:
            while fault is NULL and check.remaining > 0:
                check.remaining -= 1
                fault = check.read(&record)
        if fault is not NULL:
            refuse(fault)
        check.check_end()
        with nogil:
            while has_memory and walk.remaining > 0:
                walk.remaining -= 1
                walk.read(&record)
                if record.key.size >= 0:
                    has_memory = self.note(&record)
        if not has_memory:
            raise MemoryError

    def count_kept(self, section, bint drop_tombstones):
        """Return how many records are the last of their key, or have none; and how many of these are tombstones."""
        cdef Walk walk = Walk(section, 0)
        cdef Parsed record
        cdef Fault fault = NULL
        cdef int64_t kept = 0, tombstones = 0
        with nogil:
            while fault is NULL and walk.remaining > 0:
                walk.remaining -= 1
                fault = walk.read(&record)
                if fault is NULL and self.keeps(&record, drop_tombstones):
                    kept += 1
                    tombstones += record.key.size >= 0 and record.value.size < 0
        if fault is not NULL:
            refuse(fault)
        walk.check_end()
        return kept, tombstones

    def retain(self, section, bint drop_tombstones, Py_ssize_t headroom, int64_t base_timestamp):
        """Return these records after `headroom` free bytes, with their timestamps relative to `base_timestamp`."""
        cdef Walk walk = Walk(section, 0)
        cdef Parsed record
        cdef Fault fault = NULL
        cdef const uint8_t *begin
        cdef bint is_rebased = base_timestamp != walk.base_timestamp
        # A new base can make the delta, and with it the length of the record, longer; by eighteen bytes at most.
        cdef Py_ssize_t size = headroom + walk.payload.len + (18 * walk.remaining if is_rebased else 0)
        cdef bytearray out = PyByteArray_FromStringAndSize(NULL, size)
        cdef uint8_t *start = <uint8_t *>PyByteArray_AS_STRING(out)
        cdef uint8_t *at = start + headroom
        memset(start, 0, headroom)
        with nogil:
            while fault is NULL and walk.remaining > 0:
                walk.remaining -= 1
                begin = walk.at
                fault = walk.read(&record)
                if fault is NULL and self.keeps(&record, drop_tombstones):
                    if is_rebased:
                        fault = rebase(&at, begin, &record, base_timestamp)
                    else:
                        memcpy(at, begin, record.end - begin)
                        at += record.end - begin
        if fault is not NULL:
            refuse(fault)
        walk.check_end()
        PyByteArray_Resize(out, at - start)
        return out


cdef Fault rebase(uint8_t **to, const uint8_t *begin, Parsed *record, int64_t base_timestamp) noexcept nogil:
    """Copy a record that was read from `begin` on, with its timestamp relative to another base."""
    cdef int64_t ignored, delta
    cdef const uint8_t *rest = begin
    cdef uint8_t attributes
    cdef uint8_t *at = to[0]
    read_varint(&rest, record.end, &ignored)
    attributes = rest[0]
    rest += 1
    read_varint(&rest, record.end, &ignored)
    if not subtract(record.timestamp, base_timestamp, &delta):
        return b"a record's time is out of range"
    at = write_varint(at, 1 + varint_size(delta) + (record.end - rest))
    at[0] = attributes
    at = write_varint(at + 1, delta)
    memcpy(at, rest, record.end - rest)
    to[0] = at + (record.end - rest)
    return NULL
