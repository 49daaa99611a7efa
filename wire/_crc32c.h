/*
 * CRC-32C (Castagnoli) by the processor's own instruction, where it has one. Elsewhere `checksum.py` takes a package.
 *
 * The instruction takes eight bytes in each cycle and has its sum three cycles later, so three stretches are summed at the same
 * time. The sum of what stands one after the other is then put together: a sum goes over a stretch of zeros (`after_zeros`, a
 * linear map of 32 bits, kept as four tables), and what follows is added to it.
 */
#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_CRC32C

#define LONG_STRETCH 8192
#define SHORT_STRETCH 256
/* A thread that sums more than this lets go of the interpreter lock; less takes a tenth of a millisecond. */
#define UNLOCK_CRC_BYTES (4 * 1024 * 1024)

static uint32_t over_long[4][256], over_short[4][256];

__attribute__((target("sse4.2"))) static uint32_t after_zeros(uint32_t sum, Py_ssize_t size)
{
    uint64_t wide = sum;
    for (; size >= 8; size -= 8)
        wide = __builtin_ia32_crc32di(wide, 0);
    return (uint32_t)wide;
}

static void make_stretch(uint32_t over[4][256], Py_ssize_t size)
{
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 1; value < 256; value++) {
            uint32_t lowest = value & -value;
            over[byte][value] = value == lowest ? after_zeros(value << (8 * byte), size)
                                                : over[byte][value ^ lowest] ^ over[byte][lowest];
        }
}

static uint32_t over_stretch(uint32_t over[4][256], uint32_t sum)
{
    return over[0][sum & 0xff] ^ over[1][sum >> 8 & 0xff] ^ over[2][sum >> 16 & 0xff] ^ over[3][sum >> 24];
}

__attribute__((target("sse4.2"))) static uint64_t three_at_once(const uint8_t *in, Py_ssize_t stretch, uint32_t over[4][256],
                                                                uint64_t first)
{
    uint64_t second = 0, third = 0, words[3];
    for (Py_ssize_t at = 0; at < stretch; at += 8) {
        memcpy(&words[0], in + at, 8);
        memcpy(&words[1], in + stretch + at, 8);
        memcpy(&words[2], in + 2 * stretch + at, 8);
        first = __builtin_ia32_crc32di(first, words[0]);
        second = __builtin_ia32_crc32di(second, words[1]);
        third = __builtin_ia32_crc32di(third, words[2]);
    }
    uint32_t sum = over_stretch(over, (uint32_t)first) ^ (uint32_t)second;
    return over_stretch(over, sum) ^ (uint32_t)third;
}

/* The checksum of what `value` is the checksum of, with these bytes behind it. */
__attribute__((target("sse4.2"))) static uint32_t crc32c(uint32_t value, const uint8_t *in, Py_ssize_t size)
{
    uint64_t sum = value ^ 0xffffffff;
    for (; size >= 3 * LONG_STRETCH; size -= 3 * LONG_STRETCH, in += 3 * LONG_STRETCH)
        sum = three_at_once(in, LONG_STRETCH, over_long, sum);
    for (; size >= 3 * SHORT_STRETCH; size -= 3 * SHORT_STRETCH, in += 3 * SHORT_STRETCH)
        sum = three_at_once(in, SHORT_STRETCH, over_short, sum);
    for (; size >= 8; size -= 8, in += 8) {
        uint64_t word;
        memcpy(&word, in, 8);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    for (; size > 0; size--)
        sum = __builtin_ia32_crc32qi((uint32_t)sum, *in++);
    return (uint32_t)sum ^ 0xffffffff;
}

PyDoc_STRVAR(crc32c_doc,
             "crc32c(data, value=0, /)\n--\n\n"
             "The checksum of any buffer, continued from `value`.");

static PyObject *crc32c_of(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 1 && count != 2) {
        PyErr_SetString(PyExc_TypeError, "crc32c takes a buffer, and maybe a checksum");
        return NULL;
    }
    unsigned long value = count == 1 ? 0 : PyLong_AsUnsignedLongMask(args[1]);
    if (value == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    Py_buffer data;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t sum;
    if (data.len < UNLOCK_CRC_BYTES)
        sum = crc32c((uint32_t)value, data.buf, data.len);
    else {
        Py_BEGIN_ALLOW_THREADS
        sum = crc32c((uint32_t)value, data.buf, data.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(sum);
}
#endif
