/*
 * ottla.wire._native: the walk over the records of a batch, in C. `_one_batch.h` has what stands before the records.
 *
 * Optional. ottla.wire.record_walk holds the same walk in Python, which is used when this module could not be compiled or
 * when OTTLA_PURE_PYTHON=1 is set; tests hold the two equal on valid, damaged and random areas. Change both or neither.
 *
 * A record is: varint length of the rest, int8 attributes, varlong timestamp delta, varint offset delta, varint key
 * length and key, varint value length and value, varint header count, then per header varint length and key, varint
 * length and value. Varints are zig-zag; a varint of five bytes keeps its low 32 bits, a varlong of ten its low 64, as
 * Kafka's readers do. Any negative length but that of a header's key means null.
 *
 * Safety: a cursor never passes the end it is given, every length is compared with the bytes that are left before it is
 * added, and every byte is read once. So the walk stays inside the buffer even if another thread writes into it while
 * the interpreter lock is released (large areas only).
 *
 * A walk may be made in pieces, as an area is decompressed: `walk_whole_records` stops before the first record that is
 * not wholly there, and is given what it answered last time.
 *
 * `walk_stored_records` walks over records that a codec could not compress and has stored in blocks as they are, and knows of
 * nothing else: decompression.py and compressed_walk.py are its twins.
 *
 * Only the stable ABI is used: one build serves every CPython from 3.11 on.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Below this a walk takes some microseconds and handing over the lock would cost more than it gives. */
#define UNLOCK_BYTES (256 * 1024)

typedef struct {
    const uint8_t *next;
    const uint8_t *end;
} Cursor;

typedef struct {
    int64_t min_timestamp_delta;
    int64_t max_timestamp_delta;
    int32_t max_timestamp_offset_delta;
    int has_null_key;
    int offsets_are_consecutive;
} Summary;

/* A record that begins well, but ends behind the bytes that are there. */
#define CUT_OFF -2

/* All readers return 0, or -1 where the bytes end early or do not make sense. */

static int read_varint(Cursor *cursor, int32_t *value)
{
    uint32_t raw = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (cursor->next == cursor->end)
            return -1;
        uint8_t byte = *cursor->next++;
        raw |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
            return 0;
        }
    }
    return -1;
}

static int read_varlong(Cursor *cursor, int64_t *value)
{
    uint64_t raw = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (cursor->next == cursor->end)
            return -1;
        uint8_t byte = *cursor->next++;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int64_t)((raw >> 1) ^ (UINT64_C(0) - (raw & 1)));
            return 0;
        }
    }
    return -1;
}

/* Passes over a length and the bytes it announces; hands back the length. */
static int skip_bytes(Cursor *cursor, int32_t *length)
{
    if (read_varint(cursor, length) < 0)
        return -1;
    if (*length > 0) {
        if (*length > cursor->end - cursor->next)
            return -1;
        cursor->next += *length;
    }
    return 0;
}

static int skip_headers(Cursor *cursor)
{
    int32_t count, length;
    if (read_varint(cursor, &count) < 0 || count < 0)
        return -1;
    while (count-- > 0) { /* ends early: every header takes at least two bytes */
        if (skip_bytes(cursor, &length) < 0 || length < 0)
            return -1;
        if (skip_bytes(cursor, &length) < 0)
            return -1;
    }
    return 0;
}

/* 0, -1 or CUT_OFF. */
static int walk_record(Cursor *area, int32_t index, Summary *summary)
{
    int32_t length, offset_delta, key_length, value_length;
    int64_t timestamp_delta;

    const uint8_t *start = area->next;
    if (read_varint(area, &length) < 0) /* a varint of five bytes is too long, and not cut off */
        return area->next == area->end && area->next - start < 5 ? CUT_OFF : -1;
    if (length < 1)
        return -1;
    if (length > area->end - area->next)
        return CUT_OFF;
    Cursor record = {area->next + 1, area->next + length}; /* + 1: the attributes, which nobody uses */
    area->next += length;
    if (read_varlong(&record, &timestamp_delta) < 0 || read_varint(&record, &offset_delta) < 0 ||
        skip_bytes(&record, &key_length) < 0 || skip_bytes(&record, &value_length) < 0 || skip_headers(&record) < 0 ||
        record.next != record.end)
        return -1;

    if (index == 0 || timestamp_delta > summary->max_timestamp_delta) {
        summary->max_timestamp_delta = timestamp_delta;
        summary->max_timestamp_offset_delta = offset_delta;
    }
    if (index == 0 || timestamp_delta < summary->min_timestamp_delta)
        summary->min_timestamp_delta = timestamp_delta;
    if (key_length < 0)
        summary->has_null_key = 1;
    if (offset_delta != index)
        summary->offsets_are_consecutive = 0;
    return 0;
}

/* Index of the first bad record; count where only bytes after the last record are wrong; -1 where all is well. */
static int32_t walk_area(Cursor area, int32_t count, Summary *summary)
{
    for (int32_t index = 0; index < count; index++)
        if (walk_record(&area, index, summary) < 0)
            return index;
    return area.next == area.end ? -1 : count;
}

/* Like walk_area from the record with this index on, as far as the records are whole. Moves `area` and `index` behind them;
 * -1 where one of them is bad. */
static int walk_piece(Cursor *area, int32_t *index, int32_t count, Summary *summary)
{
    for (; *index < count; ++*index) {
        const uint8_t *start = area->next;
        int result = walk_record(area, *index, summary);
        if (result == CUT_OFF) {
            area->next = start;
            return 0;
        }
        if (result < 0)
            return -1;
    }
    return 0;
}

PyDoc_STRVAR(walk_records_doc,
             "walk_records(buffer, start, end, count, /)\n--\n\n"
             "Check the records in buffer[start:end]; ValueError where they are not exactly count good records.\n"
             "Returns (min_timestamp_delta, max_timestamp_delta, max_timestamp_offset_delta, has_null_key,\n"
             "offsets_are_consecutive).");

static PyObject *walk_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "walk_records takes buffer, start, end, count");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    if (start == -1 && PyErr_Occurred()) /* each by itself: a conversion may call Python, which expects no error to be set */
        return NULL;
    Py_ssize_t end = PyLong_AsSsize_t(args[2]);
    if (end == -1 && PyErr_Occurred())
        return NULL;
    long count = PyLong_AsLong(args[3]);
    if (count == -1 && PyErr_Occurred())
        return NULL;

    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (start < 0 || end < start || end > view.len || count < 0 || count > INT32_MAX) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "no such area or count");
        return NULL;
    }

    Cursor area = {(const uint8_t *)view.buf + start, (const uint8_t *)view.buf + end};
    Summary summary = {0, 0, -1, 0, 1};
    int32_t bad;
    if (end - start > UNLOCK_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        bad = walk_area(area, (int32_t)count, &summary);
        Py_END_ALLOW_THREADS
    } else {
        bad = walk_area(area, (int32_t)count, &summary);
    }
    PyBuffer_Release(&view);

    if (bad >= 0)
        return PyErr_Format(PyExc_ValueError, bad == count ? "bytes left after record %d" : "record %d is malformed",
                            (int)bad - (bad == count));
    return Py_BuildValue("LLiNN", (long long)summary.min_timestamp_delta, (long long)summary.max_timestamp_delta,
                         (int)summary.max_timestamp_offset_delta, PyBool_FromLong(summary.has_null_key),
                         PyBool_FromLong(summary.offsets_are_consecutive));
}

PyDoc_STRVAR(walk_whole_records_doc,
             "walk_whole_records(buffer, start, end, count, walked, /)\n--\n\n"
             "Walk on over the records in buffer[start:end], as far as they are whole and until `count` are walked in all.\n"
             "`walked` is what the walk before this one returned, or (0, 0, 0, 0, -1, False, True) at first. Returns (records\n"
             "walked in all, position behind the last whole one, min_timestamp_delta, max_timestamp_delta,\n"
             "max_timestamp_offset_delta, has_null_key, offsets_are_consecutive) of all of them. ValueError: one is malformed.");

static PyObject *walk_whole_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end, position;
    int count, index, offset_of_max, has_null_key, are_consecutive;
    long long min, max;
    if (!PyArg_ParseTuple(args, "y*nni(inLLipp)", &view, &start, &end, &count, &index, &position, &min, &max,
                          &offset_of_max, &has_null_key, &are_consecutive))
        return NULL;
    if (start < 0 || end < start || end > view.len || index < 0 || count < index) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "no such area or count");
        return NULL;
    }

    Cursor area = {(const uint8_t *)view.buf + start, (const uint8_t *)view.buf + end};
    Summary summary = {min, max, offset_of_max, has_null_key, are_consecutive};
    int result;
    if (end - start > UNLOCK_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        result = walk_piece(&area, &index, count, &summary);
        Py_END_ALLOW_THREADS
    } else {
        result = walk_piece(&area, &index, count, &summary);
    }
    position = area.next - (const uint8_t *)view.buf;
    PyBuffer_Release(&view);

    if (result < 0)
        return PyErr_Format(PyExc_ValueError, "record %d is malformed", index);
    return Py_BuildValue("inLLiNN", index, position, (long long)summary.min_timestamp_delta,
                         (long long)summary.max_timestamp_delta, (int)summary.max_timestamp_offset_delta,
                         PyBool_FromLong(summary.has_null_key), PyBool_FromLong(summary.offsets_are_consecutive));
}

/* --- stored records ------------------------------------------------------------------------------------------------- */

/* Below this a walk is quickly over, however short the records are. */
#define UNLOCK_STORED_BYTES (16 * 1024)
#define GZIP_BLOCKS_MAX 500 /* the caller looks at each once more */

enum { GZIP = 1, SNAPPY = 2, LZ4 = 3, ZSTD = 4 }; /* as in the attributes of a batch */

/* The records of all blocks. One that is cut off by the end of its block is put together at the front of `memory`. */
typedef struct {
    uint8_t *memory;
    size_t capacity;
    size_t written;     /* up to where */
    size_t left;        /* bytes at the front that are not walked over */
    size_t size, limit; /* how many have come, and may come */
    int32_t index, count;
    Summary summary;
} Records;

/* All below return 0 or -1. */

static int keep(Records *to, const uint8_t *data, size_t size)
{
    if (size > to->capacity - to->left)
        return -1;
    memcpy(to->memory + to->left, data, size);
    to->left += size;
    if (to->left > to->written)
        to->written = to->left;
    return 0;
}

/* How many bytes the record at the front lacks, or at least so many. */
static size_t lacking(const Records *of)
{
    Cursor record = {of->memory, of->memory + of->left};
    int32_t length;
    if (read_varint(&record, &length) < 0)
        return 1;
    size_t whole = (size_t)(record.next - of->memory) + (length > 0 ? (size_t)length : 0);
    return whole > of->left ? whole - of->left : 1;
}

/* A block. It is walked over where it is, but for records that do not end or begin there. */
static int put(Records *to, const uint8_t *data, size_t size)
{
    to->size += size;
    if (to->size > to->limit)
        return -1;
    while (to->left && size) {
        size_t part = lacking(to);
        if (part > size)
            part = size;
        if (keep(to, data, part) < 0)
            return -1;
        data += part;
        size -= part;
        Cursor record = {to->memory, to->memory + to->left};
        if (walk_piece(&record, &to->index, to->count, &to->summary) < 0)
            return -1;
        /* All of it, or nothing: no more than the record lacked was added. */
        if (record.next == record.end)
            to->left = 0;
        else if (record.next != to->memory)
            return -1;
    }
    Cursor area = {data, data + size};
    if (walk_piece(&area, &to->index, to->count, &to->summary) < 0)
        return -1;
    /* Whatever comes now is behind the last record. */
    if (area.next != area.end && to->index == to->count)
        return -1;
    return keep(to, area.next, (size_t)(area.end - area.next));
}

static uint32_t little_endian(const uint8_t *in, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)in[i] << 8 * i;
    return value;
}

static uint64_t little_endian_64(const uint8_t *in)
{
    return little_endian(in, 4) | (uint64_t)little_endian(in + 4, 4) << 32;
}

static uint32_t rotated(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

/* The second byte of XXH32 with seed 0, for fewer than 16 bytes. */
static uint8_t lz4_header_checksum(const uint8_t *data, int size)
{
    const uint32_t prime_1 = 2654435761u, prime_2 = 2246822519u, prime_3 = 3266489917u, prime_4 = 668265263u,
                   prime_5 = 374761393u;
    uint32_t digest = prime_5 + (uint32_t)size;
    for (; size >= 4; size -= 4, data += 4)
        digest = rotated(digest + little_endian(data, 4) * prime_3, 17) * prime_4;
    for (; size > 0; size--, data++)
        digest = rotated(digest + *data * prime_5, 11) * prime_1;
    digest = (digest ^ digest >> 15) * prime_2;
    digest = (digest ^ digest >> 13) * prime_3;
    return (uint8_t)((digest ^ digest >> 16) >> 8);
}

/* One frame of stored blocks, without checksums but that of its header. What follows it is not looked at. */
static int lz4_records(Records *to, const uint8_t *in, const uint8_t *end)
{
    if (end - in < 15 || little_endian(in, 4) != 0x184d2204)
        return -1;
    int flags = in[4], sizes = in[5], has_size = flags & 0x08, described = has_size ? 10 : 2;
    /* Version 1, independent blocks, nothing else but the size of the contents. */
    if ((flags & ~0x08) != 0x60 || (sizes & 0x8f) != 0 || sizes >> 4 < 4)
        return -1;
    uint64_t told_size = has_size ? little_endian_64(in + 6) : 0;
    size_t block_max = (size_t)1 << (8 + 2 * (sizes >> 4));
    if (in[4 + described] != lz4_header_checksum(in + 4, described))
        return -1;
    in += 4 + described + 1;
    while (end - in >= 4) {
        uint32_t head = little_endian(in, 4), size = head & 0x7fffffff;
        in += 4;
        if (head == 0)
            return has_size && told_size != to->size ? -1 : 0;
        /* An empty one is the end to Java's reader. */
        if (!(head >> 31) || size == 0 || size > block_max || size > (size_t)(end - in) || put(to, in, size) < 0)
            return -1;
        in += size;
    }
    return -1;
}

/* One frame of stored blocks, without a checksum. */
static int zstd_records(Records *to, const uint8_t *in, const uint8_t *end)
{
    if (end - in < 15 || little_endian(in, 4) != 0xfd2fb528)
        return -1;
    int descriptor = in[4], is_single = descriptor >> 5 & 1;
    in += 5;
    /* A reserved bit, a checksum, a dictionary. */
    if (descriptor & 0x0f)
        return -1;
    uint64_t window = UINT64_MAX, told_size = UINT64_MAX;
    if (!is_single) {
        int exponent = *in >> 3, mantissa = *in & 7;
        /* Windows of 128 MiB and more need a decoder that is told to allow them. */
        if (exponent >= 17)
            return -1;
        window = ((uint64_t)1 << (10 + exponent)) / 8 * (uint64_t)(8 + mantissa);
        in++;
    }
    switch (descriptor >> 6) {
    case 0:
        if (is_single)
            told_size = *in++;
        break;
    case 1:
        told_size = little_endian(in, 2) + 256u;
        in += 2;
        break;
    case 2:
        told_size = little_endian(in, 4);
        in += 4;
        break;
    default:
        told_size = little_endian_64(in);
        in += 8;
    }
    if (is_single)
        window = told_size;
    size_t block_max = window < 128 * 1024 ? (size_t)window : 128 * 1024;
    for (;;) {
        if (end - in < 3)
            return -1;
        uint32_t head = little_endian(in, 3);
        size_t size = head >> 3;
        in += 3;
        if ((head >> 1 & 3) != 0 || size > block_max || size > (size_t)(end - in) || put(to, in, size) < 0)
            return -1;
        in += size;
        if (head & 1)
            return in != end || (told_size != UINT64_MAX && told_size != to->size) ? -1 : 0;
    }
}

/* One gzip member of a few stored blocks and nothing behind it. Its checksum is the caller's. */
static int gzip_records(Records *to, const uint8_t *in, const uint8_t *end)
{
    if (end - in < 10 || little_endian(in, 4) != 0x00088b1f) /* deflate, no extra fields */
        return -1;
    in += 10;
    for (int blocks = 0; blocks < GZIP_BLOCKS_MAX && end - in >= 5 && *in <= 1; blocks++) {
        int is_last = *in;
        uint32_t size = little_endian(in + 1, 2);
        if ((size ^ little_endian(in + 3, 2)) != 0xffff)
            return -1;
        in += 5;
        if (size > (size_t)(end - in) || put(to, in, size) < 0)
            return -1;
        in += size;
        if (is_last)
            return end - in == 8 && little_endian(in + 4, 4) == to->size ? 0 : -1;
    }
    return -1;
}

/* A block that is one literal: its length as a varint, a tag with the same length less one, the bytes. */
static int snappy_literal(Records *to, const uint8_t *in, const uint8_t *end)
{
    uint32_t told_size = 0;
    uint8_t byte = 0x80;
    for (int shift = 0; byte & 0x80; shift += 7) {
        if (in == end || shift > 21)
            return -1;
        byte = *in++;
        told_size |= (uint32_t)(byte & 0x7f) << shift;
    }
    if (in == end || (*in & 3) != 0)
        return -1;
    uint32_t less_one = *in++ >> 2;
    if (less_one >= 60) { /* so many bytes more hold it */
        int bytes = (int)less_one - 59;
        /* The library reads four bytes at once, and refuses a shorter rest; whoever compacts the log reads it by the library. */
        if (end - in < 4)
            return -1;
        less_one = little_endian(in, bytes);
        in += bytes;
    }
    if (told_size == 0 || less_one != told_size - 1 || (size_t)(end - in) != told_size)
        return -1;
    return put(to, in, told_size);
}

/* One xerial stream of such blocks, or one such block alone. */
static int snappy_records(Records *to, const uint8_t *in, const uint8_t *end)
{
    static const uint8_t header[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    if (end - in < 16 || memcmp(in, header, sizeof header) != 0)
        return snappy_literal(to, in, end);
    for (in += sizeof header; in != end;) {
        if (end - in < 4)
            return -1;
        uint32_t size = (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | in[3];
        in += 4;
        if (size > (size_t)(end - in) || snappy_literal(to, in, in + size) < 0)
            return -1;
        in += size;
    }
    return 0;
}

static int stored_walk(Records *to, int codec, const uint8_t *in, const uint8_t *end)
{
    /* What is hardly longer than its records cannot hold very many empty blocks, which would take time and count for nothing. */
    if ((size_t)(end - in) > to->limit + to->limit / 8 + 1024)
        return -1;
    int result = codec == GZIP     ? gzip_records(to, in, end)
                 : codec == SNAPPY ? snappy_records(to, in, end)
                 : codec == LZ4    ? lz4_records(to, in, end)
                 : codec == ZSTD   ? zstd_records(to, in, end)
                                   : -1;
    return result == 0 && to->index == to->count && to->left == 0 ? 0 : -1;
}

PyDoc_STRVAR(walk_stored_records_doc,
             "walk_stored_records(codec, data, limit, count, memory, /)\n--\n\n"
             "Walk over the records in data, which a codec has stored as they are; those that two blocks share go through `memory`.\n"
             "Returns (bytes of memory that were written to, what walk_records says). The second is None where they are not\n"
             "exactly count good records of at most limit bytes, and where anything is compressed or unusual; gzip's checksum may be wrong.");

static PyObject *walk_stored_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, memory;
    int codec, count;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(args, "iy*niw*", &codec, &data, &limit, &count, &memory))
        return NULL;
    Records records = {.memory = memory.buf, .capacity = (size_t)memory.len, .limit = limit < 0 ? 0 : (size_t)limit,
                       .count = count, .summary = {0, 0, -1, 0, 1}};
    const uint8_t *in = data.buf;
    int result;
    if (data.len > UNLOCK_STORED_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        result = stored_walk(&records, codec, in, in + data.len);
        Py_END_ALLOW_THREADS
    } else {
        result = stored_walk(&records, codec, in, in + data.len);
    }
    PyBuffer_Release(&memory);
    PyBuffer_Release(&data);

    Py_ssize_t written = (Py_ssize_t)records.written;
    if (result < 0)
        return Py_BuildValue("nO", written, Py_None);
    Summary *found = &records.summary;
    return Py_BuildValue("n(LLiNN)", written, (long long)found->min_timestamp_delta, (long long)found->max_timestamp_delta,
                         (int)found->max_timestamp_offset_delta, PyBool_FromLong(found->has_null_key),
                         PyBool_FromLong(found->offsets_are_consecutive));
}

PyDoc_STRVAR(has_gzip_header_doc,
             "has_gzip_header(data, start, /)\n--\n\n"
             "Whether anything behind `start` looks like the beginning of a gzip member.");

static PyObject *has_gzip_header(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    Py_ssize_t start;
    if (!PyArg_ParseTuple(args, "y*n", &data, &start))
        return NULL;
    int found = 0;
    const uint8_t *next = (const uint8_t *)data.buf + (start < 0 || start > data.len ? data.len : start);
    const uint8_t *end = (const uint8_t *)data.buf + data.len;
    while (!found && end - next >= 3 && (next = memchr(next, 0x1f, (size_t)(end - next) - 2)) != NULL) {
        found = next[1] == 0x8b && next[2] == 8;
        next++;
    }
    PyBuffer_Release(&data);
    return PyBool_FromLong(found);
}

#include "_one_batch.h"

static PyMethodDef methods[] = {
    {"decode_one_batch", (PyCFunction)(void (*)(void))decode_one_batch, METH_FASTCALL, decode_one_batch_doc},
    {"ordinary_header", (PyCFunction)(void (*)(void))ordinary_header, METH_FASTCALL, ordinary_header_doc},
    {"walk_records", (PyCFunction)(void (*)(void))walk_records, METH_FASTCALL, walk_records_doc},
    {"walk_whole_records", walk_whole_records, METH_VARARGS, walk_whole_records_doc},
    {"has_gzip_header", has_gzip_header, METH_VARARGS, has_gzip_header_doc},
    {"walk_stored_records", walk_stored_records, METH_VARARGS, walk_stored_records_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "The record walk in C.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && add_checks(made) < 0)
        Py_CLEAR(made);
    return made;
}
