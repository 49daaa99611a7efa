/*
 * ottla.wire._native: the walk over the records of a batch, the parser of an ordinary produce request (_one_batch.h), CRC-32C
 * (_crc32c.h) and receives beside an event loop (_background.h), in C.
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

/* Walks from the record with this index on, as far as the records are whole. Moves `area` and `index` behind them; -1 where one of
 * them is bad. */
static int walk(Cursor *area, int32_t *index, int32_t count, Summary *summary)
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

PyDoc_STRVAR(continue_walk_doc,
             "continue_walk(buffer, start, end, count, walked, /)\n--\n\n"
             "Walk over the records in buffer[start:end], as far as they are whole and until `count` are walked in all.\n"
             "`walked` is what the walk before this one returned, or (0, 0, 0, 0, -1, False, True) at first. Returns (records\n"
             "walked in all, position behind the last whole one, min_timestamp_delta, max_timestamp_delta,\n"
             "max_timestamp_offset_delta, has_null_key, offsets_are_consecutive) of all of them. ValueError: one is malformed.");

static PyObject *continue_walk(PyObject *Py_UNUSED(module), PyObject *args)
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
        result = walk(&area, &index, count, &summary);
        Py_END_ALLOW_THREADS
    } else {
        result = walk(&area, &index, count, &summary);
    }
    position = area.next - (const uint8_t *)view.buf;
    PyBuffer_Release(&view);

    if (result < 0)
        return PyErr_Format(PyExc_ValueError, "record %d is malformed", index);
    return Py_BuildValue("inLLiNN", index, position, (long long)summary.min_timestamp_delta,
                         (long long)summary.max_timestamp_delta, (int)summary.max_timestamp_offset_delta,
                         PyBool_FromLong(summary.has_null_key), PyBool_FromLong(summary.offsets_are_consecutive));
}

#include "_background.h"
#include "_crc32c.h"
#include "_one_batch.h"

static PyMethodDef methods[] = {
    {"decode_one_batch", (PyCFunction)(void (*)(void))decode_one_batch, METH_FASTCALL, decode_one_batch_doc},
    {"ordinary_header", (PyCFunction)(void (*)(void))ordinary_header, METH_FASTCALL, ordinary_header_doc},
    {"continue_walk", continue_walk, METH_VARARGS, continue_walk_doc},
    {"hand_over", hand_over, METH_VARARGS, hand_over_doc},
    {"serve_receives", serve_receives, METH_O, serve_receives_doc},
    {"take_received", take_received, METH_O, take_received_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "Checks of produced batches in C.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && add_checks(made) < 0)
        Py_CLEAR(made);
    return made;
}
