/*
 * A part of ottla.wire._native: the produce request of one batch, and the header of that batch.
 *
 * The twins in Python are decode_one_batch_python (wire/one_batch.py, which says what the request looks like) and
 * ordinary_fields_python and is_intact_python (replication/log/batch_checks.py). Change both or neither; tests hold them equal.
 *
 * Safety: every byte is compared with the end before it is read. No length is added before it is bounded.
 */
#include <stdint.h>

enum {
    TOPIC_AT = 8,       /* behind the transactional id, acks, the timeout and the number of topics */
    TOPIC_ID_BYTES = 16,
    PARTITION_BYTES = 5,
    END_BYTES = 3, /* three empty sections of tagged fields */
    ONE = 2,       /* a compact array says one more than it holds */
    SIZE_BYTES_MAX = 3,
    HEADER_BYTES = 61,
    ATTRIBUTES_AT = 21, /* where in a header what the checksum covers begins */
    LOG_OVERHEAD_BYTES = 12,
};

static uint64_t big_endian(const uint8_t *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | in[i];
    return value;
}

/* Takes over `value`, which may be NULL after a failure. Returns 0, or -1. */
static int put_in(PyObject *tuple, Py_ssize_t index, PyObject *value)
{
    return value == NULL ? -1 : PyTuple_SetItem(tuple, index, value);
}

/* memoryview(buffer)[start:end] */
static PyObject *view_of(PyObject *buffer, Py_ssize_t start, Py_ssize_t end)
{
    PyObject *whole = PyMemoryView_FromObject(buffer);
    PyObject *part = whole == NULL ? NULL : PySequence_GetSlice(whole, start, end);
    Py_XDECREF(whole);
    return part;
}

/* Where the topic and the records of a request are. */
typedef struct {
    int acks;
    int32_t partition;
    Py_ssize_t topic_start, topic_end, records_start, records_end; /* from the beginning of the body */
} OneBatch;

/* Whether the body is of this shape. */
static int read_one_batch(const uint8_t *in, Py_ssize_t size, int has_id, OneBatch *found)
{
    if (size <= TOPIC_AT || in[0] != 0 || in[TOPIC_AT - 1] != ONE)
        return 0;
    found->acks = (int16_t)big_endian(in + 1, 2);
    found->topic_start = TOPIC_AT + !has_id;
    if (has_id) {
        found->topic_end = TOPIC_AT + TOPIC_ID_BYTES;
    } else {
        if (in[TOPIC_AT] < 1 || in[TOPIC_AT] > 127)
            return 0;
        found->topic_end = TOPIC_AT + in[TOPIC_AT];
    }
    Py_ssize_t next = found->topic_end + PARTITION_BYTES;
    if (size < next || in[found->topic_end] != ONE)
        return 0;
    found->partition = (int32_t)big_endian(in + found->topic_end + 1, 4);

    Py_ssize_t length = 0;
    for (int i = 0;; i++) {
        if (i == SIZE_BYTES_MAX || next == size)
            return 0;
        uint8_t byte = in[next++];
        length |= (Py_ssize_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80)
            break;
    }
    found->records_start = next;
    if (length < 1 || size - next != length - 1 + END_BYTES)
        return 0;
    found->records_end = next + length - 1;
    const uint8_t *end = in + found->records_end;
    return !(end[0] | end[1] | end[2]);
}

PyDoc_STRVAR(decode_one_batch_doc,
             "decode_one_batch(buffer, position, end, has_id, /)\n--\n\n"
             "The request in buffer[position:end]: (acks, bytes of the topic's name or id, partition, all before the size of\n"
             "the records, records); None if it is of another shape.");

static PyObject *decode_one_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "decode_one_batch takes buffer, position, end, has_id");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[1]);
    if (position == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t end = PyLong_AsSsize_t(args[2]);
    if (end == -1 && PyErr_Occurred())
        return NULL;
    int has_id = PyObject_IsTrue(args[3]);
    if (has_id < 0)
        return NULL;

    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    OneBatch found;
    const uint8_t *body = (const uint8_t *)view.buf + position;
    if (position < 0 || end < position || end > view.len || !read_one_batch(body, end - position, has_id, &found)) {
        PyBuffer_Release(&view);
        Py_RETURN_NONE;
    }
    Py_ssize_t topic_bytes = found.topic_end - found.topic_start, head_bytes = found.topic_end + PARTITION_BYTES;
    PyObject *result = PyTuple_New(5);
    if (result != NULL &&
        (put_in(result, 0, PyLong_FromLong(found.acks)) < 0 ||
         put_in(result, 1, PyBytes_FromStringAndSize((const char *)body + found.topic_start, topic_bytes)) < 0 ||
         put_in(result, 2, PyLong_FromLong(found.partition)) < 0 ||
         put_in(result, 3, PyBytes_FromStringAndSize((const char *)body, head_bytes)) < 0 ||
         put_in(result, 4, view_of(args[0], position + found.records_start, position + found.records_end)) < 0)) {
        Py_DECREF(result);
        result = NULL;
    }
    PyBuffer_Release(&view);
    return result;
}

PyDoc_STRVAR(ordinary_header_doc,
             "ordinary_header(records, flags, records_max, bytes_max, /)\n--\n\n"
             "The fields of the header of one whole batch without other flags than these, its counts in order and within\n"
             "the limits; None of anything else.");

/* The fields in their order, as they stand in the header. */
static PyObject *header_fields(const uint8_t *in)
{
    const int64_t values[13] = {
        (int64_t)big_endian(in, 8),       (int32_t)big_endian(in + 8, 4),  (int32_t)big_endian(in + 12, 4),
        (int8_t)in[16],                   (int64_t)big_endian(in + 17, 4), (int16_t)big_endian(in + 21, 2),
        (int32_t)big_endian(in + 23, 4),  (int64_t)big_endian(in + 27, 8), (int64_t)big_endian(in + 35, 8),
        (int64_t)big_endian(in + 43, 8),  (int16_t)big_endian(in + 51, 2), (int32_t)big_endian(in + 53, 4),
        (int32_t)big_endian(in + 57, 4),
    };
    PyObject *fields = PyTuple_New(13);
    for (int i = 0; fields != NULL && i < 13; i++)
        if (put_in(fields, i, PyLong_FromLongLong(values[i])) < 0)
            Py_CLEAR(fields);
    return fields;
}

static int is_ordinary(const uint8_t *in, Py_ssize_t size, long flags, long records_max, long bytes_max)
{
    if (size < HEADER_BYTES)
        return 0;
    int32_t length = (int32_t)big_endian(in + 8, 4), count = (int32_t)big_endian(in + 57, 4);
    int64_t producer_id = (int64_t)big_endian(in + 43, 8);
    return length == size - LOG_OVERHEAD_BYTES && in[16] == 2 &&           /* one batch of magic 2, and nothing behind it */
           !((int16_t)big_endian(in + 21, 2) & ~flags) &&                  /* attributes */
           big_endian(in, 8) == 0 &&                                       /* a client counts from 0 */
           count > 0 && (int32_t)big_endian(in + 23, 4) == count - 1 &&    /* the delta of the last offset */
           count <= records_max && length <= bytes_max &&
           ((int32_t)big_endian(in + 53, 4) >= 0 || producer_id == -1);    /* a producer with an id has to number its records */
}

static PyObject *ordinary_header(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "ordinary_header takes records, flags, records_max, bytes_max");
        return NULL;
    }
    long limits[3];
    for (int i = 0; i < 3; i++) {
        limits[i] = PyLong_AsLong(args[i + 1]);
        if (limits[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    if (is_ordinary(view.buf, view.len, limits[0], limits[1], limits[2]))
        result = header_fields(view.buf);
    else
        result = Py_NewRef(Py_None);
    PyBuffer_Release(&view);
    return result;
}

/* --- the records ---------------------------------------------------------------------------------------------------- */

/* Without the instruction the twin is used. */
#ifdef HAS_CRC32C

/* Whether the checksum is right, the records are as many as the header says, and their times are in order. */
static int is_intact(const uint8_t *in, Py_ssize_t size, int64_t earliest, int64_t latest)
{
    const int64_t far = INT64_C(1) << 62;
    int64_t base = (int64_t)big_endian(in + 27, 8), max_timestamp = (int64_t)big_endian(in + 35, 8), min, max;
    int32_t count = (int32_t)big_endian(in + 57, 4);
    int32_t index = 0;
    Cursor area = {in + HEADER_BYTES, in + size};
    Summary summary = {0, 0, -1, 0, 1};
    return crc32c(0, in + ATTRIBUTES_AT, size - ATTRIBUTES_AT) == big_endian(in + 17, 4) && count > 0 &&
           walk(&area, &index, count, &summary) == 0 && index == count && area.next == area.end &&
           !__builtin_add_overflow(base, summary.max_timestamp_delta, &max) && max == max_timestamp &&
           !__builtin_add_overflow(base, summary.min_timestamp_delta, &min) && min >= -1 && min >= earliest &&
           max <= far && max <= latest;
}

PyDoc_STRVAR(is_intact_doc,
             "is_intact(records, earliest, latest, /)\n--\n\n"
             "Whether the header of an uncompressed batch has its checksum, the count of its good records, and the greatest of\n"
             "their timestamps, which are in this range.");

/* A bound beyond 64 bits is one that no timestamp reaches. Returns 0, or -1. */
static int read_bound(PyObject *number, int64_t *bound)
{
    int overflow;
    *bound = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow)
        *bound = overflow > 0 ? INT64_MAX : INT64_MIN;
    return *bound == -1 && !overflow && PyErr_Occurred() ? -1 : 0;
}

static PyObject *native_is_intact(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "is_intact takes records, earliest, latest");
        return NULL;
    }
    int64_t earliest, latest;
    if (read_bound(args[1], &earliest) < 0 || read_bound(args[2], &latest) < 0)
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int result = view.len >= HEADER_BYTES && is_intact(view.buf, view.len, earliest, latest);
    PyBuffer_Release(&view);
    return PyBool_FromLong(result);
}

/* Adds what this processor has the instruction for. Returns 0, or -1. */
static int add_checks(PyObject *module)
{
    static PyMethodDef checks[] = {
        {"crc32c", (PyCFunction)(void (*)(void))crc32c_of, METH_FASTCALL, crc32c_doc},
        {"is_intact", (PyCFunction)(void (*)(void))native_is_intact, METH_FASTCALL, is_intact_doc},
        {NULL, NULL, 0, NULL},
    };
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2"))
        return 0;
    make_stretch(over_long, LONG_STRETCH);
    make_stretch(over_short, SHORT_STRETCH);
    return PyModule_AddFunctions(module, checks);
}
#else
static int add_checks(PyObject *Py_UNUSED(module))
{
    return 0;
}
#endif
